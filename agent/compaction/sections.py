"""Split a summary's Markdown into sections, after removal of the text that models put around it.

A known title opens its section. Any other heading opens a section of its own, so that its text
never joins the section before it. Headings are hash titles of any level, underlined titles, HTML
titles and lines that are bold as a whole.

A code block with a heading is also a separate section. Markup in code blocks is not parsed. A fence
without an end does not start a block. The removed text is tags, code fences, reasoning and closing
remarks.

An answer in JSON is turned into Markdown first, so both forms have one parser. Keys are titles.
Keys with other names become sections of their own, like other titles.
"""

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from ..lazy import dataclass, regex

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
    # A closing remark is a last paragraph after a list.
    start = max((place + 1 for place, line in enumerate(lines) if not line.strip()), default=0)
    before = next(filter(str.strip, reversed(lines[:start])), "")
    is_talk = _OF_LIST.match(before) and _TALK.fullmatch("\n".join(lines[start:]))
    return lines[:start] if is_talk else lines


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


_FENCED = regex(r"\s*```(?:json)?[ \t]*\n(.*)\n?[ \t]*```\s*", re.DOTALL | re.I)
_STATE = "current_state"
_LABELS = ("phase", "done", "in_progress", "blocked")  # may stand outside of the state
_QUOTED = ("quote", "quotation")
_NAMES = ("path", "file", "name")


def as_markdown(text: str) -> str:
    """Return the Markdown of an answer that is a JSON object. Return any other text unchanged."""
    fenced = _FENCED.fullmatch(text)
    inner = (fenced[1] if fenced else text).strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        return text
    try:
        record = json.loads(inner, strict=False)
    except (ValueError, RecursionError):
        return text
    state = {key: record.pop(key) for key in _LABELS if key in record}
    if state:
        given = record.get(_STATE)
        record[_STATE] = {**(given if isinstance(given, dict) else {"in_progress": given}), **state}
    return "\n\n".join(
        "\n".join([f"## {_title(key)}", *_lines(value)]) for key, value in record.items()
    )


def _title(key: str) -> str:
    return " ".join(key.replace("_", " ").split())


def _lines(value: Any) -> Iterator[str]:
    """Yield the lines of a section. An empty value means that there is nothing."""
    if value in (None, "", [], {}):
        yield "None."
    elif isinstance(value, dict):
        for key, part in value.items():
            is_list = isinstance(part, list)
            yield f"- {_title(key)}:{'' if is_list else f' {_item(part)}'}"
            yield from (f"  - {_item(each)}" for each in (part if is_list else ()))
    elif isinstance(value, list):
        yield from (f"- {_item(each)}" for each in value)
    else:
        yield _item(value)


def _item(value: Any) -> str:
    """Return an item in one line: a text, or the row of a rule, a fact or a file."""
    if not isinstance(value, Mapping):
        return " ".join(str("" if value is None else value).split())
    row = {str(key).lower(): _item(part) for key, part in value.items()}
    ref = row.pop("ref", "").removeprefix("#")
    ref = f"#{ref}" if ref.strip("0") else ""
    quoted = next((f'"{row.pop(key)}"' for key in _QUOTED if row.get(key)), "")
    path = next((f"`{row.pop(key)}`" for key in _NAMES if key in row), "")
    rest = " ".join(filter(None, row.values()))
    if path:
        return " — ".join(filter(None, (path, rest)))
    if ref and not quoted:  # a rule
        return f'{ref}: "{rest}"'
    return " — ".join(filter(None, (rest, f"{ref} {quoted}".strip())))


TITLES = {
    "intent": "Session Intent",
    "rules": "User Rules",
    "modified": "Files Modified",
    "read": "Files Read",
    "decisions": "Key Decisions",
    "state": "Current State",
    "facts": "Critical Facts",
    "errors": "Error Context",
    "next_steps": "Next Steps",
    "recovery": "Recovery References",
    "other": "Other Notes of the Model",
}
STATE_LABELS = {
    "phase": "Phase",
    "done": "Done",
    "in_progress": "In progress",
    "blocked": "Blocked",
}
UNKNOWN = ""  # name of a section with another title
PLAIN_TEXT = ("", "markdown", "md", "text", "txt")  # of a code fence: no programming language
BOLD_LEVEL = 7  # of a bold title: below all hash titles
MAX_UNDERLINED_CHARS = 120  # of an underlined title

