"""Line numbers of files that were read: leave them out of the context.

Line numbers are a fifth of the tokens of a read file, and no edit needs them. The log keeps the
text as it was read. Only the view leaves the numbers out.
"""

from typing import Any

from ..lazy import regex

UNNUMBERED = "unnumbered"  # detail of a result: the view shows it without line numbers
MIN_LINES = 3  # consecutive numbers; fewer may be a part of the text
MAX_HEADING_LINES = 8  # lines before the first number
_NUMBERED = regex(r" *(\d+)(→|\t|: )")


def without_line_numbers(text: str) -> str | None:
    """Return a text without its line numbers; None if it has none.

    The numbers are those of consecutive lines, in one form. Lines before and after them stay. If
    the first number is not 1, a line in brackets says it.
    """
    lines = text.split("\n")
    opening = map(_NUMBERED.match, lines[:MAX_HEADING_LINES])
    start, found = next(((n, m) for n, m in enumerate(opening) if m), (0, None))
    if found is None:
        return None
    first, mark = int(found[1]), found[2]
    # A table or a list in the file itself may begin with numbers too. Readers put a tab only in
    # texts without a heading, and a colon only after their own tag.
    is_tagged = start > 0 and lines[start - 1].startswith("<")
    if (mark == "\t" and start) or (mark == ": " and not is_tagged):
        return None
    plain: list[str] = []
    for number, line in enumerate(lines[start:], first):
        before, _, rest = f"{line} ".partition(mark)
        if before.strip(" ") != str(number):
            break
        plain.append(rest[:-1])
    after = lines[start + len(plain) :]
    goes_on = bool(after) and after[0].lstrip(" ").startswith(str(first + len(plain)))
    if len(plain) < MIN_LINES or goes_on:  # a line in another form: the form is not certain
        return None
    told = [f"[from line {first}]"] if first != 1 else []
    return "\n".join([*lines[:start], *told, *plain, *after])


def unnumbered(tool: str, text: str) -> dict[str, Any]:
    """Return the details of a result that the view shows without line numbers, else an empty dict.
    Only files read by the tool Read have line numbers that nobody asked for.
    """
    plain = without_line_numbers(text) if tool == "Read" else None
    return {} if plain is None else {UNNUMBERED: True}
