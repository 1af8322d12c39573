"""Standing instructions: what the user wants every summary of the project to keep.

They are the texts of `compact.instructions` and the sections "Compact Instructions" of the
instruction files in the context. Each request for a summary has them.

What they quote is checked without a model. A quoted text with a colon at its end is a mark: the
summary must have the newest lines that begin with it. Any other quoted text must be in the summary
if it was in the part that the summary replaces. A sentence with a word such as "not" is not
checked, because it may ask to leave the text out.
"""

import re
from collections.abc import Iterator, Sequence

from ...context.items import Item
from ...context.view import View
from ...lazy import dataclass, regex
from ...session.entries import ATTACHMENT
from ..sections import code_lines
from .user_messages import quotations

SOURCE = "instructions"  # source of the entries with instruction files, and key of their details
SECTION = "compact"  # key in these details: the section of a text that was cut
MAX_STANDING_CHARS = 4_000  # of all standing instructions in a request
MAX_LINES = 8  # that a mark keeps

_HEADING = regex(r"(?P<marks>#{1,6})[ \t]+(?P<title>.*?)[ \t:#]*")
_TITLE = regex(r"compact(?:ion)? instructions", re.IGNORECASE)
_SENTENCE_END = regex(r"(?<=[.!?;])\s+|\n+")
_NEGATED = regex(
    r"\b(?:not|never|no|none|without|except|omit|drop|skip|ignore|leave|discard|remove)\b|n['’]t\b",
    re.IGNORECASE,
)
_LIST_MARK = regex(r"(?:[-*+>#]+|\d{1,3}[.)])\s+")


@dataclass(frozen=True, slots=True)
class QuotedLine:
    """A line of the session with a text that a standing instruction quotes."""

    quoted: str
    line: str
    ref: int  # of the entry with the line; 0 for a line of the previous summary

    @property
    def is_mark(self) -> bool:
        """True if the whole line must be kept."""
        return self.quoted.endswith(":")


def section_of(text: str) -> str:
    """Return the sections "Compact Instructions" of a Markdown text, without their headings."""
    lines, found, level = text.splitlines(), list[str](), 0
    code = code_lines(lines)
    for place, line in enumerate(lines):
        heading = None if place in code else _HEADING.fullmatch(line)
        if heading and _TITLE.fullmatch(heading["title"]):
            level = len(heading["marks"])
        elif heading and len(heading["marks"]) <= level:
            level = 0
        elif level:
            found.append(line)
    return "\n".join(found).strip()


def standing_text(view: View, own: Sequence[str]) -> str:
    """Return the instructions of the settings (`own`) and of the files in the context, "" if there
    are none.
    """
    sections = dict[str, str]()
    for item in view.items:
        if item.source == SOURCE:
            details = view.facts(item)[0].get(SOURCE)
            details = details if isinstance(details, dict) else {}
            text = "\n".join(str(block.get("text", "")) for block in item.blocks)
            cut = details.get(SECTION)
            sections[str(details.get("path", item.seq))] = cut or section_of(text)
    texts = filter(None, dict.fromkeys([*own, *sections.values()]))
    return "\n".join(texts)[:MAX_STANDING_CHARS]


def quoted_lines(
    standing: str, evicted: Sequence[Item], previous: Sequence[str]
) -> Iterator[QuotedLine]:
    """Yield what a summary of the items `evicted` must have, because the instructions quote it.
    `previous` has the facts of the previous summary that still hold.
    """
    asked = _quoted_texts(standing)
    if not asked:
        return
    lines = [*_lines(evicted), *((0, line) for line in reversed(previous))]
    for quoted in asked:
        is_mark, count = quoted.endswith(":"), dict[str, None]()
        for ref, line in lines:
            is_found = line.startswith(quoted) if is_mark else quoted in line
            if is_found and line not in count and line not in standing:
                count[line] = None
                yield QuotedLine(quoted, line, ref)
                if len(count) >= (MAX_LINES if is_mark else 1):
                    break


def _quoted_texts(standing: str) -> list[str]:
    """Return the texts that the instructions quote and do not ask to leave out."""
    sentences = (each for each in _SENTENCE_END.split(standing) if not _NEGATED.search(each))
    return list(dict.fromkeys(quoted.strip() for each in sentences for quoted in quotations(each)))


def _lines(items: Sequence[Item]) -> Iterator[tuple[int, str]]:
    """Yield (seq, line) for the lines of messages, replies and results, the newest first. The mark
    of a list item is left out.
    """
    for item in reversed(items):
        if item.source not in ("", "person", "shell", ATTACHMENT):
            continue
        for text in map(_text, reversed(item.blocks)):
            for line in reversed(text.splitlines()):
                if line := line.strip():
                    mark = _LIST_MARK.match(line)
                    yield item.seq, line[mark.end() :] if mark else line


def _text(block: dict[str, object]) -> str:
    content = block.get("content", block.get("text", ""))
    if isinstance(content, list):
        return "\n".join(str(each.get("text", "")) for each in content)
    return content if isinstance(content, str) else ""
