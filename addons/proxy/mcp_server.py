"""The MCP server for a project's sessions, over HTTP in a running proxy, or over stdin and stdout.

The protocol is written out here, because the start of the SDK takes longer than some clients wait.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import field
from pathlib import Path
from typing import Any

from ...api.base import CtxagentError, ToolError, __version__, dataclass
from ...api.record import SERVER
from ...api.session import CallRefused, checked_call
from ...api.tools import Context, Output
from .bodies.base import Json
from .session_tools import ServedSessions, session_tools

INSTRUCTIONS = "Recorded sessions of coding agents in this project, this one included."
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # the newest first
NO_MESSAGE, NO_REQUEST, NO_METHOD, NO_PARAMETERS = -32700, -32600, -32601, -32602


@dataclass
class SessionServer:
    """Answers MCP messages about the sessions of one project."""

    sessions: ServedSessions
    redact: Callable[[Output], Output] = lambda output: output
    _context: Context = field(default_factory=lambda: Context(Path("/")))

    def __post_init__(self) -> None:
        self._tools = session_tools(self.sessions)

    async def answer(self, data: bytes | str) -> str | None:
        """Return the answer to a message, on one line; None for a notification or an answer."""
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            return _line(None, error=(NO_MESSAGE, "the message is not JSON"))
        if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
            return _line(None, error=(NO_REQUEST, "the message is not one JSON-RPC object"))
        id, method, given = (message.get(name) for name in ("id", "method", "params"))
        if id is None or method is None:
            return None
        given = given if isinstance(given, dict) else {}
        if method == "tools/call":
            if not isinstance(given.get("name"), str):
                return _line(id, error=(NO_PARAMETERS, "the name of the tool is missing"))
            return _line(id, result=await self._call(given))
        result = self._result(method, given)
        if result is None:
            return _line(id, error=(NO_METHOD, f"there is no method {method}"))
        return _line(id, result=result)

    def _result(self, method: str, given: Json) -> Json | None:
        """Return the result of any method except `tools/call`, None for an unknown method."""
        if method == "initialize":
            asked = given.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": SERVER, "version": __version__},
                "instructions": INSTRUCTIONS,
            }
        if method == "tools/list":
            reads = {"readOnlyHint": True, "openWorldHint": False}
            schemas = (tool.schema() for tool in self._tools.values())
            return {"tools": [{**_camel_case(each), "annotations": reads} for each in schemas]}
        return {} if method == "ping" else None

    async def _call(self, given: Json) -> Json:
        """Run a tool, and return its result."""
        asked = {"name": given["name"], "input": given.get("arguments") or {}}
        try:
            call = checked_call(self._tools, asked, None, cut=False)
            output = await call.tool.run(call.params, self._context)
        except CallRefused as refusal:
            output = refusal.output
        except (ToolError, CtxagentError) as error:
            output = Output(str(error), is_error=True)
        output = self.redact(output)
        blocks = output.blocks or [{"type": "text", "text": output.text}]
        return {"content": [*map(_block, blocks)], "isError": output.is_error}


async def serve_stdio(server: SessionServer) -> None:
    """Serve the client on stdin and stdout until it closes them, then end the process."""
    running = set[asyncio.Task[None]]()

    async def reply(answering: Coroutine[Any, Any, str | None]) -> None:
        if answer := await answering:
            try:
                print(answer, flush=True)
            except BrokenPipeError:
                os._exit(0)  # the client closed before it read an answer

    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        task = asyncio.ensure_future(reply(server.answer(line)))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(0)  # answers that need no file are printed now
    os._exit(0)  # does not wait for threads that still serve the closed client


def _line(id: Any, *, result: Json | None = None, error: tuple[int, str] | None = None) -> str:
    """Return a JSON-RPC answer on one line of ASCII."""
    said = {"error": {"code": error[0], "message": error[1]}} if error else {"result": result}
    return json.dumps({"jsonrpc": "2.0", "id": id, **said})


def _camel_case(schema: Json) -> Json:
    """Return a tool's schema with the field names of MCP."""
    return {"inputSchema" if name == "input_schema" else name: schema[name] for name in schema}


def _block(block: Json) -> Json:
    if block["type"] == "image":
        source = block["source"]
        return {"type": "image", "data": source["data"], "mimeType": source["media_type"]}
    # Half a surrogate pair cannot be sent.
    return {"type": "text", "text": block["text"].encode("utf-8", "replace").decode()}
