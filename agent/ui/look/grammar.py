"""The marks of Markdown that say where a leaf begins and ends, and where a long one can be cut.
What stands within a line is left to the parser of a library (markdown.py)."""

import re

LONG = 2_000  # characters of a paragraph from which on its beginning goes out

FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})\s*([^\s`{,:]*)")
HEADING = re.compile(r"#{1,6}(?=\s|$)")
CLOSING = re.compile(r"(^|\s+)#+\s*$")
BULLET = re.compile(r"([-*+])(\s+|$)")
NUMBER = re.compile(r"(\d{1,9})[.)](\s+|$)")
TASK = re.compile(r"\[([ xX])\]\s+")
RULE = re.compile(r"(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$")
UNDERLINE = re.compile(r"(={3,}|-{3,})\s*$")
COLUMNS = re.compile(r"\|?\s*+:?-+:?\s*+(\|\s*+:?-+:?\s*+)*\|?\s*+$")
VERBATIM = re.compile(r"\$\$|\\\[|<(?:/?[a-zA-Z][\w-]*(?=[\s/>]|$)|!--)")
SENTENCE = re.compile(r"[.!?:;]\s|[。！？]|\n")
MARKS = re.compile(r"[-+*=#`~|>\s]*(?:\d{1,9}[.)]?\s*)?$")  # of which it is open what they will be
COMMENTS = {"/*": "*/", "<!--": "-->", "{-": "-}", "(*": "*)"}


def begins(line: str) -> bool:
    """Whether a line begins something other than a paragraph."""
    bare = line.strip()
    starts = (FENCE, HEADING, RULE, BULLET, NUMBER)
    return bare.startswith(">") or any(start.match(bare) for start in starts)


def item(line: str) -> re.Match[str] | None:
    """The marker of an item that the line begins with: what it is, and the blanks after it."""
    return None if RULE.match(line) else BULLET.match(line) or NUMBER.match(line)


def is_table(head: str, columns: str) -> bool:
    if "|" not in head + columns or not COLUMNS.match(columns):
        return False
    return len(cells(head)) == len(cells(columns))


def cells(row: str) -> list[str]:
    """The cells of a row of a table, with `\\|` as what it stands for."""
    bare = row.strip().removeprefix("|")
    if bare.endswith("|") and not bare.endswith("\\|"):
        bare = bare[:-1]
    parts = re.split(r"(?<!\\)\|", bare)
    return [part.strip().replace("\\|", "|") for part in parts]


def comment(open: str, line: str) -> str:
    """What closes the comment that is open after this line; "" when none is."""
    if not open:
        begun = next((mark for mark in COMMENTS if line.startswith(mark)), "")
        open, line = COMMENTS.get(begun, ""), line[len(begun) :]
    return "" if open and open in line else open


def end_of_thought(text: str) -> int:
    """Where a long paragraph is best cut: after a sentence, outside of what marks open."""
    half = len(text) // 2
    ends = [found.end() for found in SENTENCE.finditer(text, half)]
    for end in reversed(ends):
        if _is_balanced(text[:end]):
            return end
    blank = text.rfind(" ", half)
    return blank + 1 if blank > 0 else len(text)


def _is_balanced(text: str) -> bool:
    even = all(text.count(mark) % 2 == 0 for mark in ("`", "**", "__"))
    return even and all(text.count(left) == text.count(right) for left, right in ("[]", "()"))
