"""The MCP server for a project's sessions, for any Model Context Protocol client."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ...tools.base import Context, Output
from ..errors import CtxagentError, ToolError
from ..loop.call_arguments import CallRefused, checked_call
from .session_tools import ServedSessions, session_tools

INSTRUCTIONS = "Recorded sessions of coding agents in this project, this one included."


async def serve_sessions(
    sessions: ServedSessions, version: str, redact: Callable[[Output], Output]
) -> None:
    """Serve the client on stdin and stdout until it closes them, then end the process."""
    tools, context = session_tools(sessions), Context(Path("/"))

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        reads = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        schemas = (tool.schema() for tool in tools.values())
        return types.ListToolsResult(
            tools=[types.Tool(**each, annotations=reads) for each in schemas]
        )

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        asked = {"name": params.name, "input": params.arguments or {}}
        try:
            call = checked_call(tools, asked, None, cut=False)
            output = await call.tool.run(call.params, context)
        except CallRefused as refusal:
            output = refusal.output
        except (ToolError, CtxagentError) as error:
            output = Output(str(error), is_error=True)
        return _result(redact(output))

    server = Server(
        "ctxagent", version=version, instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client closed before it read an answer
    os._exit(0)  # does not wait for threads that still serve the closed client


def _result(output: Output) -> types.CallToolResult:
    blocks = output.blocks or [{"type": "text", "text": output.text}]
    return types.CallToolResult(content=[*map(_block, blocks)], is_error=output.is_error)


def _block(block: dict[str, Any]) -> types.ContentBlock:
    if block["type"] == "image":
        source = block["source"]
        return types.ImageContent(data=source["data"], mime_type=source["media_type"])
    # Half a surrogate pair cannot be sent.
    return types.TextContent(text=block["text"].encode("utf-8", "replace").decode())
