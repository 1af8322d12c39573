"""Display texts for the compaction layers. The log and the settings use other names for them."""

from ...tools.system.plural import count_of

WITH_SUMMARY = "with the summary"  # trigger of masks made together with an automatic summary
LAYER_NAMES = {
    "demote": "moved to files",
    "microcompact": "cleared",
    "truncate": "cut short",
    "outline": "outlined",
    "summary": "summary",
}
_DONE = {  # per layer: object in the singular and plural, action in the singular and plural
    "demote": ("result", "results", "moved to a file", "moved to files"),
    "microcompact": ("old result", "old results", "cleared", "cleared"),
    "truncate": ("old input", "old inputs", "cut short", "cut short"),
    "outline": ("old call", "old calls", "outlined", "outlined"),
}


def done_by(layer: str, count: int) -> str:
    """Return the effect of one pass of a layer, e.g. "3 old results cleared"."""
    if layer not in _DONE:  # a layer of an extension or of a later version
        return f"{count_of(count, 'result')} cleared by {layer}"
    noun, nouns, one, several = _DONE[layer]
    return f"{count_of(count, noun, nouns)} {one if count == 1 else several}"
