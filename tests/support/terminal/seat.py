"""A user of the REPL, in this process: keys through a pipe, a screen in pyte, and scripted
conversations.
"""

import asyncio
import io
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyte
import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.base import PipeInput

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.config.keyboard import DEFAULT_KEYS
from ctxagent.agent.config.settings import PermissionMode, UiSettings
from ctxagent.agent.errors import CtxagentError
from ctxagent.agent.events import Ask, Emit, SessionOpened
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.resume import create_session, resume_session
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.session.entries import Session, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.search.recall import text_of_ref
from ctxagent.agent.session.store import Project, all_logs
from ctxagent.agent.ui.conversation.open_session import ConversationServices
from ctxagent.agent.ui.repl.repl import Repl
from ctxagent.agent.ui.terminal.output import BatchedOutput, output_for
from ctxagent.tools.base import Context

from ..server.validator import validate
from ..sessions.setup import FixedEnvironment, FixedHooks, agent_of, every_tool, put_together

ENTER, ESC, CTRL_C, CTRL_D, CTRL_R, SHIFT_TAB, UP = (
    "\r",
    "\x1b",
    "\x03",
    "\x04",
    "\x12",
    "\x1b[Z",
    "\x1b[A",
)
KEEP_LITTLE = replace(DEFAULT, keep_tokens=0, keep_messages=1)
DEADLINE = 120.0  # seconds after which waiting for a text fails
PLAY_TIMEOUT_S = 400.0  # timeout of `act`, below the limit at which pytest ends the worker


class Glass(io.StringIO):
    """A terminal: `lines()` are the visible lines, `all()` includes the scrollback."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        super().__init__()
        self.size = Size(rows=rows, columns=columns)
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=1.0)
        self._stream = pyte.Stream(self.screen)
        self.raw = ""

    def write(self, text: str) -> int:
        self.raw += text
        self._stream.feed(text)
        return len(text)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def all(self) -> str:
        gone = [
            "".join(line[x].data for x in range(self.size.columns)).rstrip()
            for line in self.screen.history.top
        ]
        return "\n".join([*gone, *self.lines()])

    def output(self) -> BatchedOutput:
        return output_for(self, size=lambda: self.size)


class Desk:
    """A project with its sessions, and a function that opens scripted conversations in it."""

    def __init__(
        self,
        folder: Path,
        *steps: Step,
        mode: PermissionMode = "ask",
        pace: float = 0.0,
        fails: Sequence[CtxagentError] = (),
    ) -> None:
        self.cwd = folder / "project"
        self.cwd.mkdir()
        self.project = Project(folder / "state", self.cwd)
        self.model = ScriptedModel(list(steps), pace=pace, check=validate)
        self.mode: PermissionMode = mode
        self.fails = list(fails)
        self.loops: list[AgentState] = []
        self.gate: asyncio.Event | None = None
        self.models: list[tuple[str, ...]] = []  # known models
        self.chosen: list[tuple[AgentState, str]] = []  # requested models

    async def __call__(
        self, emit: Emit, ask: Ask, *, resume: str | None = None, fork: bool = False,
        prior: str | None = None, read_only: bool = False,
    ) -> AgentState:  # fmt: skip
        if self.gate:
            await self.gate.wait()
        if self.fails:
            raise self.fails.pop(0)
        return await asyncio.to_thread(self._open, emit, ask, resume, fork, read_only)

    def _open(
        self, emit: Emit, ask: Ask, resume: str | None, fork: bool, read_only: bool
    ) -> AgentState:
        path = self.project.find_log(resume) if resume else self.project.new_log()
        if fork:
            path = self.project.fork(path)
        found = resume_session(path, read_only=read_only) if path.exists() else create_session(path)
        tools = every_tool()
        opened = Session(
            id=path.parent.name, cwd=str(self.cwd), version="0", model="scripted", system="Hi.",
            tools=[tool.schema() for tool in tools],
        )  # fmt: skip
        context = Context(cwd=self.cwd, session_dir=path.parent, env=dict(os.environ))
        context.recall = lambda ref: text_of_ref(path.parents[2], path.parent.name, ref)
        loop = agent_of(
            found,
            self.model,
            context,
            opening=lambda: opened,
            emit=emit,
            ask=ask,
            approval=Approval(mode=self.mode, cwd=self.cwd),
            policy=KEEP_LITTLE,
        )
        put_together(loop, FixedEnvironment(loop), FixedHooks(), tools)
        self.loops.append(loop)
        emit(SessionOpened(path.parent.name, str(path), "scripted", found.state.entries))
        return loop

    def services(self) -> ConversationServices:
        return ConversationServices(
            open=self,
            cwd=self.cwd,
            version="1.2.3",
            sessions=self.project.logs,
            all_sessions=lambda: all_logs(self.project.state),
            copy=self.project.fork,
            set_model=self.set_model,
            models=lambda: self.models,
        )

    def set_model(self, loop: AgentState, id: str) -> None:
        self.chosen.append((loop, id))

    def said(self, place: int = -1) -> list[str]:
        """Return the user's messages in the log of a session."""
        log = self.loops[place].log.path
        return (
            [
                str(entry.content)
                for entry in read_log(log).entries
                if isinstance(entry, User) and entry.source != "attachment"
            ]
            if log.exists()
            else []
        )


