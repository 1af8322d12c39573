"""Remove the text that models put around a document: tags, code fences, reasoning and closing
remarks.

`unwrapped_lines` removes it. `code_lines` finds the code blocks, where markup is not parsed. A
fence without an end does not start a block.
"""

import re
from collections.abc import Callable, Sequence

from ..lazy import regex

_FENCE = regex(r"\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)*(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)")
_THOUGHTS = regex(
    r"<(analysis|thinking|think|thought|scratchpad|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE
)
_OPENING_TAG = regex(r"^[ \t]*<([a-z][\w-]*)>", re.MULTILINE | re.IGNORECASE)
_CLOSING_TAG = regex(r"</[a-z][\w-]*>", re.IGNORECASE)
_OF_LIST = regex(r"\s*(?:[-*+]|\d{1,9}[.)])\s|\s|\||-{3,}$")
_TALK = regex(
    r"(?:I(?:['’]ll| will|['’]m| am)|Let (?:me|us)|Let['’]s|Shall I|Would you|Do you want"
    r"|Please let|Ready|(?:This|That|The) (?:summary|record|document)|End of)\b.*",
    re.IGNORECASE | re.DOTALL,
)

IsHeading = Callable[[str], bool]


def code_lines(lines: Sequence[str]) -> dict[int, bool]:
    """Return the indexes of lines in code blocks: False for the opening fence, else True."""
    found: dict[int, bool] = {}
    place = 0
    while place < len(lines):
        end = _block_end(lines, place)
        if end is not None:
            found[place] = False
            found.update(dict.fromkeys(range(place + 1, end + 1), True))
            place = end
        place += 1
    return found


def fence_mark(line: str) -> str:
    """Return the fence mark of a line, "" for other lines."""
    found = _FENCE.fullmatch(line) if "```" in line or "~~~" in line else None
    return found["mark"] if found else ""


def unwrapped_lines(text: str, is_heading: IsHeading) -> list[str]:
    """Return the lines of the document in a model's answer. `is_heading` is True for a section
    title; the document begins with the first title.
    """
    text = text.replace("\r\n", "\n")
    if not is_heading(text.lstrip().partition("\n")[0]):
        text = _without_tags(_THOUGHTS.sub("", text), is_heading)
    lines = _without_fence(text.split("\n"), is_heading)
    while lines and (not lines[-1].strip() or _CLOSING_TAG.fullmatch(lines[-1])):
        del lines[-1]
    return _without_closing_remark(lines)


def _block_end(lines: Sequence[str], start: int) -> int | None:
    """Return the index of the fence that closes the block opened at `start`, else None."""
    mark = fence_mark(lines[start])
    if not mark:
        return None
    ends = (
        n
        for n in range(start + 1, len(lines))
        if lines[n].strip().startswith(mark) and not lines[n].strip().strip(mark[0])
    )
    return next(ends, None)


def _without_tags(text: str, is_heading: IsHeading) -> str:
    """Return the text inside the last tag that is directly before a heading."""

    def opens(tag: re.Match[str]) -> bool:
        line = text[tag.end() :].lstrip().partition("\n")[0]
        return is_heading(line) or bool(fence_mark(line))

    tag = next(filter(opens, reversed(list(_OPENING_TAG.finditer(text)))), None)
    if tag is None:
        return text
    inside, end, _ = text[tag.end() :].rpartition(f"</{tag[1]}>")
    return (inside if end else text[tag.end() :]).lstrip()


def _without_fence(lines: list[str], is_heading: IsHeading) -> list[str]:
    """Return the lines inside a fence that is opened before the first heading."""
    first = next((place for place, line in enumerate(lines) if is_heading(line)), 0)
    opening = 0
    while opening < first:
        end = _block_end(lines, opening)
        if fence_mark(lines[opening]) and (end is None or end > first):
            break
        opening = (end or opening) + 1
    else:
        return lines
    last = max(n for n, line in enumerate(lines) if is_heading(line))
    mark, inner = fence_mark(lines[opening]), False
    for place in range(opening + 1, len(lines)):
        if not fence_mark(lines[place]):
            continue
        is_bare = lines[place].strip() == mark
        if is_bare and not inner and place > last:
            return lines[opening + 1 : place]
        inner = not inner
    return lines[opening + 1 :]


def _without_closing_remark(lines: list[str]) -> list[str]:
    """Return the lines without a closing remark: a last paragraph after a list."""
    blanks = [place for place, line in enumerate(lines) if not line.strip()]
    start = blanks[-1] + 1 if blanks else 0
    before = next(filter(str.strip, reversed(lines[:start])), "")
    is_talk = _OF_LIST.match(before) and _TALK.fullmatch("\n".join(lines[start:]))
    return lines[:start] if is_talk else lines