_SYNONYMS = {
    **{title.lower(): name for name, title in TITLES.items()},
    "intent": "intent", "goal": "intent", "objective": "intent", "task": "intent",
    "primary request and intent": "intent",
    "artifacts created": "modified", "artifacts": "modified", "modified files": "modified",
    "files changed": "modified", "files created": "modified", "files and code sections": "modified",
    "files read not modified": "read",
    "decisions made": "decisions", "decisions": "decisions",
    "current progress": "state", "progress": "state", "state": "state", "status": "state",
    "current status": "state", "current work": "state",
    "facts": "facts", "constraints": "facts",
    "rules": "rules", "rules of the user": "rules",
    "errors": "errors", "open errors": "errors", "errors and fixes": "errors",
    "next step": "next_steps", "next": "next_steps", "pending tasks": "next_steps",
    "next actions": "next_steps", "optional next step": "next_steps",
    "recovery": "recovery",
    "pinned": "pinned",  # not parsed: pins are added to each summary again
    "user messages": "messages",  # not parsed: neither are the user's messages
    "no longer true": "superseded",  # entries to remove; not part of a document
}  # fmt: skip
LABELS = {
    **{label.lower(): name for name, label in STATE_LABELS.items()},
    "completed": "done", "complete": "done",
    "remaining": "in_progress",
    "blockers": "blocked",
}  # fmt: skip
LABEL = regex(
    rf"(?:[-*+] +|#{{1,6}} +)?[*_]*({'|'.join(map(re.escape, LABELS))})[*_]*(?::[*_]* *(.*)|)",
    re.IGNORECASE,
)

_HASHED = regex(r"(?P<indent>\s*)(?P<marks>#+)(?P<gap>[ \t]*)(?P<text>.*)")
_HTML = regex(r"<h([1-6])\b[^>]*>(?P<text>.*)</h\1>\s*", re.IGNORECASE)
_BOLD = regex(r"(\*\*|__)(?P<title>(?:(?!\1).)+)\1(?P<rest>.*)")
_UNDERLINE = regex(r"(={2,}|-{2,})\s*")
_TITLE_AND_REST = regex(r"(?P<title>[^:：]+)(?:[:：](?P<rest>.*))?")
_TITLE = regex(r"[^\W\d](?:.*\w)?")  # without punctuation and numbers around it
_LIST_OR_TABLE = regex(r"\s|[-*+] |\d{1,9}[.)] |\||>|#\d")
_RULE = regex(r"-{3,}|\*{3,}|_{3,}|={3,}")
_MESSAGE_START = regex(r"\s*<(?P<tag>message(?:-\d+)?) #\d+\b[^>]*>\s*")


@dataclass(frozen=True, slots=True)
class TitledSection:
    """The lines below a heading."""

    name: str  # a key of TITLES, or UNKNOWN
    title: str
    level: int
    lines: list[str] = field(default_factory=list)

    @property
    def is_filled(self) -> bool:
        return any(map(str.strip, self.lines))


def sections(text: str) -> list[TitledSection]:
    """Return the sections of a text. Text before the first heading is left out."""
    lines = unwrapped_lines(
        as_markdown(text), lambda line: (found := _heading(line)) is not None and _is_known(found)
    )
    current = TitledSection(UNKNOWN, "", 0)
    found: list[TitledSection] = []
    code = code_lines(lines)
    quoted = _message_lines(lines, code)
    place = 0
    while place < len(lines):
        line = lines[place]
        if code.get(place) is False:
            block = _block(lines, code, place)
            place += len(block)
            if _has_heading(block):
                found.append(TitledSection(UNKNOWN, "", BOLD_LEVEL, block))
            else:
                current.lines.extend(block)
            continue
        opened = None if place in quoted else _opened(lines, place, current)
        place += 1
        if opened is not None:
            current = opened
            found.append(current)
            place += _is_underlined(lines, place - 1)
        elif not _RULE.fullmatch(line):
            current.lines.append(line)
    return found[_is_wrapper(found) :]


def _is_wrapper(found: Sequence[TitledSection]) -> bool:
    """Return True if the first section is the title of the whole document."""
    first, after = [*found[:2], None, None][:2]
    return bool(first and after and not _is_known(first) and first.level < after.level)