class Seat:
    """A user of the REPL: keys in, a screen out."""

    def __init__(self, desk: Desk, keys: PipeInput, glass: Glass, **options: Any) -> None:
        self.desk, self.glass, self._keys = desk, glass, keys
        services = replace(desk.services(), history=options.pop("history", None))
        own_keys = options.pop("keys", DEFAULT_KEYS)
        self.repl = Repl(
            services, UiSettings(**options), own_keys, input=keys, output=glass.output()
        )

    def press(self, keys: str) -> None:
        self._keys.send_text(keys)

    def say(self, words: str) -> None:
        self.press(words + ENTER)

    async def until(self, seen: str | Callable[[], bool], *, gone: bool = False) -> None:
        """Wait until a text is on the screen (or in the scrollback), or gone from the screen."""

        def there() -> bool:
            if callable(seen):
                return seen()
            return (seen not in "\n".join(self.glass.lines())) if gone else seen in self.glass.all()

        try:
            async with asyncio.timeout(DEADLINE):
                while not there():  # noqa: ASYNC110 (a screen tells nobody of its changes)
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"never {'gone' if gone else 'seen'}: {seen}\n{self.glass.all()}")

    async def keys(self, seen: str = "[y]es") -> None:
        """Wait until a question accepts keys."""
        await self.until(seen)
        await self.until(lambda: bool(self.repl.screen.instant))  # type: ignore[attr-defined]

    async def menu(self) -> None:
        """Wait until a menu accepts keys (its text may have been visible before)."""
        await self.until(lambda: self.repl.screen.picker.is_open)  # type: ignore[attr-defined]

    async def idle(self) -> None:
        await self.until(lambda: self.repl._waiting.is_idle and not self.repl.working)


def drive(
    desk: Desk,
    act: Callable[[Seat], Coroutine[Any, Any, None]],
    *,
    glass: Glass | None = None,
    **options: Any,
) -> tuple[int, Glass]:
    """Run the REPL while `act` plays the user, and press Ctrl-D at the end; return the exit code
    and the screen.
    """
    glass = glass or Glass()

    async def run(keys: PipeInput) -> int:
        seat = Seat(desk, keys, glass, **options)

        async def person() -> None:
            await seat.until("❯")
            async with asyncio.timeout(PLAY_TIMEOUT_S):
                await act(seat)
            if not serving.done() and seat.repl.screen.app.is_running:  # type: ignore[attr-defined]
                await seat.idle()
                seat.press(CTRL_D)

        serving = asyncio.create_task(seat.repl.run())
        playing = asyncio.create_task(person())
        await asyncio.wait({serving, playing}, return_when=asyncio.FIRST_COMPLETED)
        if playing.done() and playing.exception():
            seat.repl.leave()
        if serving.done():
            serving.result()
        await playing
        async with asyncio.timeout(DEADLINE):
            return await serving

    with create_pipe_input() as keys:
        return asyncio.run(run(keys)), glass
