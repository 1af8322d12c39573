"""Text of a session, made safe to show on a page."""

from ...tools.system.plural import count_of
from ...tools.system.unicode import clean_for_page
from ..lazy import regex

MAX_TEXT_CHARS = 256 * 1024  # of one text on a page


_ESCAPE_SEQUENCE = regex(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
)


def clean(text: str) -> str:
    """Remove terminal escape sequences. Replace control characters, bidirectional marks and lone
    surrogates. A carriage return starts a new line.
    """
    if text.isascii() and text.isprintable():  # fast path for most short texts
        return text
    return clean_for_page(_ESCAPE_SEQUENCE.sub("", text))


def cut_middle(text: str, where: str) -> str:
    """Cut the middle of a text longer than MAX_TEXT_CHARS; `where` says where the whole text is."""
    return text if len(text) <= MAX_TEXT_CHARS else join_ends(text, text, len(text), where)


def join_ends(begin: str, end: str, total: int, where: str) -> str:
    """Return the two ends of a text of `total` characters, taken from the parts given."""
    head, tail = begin[: MAX_TEXT_CHARS * 3 // 4], end[-MAX_TEXT_CHARS // 4 :]
    missing = total - len(head) - len(tail)
    return f"{head}\n\n[… {missing:,} characters are left out; {where} …]\n\n{tail}"


def line_count(text: str) -> str:
    return count_of(text.count("\n") + (not text.endswith("\n")), "line")
