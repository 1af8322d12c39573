"""The tools, prompts and resources of one server, from its lists, within limits; and the ranking of
tools for a search.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ....tools.system.unicode import clean
from ...border.values import Drops
from ...lazy import dataclass, regex
from .config import plain_name
from .shapes import notes_in

if TYPE_CHECKING:
    from mcp.client.session import ClientSession


MAX_TOOLS = 10_000  # of one server
MAX_LISTED = 1_000  # prompts, and resources, of one server
MAX_PAGES = 1_000
MAX_SCHEMA_CHARS = 100_000  # of one tool, as JSON
MAX_CATALOG_CHARS = 32_000_000  # of all tools of one server, as JSON
MAX_DESCRIPTION_CHARS = 4_000
MAX_INSTRUCTION_CHARS = 2_000
MAX_URI_CHARS = 500
READ_RESOURCE = "read_resource"  # tool that we add to each server with resources
RESOURCE_SCHEMA = {
    "type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool from the list of its server."""

    name: str  # mcp__SERVER__TOOL
    own_name: str  # name on the server; "" for the tool that reads resources
    description: str
    schema: Mapping[str, Any]  # JSON schema of its arguments
    size: int  # characters of name, description and schema as JSON
    needs_task: bool = False  # True if the tool can be called only as a task


@dataclass(frozen=True, slots=True)
class ListedPrompt:
    """A prompt from the list of its server."""

    name: str  # for /SERVER:NAME
    own_name: str
    description: str
    arguments: tuple[tuple[str, bool], ...]  # (name, is required)


@dataclass
class Catalog:
    """The tools, prompts and resources of a server, within limits."""

    instructions: str = ""
    tools: dict[str, ListedTool] = field(default_factory=dict)
    prompts: dict[str, ListedPrompt] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)  # names by URI
    notes: tuple[str, ...] = ()  # what was wrong in the lists, and what was done about it


class CatalogReader:
    """Reads the lists of a server. A list that the server refuses is named."""

    def __init__(self, server: str, session: "ClientSession", before: Catalog) -> None:
        """The entries of `before` stay if a list cannot be read."""
        self._server, self._session, self._before = server, session, before
        self._drops = Drops()
        start = session.initialize_result
        self._notes = dict.fromkeys(notes_in(start) if start else ())  # in order, of all answers
        self._catalog = Catalog(
            instructions=clean(session.instructions or "")[:MAX_INSTRUCTION_CHARS]
        )
        self._own_names = set[str]()  # of tools
        self._chars = 0

    async def read(self) -> Catalog:
        """Return all lists. Raises MCPError if the connection is lost."""
        can, catalog, session = self._session.server_capabilities, self._catalog, self._session
        # A server that declares nothing may still have tools.
        declares = can and (can.tools or can.resources or can.prompts)
        if not declares or (can and can.tools):
            await self._list(session.list_tools, "tools", MAX_TOOLS, self._add_tool)
        if can and can.resources:
            reader, about = (
                f"mcp__{self._server}__{READ_RESOURCE}",
                "Reads a resource of this server.",
            )
            catalog.tools.setdefault(reader, ListedTool(reader, "", about, RESOURCE_SCHEMA, 100))
            await self._list(session.list_resources, "resources", MAX_LISTED, self._add_resource)
        if can and can.prompts:
            await self._list(session.list_prompts, "prompts", MAX_LISTED, self._add_prompt)
        catalog.notes = (*self._notes, *self._drops.lines())
        return catalog

    async def _list(
        self,
        listing: Callable[..., Awaitable[Any]],
        key: str,
        most: int,
        add: Callable[[Any], None],
    ) -> None:
        """Add the items of a paginated list, at most `most`. Stop when a cursor repeats."""
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        from .answers import describe, is_connection_lost

        count = 0
        try:
            async for page in pages(listing):
                self._notes |= dict.fromkeys(notes_in(page))
                for item in getattr(page, key):
                    if count == most:
                        why = f"it has more than {most:,} {key}; the rest is left out"
                        self._drops.add(f"{key}/list", why)
                        return
                    count += 1
                    add(item)
        except (MCPError, ValidationError) as error:
            if is_connection_lost(error):
                raise
            self._drops.add(f"{key}/list", describe(error))
            listed: dict[str, Any] = getattr(self._catalog, key)
            listed |= {**getattr(self._before, key), **listed}

    def _add_tool(self, tool: Any) -> None:
        tools = self._catalog.tools
        if tool.name in self._own_names:
            self._drops.add(f"tool {tool.name}", "it is listed twice; the first is used")
            return
        self._own_names.add(tool.name)
        name = f"mcp__{self._server}__{plain_name(tool.name, _taken(self._server, tools))}"
        schema = tool.input_schema
        chars = len(json.dumps(schema, default=str))
        if chars > MAX_SCHEMA_CHARS:
            why = "its schema is too large, so any arguments are accepted"
            self._drops.add(f"tool {tool.name}", why)
            schema, chars = {"type": "object"}, 20
        about = (tool.description or "")[:MAX_DESCRIPTION_CHARS]
        if notes := notes_in(tool):
            about = f"{about} [{'; '.join(notes)}]".lstrip()
        chars += len(name) + len(about)
        if len(tool.name) > MAX_DESCRIPTION_CHARS or self._chars + chars > MAX_CATALOG_CHARS:
            why = "the list of this server is too large, so the tool is left out"
            self._drops.add(f"tool {tool.name}", why)
            return
        self._chars += chars
        needs_task = bool(tool.execution) and tool.execution.task_support == "required"
        tools[name] = ListedTool(name, tool.name, about, schema, chars, needs_task)

    def _add_resource(self, resource: Any) -> None:
        uri = str(resource.uri)
        if len(uri) > MAX_URI_CHARS:
            self._drops.add(f"resource {uri}", f"its URI has more than {MAX_URI_CHARS} characters")
            return
        self._catalog.resources[uri] = resource.name[:MAX_URI_CHARS]

    def _add_prompt(self, prompt: Any) -> None:
        prompts = self._catalog.prompts
        name = plain_name(prompt.name, prompts.__contains__)
        needs = [(a.name, bool(a.required)) for a in prompt.arguments or ()]
        about = (prompt.description or "")[:MAX_DESCRIPTION_CHARS]
        prompts[name] = ListedPrompt(name, prompt.name, about, tuple(needs[:20]))


