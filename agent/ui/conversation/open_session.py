"""The open session of the REPL: opening it, switching to another, and settings for all sessions.

The command line passes the services: the project, its sessions and settings.
"""

import asyncio
import time
import traceback
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ....tools.system.git_links import current_branch
from ...errors import CtxagentError, SessionBusy, UsageError
from ...events import Ask, Emit
from ...launch import SessionChoice
from ...lazy import dataclass
from .. import status
from ..tasks import SessionTask, background_tasks

if TYPE_CHECKING:
    from ....tools.job import BackgroundJob
    from ...config.settings import PermissionMode
    from ...config.user_settings import UserSettings
    from ...context.window import Window
    from ...extensions.command_files import CommandFile
    from ...extensions.skills import Skill
    from ...library.login import Logins
    from ...loop.agent import AgentState
    from ...permissions.rule_set import RuleFiles
    from ...recordings.other_sessions import OtherSessions
    from ..fill import NextStep


# Returns (command files by name, problems with files). Blocks.
CommandFilesReader = Callable[[], tuple[Mapping[str, "CommandFile"], Sequence[str]]]

# Returns (skills by name, problems with files). Blocks.
SkillsReader = Callable[[], tuple[Mapping[str, "Skill"], Sequence[str]]]


class Opener(Protocol):
    """A function that opens the session chosen on the command line, or the one in `resume`.

    `fork` opens a copy. `prior` opens a new session with this text about another one. `read_only`
    opens a session even if another process has it open. Raises CtxagentError, and SessionBusy if
    another process has the session open.
    """

    async def __call__(
        self,
        emit: Emit,
        ask: Ask,
        *,
        resume: str | None = None,
        fork: bool = False,
        prior: str | None = None,
        read_only: bool = False,
    ) -> "AgentState": ...


def _no_model_change(agent: "AgentState", id: str) -> None:
    raise UsageError("the model cannot be changed here", hint=f"Start with --model {id}")


def _no_copy(log: Path, last_seq: int) -> Path:
    raise UsageError(
        "this session cannot be copied here",
        hint="Run `ctxagent --resume ID --fork` in a terminal.",
    )


@dataclass(frozen=True, slots=True)
class ConversationServices:
    """The services of the REPL, with defaults for most."""

    open: Opener
    cwd: Path
    version: str
    history: Path | None = None  # the input history file
    check_key: Callable[[], None] = lambda: None  # raises NoCredentials
    warm: Callable[[], None] = lambda: None  # runs in a thread once the prompt is painted
    sessions: Callable[[], Sequence[Path]] = list  # the project's logs, newest first
    all_sessions: Callable[[], Sequence[Path]] = list  # the logs of all projects, newest first
    recordings: "Callable[[], OtherSessions] | None" = None  # the sessions of other agents
    copy: Callable[[Path, int], Path] = _no_copy  # copies a session up to an entry
    command_files: "CommandFilesReader" = lambda: ({}, ())
    skills: "SkillsReader" = lambda: ({}, ())
    settings: "UserSettings | None" = None
    checks: Callable[[], Sequence[Sequence[str]]] = list  # rows of (state, check, finding)
    models: Callable[[], Sequence[Sequence[str]]] = list  # rows of (ID, prices, window, provider)
    without_key: Callable[[], Collection[str]] = list  # names of providers that need a key
    # rows like `models`, queried from providers; may take seconds
    listed_models: Callable[[], Sequence[Sequence[str]]] = list
    # rows of (ready or -, provider, key source); queries local servers
    providers: Callable[[], Sequence[Sequence[str]]] = list
    set_model: Callable[["AgentState", str], None] = _no_model_change
    logins: "Logins | None" = None  # the keys of providers
    rules: "RuleFiles | None" = None  # the settings files for permission rules
    choice: SessionChoice = field(default_factory=SessionChoice)  # the chosen session
    wait: bool = False  # wait if another process has the chosen session open
    # reloads the extensions; returns (names, warnings)
    reload_extensions: "Callable[[AgentState], Awaitable[tuple[list[str], list[str]]]] | None" = (
        None
    )
    status_command: str = ""  # the user's command for the line below the status line


