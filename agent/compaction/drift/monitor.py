"""Watch the agent's replies for three turns after each compaction, and remind it of the task.

Drift is shown to the user and recorded. For the model, a notice repeats the intent, the user's own
messages and matching lines of the archive. Then the turn continues. `detector` decides what counts
as drift.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from ...context.tokens import estimate
from ...events import Emit, Notice
from ...lazy import dataclass
from ...session.entries import Block, Entry, Note, Summary, User
from ...session.ledger import Ledger
from ..document import SummaryDocument
from ..summary.writer import document_of
from ..words import fit_line
from .detector import WATCHED_TURNS, Drift, DriftDetector, newest_ref
from .scope import CallMemory

GOAL_CHECK = "[Goal check]"  # begins a notice
MAX_REALIGNMENT_TOKENS = 600


def warning(drift: Drift, intent: str) -> str:
    """Return the warning for the user."""
    return (
        "⚠ **Goal Drift Warning**\n\n"
        f"**Detection:** {drift.severity}: {drift.detection}\n"
        f"**Original Intent:** {fit_line(intent, 400) or 'not recorded'}\n"
        f"**Current Action:** {drift.current}\n\n"
        f"**Recovery Action:**\nSearching the archive for: {drift.terms}\n\n"
        f"**Recommendation:** {drift.recommendation}"
    )


def realignment(
    drift: Drift, document: SummaryDocument, messages: Sequence[str], found: Sequence[str]
) -> str:
    """Return the notice for the model, in at most MAX_REALIGNMENT_TOKENS estimated tokens. It
    repeats the intent and the user's own words, and quotes lines of the archive (`found`, with
    refs).
    """
    text = ""
    for limit in (400, 200, 100, 50, 25):
        text = "\n".join(_notice(drift, document, messages, found, limit))
        if estimate(text) <= MAX_REALIGNMENT_TOKENS:
            break
    return text


def _notice(
    drift: Drift,
    document: SummaryDocument,
    messages: Sequence[str],
    found: Sequence[str],
    limit: int,
) -> list[str]:
    said = [text for text in messages if text.strip()]
    said = [*said[:1], *said[-2:]] if len(said) > 3 else said
    intent = fit_line(document.intent, 2 * limit) or "see the words below"
    lines = [
        f"{GOAL_CHECK} This is a notice of the program, not the user's words.",
        f"Noticed after the summary: {fit_line(drift.detection, 2 * limit)}",
        f"The intent of this session: {intent}",
    ]
    if said:
        lines += ["The user's own words:", *(f"> {fit_line(text, limit)}" for text in said)]
    if document.next_steps:
        lines += [
            "Next steps:",
            *(f"- {fit_line(s, limit // 2)}" for s in document.next_steps[:3]),
        ]
    if found:
        lines += [
            "From the archive:",
            *(f"- {fit_line(item, limit // 2)}" for item in found[:6]),
        ]
    lines.append(
        f"{drift.recommendation} If the user's newest words ask for just this, say so in one "
        "sentence. Then go on with the task."
    )
    return lines


MAX_ARCHIVE_LINES = 5  # shown to the model


@dataclass
class DriftMonitor:
    """The drift watch of one conversation."""

    record: Callable[[Entry], Entry]
    emit: Callable[[], Emit]
    ledger: Ledger
    search: Callable[[str], Sequence[str]]  # returns lines of the archive, each with its ref
    _memory: CallMemory = field(default_factory=CallMemory)
    _detector: DriftDetector | None = None
    _document: SummaryDocument = field(default_factory=SummaryDocument)

    def arm(self, summary: Summary, turns: int = WATCHED_TURNS) -> None:
        """Watch the next turns after a summary."""
        document = document_of(summary)
        if document is not None and turns > 0:
            self._watch(document, turns, summary.covers[1])

    def arm_after_mask(self, summary: Summary | None) -> None:
        """Watch the next turns after results were masked, unless a watch is active. Open steps of
        the newest summary may be done by now, so they are not compared.
        """
        if self._detector is None or not self._detector.armed:
            self._watch(self._without_open_steps(summary))

    def arm_for_plan(self, summary: Summary | None) -> None:
        """Watch the next turns after the user approved a plan. The ledger has the plan."""
        # One turn less than after a summary: a question right after a plan is no sign of drift.
        self._watch(self._without_open_steps(summary), WATCHED_TURNS - 1)

    def _watch(
        self, document: SummaryDocument, turns: int = WATCHED_TURNS, since: int | None = None
    ) -> None:
        rules = [(rule.ref, rule.text) for rule in document.rules if rule.text]
        self._document = document
        self._detector = DriftDetector(
            document, self.ledger, turns, since=since, earlier=self._memory, rules=rules
        )

    def _without_open_steps(self, summary: Summary | None) -> SummaryDocument:
        """Return a summary without its open steps. Without a summary, the first user message is the
        intent.
        """
        first = next((text for _, text in self.ledger.typed_messages if text.strip()), "")
        document = document_of(summary) or SummaryDocument(intent=first)
        return replace(document, in_progress=(), next_steps=())

    def resume(self, summary: Summary | None, ended: int) -> None:
        """Continue the watch in a resumed session. `ended` is the number of turns since its newest
        summary.
        """
        if summary is not None:
            self.arm(summary, WATCHED_TURNS - ended)

    def add_message(self, text: str) -> None:
        """Add a user message to the task."""
        if self._detector is not None:
            self._detector.add_message(text)

    def check_reply(self, blocks: Sequence[Block], *, final: bool) -> list[Drift]:
        """Return the drift in a reply. A `final` reply has no calls and ends the turn. Call this
        for every reply, even without a watch: later replies are compared with its calls.
        """
        found = self._detector.check_reply(blocks, final=final) if self._detector else []
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        self._memory.add(calls, newest_ref(self.ledger))
        return found

    async def realign(self, drifts: Sequence[Drift]) -> None:
        """Warn the user of drift, record it, and remind the model of the intent."""
        document, todos = self._document, self.ledger.todos
        if self.ledger.plan and self.ledger.plan.agreed:
            left = (todo["content"] for todo in todos if todo["status"] != "completed")
            document = replace(document, next_steps=tuple(left))
        for drift in drifts:
            found = await asyncio.to_thread(self._search_archive, drift.terms)
            data = {
                "indicator": drift.indicator,
                "severity": drift.severity,
                "current": drift.current,
                "found": found,
            }
            self.record(Note(topic="drift", text=drift.detection, data=data))
            self.emit()(Notice("warning", warning(drift, self._document.intent)))
            messages = [text for _, text in self.ledger.typed_messages]
            text = realignment(drift, document, messages, found)
            self.record(User(content=text, source="notice"))

    def _search_archive(self, terms: str) -> Sequence[str]:
        """Return matching lines of the archive, or none if it cannot be searched."""
        try:
            return self.search(terms)[:MAX_ARCHIVE_LINES]
        except (sqlite3.Error, OSError):
            return []

    def turn_ended(self) -> None:
        if self._detector is not None:
            self._detector.turn_ended()
