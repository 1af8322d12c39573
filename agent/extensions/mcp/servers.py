"""The MCP servers of a session, for the tool `Mcp` and for people: search, describe, call.

Definitions of tools never stand in a request's `tools`: what is needed of them is searched for, and
comes as a result. What servers say is text of others: control characters are taken out, lengths
are bounded, and what is no text goes to a file.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import mimetypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....tools.base import Output
from ....tools.system.files import make_private_folder, write_private
from ....tools.system.shorten import shorten
from ....tools.system.unicode import clean
from ...errors import ToolError
from .connection import Connection
from .server_config import McpServerConfig

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool

MAX_FOUND = 20  # tools that a search tells of
MAX_LINE_CHARS = 200  # of a tool's description in a list
MAX_DESCRIPTION_CHARS, MAX_SCHEMA_CHARS = 4_000, 20_000  # of a tool that is described
MAX_TEXT_CHARS = 10_000_000  # of a result
SEARCH_PATIENCE_S = 10.0  # for which a search waits for servers that are only starting

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class FoundTool:
    """A tool of a server."""

    name: str  # mcp__SERVER__TOOL
    connection: Connection
    tool: "Tool"

    @property
    def line(self) -> str:
        about = " ".join(clean(self.tool.description or "").split())
        return f"{self.name}: {shorten(about, MAX_LINE_CHARS)}"


class McpServers:
    """The servers of a session; none runs before it is asked something."""

    def __init__(
        self,
        configs: Sequence[McpServerConfig],
        environ: Mapping[str, str],
        cwd: Path,
        folder: Path,
    ) -> None:
        """Take the session's `folder`, where files of results are kept."""
        self.connections = [Connection(config, environ, cwd) for config in configs]
        self._folder = folder / "mcp"

    async def search(self, words: str) -> Output:
        """Return the tools that fit the words best, all of a few."""
        connections = [each for each in self.connections if each.state != "off"]
        starting = [asyncio.ensure_future(each.ready()) for each in connections
                    if each.state != "failed"]  # fmt: skip
        if starting:
            _, waiting = await asyncio.wait(starting, timeout=SEARCH_PATIENCE_S)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
        tools = self._tools()
        wanted = re.findall(r"\w+", words.lower())
        scored = sorted(
            ((_score(found, wanted), found) for found in tools), key=lambda pair: -pair[0]
        )
        fit = [found for score, found in scored if score or not wanted]
        lines = [found.line for found in fit[:MAX_FOUND]]
        if len(fit) > MAX_FOUND:
            lines.append(f"[{len(fit) - MAX_FOUND:,} more fit; give other words]")
        if not fit:
            lines.append(f"[no tool fits; {len(tools):,} tools in all]")
        lines += [
            f"[server {each.config.name}: {each.state}{f', {each.error}' if each.error else ''}]"
            for each in connections
            if each.state != "ready"
        ]
        return Output("\n".join(clean(line) for line in lines))

    async def describe(self, name: str) -> Output:
        """Return what a tool does and takes. Raises ToolError."""
        found = await self._find(name)
        about = shorten(clean(found.tool.description or ""), MAX_DESCRIPTION_CHARS)
        schema = json.dumps(found.tool.input_schema, ensure_ascii=True, separators=(",", ":"))
        if len(schema) > MAX_SCHEMA_CHARS:
            schema = f"{schema[:MAX_SCHEMA_CHARS]} … ({len(schema):,} characters)"
        return Output(f"{found.name}\n{about}\narguments: {schema}")

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Output:
        """Call a tool; return what it says. Raises ToolError."""
        found = await self._find(name)
        result = await found.connection.call(found.tool.name, arguments)
        text = await asyncio.to_thread(self._text_of, result)
        details = {"server": found.connection.config.name, "tool": found.tool.name}
        return Output(text, details, is_error=bool(result.is_error))

    def tools_of(self, server: str) -> list[FoundTool]:
        """Return the tools of a server, as far as they are known."""
        return [found for found in self._tools() if found.connection.config.name == server]

    async def close(self) -> None:
        """End all servers."""
        await asyncio.gather(*(each.close() for each in self.connections))

    def _tools(self) -> list[FoundTool]:
        """Return the tools of all servers that are ready. Two that would have the same name get a
        part of a digest each."""
        found: dict[str, FoundTool] = {}
        for connection in self.connections:
            for tool in connection.tools if connection.state == "ready" else ():
                name = tool_name(connection.config.name, tool.name)
                if name in found:
                    digest = hashlib.sha256(f"{connection.config.name}/{tool.name}".encode())
                    name = f"{name}_{digest.hexdigest()[:6]}"
                found[name] = FoundTool(name, connection, tool)
        return list(found.values())

    async def _find(self, name: str) -> FoundTool:
        """Return a tool by its name; its server is started where it does not run."""
        for connection in self.connections:
            if name.startswith(tool_name(connection.config.name, "")):
                await connection.ready()
        found = next((tool for tool in self._tools() if tool.name == name), None)
        if found is None:
            raise ToolError(f"There is no tool {name!r:.100}. Search for one with query.")
        return found

    def _text_of(self, result: "CallToolResult") -> str:
        parts = [self._part(block) for block in result.content]
        if not parts and result.structured_content is not None:
            parts = [json.dumps(result.structured_content, ensure_ascii=False)]
        return clean("\n".join(parts)[:MAX_TEXT_CHARS]) or "[it said nothing]"

    def _part(self, block: Any) -> str:
        """Return a part of a result as text; what is none is kept in a file."""
        if block.type == "text":
            return str(block.text)
        if block.type in ("image", "audio"):
            return self._kept(block.data, block.mime_type)
        if block.type == "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            if text is not None:
                return f"[{resource.uri}]\n{text}"
            return f"[{resource.uri}] {self._kept(resource.blob, resource.mime_type)}"
        return f"[a link to {block.uri}: {block.name}]"

    def _kept(self, data: str, mime_type: str | None) -> str:
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return "[a part that is no base64]"
        kind = mime_type or "application/octet-stream"
        suffix = mimetypes.guess_extension(kind.partition(";")[0].strip()) or ".bin"
        path = self._folder / f"{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
        try:
            make_private_folder(self._folder)
            write_private(path, content)
        except OSError as error:
            return f"[{kind}, {len(content):,} bytes, which could not be kept: {error.strerror}]"
        return f"[{kind}, {len(content):,} bytes, kept in {path}]"


def tool_name(server: str, tool: str) -> str:
    """Return the name by which rules and the model know a tool of a server."""
    return f"mcp__{_UNSAFE.sub('_', server)}__{_UNSAFE.sub('_', tool)}"


def _score(found: FoundTool, words: Sequence[str]) -> float:
    """Return how well a tool fits: words of its name count more than those of what it says."""
    name, about = found.name.lower(), (found.tool.description or "").lower()
    return sum(3 * (word in name) + (word in about) for word in words)