MODES: "tuple[PermissionMode, ...]" = ("ask", "accept-edits", "sandboxed", "plan", "bypass")
RETRY_INTERVAL_S = 0.2  # between attempts to open a session that is in use
FINISH_TIMEOUT_S = 60.0  # limit for the summary at the end of a session

T = TypeVar("T")


class Conversation:
    """The conversation of the REPL, in one session at a time. Every session is opened with `emit`
    and `ask`.
    """

    def __init__(self, services: ConversationServices, emit: Emit, ask: Ask) -> None:
        self._services = services
        self._emit = emit
        self._ask = ask
        self._agent: AgentState | None = None
        self._model = ""  # chosen by the user, for this session and later ones
        self._model_after = ""  # restored when the turn ends; "" for none
        self.is_opening, self._since = True, time.monotonic()
        self.is_choosing_model = False  # at the first start: the status line shows no model
        self._branch = current_branch(services.cwd)
        self._closing_unwanted: asyncio.Task[None] | None = None
        self._step: tuple[object, NextStep] | None = None  # for this state of the session

    @property
    def is_open(self) -> bool:
        return self._agent is not None

    @property
    def agent(self) -> "AgentState":
        """The agent of the open session. Raises CtxagentError if none is open."""
        if self._agent is None:
            raise CtxagentError("no session is open", hint="/clear opens a fresh one.")
        return self._agent

    @property
    def session(self) -> str:
        """The ID of the open session, "" if none is open."""
        return self._agent.log.path.parent.name if self._agent else ""

    async def switch_session(
        self,
        *,
        resume: str | None = None,
        fork: bool = False,
        prior: str | None = None,
        read_only: bool = False,
        wait: bool = False,
    ) -> tuple[str, str] | None:
        """Switch to the session chosen at the start, or as the arguments say (see `Opener`).

        `wait` waits until no other process has the session open. Returns the last user message and
        its answer; None for a new session or a fork. Raises CtxagentError, and then the previous
        session stays open. Once the new session is open, an interrupt only cuts short the closing
        of the previous session.
        """
        if not self.is_opening:
            self.is_opening, self._since = True, time.monotonic()
        switch = partial(self._switch, resume, fork, prior, read_only)
        try:
            return await (when_free(switch) if wait else switch())
        finally:
            self.is_opening = False

    async def _switch(
        self, resume: str | None, fork: bool, prior: str | None, read_only: bool
    ) -> tuple[str, str] | None:
        opening = asyncio.ensure_future(
            self._services.open(
                self._emit, self._ask, resume=resume, fork=fork, prior=prior, read_only=read_only
            )
        )
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._closing_unwanted = asyncio.create_task(_close_unwanted(opening))
            raise
        opened.has_user = True
        left, self._agent = self._agent, opened
        if left is not None:
            opened.approval.mode, opened.model.effort = left.approval.mode, left.model.effort
            with suppress(asyncio.CancelledError):
                await left.close()
        if self._model and not read_only:
            self._services.set_model(opened, self._model)
        if not opened.log.last_seq or fork:
            return None
        from ...session.listing import last_answer

        since, said = opened.ledger.typed_messages[-1] if opened.ledger.typed_messages else (0, "")
        reading = asyncio.to_thread(last_answer, opened.log.entries(), since)
        try:
            return said, await reading
        except asyncio.CancelledError:
            if left is None:
                raise
            return said, ""

    def set_model(self, id: str) -> None:
        """Change the model of this session and of sessions opened later."""
        self._services.set_model(self.agent, id)
        self._model = id

    def use_model_for_turn(self, id: str) -> None:
        """Change the model until the end of the next turn."""
        self._model_after = self._model_after or self.agent.model.roles.own.id
        self._services.set_model(self.agent, id)

    @property
    def modes(self) -> "list[PermissionMode]":
        """The available permission modes. `bypass` is included only if the session began with it,
        `sandboxed` only if commands can be sandboxed. Raises CtxagentError if no session is open.
        """
        approval = self.agent.approval
        left_out = set() if approval.first_mode == "bypass" else {"bypass"}
        if approval.unconfined:
            left_out.add("sandboxed")
        return [mode for mode in MODES if mode == approval.mode or mode not in left_out]

    def next_mode(self, after: "PermissionMode | None" = None) -> "PermissionMode | None":
        """Return the permission mode that follows `after` (default: the current one); None if no
        session is open.
        """
        if self._agent is None:
            return None
        modes = self.modes
        return modes[(modes.index(after or self._agent.approval.mode) + 1) % len(modes)]

    def set_mode(self, mode: "PermissionMode") -> None:
        """Set the permission mode, and no longer run sandboxed commands without asking."""
        self.agent.approval.mode, self.agent.approval.sandboxed = mode, False

    def end_turn(self) -> None:
        """Read the branch again. After a turn with another model, restore the session's model."""
        if self._model_after and self._agent is not None:
            self._services.set_model(self._agent, self._model_after)
        self._model_after = ""
        self._branch = current_branch(self._services.cwd)

    def share(self) -> float | None:
        """Return how full the context is, from 0 to 1; None if no session is open."""
        return self._agent.model.current_window().share if self._agent else None

    def status(self, width: int) -> list[status.Fragment]:
        """Return the status line in at most `width` columns."""
        if self.is_opening:
            waited = time.monotonic() - self._since
            return [("", "opening the session …" + (f" {waited:.0f} s" if waited >= 1 else ""))]
        if self._agent is None:
            return [("", "no session is open")]
        from ..fill import fullness  # too slow for the first paint

        window = self._agent.model.current_window()
        step = self._next_step(self._agent, window)
        now = status.StatusLine(
            model="" if self.is_choosing_model else self._agent.model.id,
            overloaded=self._agent.model.roles.overloaded[0],
            mode=self._shown_mode(self._agent),
            branch=self._branch,
            share=window.share,
            fullness=fullness(window, levels=self._agent.policy.is_published),
            next_step=step.text,
            user_acts=step.user_acts,
            cost_usd=self._agent.totals.all.cost_usd,
            agents=len(self._agent.context.agents),
            jobs=len(self.running_jobs),
            effort=self._agent.model.effort or "",
            more=self._agent.features.status(),
            sandbox=status.sandbox_mark(self._agent.context.sandbox),
        )
        return status.fit_line(now, width)

    def _next_step(self, agent: "AgentState", window: "Window") -> "NextStep":
        """Return the next step of compaction. Plan it again only when the session has changed."""
        from ..fill import next_step

        engine = agent.engine
        state = (agent.log.path, agent.log.last_seq, window, engine.policy, engine.is_preparing)
        if self._step is None or self._step[0] != state:
            self._step = state, next_step(engine, window)
        return self._step[1]

    def facts(self) -> dict[str, Any]:
        """Return the facts of the status line, for the user's own status command. Raises
        CtxagentError if no session is open.
        """
        agent = self.agent
        window = agent.model.current_window()
        return {
            "session": self.session,
            "cwd": str(self._services.cwd),
            "project": self._services.cwd.name,
            "version": self._services.version,
            "model": agent.model.id,
            "effort": agent.model.effort,
            "mode": self._shown_mode(agent),
            "branch": self._branch,
            "tokens": {
                "used": window.tokens,
                "window": window.size,
                "percent": round(100 * window.share, 1),
            },
            "cost_usd": agent.totals.all.cost_usd,
        }

    @staticmethod
    def _shown_mode(agent: "AgentState") -> str:
        if agent.log.refusal:
            return "read-only"
        approval = agent.approval
        more = "+sandboxed" if approval.sandboxed and approval.mode != "sandboxed" else ""
        return f"{approval.mode}{more}"

    @property
    def works_in_background(self) -> bool:
        """Whether a summary or tasks run in the background and the status line must be redrawn."""
        return self._agent is not None and (
            self._agent.engine.is_preparing or bool(self.running_jobs or self._agent.context.agents)
        )

    @property
    def running_jobs(self) -> "list[BackgroundJob]":
        """The running background jobs."""
        jobs = self._agent.context.jobs.values() if self._agent is not None else ()
        return [job for job in jobs if job.process.running]

    @property
    def background_tasks(self) -> list[SessionTask]:
        """The running jobs and background subagents."""
        return background_tasks(self._agent) if self._agent is not None else []

    def ended_jobs(self, jobs: "Sequence[BackgroundJob]") -> "list[BackgroundJob]":
        """Return the jobs of this session among `jobs` that ended without being stopped."""
        own = [*self._agent.context.jobs.values()] if self._agent is not None else []
        ended = (job for job in jobs if not (job.process.running or job.interrupted))
        return [job for job in ended if job in own]

    @property
    def runs_command(self) -> bool:
        """Whether a foreground command or subagent can be sent to the background."""
        return self._agent is not None and bool(self._agent.context.foreground)

    def send_to_background(self) -> int:
        """Send the foreground commands and subagents to the background; return their number. Raises
        ToolError and RecordError.
        """
        sending = [*self._agent.context.foreground] if self._agent is not None else []
        for send in sending:
            send()
        return len(sending)

    def record_fault(self, error: Exception) -> CtxagentError:
        """Record the traceback of an internal error, and return the error to show."""
        text = f"internal error: {type(error).__name__}: {error}"
        if self._agent is not None and self._agent.log.last_seq:
            from ...session.entries import Note

            data = {"traceback": traceback.format_exception(error)}
            with suppress(CtxagentError):
                self._agent.record(Note(topic="warning", text=text, data=data))
        return CtxagentError(text, hint="The session is still open; /log shows the traceback.")

    async def finish(self) -> None:
        """Write the summary or checkpoint that the policy requires at the end of a session. Raises
        CtxagentError, and TimeoutError after FINISH_TIMEOUT_S.
        """
        if self._agent is not None and self._agent.totals.turns:
            await asyncio.wait_for(self._agent.finish(), FINISH_TIMEOUT_S)

    async def close(self) -> None:
        if self._closing_unwanted is not None:
            await self._closing_unwanted
        if self._agent is not None:
            await self._agent.close()


