"""What commands may see and do of the REPL, as the registry's `Desk` says it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .backing import Backing
from .conversation import Conversation
from .questions import Questions
from .screen.base import Screen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..loop import Loop
    from .subagents import Subagents
    from .transcript import Transcript


class CommandDesk:
    """`transcript` gives where things are printed, made at first use."""

    def __init__(
        self,
        backing: Backing,
        conversation: Conversation,
        screen: Screen,
        questions: Questions,
        transcript: "Callable[[], Transcript]",
    ) -> None:
        self.cwd = backing.cwd
        self.sessions = backing.sessions
        self.everywhere = backing.everywhere
        self.settings = backing.settings
        self.models = backing.models
        self.rules = backing.rules
        self.set_model = conversation.set_model
        self.choose = questions.choose
        self.edit = screen.edit
        self.pick = screen.pick
        self.offer = screen.restore
        self.leave = screen.exit
        self._copy = backing.copy
        self._checks = backing.checks
        self._conversation = conversation
        self._screen = screen
        self._transcript = transcript

    @property
    def loop(self) -> "Loop":
        return self._conversation.loop

    @property
    def session(self) -> str:
        return self._conversation.session

    @property
    def subagents(self) -> "Subagents":
        return self._transcript().subagents

    def checks(self) -> Sequence[Sequence[str]]:
        used = self._screen.palette
        return [*self._checks(), *([("ok", "theme in use", used)] if used else [])]

    def put(self, *renderables: "RenderableType") -> None:
        self._transcript().put("command", *renderables)
        self._screen.touch()

    async def reopen(
        self, *, resume: str | None = None, fork: bool = False, prior: str | None = None
    ) -> None:
        from .look import render

        left_at = await self._conversation.reopen(resume=resume, fork=fork, prior=prior)
        if left_at:
            self._transcript().put("recap", render.recap(*left_at))

    def copy(self, upto: int) -> str:
        return self._copy(self.loop.log.path, upto).parent.name

    async def unfold(self) -> None:
        await self._transcript().unfold(lambda ref: self.loop.recall(ref))
        self._screen.touch()

    def doing(self, text: str) -> None:
        self._transcript().doing(text)
        self._screen.touch()
