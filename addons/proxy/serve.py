"""Run the proxy in this process, and answer each of its addresses."""

import asyncio
import json
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ...api.base import CompactionFailed, CtxagentError, RequestRejected, UsageError, dataclass
from ...api.context import CompactionEngine, Policy
from ...api.files import make_private_folder, replace_file
from ...api.models import check_address
from ...api.record import Project
from ...api.session import resume_session
from ...api.tools import Output
from .app import METHODS, OUR_PATH, Proxy, refusal_for
from .clients import MCP_PATH
from .conversations import Conversations
from .exchange import Exchanges
from .forward import HOST, UPSTREAMS, Upstream, is_at
from .host import ProxyHost
from .mcp_server import SessionServer
from .session_tools import ServedSessions
from .status import RUNNING_NAME, ProxyNote, ProxyStatus, StatusReader

MAX_UNDO_BYTES = 4_096  # of an undo request
MAX_MCP_BYTES = 1 << 20  # of a message of an MCP client
UNDO_HEADER = "x-ctxagent"  # other sites cannot send it without a CORS preflight


@dataclass
class ProxyPages:
    """The routes of the status page."""

    proxy: Proxy
    reader: StatusReader
    server: SessionServer
    _last_sent: tuple[ProxyStatus, list[ProxyNote]] | None = None
    _version: int = 0  # number of status changes
    _started: str = field(default_factory=lambda: secrets.token_hex(8))

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page, methods=["GET"]),
            Route(f"{OUR_PATH}status.json", self.status, methods=["GET"]),
            Route(f"{OUR_PATH}undo", self.undo, methods=["POST"]),
            Route(MCP_PATH, self.mcp, methods=METHODS),
            Route(f"{OUR_PATH}{{path:path}}", self.not_found, methods=METHODS),
        ]

    async def page(self, request: Request) -> Response:
        """Return the status page."""
        from .page import page, page_headers  # lazy: templates take memory and time to load

        if (refusal := refusal_for(request)) is not None:
            return refusal
        if request.method == "HEAD":  # some clients check whether the server is up
            return HTMLResponse(headers=page_headers())
        place = str(self.proxy.exchanges.conversations.project.cwd)
        html = await asyncio.to_thread(lambda: page(self._status(), self._faults(), place))
        return HTMLResponse(html, headers=page_headers())

    async def status(self, request: Request) -> Response:
        """Return the data of the page, or 304 if the client already has it."""
        if (refusal := refusal_for(request)) is not None:
            return refusal
        told = await asyncio.to_thread(self._status), self._faults()
        if told != self._last_sent:
            self._last_sent, self._version = told, self._version + 1
        tag = f'"{self._started}-{self._version}"'
        headers = {"etag": tag, "cache-control": "no-store", "x-content-type-options": "nosniff"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        if request.method == "HEAD":
            return Response(headers=headers)
        data = await asyncio.to_thread(_document, *told)
        return Response(data, headers=headers, media_type="application/json")

    async def undo(self, request: Request) -> Response:
        """Undo an edit. The request must have a header that an HTML form cannot send."""
        if (refusal := refusal_for(request)) is not None:
            return refusal
        if request.headers.get(UNDO_HEADER) != "undo":
            return _error(HTTPStatus.FORBIDDEN, f"the header {UNDO_HEADER}: undo is missing")
        given = await _small_json(request)
        id, seq = given.get("session"), given.get("seq")
        if not isinstance(id, str) or type(seq) is not int:
            return _error(HTTPStatus.BAD_REQUEST, "give a session and the seq of an edit")
        await asyncio.to_thread(self._status)  # reads the logs
        log = self.reader.log_of(id)
        if log is None:
            return _error(HTTPStatus.NOT_FOUND, f"there is no session {id!r} here")
        try:
            await self._undo_edit(log, seq)
        except CompactionFailed as error:
            return _error(HTTPStatus.NOT_FOUND, error.message)
        except CtxagentError as error:
            return _error(HTTPStatus.CONFLICT, error.message)
        return JSONResponse({"session": id, "seq": seq})

    async def mcp(self, request: Request) -> Response:
        """Answer a message of an MCP client, without a stream or a session."""
        if (refusal := refusal_for(request)) is not None:
            return refusal
        if request.method != "POST":  # the server has no stream of its own
            return Response(status_code=HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": "POST"})
        data = await _small_body(request, MAX_MCP_BYTES)
        if data is None:
            return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the message is too large")
        answer = await self.server.answer(data)
        if answer is None:
            return Response(status_code=HTTPStatus.ACCEPTED)
        return Response(answer, media_type="application/json")

    async def not_found(self, request: Request) -> Response:
        return refusal_for(request) or _error(HTTPStatus.NOT_FOUND, "there is nothing at this path")

    def _status(self) -> ProxyStatus:
        return self.reader.status(self.proxy.exchanges.conversations.project.logs())

    def _faults(self) -> list[ProxyNote]:
        """Return the failures in this process, newest first."""
        return [
            ProxyNote(datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"), text)
            for at, text in reversed([*self.proxy.faults])
        ]

    async def _undo_edit(self, log: Path, seq: int) -> None:
        """Undo the edit at `seq`. Raises CompactionFailed if there is no such edit, or another
        CtxagentError.
        """
        conversations = self.proxy.exchanges.conversations
        for session in conversations.open:
            if session.host.log.path == log and session.host.log.unchanged_state is not None:
                async with session.lock:
                    session.undo_edit(seq)
                return
        opened, _, _ = resume_session(log)
        try:
            engine = CompactionEngine(
                ProxyHost(opened, "", 0, summaries=False), conversations.policy
            )
            engine.uncompact(opened.entries(), seq)
        finally:
            opened.close()


def _document(status: ProxyStatus, faults: Sequence[ProxyNote]) -> bytes:
    return json.dumps({**status.to_json(), "faults": [*map(asdict, faults)]}).encode()


async def _small_json(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request, {} for anything else."""
    try:
        found = json.loads(await _small_body(request, MAX_UNDO_BYTES) or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


async def _small_body(request: Request, most: int) -> bytes | None:
    """Return the body of a request, None if it has more than `most` bytes."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            return None
    return data


def _error(status: HTTPStatus, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status)


KEEP_ALIVE_S = 600  # idle timeout of a client's connection
SHUTDOWN_S = 2  # for running requests


@dataclass(frozen=True)
class ProxyOptions:
    """The options of a proxy."""

    project: Project
    policy: Policy
    port: int = 0  # 0 for any free port
    upstreams: Mapping[str, str] = field(default_factory=dict)  # overrides of the defaults
    summaries: bool = True
    window: int | None = None
    report: Callable[[str], None] = lambda text: None
    redact: Callable[[Output], Output] = lambda output: output  # of the MCP server


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers; the command handles signals."""
        yield


@contextmanager
def _announced(folder: Path, address: str) -> Iterator[None]:
    """Write the proxy's address to a file of the project until the block ends. A newer proxy
    overwrites it. Ignore write errors.
    """
    file, told = folder / RUNNING_NAME, {"pid": os.getpid(), "address": address}
    with suppress(OSError):
        make_private_folder(folder)
        replace_file(file, json.dumps(told).encode(), durable=False)
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if json.loads(file.read_bytes()) == told:
                file.unlink()


def upstreams_of(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the base URLs: from `given`, else from the environment, else the defaults. Raises
    UsageError for an invalid URL.
    """
    found = {
        name: given.get(name) or environ.get(default.variable, "").strip() or default.url
        for name, default in UPSTREAMS.items()
    }
    for name, url in found.items():
        variable = UPSTREAMS[name].variable
        try:
            check_address(url, variable)
        except RequestRejected as error:
            hint = f"Write {variable} or --upstream {name}= as https://HOST[:PORT]."
            raise UsageError(error.message, hint=hint) from None
    return found


@asynccontextmanager
async def serving(options: ProxyOptions, environ: Mapping[str, str]) -> AsyncIterator[str]:
    """Run the proxy until the block ends, and yield its address. Raises UsageError if the port is
    in use.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, options.port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {HOST}:{options.port}: {error.strerror}",
                hint="Use another --port, or 0 for any free port.",
            ) from error
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        conversations = Conversations(
            options.project, options.policy, summaries=options.summaries, window=options.window
        )
        upstreams = upstreams_of(options.upstreams, environ)
        for name, url in upstreams.items():
            if is_at(url, address):
                hint = f"Unset {UPSTREAMS[name].variable}, or give --upstream {name}=URL."
                raise UsageError(f"the proxy would send requests to itself: {url}", hint=hint)
        proxy = Proxy(Exchanges(conversations, Upstream()), upstreams, options.report)
        recall = SessionServer(ServedSessions(options.project), options.redact)
        pages = ProxyPages(proxy, StatusReader(options.window), recall)
        server = _Server(
            uvicorn.Config(
                proxy.app(pages.routes()),
                log_level="critical",
                access_log=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
                server_header=False,
                date_header=False,
            )
        )
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        await server.ready.wait()
        try:
            with _announced(options.project.folder, address):
                yield address
        finally:
            server.should_exit = True
            await running