def opens_section(line: str) -> bool:
    """Return True if a line changes how the lines after it are read: a heading, an underline, a
    rule, or the beginning of a copied message.
    """
    marks = (_RULE, _UNDERLINE, _MESSAGE_START)
    return _heading(line) is not None or any(mark.fullmatch(line) for mark in marks)


def _opened(lines: Sequence[str], place: int, current: TitledSection) -> TitledSection | None:
    """Return the section that a line opens, else None."""
    line = lines[place]
    if current.name == "state" and LABEL.fullmatch(line):
        return None
    if found := _heading(line):
        return found
    if not _is_underlined(lines, place):
        return None
    return _named(line, 1 if lines[place + 1][0] == "=" else 2)


def _is_known(section: TitledSection) -> bool:
    return section.name != UNKNOWN


def _heading(line: str) -> TitledSection | None:
    """Return the section that a line opens by itself, else None."""
    if found := _HASHED.fullmatch(line):
        level, gap, text = len(found["marks"]), found["gap"], found["text"]
        if text and (gap or (level > 1 and not found["indent"])):
            return _named(text, level)
        return None
    if found := _HTML.fullmatch(line):
        return _named(found["text"], int(found[1]))
    if found := _BOLD.fullmatch(line):
        rest = found["rest"].strip()
        named = _named(f"{found['title'].rstrip(':：')}:{rest.lstrip(':：')}", BOLD_LEVEL)
        return named if named.name != UNKNOWN or not rest.strip(":： ") else None
    return None


def _named(text: str, level: int) -> TitledSection:
    """Return the section of a heading. Text after a known title is its first line."""
    found = _TITLE_AND_REST.fullmatch(text)
    if found:
        title = re.sub(r"\(if any\)|[*_()]", "", found["title"].lower())
        plain = _TITLE.search(title)
        if plain and (name := _SYNONYMS.get(plain[0])):
            rest = (found["rest"] or "").strip(" *")
            return TitledSection(name, TITLES.get(name, ""), level, [rest] if rest else [])
    return TitledSection(UNKNOWN, text.strip("#*_:： \t"), level)


def _is_underlined(lines: Sequence[str], place: int) -> bool:
    """Return True if the line at `place` is an underlined title: a line after a blank line that
    is neither a list item nor a table row. A row of hyphens before a heading only separates.
    """
    line = lines[place]
    if place + 1 >= len(lines) or not _UNDERLINE.fullmatch(lines[place + 1]):
        return False
    if not line.strip() or len(line) > MAX_UNDERLINED_CHARS or _LIST_OR_TABLE.match(line):
        return False
    if _UNDERLINE.fullmatch(line) or _heading(line) is not None:
        return False
    if lines[place + 1].startswith("=") or _is_known(_named(line, 2)):
        return True
    after = next(filter(str.strip, lines[place + 2 :]), "")
    follows_blank = place == 0 or not lines[place - 1].strip()
    return follows_blank and bool(after) and _heading(after) is None


def _block(lines: Sequence[str], code: dict[int, bool], start: int) -> list[str]:
    """Return the code block whose fence is at `start`."""
    end = start + 1
    while code.get(end):
        end += 1
    return list(lines[start:end])


def _has_heading(block: Sequence[str]) -> bool:
    """Return True if a code block outside of a list contains a heading. In a programming language,
    a line with one hash is a comment.
    """
    inside, info = block[1:-1], block[0].strip("`~ \t").lower()
    has_comments = info not in PLAIN_TEXT
    return not _LIST_OR_TABLE.match(block[0]) and any(
        _heading(line) is not None or _is_underlined(inside, place)
        for place, line in enumerate(inside)
        if not (has_comments and line.lstrip().startswith("# "))
    )


def _message_lines(lines: Sequence[str], code: Container[int]) -> set[int]:
    """Return the places of the lines in copied messages of the user, which may have headings."""
    return {place for start, end in _messages(lines, code) for place in range(start, end + 1)}


def _messages(lines: Sequence[str], code: Container[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each copied message. None begins in a code block."""
    last = {line.strip(): place for place, line in enumerate(lines) if "</message" in line}
    end = -1
    for place, line in enumerate(lines):
        is_mark = place > end and place not in code and "<message" in line
        found = _MESSAGE_START.fullmatch(line) if is_mark else None
        close = f"</{found['tag']}>" if found else ""
        if last.get(close, -1) > place:
            end = next(n for n in range(place + 1, len(lines)) if lines[n].strip() == close)
            yield place, end
