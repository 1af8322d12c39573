"""What commands may see and do of the REPL, as the registry's `Desk` says it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import SessionBusy
from .backing import Backing
from .busy import wish_of
from .conversation import Conversation
from .questions import Questions
from .screen.base import Screen
from .work import Work

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..loop import Loop
    from .subagents import Subagents
    from .transcript import Transcript


READ_ONLY = (
    "read-only: process {holder} goes on with it. /log, /context, /export and /recover look at it "
    "as it was just now; /resume with its id again, /fork goes on in a copy"
)


class CommandDesk:
    """`transcript` gives where things are printed, made at first use; `work` is what runs, and can
    be interrupted."""

    def __init__(
        self,
        backing: Backing,
        conversation: Conversation,
        screen: Screen,
        questions: Questions,
        transcript: "Callable[[], Transcript]",
        work: Work,
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
        self.handed = ""
        self._wait = backing.wait
        self._questions = questions
        self._work = work
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

        try:
            left_at = await self._conversation.reopen(resume=resume, fork=fork, prior=prior)
        except SessionBusy as busy:
            wait = self._wait and resume is None
            settling = self._settle(busy, wait=wait)
            left_at = await (settling if self._work.running else self._work.run(settling))
        self.handed = prior or ""
        if left_at:
            self._transcript().put("recap", render.recap(*left_at))

    async def _settle(self, busy: SessionBusy, *, wait: bool) -> tuple[str, str] | None:
        """Open what another process has, as the person wants it."""
        from .look import render

        if not wait:
            self.put(render.notice("warning", busy.message))
        wish = "wait" if wait else await wish_of(self._questions)
        if wish == "fork":
            return await self._conversation.reopen(resume=busy.session, fork=True)
        if wish == "wait":
            self.doing(f"waiting for process {busy.holder} to leave the session")
            try:
                return await self._conversation.reopen(resume=busy.session, patient=True)
            finally:
                self.doing("")
        if wish == "read":
            left_at = await self._conversation.reopen(resume=busy.session, read_only=True)
            self.put(render.notice("info", READ_ONLY.format(holder=busy.holder)))
            return left_at
        if not self._conversation.is_open:
            self.leave()
        return None

    def copy(self, upto: int) -> str:
        return self._copy(self.loop.log.path, upto).parent.name

    async def unfold(self) -> None:
        await self._transcript().unfold(lambda ref: self.loop.recall(ref))
        self._screen.touch()

    def doing(self, text: str) -> None:
        self._transcript().doing(text)
        self._screen.touch()