def _taken(server: str, tools: Mapping[str, object]) -> Callable[[str], bool]:
    return lambda plain: f"mcp__{server}__{plain}" in tools


async def pages(listing: Callable[..., Awaitable[Any]]) -> AsyncIterator[Any]:
    """Yield the pages of a list, at most MAX_PAGES. Stop when a cursor repeats."""
    import mcp_types as types

    cursor, seen = None, set[str]()
    for _ in range(MAX_PAGES):
        page = await listing(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        yield page
        cursor = page.next_cursor
        if not cursor or cursor in seen:
            return
        seen.add(cursor)


NAME_WEIGHT, DESCRIPTION_WEIGHT, PARAMETER_WEIGHT = 2.0, 1.0, 0.5
MAX_WORDS = 50  # per search
MAX_PARAMETER_CHARS = 4_000  # of the names and descriptions of a tool's parameters
_JOINT = regex(r"(?<=[a-z0-9])(?=[A-Z])|_")
_WORD = regex(r"\w+")


def best_tools(tools: Sequence[ListedTool], query: str, most: int) -> list[ListedTool]:
    """Return up to `most` tools that match the query, the best first. Blocking."""
    import sqlite3

    words = list(dict.fromkeys(_WORD.findall(_searchable(query).lower())))[:MAX_WORDS]
    rows = ((place, *_columns(tool)) for place, tool in enumerate(tools))
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(
            "CREATE VIRTUAL TABLE tools USING "
            "fts5(name, description, parameters, tokenize = 'porter unicode61')"
        )
        db.executemany(
            "INSERT INTO tools(rowid, name, description, parameters) VALUES (?, ?, ?, ?)", rows
        )
        found = db.execute(
            "SELECT rowid FROM tools WHERE tools MATCH ? "
            "ORDER BY bm25(tools, ?, ?, ?), rowid LIMIT ?",
            (
                " OR ".join(f'"{word}"' for word in words) or '""',
                NAME_WEIGHT,
                DESCRIPTION_WEIGHT,
                PARAMETER_WEIGHT,
                most,
            ),
        )
        return [tools[place] for (place,) in found]


def _columns(tool: ListedTool) -> tuple[str, str, str]:
    """Return the searchable texts of a tool: name, description and parameters."""
    parameters = " ".join(_parameter_texts(tool.schema))[:MAX_PARAMETER_CHARS]
    name = tool.name.removeprefix("mcp__")
    name, about, parameters = map(_searchable, (name, tool.description, parameters))
    return name, about, parameters


def _parameter_texts(schema: Any) -> Iterator[str]:
    properties = schema.get("properties")
    for name, about in properties.items() if isinstance(properties, dict) else ():
        yield str(name)
        if isinstance(about, dict) and isinstance(about.get("description"), str):
            yield about["description"]


def _searchable(text: str) -> str:
    """Split camelCase and snake_case into words. Replace what UTF-8 cannot encode."""
    return _JOINT.sub(" ", text).encode(errors="replace").decode()
