"""The context of a slash command: the parts of the REPL that it may use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ...errors import SessionBusy
from ...lazy import dataclass
from ..conversation.open_session import Conversation
from ..conversation.questions import Questions
from ..conversation.running import RunningTask
from ..conversation.services import ConversationServices
from ..screen import Screen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...extensions.command_files import CommandFile
    from ...extensions.skills import Skill
    from ...loop.agent import AgentState
    from ..transcript import Transcript

READ_ONLY = (
    "read-only: process {holder} has this session open. /log, /context, /export and /recover "
    "show it as it was just now; /resume with its id opens it again, /fork continues in a copy"
)


@dataclass(slots=True)
class CommandContext:
    """The parts of the REPL that commands work with, and what they do with several of them."""

    services: ConversationServices
    conversation: Conversation
    screen: Screen
    questions: Questions
    transcript: "Callable[[], Transcript]"  # where things are printed, made at first use
    task: RunningTask  # what Esc interrupts
    say_next: Callable[[str], None]  # sends words as the person's, before those that wait
    is_leaving: bool = False  # whether the user is being asked if the tasks may end
    handed_over: str = ""  # what the open session was told of the one before it
    command_files: "Mapping[str, CommandFile]" = field(default_factory=dict)  # as last read
    skills: "Mapping[str, Skill]" = field(default_factory=dict)  # for people, as last read
    told_of_files: set[str] = field(default_factory=set)  # what was wrong with some, and told

    @property
    def agent(self) -> "AgentState":
        """The agent of the open session. Raises CtxagentError when no session is open."""
        return self.conversation.agent

    @property
    def session(self) -> str:
        """The id of the open session, "" when none is open."""
        return self.conversation.session

    def put(self, *renderables: "RenderableType") -> None:
        """Print the output of a command."""
        self.transcript().put("command", *renderables)
        self.screen.touch()

    def say(self, text: str) -> None:
        """Print a short remark."""
        from ..render import render

        self.put(render.dim(text))

    def show(self, text: str) -> None:
        """Print a text as it is."""
        from ..render import render

        self.put(render.verbatim(text))

    def show_lines(self, text: str) -> None:
        """Print lines with labels, each wrapped under its own text."""
        from ..render import render

        self.put(render.indented(render.HangingLines(text)))

    def show_report(self, markdown: str) -> None:
        """Print a report that is written in Markdown."""
        from ..render import render
        from ..render.markdown import report

        self.put(render.indented(report(markdown)))

    def notify(self, level: str, text: str) -> None:
        """Print a notice; `level` is "info" or "warning"."""
        from ..render import render

        self.put(render.notice(level, text))

    def show_table(
        self, rows: Sequence[Sequence[str]], head: Sequence[str] = (), *, wrap: bool = True
    ) -> None:
        """Print a table."""
        from ..render import render

        self.put(render.table(rows, head=head, wrap=wrap))

    def send_prompt(self, words: str) -> None:
        """Send the words of a command as the user's, before those that wait; long ones are shown
        in one line."""
        self.transcript().sends(words)
        self.say_next(words)

    def doing(self, text: str) -> None:
        """Show what the command waits for, until the next call; "" shows nothing."""
        self.transcript().doing(text)
        self.screen.touch()

    async def unfold(self) -> None:
        """Print the newest folded output in full; called again, the one before it."""
        await self.transcript().unfold(self.agent.context.recall)
        self.screen.touch()

    def show_title(self) -> None:
        """Name the terminal's window after the session, if the user gave that a title."""
        self.screen.title(self.agent.ledger.title if self.conversation.is_open else "")

    async def leave(self) -> None:
        """Leave, if the user lets running tasks end; if that question is open already, at once."""
        if self.is_leaving:
            self.screen.exit()
            return
        self.is_leaving = True
        try:
            if self.questions.is_asking and self.conversation.background_tasks:
                self.notify("info", "tasks run: answer the question first, or leave once more")
            if await self.may_end_tasks():
                self.screen.exit()
        finally:
            self.is_leaving = False

    async def may_end_tasks(self) -> bool:
        """Ask, where tasks run, whether they may end, as they do when the session is left."""
        tasks = self.conversation.background_tasks
        if tasks and not await self.questions.end_tasks(tasks):
            self.say("nothing has changed")
            self.screen.rest()
            return False
        return True

    def checks(self) -> Sequence[Sequence[str]]:
        """Check the set-up, which may take a second.

        Returns rows of ok, note or FAIL, what was looked at, and what was found."""
        palette = self.screen.palette
        return [*self.services.checks(), *([("ok", "theme in use", palette)] if palette else [])]

    def copy_session(self, last_seq: int) -> str:
        """Copy the open session up to an entry, and return the id of the copy."""
        return self.services.copy(self.agent.log.path, last_seq).parent.name

    async def reopen(
        self, *, resume: str | None = None, fork: bool = False, prior: str | None = None
    ) -> None:
        """Go over to another session; the one that is left stays on disk.

        With `prior` that is a fresh session, which is told this text about the one before. When
        another process has the session, the user decides what to do.
        """
        try:
            left_at = await self.conversation.reopen(resume=resume, fork=fork, prior=prior)
        except SessionBusy as busy:
            wait = self.services.wait and resume is None
            opening = self._open_busy(busy, wait=wait)
            left_at = await (opening if self.task.running else self.task.run(opening))
        self.handed_over = prior or ""
        self.show_title()
        if left_at:
            self.transcript().recap(*left_at)

    async def _open_busy(self, busy: SessionBusy, *, wait: bool) -> tuple[str, str] | None:
        """Open a session that another process has, in the way the user chooses."""
        if not wait:
            self.notify("warning", busy.message)
        choice = "wait" if wait else await self.questions.busy_session()
        if choice == "fork":
            return await self.conversation.reopen(resume=busy.session, fork=True)
        if choice == "wait":
            self.doing(f"waiting for process {busy.holder} to leave the session")
            try:
                return await self.conversation.reopen(resume=busy.session, patient=True)
            finally:
                self.doing("")
        if choice == "read":
            left_at = await self.conversation.reopen(resume=busy.session, read_only=True)
            self.notify("info", READ_ONLY.format(holder=busy.holder))
            return left_at
        if not self.conversation.is_open:
            self.screen.exit()
        return None
