"""What the layers of compaction do, in the words that people see: the log and the settings call a
layer by its own name."""

from ...tools.system.plural import count_of

WITH_SUMMARY = "with the summary"  # the trigger of masks that an automatic summary brings along
LAYER_NAMES = {
    "demote": "moved to files",
    "microcompact": "cleared",
    "truncate": "cut short",
    "outline": "outlined",
    "summary": "summary",
}
_DONE = {  # what a layer acts on, in the singular and the plural, and what becomes of it
    "demote": ("result", "results", "moved to a file", "moved to files"),
    "microcompact": ("old result", "old results", "cleared", "cleared"),
    "truncate": ("old input", "old inputs", "cut short", "cut short"),
    "outline": ("old call", "old calls", "outlined", "outlined"),
}


def done_by(layer: str, count: int) -> str:
    """Return what one act of a layer did: "3 old results cleared"."""
    if layer not in _DONE:  # of an extension, or of a later version
        return f"{count_of(count, 'result')} cleared by {layer}"
    noun, nouns, one, several = _DONE[layer]
    return f"{count_of(count, noun, nouns)} {one if count == 1 else several}"
