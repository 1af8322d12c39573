"""Watches the agent's replies for three turns after each compaction, and realigns it with the
intent.

What drifts is told to the person and recorded; the intent, the person's own words and what the
archive has on it are appended for the model, which then goes on. Nothing that was appended is ever
taken back. What counts as drift is decided in `detector`.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...events import Emit, Notice
from ...session.entries import Block, Entry, Note, Summary, User
from ...session.ledger import Ledger
from ..document import SummaryDocument
from ..summary.writer import document_of
from .detector import WATCHED_TURNS, Drift, DriftDetector, realignment, warning

MAX_ARCHIVE_LINES = 5  # that are shown to the model


@dataclass
class DriftMonitor:
    """The watch over one conversation."""

    record: Callable[[Entry], Entry]
    emit: Callable[[], Emit]
    ledger: Ledger
    search: Callable[[str], Sequence[str]]  # gives lines of the archive, each with its ref
    _detector: DriftDetector | None = None
    _document: SummaryDocument = field(default_factory=SummaryDocument)

    def arm(self, summary: Summary, turns: int = WATCHED_TURNS) -> None:
        """Watch the next turns after a summary."""
        document = document_of(summary)
        if document is not None and turns > 0:
            self._document = document
            self._detector = DriftDetector(document, self.ledger, turns, since=summary.covers[1])

    def arm_after_mask(self, summary: Summary | None) -> None:
        """Watch the next turns after results were masked, unless they are watched already. What was
        open at the newest summary may be done by now, so only what lasts is held against them."""
        if self._detector is not None and self._detector.armed:
            return
        self._document = self._lasting(summary)
        self._detector = DriftDetector(self._document, self.ledger)

    def arm_for_plan(self, summary: Summary | None) -> None:
        """Watch the next turns after a plan was agreed to, which stands in the ledger."""
        self._document = self._lasting(summary)
        # One turn less than after a summary: a question right behind a plan is no sign of drift.
        self._detector = DriftDetector(self._document, self.ledger, WATCHED_TURNS - 1)

    def _lasting(self, summary: Summary | None) -> SummaryDocument:
        """Return what lasts of a summary; without one, the first words are the intent."""
        first = next((text for _, text in self.ledger.words if text.strip()), "")
        document = document_of(summary) or SummaryDocument(intent=first)
        return replace(document, in_progress=(), next_steps=())

    def resume(self, summary: Summary | None, ended: int) -> None:
        """Go on watching a resumed session, `ended` turns after its newest standing summary."""
        if summary is not None:
            self.arm(summary, WATCHED_TURNS - ended)

    def hear(self, words: str) -> None:
        """Take what the person said into the intent."""
        if self._detector is not None:
            self._detector.hear(words)

    def check_reply(self, blocks: Sequence[Block], *, final: bool) -> list[Drift]:
        """Return what in a reply drifts. A `final` reply, one without calls, ends the turn."""
        if self._detector is None or not self._detector.armed:
            return []
        return self._detector.check_reply(blocks, final=final)

    async def realign(self, drifts: Sequence[Drift]) -> None:
        """Tell the person of drift, record it, and show the model the intent again."""
        document, todos = self._document, self.ledger.todos
        if self.ledger.plan and self.ledger.plan.agreed:
            left = (todo["content"] for todo in todos if todo["status"] != "completed")
            document = replace(document, next_steps=tuple(left))
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
            text = realignment(drift, document, words, found)
            self.record(User(content=text, source="notice"))

    def _found(self, terms: str) -> Sequence[str]:
        """Return what the archive has, or nothing where it cannot be searched."""
        try:
            return self.search(terms)[:MAX_ARCHIVE_LINES]
        except (sqlite3.Error, OSError):
            return []

    def turn_ended(self) -> None:
        if self._detector is not None:
            self._detector.turn_ended()
