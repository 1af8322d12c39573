"""The agent's side of the protocol: the methods that an editor calls, for all its sessions.

Messages are JSON-RPC, one per line, over two file descriptors. Threads read and write, so that a
slow editor or a long line does not block the sessions. An invalid line is answered with its
JSON-RPC error, and has no other effect.
"""

import asyncio
import json
import os
import signal
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from acp import PROTOCOL_VERSION
from acp.agent.connection import AgentSideConnection
from acp.exceptions import RequestError
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateResponse,
    AuthEnvVar,
    ClientCapabilities,
    CloseSessionResponse,
    EnvVarAuthMethod,
    ForkSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    SseMcpServer,
)

from ...api.base import CtxagentError, NoCredentials, SessionError, UsageError, dataclass
from ...api.front_ends import (
    MAX_LINE_BYTES,
    answer_request,
    bounded_lines,
    read_request,
    signals,
)
from .session import EditorSession, PromptBlock, SessionPlace
from .updates import Update

if TYPE_CHECKING:
    from acp.interfaces import Client
    from acp.schema import StopReason

    from ...api.session import ServerConfig

CONTEXT_METHOD = "ctxagent/context"  # without the underscore of an extension of the protocol
MAX_UNREAD_BYTES = 256 << 20  # unread output at which the editor counts as gone
OPENING_METHODS = ("session/new", "session/load")  # mcpServers is optional in these

Message = dict[str, Any]


class LineTransport:
    """A transport for the package `acp`. `send` queues a message without waiting. `receive` returns
    None once the input has ended or the output has no reader.
    """

    def __init__(self, source: int, sink: int) -> None:
        self.sent: Callable[[Message], None] = lambda message: None  # called with each message sent
        self._sink = sink
        self._incoming: asyncio.Queue[Message | RequestError | None] = asyncio.Queue()
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._unread = 0  # bytes not written yet
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, source), daemon=True, name="stdin").start()
        self._writer = threading.Thread(target=self._write, args=(loop,), daemon=True)
        self._writer.start()

    def put(self, message: Message) -> None:
        """Queue a message for sending. End the transport if too much is unread."""
        text = json.dumps(message, ensure_ascii=False, default=str)
        data = text.encode("utf-8", "replace") + b"\n"
        self._unread += len(data)
        if self._unread > MAX_UNREAD_BYTES:
            self.end()
            return
        self._outgoing.put(data)

    async def send(self, message: Message) -> None:
        self.put(message)
        self.sent(message)

    async def receive(self) -> Message | None:
        while isinstance(found := await self._incoming.get(), RequestError):
            self.put({"jsonrpc": "2.0", "id": None, "error": found.to_error_obj()})
        return found

    def end(self) -> None:
        """Make `receive` return None after the messages already received."""
        self._incoming.put_nowait(None)

    async def close(self) -> None:
        """Write the queued messages, for at most one second."""
        self._outgoing.put(None)
        await asyncio.to_thread(self._writer.join, 1.0)

    def _read(self, loop: asyncio.AbstractEventLoop, source: int) -> None:
        with suppress(RuntimeError):  # the loop has ended
            for number, line in bounded_lines(source):
                loop.call_soon_threadsafe(self._incoming.put_nowait, _message(number, line))
            loop.call_soon_threadsafe(self._incoming.put_nowait, None)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        while (data := self._outgoing.get()) is not None:
            rest = memoryview(data)
            try:
                while rest:
                    rest = rest[os.write(self._sink, rest) :]
            except OSError:  # the reader has gone
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._incoming.put_nowait, None)
                return
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wrote, len(data))

    def _wrote(self, size: int) -> None:
        self._unread -= size


def _message(number: int, line: bytes | None) -> Message | RequestError:
    """Return the message on a line, or its error."""
    if line is None:
        why = f"line {number} has more than {MAX_LINE_BYTES >> 20} MiB"
        return RequestError(-32600, why, {"line": number})
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return RequestError(-32700, f"line {number} is not JSON: {error}", {"line": number})
    if not isinstance(found, dict) or not ({"method", "result", "error"} & found.keys()):
        why = f"line {number} is not a JSON-RPC message: it must be an object with a method"
        return RequestError(-32600, why, {"line": number})
    params = found.get("params")
    if found.get("method") in OPENING_METHODS and isinstance(params, dict):
        params.setdefault("mcpServers", [])
    return found


EditorMcpServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

SESSIONS_PER_PAGE = 50
STOP_REASONS: "dict[str, StopReason]" = {
    "ok": "end_turn",
    "denied": "end_turn",
    "limit": "max_turn_requests",
    "interrupted": "cancelled",
}
AUTH_REQUIRED, NOT_FOUND, INVALID, FAILED = -32000, -32002, -32602, -32603


@dataclass(frozen=True, slots=True)
class EditorServices:
    """The services that the command line passes to the server. They block and raise
    CtxagentError.
    """

    version: str
    place_of: "Callable[[Path, Sequence[ServerConfig]], SessionPlace]"  # with the editor's servers
    check_key: Callable[[], None]
    main_key_variable: Callable[[], str]  # environment variable of the model's key, "" for none
    logs: Callable[[Path | None], Sequence[Path]]  # session logs of a directory; None for all


