"""Keeping to the intent: for three turns after each summary the agent's replies are watched.

What drifts is told to the person, recorded, and put right: the intent, the person's own words and
the lines that the archive has on it are appended for the model, which then goes on. Nothing that
was appended is ever taken back. What counts as drift is `compaction.drift`'s concern.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .compaction.drift import TURNS, Drift, Watch, realignment, warning
from .compaction.summary import Document
from .compaction.writer import document_of
from .events import Emit, Notice
from .record.entries import Block, Entry, Note, Summary, User
from .record.ledger import Ledger

FOUND = 5  # places in the archive that are shown to the model


@dataclass
class Alignment:
    """One conversation's. `search` gives the lines of the archive that speak of some words, each
    with its ref."""

    record: Callable[[Entry], Entry]
    emit: Callable[[], Emit]
    ledger: Ledger
    search: Callable[[str], Sequence[str]]
    _watch: Watch | None = None
    _document: Document = field(default_factory=Document)

    def arm(self, summary: Summary, turns: int = TURNS) -> None:
        """Watch the next turns, after a summary."""
        document = document_of(summary)
        if document is not None and turns > 0:
            self._document = document
            self._watch = Watch(document, self.ledger, turns, since=summary.covers[1])

    def resume(self, summary: Summary | None, ended: int) -> None:
        """Go on watching where a session was left within the turns after a summary, the newest
        that stands, `ended` of which are over."""
        if summary is not None:
            self.arm(summary, TURNS - ended)

    def heard(self, words: str) -> None:
        """The person has said something: from here on it is part of the intent."""
        if self._watch is not None:
            self._watch.heard(words)

    def noticed(self, blocks: Sequence[Block], *, final: bool) -> list[Drift]:
        """What in a reply drifts. A `final` one has no calls: the turn would end with it."""
        if self._watch is None or not self._watch.armed:
            return []
        return self._watch.reply(blocks, final=final)

    async def realign(self, drifts: Sequence[Drift]) -> None:
        """Tell the person, record it, and put the intent back in front of the model."""
        for drift in drifts:
            found = await asyncio.to_thread(self._found, drift.terms)
            data = {
                "indicator": drift.indicator,
                "severity": drift.severity,
                "current": drift.current,
                "found": found,
            }
            self.record(Note(topic="drift", text=drift.detection, data=data))
            self.emit()(Notice("warning", warning(drift, self._document.intent)))
            words = [text for _, text in self.ledger.words]
            text = realignment(drift, self._document, words, found)
            self.record(User(content=text, source="notice"))

    def _found(self, terms: str) -> Sequence[str]:
        """What the archive has; nothing where it cannot be searched: the rest can be said."""
        try:
            return self.search(terms)[:FOUND]
        except (sqlite3.Error, OSError):
            return []

    def turn_ended(self) -> None:
        if self._watch is not None:
            self._watch.turn_ended()
