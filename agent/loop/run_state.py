"""Go on with a run that its state file says is RUNNING, where the model stops to ask (S3).

After a summary, a run goes on without the user's confirmation, within the permissions that were
given, at most as often as its state has units of work left. What the question is about is not read:
the notice decides nothing, and a model that repeats its question at once gets its turn ended.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from ..compaction.language.words import ends_with_question
from ..compaction.preserve import RunState, run_states
from ..config.preservation import PreserveRules

GO_ON_WITH_RUN = (
    "[Run] This is a notice of the program, not the user's words. {path} says: state RUNNING, "
    "current: {current}. The run goes on without confirmation: if you only asked whether to go on, "
    "go on with its current unit of work. Permissions are as given: leave out what needs one that "
    "you do not have, and name it at the end. This notice agrees to nothing else: if your question "
    "is about anything but going on, or the user wants to be asked here, put it again."
)


@dataclass(slots=True)
class RunContinuation:
    """The questions of one turn that were answered by a run's state."""

    cwd: Path
    rules: PreserveRules
    _room: int = 0  # how often the state allows it; as it was at the first question
    _given: int = 0
    _units: set[str] = field(default_factory=set)  # that were gone on with
    _worked: bool = True  # since the last answer

    def work(self) -> None:
        """Note that the model has done something since it was told to go on."""
        self._worked = True

    async def answer(self, text: str) -> str | None:
        """Return what the model is told if its final `text` ends with a question while a run is on.
        Return None if nothing was done since the last answer, or no run is on."""
        if not self._worked or not ends_with_question(text):
            return None
        state = await asyncio.to_thread(self._running)
        if state is None:
            return None
        self._room = self._room or state.units_left
        if self._given >= self._room and state.current in self._units:
            return None
        self._given, self._worked = self._given + 1, False
        self._units.add(state.current)
        return GO_ON_WITH_RUN.format(path=state.path, current=state.current or "(not named)")

    def _running(self) -> RunState | None:
        if "run_state" not in self.rules.always:
            return None
        return next((state for state in run_states(self.cwd, self.rules) if state.running), None)