class EditorServer:
    """The server for one editor and all sessions it opens."""

    def __init__(self, services: EditorServices, transport: LineTransport) -> None:
        self._services, self._transport = services, transport
        self._sessions: dict[str, EditorSession] = {}
        self._client: Client
        self._shows_terminals = self._shows_forms = False
        transport.sent = self._after_answer

    def on_connect(self, conn: "Client") -> None:
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **more: Any,
    ) -> InitializeResponse:
        """Return the agent's capabilities; note whether the editor shows terminals and forms."""
        if client_capabilities is not None:
            extensions = client_capabilities.field_meta or {}
            self._shows_terminals = extensions.get("terminal_output") is True
            forms = client_capabilities.elicitation
            self._shows_forms = forms is not None and forms.form is not None
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION) or PROTOCOL_VERSION,
            agent_info=Implementation(
                name="ctxagent", title="ctxagent", version=self._services.version
            ),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[
                *_auth_methods(await asyncio.to_thread(self._services.main_key_variable))
            ],
        )

    async def authenticate(self, method_id: str, **more: Any) -> AuthenticateResponse:
        """Check that there is a key. Raises RequestError if not."""
        async with _protocol_errors():
            await asyncio.to_thread(self._services.check_key)
        return AuthenticateResponse()

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[EditorMcpServer] | None = None, **more: Any
    ) -> NewSessionResponse:
        session = await self._open(cwd, mcp_servers)
        return NewSessionResponse(
            session_id=session.id, modes=session.modes, config_options=[*session.options]
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[EditorMcpServer] | None = None,
        **more: Any,
    ) -> LoadSessionResponse:
        session = await self._open(cwd, mcp_servers, resume=session_id)
        await session.replay()
        await session.send_state()
        return LoadSessionResponse(modes=session.modes, config_options=[*session.options])

    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[EditorMcpServer] | None = None,
        **more: Any,
    ) -> ResumeSessionResponse:
        session = await self._open(cwd, mcp_servers, resume=session_id)
        await session.send_state()
        return ResumeSessionResponse(modes=session.modes, config_options=[*session.options])

    async def fork_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[EditorMcpServer] | None = None,
        **more: Any,
    ) -> ForkSessionResponse:
        session = await self._open(cwd, mcp_servers, resume=session_id, fork=True)
        return ForkSessionResponse(
            session_id=session.id, modes=session.modes, config_options=[*session.options]
        )

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **more: Any
    ) -> ListSessionsResponse:
        """Return a page of sessions, newest first. `cursor` is the number of sessions to skip."""
        from ...api.record import session_rows

        if cursor is not None and not cursor.isdecimal():
            raise RequestError(INVALID, f"invalid cursor {cursor!r}")
        start = int(cursor or 0)

        def rows() -> tuple[list[SessionInfo], bool]:
            logs = self._services.logs(_directory(cwd) if cwd else None)
            page = islice(logs, start, start + SESSIONS_PER_PAGE)
            found = [
                SessionInfo(
                    session_id=row.id,
                    cwd=row.cwd or cwd or "/",
                    title=row.title or None,
                    updated_at=datetime.fromtimestamp(row.changed, UTC).isoformat(),
                )
                for row in session_rows(page)
                if row.title
            ]
            return found, len(logs) > start + SESSIONS_PER_PAGE

        async with _protocol_errors():
            sessions, has_more = await asyncio.to_thread(rows)
        more_at = str(start + SESSIONS_PER_PAGE) if has_more else None
        return ListSessionsResponse(sessions=sessions, next_cursor=more_at)

    async def close_session(self, session_id: str, **more: Any) -> CloseSessionResponse:
        session = self._session(session_id)
        del self._sessions[session_id]
        await session.close()
        return CloseSessionResponse()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **more: Any
    ) -> SetSessionModeResponse:
        async with _protocol_errors():
            self._session(session_id).set_mode(mode_id)
        return SetSessionModeResponse()

    async def set_config_option(
        self, session_id: str, config_id: str, value: str | bool, **more: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        async with _protocol_errors():
            session.set_option(config_id, value)
        return SetSessionConfigOptionResponse(config_options=[*session.options])

    async def prompt(
        self, session_id: str, prompt: Sequence[PromptBlock], **more: Any
    ) -> PromptResponse:
        session = self._session(session_id)
        async with _protocol_errors():
            finished = await session.prompt(prompt)
        if finished.status == "error":
            error = finished.error or {}
            raise RequestError(FAILED, error.get("message", "the turn failed"), dict(error))
        return PromptResponse(stop_reason=STOP_REASONS[finished.status])

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer a request about the context of a session. Its parameters are those of a line of
        the type `context` in `stream-json`, and `sessionId`.
        """
        if method != CONTEXT_METHOD:
            raise RequestError.method_not_found(f"_{method}")
        session = self._session(str(params.get("sessionId")))
        async with _protocol_errors():
            request = read_request(params)
            return await answer_request(session.conversation.agent, request)

    async def cancel(self, session_id: str, **more: Any) -> None:
        if session := self._sessions.get(session_id):
            session.cancel()

    async def close(self) -> None:
        """Close all sessions."""
        sessions, self._sessions = [*self._sessions.values()], {}
        await asyncio.gather(*(each.close() for each in sessions), return_exceptions=True)

    async def _open(
        self,
        cwd: str,
        mcp_servers: Sequence[EditorMcpServer] | None,
        *,
        resume: str | None = None,
        fork: bool = False,
    ) -> EditorSession:
        async with _protocol_errors():
            directory, servers = _directory(cwd), _servers(mcp_servers or ())
            await asyncio.to_thread(self._services.check_key)
            place = await asyncio.to_thread(self._services.place_of, directory, servers)
            if resume and not fork and resume in self._sessions:
                await self._sessions.pop(resume).close()
            session = EditorSession(
                place,
                self._client,
                self._send,
                shows_terminals=self._shows_terminals,
                shows_forms=self._shows_forms,
            )
            try:
                await session.open(resume=resume, fork=fork)
            finally:
                if not session.id:
                    await asyncio.to_thread(place.end)
        self._sessions[session.id] = session
        return session

    def _session(self, id: str) -> EditorSession:
        if id not in self._sessions:
            hint = "Open it with session/new, session/load or session/resume."
            raise RequestError(NOT_FOUND, f"no session {id!r} is open. {hint}", {"sessionId": id})
        return self._sessions[id]

    def _send(self, session: str, update: Update) -> None:
        told = update.model_dump(mode="json", by_alias=True, exclude_none=True)
        params = {"sessionId": session, "update": told}
        self._transport.put({"jsonrpc": "2.0", "method": "session/update", "params": params})

    def _after_answer(self, sent: Message) -> None:
        """Send the state of a session after the response that contains its ID."""
        result = sent.get("result")
        id = result.get("sessionId") if isinstance(result, dict) else None
        if isinstance(id, str) and id in self._sessions:
            self._telling = asyncio.ensure_future(self._sessions[id].send_state())


async def serve_editor(services: EditorServices, source: int, sink: int) -> None:
    """Serve the editor that writes to file descriptor `source` and reads from `sink`, until either
    is closed or an end signal arrives.
    """
    transport = LineTransport(source, sink)
    server = EditorServer(services, transport)
    with warnings.catch_warnings():  # the package warns about unstable parts of the protocol
        warnings.simplefilter("ignore")
        connection = AgentSideConnection(
            server,  # type: ignore[arg-type]
            transport,
            listening=False,
            use_unstable_protocol=True,
        )
        with signals.call_on_signals(transport.end, signal.SIGINT, *signals.END_SIGNALS):
            try:
                await connection.listen()
            finally:
                await server.close()
                await connection.close()


@asynccontextmanager
async def _protocol_errors() -> AsyncIterator[None]:
    """Convert ctxagent errors into protocol errors."""
    try:
        yield
    except NoCredentials as error:
        raise RequestError(AUTH_REQUIRED, str(error)) from error
    except SessionError as error:
        raise RequestError(NOT_FOUND, str(error)) from error
    except UsageError as error:
        raise RequestError(INVALID, str(error)) from error
    except CtxagentError as error:
        raise RequestError(FAILED, str(error), {"type": type(error).__name__}) from error


def _directory(cwd: str) -> Path:
    """Return a working directory. Raises UsageError if it does not exist or is not absolute."""
    path = Path(cwd)
    if not path.is_absolute() or not path.is_dir():
        raise UsageError(f"cwd {cwd!r} is not a directory", hint="Give its absolute path.")
    return path


def _servers(given: Sequence[EditorMcpServer]) -> "list[ServerConfig]":
    """Return the MCP servers an editor passes. Raises UsageError for an unsupported transport."""
    from ...api.session import ServerConfig, plain_name

    found = dict[str, ServerConfig]()
    for server in given:
        name = plain_name(server.name, found.__contains__)
        source = Path("the editor")
        if isinstance(server, McpServerStdio):
            command = (server.command, *server.args)
            env = {each.name: each.value for each in server.env}
            found[name] = ServerConfig(name, source, command=command, env=env)
        elif isinstance(server, HttpMcpServer):
            headers = {each.name: each.value for each in server.headers}
            found[name] = ServerConfig(name, source, url=server.url, headers=headers)
        else:
            raise UsageError(
                f"the MCP server {server.name} has an unsupported transport",
                hint="Use a command (stdio) or an http URL.",
            )
    return [*found.values()]


def _auth_methods(variable: str) -> list[EnvVarAuthMethod]:
    if not variable:
        return []
    return [
        EnvVarAuthMethod(
            type="env_var",
            id="key",
            name="Key of the model's provider",
            description="Set it in the environment that the editor starts ctxagent with.",
            vars=[AuthEnvVar(name=variable, secret=True)],
        )
    ]
