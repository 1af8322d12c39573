"""Web searches by the model's server: whether a session has them, and what to do if the server
refuses them.

A session keeps its first list of tools, because a change costs the prompt cache and all thinking.
If a server refuses the tool, or search blocks in the messages, the request is sent again without
them. This is recorded, so that it is not tried again, even in a resumed session.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...tools.base import Tool
from ...tools.mcp import McpTool, Servers
from ...tools.web_search import WebSearchTool
from ..compaction.layers.clear import stub
from ..config.settings import Settings
from ..errors import PromptTooLong, RequestRejected, ToolError
from ..events import Notice
from ..lazy import regex
from ..loop.interface import Feature
from ..loop.live_session import LiveSession
from ..models.refusals import NO_REASON
from ..permissions.rules import parse_rule
from ..session.entries import Mask
from ..session.searches import FOUND, WIRE_NAME, is_search, names_search

LAYER = "web search"  # layer of the masks that remove searches from the messages
REFUSED_STATUSES = (400, 403, 404, 422)
OFFER_TIMEOUT_S = 5.0  # for finding an MCP server that can search

_PLACE = regex(r"\btools\W{1,4}(\d+)")  # index of a tool in the list
_NAMES_MESSAGE = regex(r"\bmessages\b")
_WITHOUT_RESULT = regex(r"without a corresponding")
_SEARCHES = regex(r"mcp__\w*search[\w-]*", re.IGNORECASE)


def has_web_searches(
    settings: Settings, searches_web: bool | None, tools: Sequence[Mapping[str, Any]]
) -> bool:
    """Return True if a session has web searches. `searches_web` is the model's ability; `tools` are
    the earlier tools of the session, if any.
    """
    setting, permissions = settings.web.search, settings.permissions
    # The server searches during its reply, so no user can be asked.
    against = [*permissions.deny, *permissions.ask]
    if (
        setting == "off"
        or searches_web is False
        or any(parse_rule(rule).tool == WebSearchTool.name for rule in against)
    ):
        return False
    if tools:
        return any(tool.get("name") == WIRE_NAME for tool in tools)
    return setting == "on" or searches_web is True


class WebSearchFeature(Feature):
    """The web searches of a conversation."""

    name = "web-search"

    def __init__(self, session: LiveSession, servers: Servers | None, *, has_tool: bool) -> None:
        super().__init__(session)
        self._servers, self._has_tool = servers, has_tool

    def tools(self) -> list[Tool[Any]]:
        """Return the tool WebSearch if the server can search."""
        return [WebSearchTool()] if self._has_tool else []

    async def request_refused(self, refusal: RequestRejected) -> bool:
        """Remove a possible cause of the refusal, and return True if something was removed.

        If the refusal names a message, remove searches without a result, then all other searches,
        then the tool. Otherwise remove the tool first, then the searches. Without a reason, remove
        both.
        """
        said = refusal.message
        if not said:
            dropped = await self._drop_tool(NO_REASON)
            return self._drop_searches(NO_REASON) or dropped
        refused = refusal.status in REFUSED_STATUSES and not isinstance(refusal, PromptTooLong)
        if not refused or not self._names_tool(said):
            return False
        if not _NAMES_MESSAGE.search(said):
            return await self._drop_tool(said) or self._drop_searches(said)
        waiting = self._unfinished_searches() if _WITHOUT_RESULT.search(said) else []
        return self._mask(waiting, said) or self._drop_searches(said) or await self._drop_tool(said)

    def _names_tool(self, said: str) -> bool:
        place = _PLACE.search(said)
        names = [tool.get("name") for tool in self.session.view.tools]
        by_place = place and names[int(place[1]) : int(place[1]) + 1] == [WIRE_NAME]
        return bool(by_place or names_search(said))

    async def _drop_tool(self, why: str) -> bool:
        session = self.session
        if all(tool.get("name") != WIRE_NAME for tool in session.view.tools):
            return False
        session.tools[:] = [tool for tool in session.tools if tool.name != WebSearchTool.name]
        session.record_opening()
        told = f"this server does not search the web ({why[:200]}); {await self._alternatives()}"
        session.emit(Notice("info", told))
        return True

    async def _alternatives(self) -> str:
        """Return a text about MCP tools that can search."""
        servers, found = self._servers, ""
        if servers is not None:
            try:
                async with asyncio.timeout(OFFER_TIMEOUT_S):
                    found = await servers.search("search the web")
            except (TimeoutError, ToolError):
                found = ""
        names = list(dict.fromkeys(_SEARCHES.findall(found)))
        if not names:
            return "an MCP server with a search tool could, but none is configured"
        return f"{McpTool.name} can call {', '.join(names[:3])} instead"

    def _drop_searches(self, why: str) -> bool:
        """Replace search results by their titles, and notify the user."""
        view = self.session.view
        targets = [
            {"seq": each.item.seq, "tool_use_id": each.call.id,
             "stub": stub(each).text(view.scaled(each.size))}
            for each in view.searches() if not each.masked
        ]  # fmt: skip
        if not self._mask([*targets, *self._unfinished_searches()], why):
            return False
        told = f"this server refuses search results ({why[:200]}): only their titles are sent"
        self.session.emit(Notice("info", told))
        return True

    def _unfinished_searches(self) -> list[dict[str, Any]]:
        """Return mask targets for the searches without a result."""
        items = self.session.view.items
        found = {b.get("tool_use_id") for i in items for b in i.blocks if b.get("type") == FOUND}
        return [
            {"seq": item.seq, "tool_use_id": block["id"], "stub": ""}
            for item in items if item.role == "assistant"
            for block in item.blocks
            if is_search(block) and block.get("id") not in {*found, *item.stubs}
        ]  # fmt: skip

    def _mask(self, targets: Sequence[dict[str, Any]], why: str) -> bool:
        size = self.session.model.current_window().tokens
        if targets:
            self.session.record(
                Mask(layer=LAYER, targets=[*targets], tokens_before=size, tokens_after=size,
                     trigger=why[:300])
            )  # fmt: skip
        return bool(targets)
