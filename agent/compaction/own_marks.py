"""Neutralise the program's own marks in a model's text, before the text enters a record.

A model may copy the tags of user messages, one-line replacements with refs, or titles of the
program. In a record, only the program may write them. The words stay, in parentheses.
"""

import re
from dataclasses import replace
from typing import Any

from ..lazy import regex
from .document import SummaryDocument
from .drift.monitor import GOAL_CHECK
from .layers import outline, short_outline
from .summary.request import COMPRESSED_MARK
from .summary.user_messages import END, TAG

_TITLES = (
    COMPRESSED_MARK,
    GOAL_CHECK,
    outline.HEADER,
    short_outline.HEADER,
    short_outline.OLDEST_HEADER,
)
_FIRST_WORDS = "|".join(re.escape(re.split("[];,]", title[1:])[0]) for title in _TITLES)
_TAG = regex(rf"<(/?{TAG}(?:-\d+)?\b[^<>\n]*)>", re.IGNORECASE)
_BRACKETS = regex(
    rf"\[((?:{_FIRST_WORDS})[^][\n]*"
    r"|[^][\n]*(?:#\d|\btokens compacted\b|\bcharacters left out\b)[^][\n]*)\]",
    re.IGNORECASE,
)
_TEXTS = ("intent", "phase")
_LISTS = ("decisions", "done", "in_progress", "blocked", "next_steps")
_FACTS = ("facts", "other")


def without_marks(text: str) -> str:
    """Return a text with the program's marks in parentheses."""
    text = text.replace(END, END.strip("()"))
    return _BRACKETS.sub(r"(\1)", _TAG.sub(r"(\1)", text))


def without_marks_in(document: SummaryDocument) -> SummaryDocument:
    """Return a document without the program's marks in the texts that a model may have written.
    Rules are the user's words, and errors may be quoted from results.
    """
    changed: dict[str, Any] = {name: without_marks(getattr(document, name)) for name in _TEXTS}
    for name in _LISTS:
        changed[name] = tuple(map(without_marks, getattr(document, name)))
    for name in _FACTS:
        facts = getattr(document, name)
        changed[name] = tuple(replace(each, text=without_marks(each.text)) for each in facts)
    return replace(
        document,
        modified=tuple(replace(row, change=without_marks(row.change)) for row in document.modified),
        read=tuple(replace(row, why=without_marks(row.why)) for row in document.read),
        **changed,
    )