async def _close_unwanted(opening: "asyncio.Future[AgentState]") -> None:
    """Close a session that is still opening, as soon as it is open."""
    with suppress(CtxagentError):
        opened = await opening
        await opened.close()


async def when_free(open: Callable[[], Awaitable[T]]) -> T:
    """Open a session as soon as no other process has it open. Other errors are raised."""
    while True:
        with suppress(SessionBusy):
            return await open()
        await asyncio.sleep(RETRY_INTERVAL_S)


REDRAW_INTERVAL_S = 0.5  # interval while a task runs


class RunningTask:
    """The running turn or command, if any. `redraw` is called regularly until it ends."""

    def __init__(self, redraw: Callable[[], None]) -> None:
        self._redraw = redraw
        self._task: asyncio.Task[Any] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run a turn or command to its end; return None if it was cancelled."""
        self._task = task = asyncio.create_task(work)
        try:
            async with self.redrawing():
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            self._task = None

    @asynccontextmanager
    async def redrawing(self) -> AsyncIterator[None]:
        """Call `redraw` regularly inside the block."""
        ticker = asyncio.create_task(self._keep_redrawing())
        try:
            yield
        finally:
            ticker.cancel()

    def cancel(self) -> bool:
        """Interrupt the task; return False if there is none or it is already being interrupted."""
        return self._task is not None and not self._task.cancelling() and self._task.cancel()

    async def end(self, seconds: float) -> None:
        """Interrupt the task, and wait at most `seconds` for its end."""
        if self._task is not None:
            self.cancel()
            await asyncio.wait({self._task}, timeout=seconds)

    async def _keep_redrawing(self) -> None:
        while True:
            self._redraw()
            await asyncio.sleep(REDRAW_INTERVAL_S)


class BackgroundTasks:
    """Tasks that run until `end`. `failed` is called with each exception."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()):
                self._failed(error)

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
