"""A test editor: the client from the Agent Client Protocol package, which starts `ctxagent acp` in
another process and validates each of its messages.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from acp import PROTOCOL_VERSION
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    InitializeResponse,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from . import starter
from .command import COMMAND, PATIENCE, Place

LINE_LIMIT = 64 << 20  # bytes
Choose = Callable[[ToolCallUpdate, Sequence[PermissionOption]], str | None]
T = TypeVar("T")


def allow_once(call: ToolCallUpdate, options: Sequence[PermissionOption]) -> str | None:
    return next(option.option_id for option in options if option.kind == "allow_once")


class Editor:
    """Client that records updates and answers questions: `choose` returns an option ID for a
    permission request, or None to cancel it.
    """

    agent: ClientSideConnection
    pid: int
    initialized: InitializeResponse

    def __init__(self, choose: Choose = allow_once) -> None:
        self.choose = choose
        self.updates: list[Any] = []
        self.sessions: list[str] = []  # session ID of each update
        self.asked: list[tuple[ToolCallUpdate, Sequence[PermissionOption]]] = []
        self.forms: list[Any] = []
        self.filled_in: dict[str, Any] = {}
        self.thinks = False  # leave questions unanswered
        self.faults: list[str] = []  # protocol violations and similar problems
        self._heard = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append(update)
        self.sessions.append(session_id)
        self._heard.set()

    async def request_permission(
        self,
        session_id: str,
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **more: Any,
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self._heard.set()
        if self.thinks:
            await asyncio.Event().wait()
        chosen = self.choose(tool_call, options)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        outcome = AllowedOutcome(outcome="selected", option_id=chosen)
        return RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **more: Any) -> Any:
        self.forms.append((message, mode))
        return AcceptElicitationResponse(action="accept", content=self.filled_in)

    async def until(self, there: Callable[[], bool]) -> None:
        """Wait until `there` returns True; it is called after each message."""
        async with asyncio.timeout(PATIENCE):
            while not there():
                self._heard.clear()
                await self._heard.wait()

    def of(self, kind: str) -> list[Any]:
        """Return the updates of a kind, by its name in the protocol."""
        return [update for update in self.updates if update.session_update == kind]

    @property
    def text(self) -> str:
        """The text of the agent's messages."""
        return "".join(update.content.text for update in self.of("agent_message_chunk"))

    @property
    def thoughts(self) -> str:
        return "".join(update.content.text for update in self.of("agent_thought_chunk"))

    def call(self, id: str) -> dict[str, Any]:
        """Return a tool call with all its updates applied."""
        found = dict[str, Any]()
        for update in self.updates:
            if getattr(update, "tool_call_id", None) == id:
                found |= update.model_dump(exclude_none=True)
        return found

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class _Faults(logging.Handler):
    """Handler for the package's log messages about unreadable messages."""

    def __init__(self, editor: Editor) -> None:
        super().__init__()
        self._editor = editor

    def emit(self, record: logging.LogRecord) -> None:
        self._editor.faults.append(record.getMessage())


async def _started(
    command: Sequence[str], cwd: Path, env: dict[str, str], stderr: int
) -> tuple[int, asyncio.StreamWriter, asyncio.StreamReader]:
    """Start the agent; return its process ID, and the streams to and from it."""
    assert starter.can_start(env)
    (stdin, to_agent), (from_agent, stdout) = os.pipe(), os.pipe()
    pid = starter.start(command, cwd, env, [stdin, stdout, stderr])
    for each in (stdin, stdout):
        os.close(each)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_agent, "rb")
    )
    writing, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(to_agent, "wb")
    )
    return pid, asyncio.StreamWriter(writing, protocol, None, loop), reader


def edit(
    place: Place,
    env: dict[str, str],
    act: Callable[[Editor], Awaitable[T]],
    *options: str,
    choose: Choose = allow_once,
    cwd: Path | None = None,
    meta: dict[str, Any] | None = None,
    forms: bool = False,
) -> Editor:
    """Start the agent, initialize it, run `act`, and end it by closing its input; return the
    editor.
    """

    async def run() -> Editor:
        editor = Editor(choose)
        handler = _Faults(editor)
        logging.getLogger().addHandler(handler)
        errors = place.root / "stderr"
        with errors.open("ab") as stderr:
            command = [COMMAND, *options, "acp"]
            editor.pid, to_agent, from_agent = await _started(
                command, cwd or place.project, env, stderr.fileno()
            )
        ended = asyncio.ensure_future(asyncio.to_thread(os.waitpid, editor.pid, 0))
        editor.agent = ClientSideConnection(
            editor,  # type: ignore[arg-type]
            to_agent,
            from_agent,
            use_unstable_protocol=True,
        )
        form = ElicitationCapabilities(form=ElicitationFormCapabilities()) if forms else None
        try:
            async with asyncio.timeout(PATIENCE):
                editor.initialized = await editor.agent.initialize(
                    PROTOCOL_VERSION, ClientCapabilities(elicitation=form, field_meta=meta)
                )
                await act(editor)
                to_agent.close()
                _, status = await asyncio.shield(ended)
        finally:
            if not ended.done():
                editor.kill()
                await ended
            await editor.agent.close()
            logging.getLogger().removeHandler(handler)
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), errors.read_text()
        assert editor.faults == []
        return editor

    return asyncio.run(run())
