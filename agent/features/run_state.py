"""Continue a run whose state file says RUNNING when the model stops to ask.

After a summary, a run continues without confirmation by the user, within the given permissions. The
number of continuations is limited by the units of work left in the state. The question itself is
not interpreted, and the notice does not answer it. If the model repeats the question at once, the
turn ends.
"""

import asyncio

from ..compaction.preserve import RunState, run_states
from ..compaction.words import ends_with_question
from ..loop.interface import Feature, Turn
from ..loop.live_session import LiveSession
from ..models.base import Reply, text_of

GO_ON_WITH_RUN = (
    "[Run] This is a notice of the program, not the user's words. {path} says: state RUNNING, "
    "current: {current}. The run goes on without confirmation: if you only asked whether to go on, "
    "go on with its current unit of work. Permissions are as given: leave out what needs one that "
    "you do not have, and name it at the end. This notice agrees to nothing else: if your question "
    "is about anything but going on, or the user wants to be asked here, put it again."
)


class RunStateFeature(Feature):
    """Continues a run if the model asks at the end of a turn."""

    def __init__(self, session: LiveSession) -> None:
        super().__init__(session)
        self._reset()

    def _reset(self) -> None:
        self._max_notices = 0  # units of work left at the first question
        self._notices = 0
        self._units = set[str]()  # units of work named in notices
        self._has_worked = True  # whether anything was done since the last notice

    async def turn_started(self, turn: Turn) -> None:
        """Reset the state for a new turn."""
        self._reset()

    async def reply_received(self, reply: Reply, *, is_final: bool) -> str | None:
        """Return the notice if a final reply ends with a question during a run. After a denial in
        this turn the question may be about it, so the user must answer.
        """
        session = self.session
        if any(block.get("type") == "tool_use" for block in reply.content):
            self._has_worked = True
        if not is_final or session.model.budget_meter.is_spent or session.view.summary is None:
            return None
        if session.approval.mode == "plan" or session.denials.of_turn():
            return None
        if (notice := await self._notice(text_of(reply.content))) is not None:
            session.notify("info", "a run is in progress: it continues without asking")
        return notice

    async def _notice(self, text: str) -> str | None:
        """Return the notice for a final text. Return None if the text is not a question, nothing
        was done since the last notice, no run is in progress, or there were too many notices.
        """
        if not self._has_worked or not ends_with_question(text):
            return None
        state = await asyncio.to_thread(self._running)
        if state is None:
            return None
        self._max_notices = self._max_notices or state.units_left
        if self._notices >= self._max_notices and state.current in self._units:
            return None
        self._notices, self._has_worked = self._notices + 1, False
        self._units.add(state.current)
        return GO_ON_WITH_RUN.format(path=state.path, current=state.current or "(not named)")

    def _running(self) -> RunState | None:
        cwd, rules = self.session.context.cwd, self.session.policy.rules
        if "run_state" not in rules.always:
            return None
        return next((state for state in run_states(cwd, rules) if state.running), None)
