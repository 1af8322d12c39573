"""The parts of the REPL that slash commands use, and the registry of the commands."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from inspect import isawaitable
from typing import TYPE_CHECKING

from ...errors import SessionBusy, UsageError
from ...extensions.command import Command, Prompt
from ...lazy import dataclass, regex
from ..conversation.open_session import Conversation, ConversationServices, RunningTask
from ..conversation.questions import Questions
from ..foreign_names import foreign_names
from ..screen import Screen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...extensions.command_files import CommandFile
    from ...extensions.skills import Skill
    from ...loop.agent import AgentState
    from ..transcript import Transcript


READ_ONLY = (
    "read-only: process {holder} has this session open. /log, /context, /export and /recover "
    "show its current state; /resume with its ID opens it again, /fork continues in a copy"
)


@dataclass(slots=True)
class CommandContext:
    """The parts of the REPL that slash commands use, with shared helpers."""

    services: ConversationServices
    conversation: Conversation
    screen: Screen
    questions: Questions
    transcript: "Callable[[], Transcript]"  # the transcript, created at first use
    task: RunningTask  # the task that Esc interrupts
    send_next: Callable[[str], None]  # sends a user message before queued ones
    is_leaving: bool = False  # whether the question about running tasks is open
    handed_over: str = ""  # hand-over text from the previous session
    command_files: "Mapping[str, CommandFile]" = field(default_factory=dict)  # as last read
    skills: "Mapping[str, Skill]" = field(default_factory=dict)  # for the user, as last read
    reported_problems: set[str] = field(default_factory=set)  # problems already shown

    @property
    def agent(self) -> "AgentState":
        """The agent of the open session. Raises CtxagentError if none is open."""
        return self.conversation.agent

    @property
    def session(self) -> str:
        """The ID of the open session, "" if none is open."""
        return self.conversation.session

    def put(self, *renderables: "RenderableType") -> None:
        """Print the output of a command."""
        self.transcript().put("command", *renderables)
        self.screen.request_repaint()

    def say(self, text: str) -> None:
        """Print a short message."""
        from ..render import render

        self.put(render.dim(text))

    def show(self, text: str) -> None:
        """Print a text unchanged."""
        from ..render import render

        self.put(render.verbatim(text))

    def show_lines(self, text: str) -> None:
        """Print lines with labels, with a hanging indent."""
        from ..render import render

        self.put(render.indented(render.HangingLines(text)))

    def show_report(self, markdown: str) -> None:
        """Print a Markdown report."""
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

    async def run(self, command: Command, argument: str) -> None:
        """Run a command, then show its text or send its prompt. Raises CtxagentError."""
        assert command.run is not None
        found = command.run(argument)
        found = await found if isawaitable(found) else found
        if isinstance(found, Prompt):
            self.send_prompt(found.text)
        elif found:
            self.show(found)

    def send_prompt(self, prompt: str) -> None:
        """Send a command's prompt as a user message, before queued ones. A long prompt is shown as
        one line.
        """
        self.transcript().expect_prompt(prompt)
        self.send_next(prompt)

    def show_activity(self, text: str) -> None:
        """Show the command's current activity until the next call; "" shows nothing."""
        self.transcript().show_activity(text)
        self.screen.request_repaint()

    async def unfold(self) -> None:
        """Print the newest folded output in full; a repeated call prints the previous one."""
        await self.transcript().unfold(self.agent.context.recall)
        self.screen.request_repaint()

    def show_title(self) -> None:
        """Set the terminal's window title to the session's title, if it has one."""
        self.screen.title(self.agent.ledger.title if self.conversation.is_open else "")

    async def leave(self) -> None:
        """Ask the user first if tasks are running, then leave. A second call while this question is
        open leaves at once.
        """
        if self.is_leaving:
            self.screen.exit()
            return
        self.is_leaving = True
        try:
            if self.questions.is_asking and self.conversation.background_tasks:
                self.notify("info", "tasks are running: answer the question first, or leave again")
            if await self.may_end_tasks():
                self.screen.exit()
        finally:
            self.is_leaving = False

    async def may_end_tasks(self) -> bool:
        """Ask whether leaving may stop running tasks; return True if there are none."""
        tasks = self.conversation.background_tasks
        if tasks and not await self.questions.end_tasks(tasks):
            self.say("nothing has changed")
            self.screen.show_prompt()
            return False
        return True

    def checks(self) -> Sequence[Sequence[str]]:
        """Check the setup, and return rows of (ok, note or FAIL; check; finding). Takes seconds."""
        palette = self.screen.palette
        return [*self.services.checks(), *([("ok", "theme in use", palette)] if palette else [])]

    def copy_session(self, last_seq: int) -> str:
        """Copy the open session up to an entry, and return the ID of the copy."""
        return self.services.copy(self.agent.log.path, last_seq).parent.name

    async def switch_session(
        self, *, resume: str | None = None, fork: bool = False, prior: str | None = None
    ) -> None:
        """Switch to another session; the previous one stays on disk.

        `prior` opens a new session with this text about the previous one. If another process has
        the session open, the user decides what to do.
        """
        try:
            left_at = await self.conversation.switch_session(resume=resume, fork=fork, prior=prior)
        except SessionBusy as busy:
            wait = self.services.wait and resume is None
            opening = self._open_busy(busy, wait=wait)
            left_at = await (opening if self.task.running else self.task.run(opening))
        self.handed_over = prior or ""
        self.show_title()
        if left_at:
            self.transcript().recap(*left_at)

    async def _open_busy(self, busy: SessionBusy, *, wait: bool) -> tuple[str, str] | None:
        """Open a session that another process has open, as the user chooses."""
        if not wait:
            self.notify("warning", busy.message)
        choice = "wait" if wait else await self.questions.busy_session()
        if choice == "fork":
            return await self.conversation.switch_session(resume=busy.session, fork=True)
        if choice == "wait":
            self.show_activity(f"waiting for process {busy.holder} to leave the session")
            try:
                return await self.conversation.switch_session(resume=busy.session, wait=True)
            finally:
                self.show_activity("")
        if choice == "read":
            left_at = await self.conversation.switch_session(resume=busy.session, read_only=True)
            self.notify("info", READ_ONLY.format(holder=busy.holder))
            return left_at
        if not self.conversation.is_open:
            self.screen.exit()
        return None


