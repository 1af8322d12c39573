"""Detects drift after a compaction, see `compaction.drift`."""

from typing import TYPE_CHECKING

from ..compaction.drift.monitor import DriftMonitor
from ..loop.interface import Feature, IncomingMessage
from ..loop.live_session import LiveSession
from ..session.entries import PLAN, Entry, Mask, Summary, User
from ..session.store import content_text

if TYPE_CHECKING:
    from ..compaction.drift.detector import Drift
    from ..events import TurnFinished
    from ..models.base import Reply


class DriftFeature(Feature):
    """Compares the agent's replies with the intent of the session."""

    name = "drift"

    def __init__(self, session: LiveSession, summary: Summary | None = None, ended: int = 0):
        """`ended` is the number of turns since `summary`, the newest summary of a resumed
        session.
        """
        super().__init__(session)
        self.monitor = DriftMonitor(
            session.record, lambda: session.emit, session.ledger, self._search_archive
        )
        self.monitor.resume(summary, ended)
        self._found: list[Drift] = []  # in the newest reply

    async def message_recorded(self, message: IncomingMessage) -> None:
        """Add a user message to the intent."""
        self.monitor.add_message(content_text(message.content))

    async def reply_received(self, reply: "Reply", *, is_final: bool) -> str | None:
        """Check a reply for drift. If a final reply drifts, realign the agent and continue the
        turn.
        """
        self._found = self.monitor.check_reply(reply.content, final=is_final)
        if not is_final or not self._found or self.session.model.budget_meter.is_spent:
            return None
        await self._realign()
        return ""

    async def step_finished(self) -> None:
        """Realign the agent if its newest reply drifts."""
        await self._realign()

    def recorded(self, entry: Entry) -> None:
        """Start watching after a summary, after clearing, and after a plan was approved."""
        summary = self.session.view.summary
        if isinstance(entry, Summary):
            self.monitor.arm(entry)
        elif isinstance(entry, Mask):
            self.monitor.arm_after_mask(summary)
        elif isinstance(entry, User) and entry.source == PLAN:
            plan = entry.details.get("plan")
            if isinstance(plan, dict) and plan.get("agreed"):
                self.monitor.arm_for_plan(summary)

    async def turn_ended(self, finished: "TurnFinished") -> None:
        """Count the turn."""
        self.monitor.turn_ended()

    async def _realign(self) -> None:
        found, self._found = self._found, []
        await self.monitor.realign(found)

    def _search_archive(self, words: str) -> list[str]:
        passages = self.session.context.search(words, "session").passages
        return [f"{passage.ref} ({passage.what}): {passage.excerpt}" for passage in passages]
