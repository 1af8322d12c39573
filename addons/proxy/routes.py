"""The proxy's own routes: status page, status data, undo of an edit, and the MCP server."""

import asyncio
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ...api.base import CompactionFailed, CtxagentError, dataclass
from ...api.context import CompactionEngine
from ...api.session import resume_session
from .app import METHODS, OUR_PATH, Proxy, refusal_for
from .clients import MCP_PATH
from .host import ProxyHost
from .mcp_server import SessionServer
from .status import ProxyNote, ProxyStatus, StatusReader

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
