"""Display texts for the compaction layers. The log and the settings use other names for them."""

from ...tools.system.plural import count_of

WITH_SUMMARY = "with the summary"  # trigger of masks made together with an automatic summary
THINKING_LAYER = "thinking"  # removes the thinking of replies after a refusal
LAYER_NAMES = {
    "demote": "moved to files",
    "microcompact": "cleared",
    "truncate": "cut short",
    "outline": "outlined",
    "summary": "summary",
    THINKING_LAYER: "without thinking",
}
_DONE = {  # per layer: object in the singular and plural, action in the singular and plural
    "demote": ("result", "results", "moved to a file", "moved to files"),
    "microcompact": ("old result", "old results", "cleared", "cleared"),
    "truncate": ("old input", "old inputs", "cut short", "cut short"),
    "outline": ("old call", "old calls", "outlined", "outlined"),
    THINKING_LAYER: ("reply", "replies", "now without thinking", "now without thinking"),
}


def done_by(layer: str, count: int) -> str:
    """Return the effect of one pass of a layer, e.g. "3 old results cleared"."""
    if layer not in _DONE:  # a layer of an extension or of a later version
        return f"{count_of(count, 'result')} cleared by {layer}"
    noun, nouns, one, several = _DONE[layer]
    return f"{count_of(count, noun, nouns)} {one if count == 1 else several}"
