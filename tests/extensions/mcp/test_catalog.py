"""The lists of a server."""

import asyncio
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest

from ctxagent.agent.extensions.mcp import catalog as catalogs
from ctxagent.agent.extensions.mcp.answers import ServerError
from ctxagent.agent.extensions.mcp.catalog import Catalog, CatalogReader

Page = types.ListToolsResult


class Session:
    """A session whose server lists these pages of tools, and refuses the list of prompts."""

    instructions = "Be quick.\x1b[2J"
    initialize_result = None

    def __init__(self, *pages: Page, **declared: Any) -> None:
        self.pages, self.cursors = [*pages], list[str | None]()
        empty: dict[str, Any] = {"tools": None, "resources": None, "prompts": None}
        self.server_capabilities = SimpleNamespace(**{**empty, **declared})

    async def list_tools(self, params: Any = None) -> Page:
        self.cursors.append(params and params.cursor)
        return self.pages[min(len(self.cursors), len(self.pages)) - 1]

    async def list_prompts(self, params: Any = None) -> Any:
        raise ServerError(-32000, "not today")


def page(*names: str, cursor: str | None = None) -> Page:
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
    return Page(tools=tools, next_cursor=cursor, ttl_ms=0, cache_scope="private")


def read(session: Session, before: Catalog | None = None) -> Catalog:
    reader: Any = CatalogReader("s", session, before or Catalog())  # type: ignore[arg-type]
    found: Catalog = asyncio.run(reader.read())
    return found


@pytest.mark.parametrize("declared", [{"tools": {"x": 1}}, {}])
def test_pages_are_read_until_a_cursor_repeats(declared: dict[str, Any]) -> None:
    session = Session(page("a", cursor="1"), page("b", "a", cursor="1"), **declared)
    catalog = read(session)
    assert list(catalog.tools) == ["mcp__s__a", "mcp__s__b"]
    assert session.cursors == [None, "1"]
    assert catalog.notes == ("tool a: it is listed twice; the first is used",)
    assert "\x1b" not in catalog.instructions


def test_a_list_that_the_server_refuses_costs_no_other_list() -> None:
    before = Catalog(prompts={"old": SimpleNamespace(name="old")})  # type: ignore[dict-item]
    catalog = read(Session(page("a"), tools={"x": 1}, prompts={"x": 1}), before)
    assert list(catalog.tools) == ["mcp__s__a"]
    assert list(catalog.prompts) == ["old"]
    assert catalog.notes == ("prompts/list: not today",)


def test_a_schema_that_is_too_large_is_replaced_and_named() -> None:
    large = {"type": "object", "description": "x" * 200_000}
    tools = [types.Tool(name="large", input_schema=large)]
    catalog = read(Session(Page(tools=tools, ttl_ms=0, cache_scope="private"), tools={"x": 1}))
    assert catalog.tools["mcp__s__large"].schema == {"type": "object"}
    assert catalog.notes == ("tool large: its schema is too large, so any arguments are accepted",)


def test_tools_beyond_the_limits_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "MAX_TOOLS", 3)
    monkeypatch.setattr(catalogs, "MAX_CATALOG_CHARS", 75)
    catalog = read(Session(page("a", "b", "x" * 40, "d"), tools={"x": 1}))
    assert list(catalog.tools) == ["mcp__s__a", "mcp__s__b"]
    assert catalog.notes == (
        f"tool {'x' * 40}: the list of this server is too large, so the tool is left out",
        "tools/list: it has more than 3 tools; the rest is left out",
    )