QUICK_COMMANDS = {  # messages that run a command
    "compress": "/compact",
    "context status": "/context --levels",
    "compression log": "/log compaction --levels",
    "show session intent": "/intent",
    **dict.fromkeys(("exit", "quit", ":q", ":q!", ":wq"), "/exit"),
    **dict.fromkeys(("help", "?"), "/help"),
}
# One line after a #, but not a ref (#12), a Markdown heading (##) or a script (#!).
_NOTE = regex(r"#[ \t]*((?![ \t#!]|-?\d).*)")
# "recover" and one to four words that do not look like a sentence.
_TOPIC = regex(
    r"recover (?!(?:the|a|an|all|my|our|your|this|that|these|it|from|what|and)\b)"
    r"((?:\S+ ){0,3}\S*[^\s.!?])",
    re.IGNORECASE,
)

MIN_LIKENESS = 0.7  # of a mistyped name

COMMANDS: dict[str, Command] = {}  # by name, not bound to a front end


def parse(text: str, commands: Mapping[str, Command]) -> tuple[Command, str] | None:
    """Return the command that the text calls, and its argument; None if the text is for the model.

    A unique prefix of a name is enough, and names of other agents are aliases. Raises UsageError
    for an unknown command.
    """
    text = _expand(text)
    name, _, argument = text.strip().partition(" ")
    if not name.startswith("/") or "/" in name[1:] or "\n" in name:
        return None
    wanted, aliases, hints = name[1:], foreign_names("aliases"), foreign_names("commands")
    if ":" in wanted:
        of_plugins = {f"{c.plugin}:{c.name}": c for c in commands.values() if c.plugin}
        commands = {**of_plugins, **commands}
    if wanted in commands:
        return commands[wanted], argument.strip()
    if wanted in aliases:
        return parse(f"{aliases[wanted]} {argument}", commands)
    found = sorted(n for n in commands if n.startswith(wanted))
    if len(found) == 1 and wanted not in hints:
        return commands[found[0]], argument.strip()
    near = found or difflib.get_close_matches(wanted, [*commands, *aliases], 1, MIN_LIKENESS)
    guess = f"Did you mean {', '.join(f'/{n}' for n in near)}?" if wanted and near else ""
    hint = hints.get(wanted) or guess or "/help lists them all."
    raise UsageError(f"there is no command {name}", hint=hint)


def _expand(text: str) -> str:
    """Replace a short form (a prefix character or a fixed phrase) by its command."""
    if text.startswith("!"):
        return f"/shell {text[1:].strip()}"
    if note := _NOTE.fullmatch(text.rstrip()):
        return f"/pin {note[1]}"
    topic = _TOPIC.fullmatch(text.strip())
    return f"/recover {topic[1]}" if topic else QUICK_COMMANDS.get(text.strip().lower(), text)
