"""Searches of the web by the model's server: whether it is asked for them, and what is done where
it refuses.

A session keeps the list of tools that it began with, since a change costs the prompt cache and all
thinking. A server that takes no such tool, or no such blocks in the messages, is asked again
without them; that is recorded, so it is not tried again, in a resumed session either.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from ...tools.base import Tool
from ...tools.mcp import Servers
from ...tools.web_search import WebSearchTool
from ..compaction.layers.microcompact import stub
from ..config.keys import SCRIPTED
from ..context.view import View
from ..context.window import Window
from ..errors import PromptTooLong, RequestRejected, ToolError
from ..events import Emit, Notice
from ..launch import LaunchOptions
from ..models.base import Model
from ..models.messages.servers import BASE_URL_VAR
from ..permissions.rules import parse_rule
from ..session.entries import Entry, Mask
from ..session.searches import FOUND, WIRE_NAME, is_search
from .startup import SessionSetup

API_HOST = "api.anthropic.com"
LAYER = "web search"  # of the masks that take searches out of the messages
REFUSED_STATUSES = (400, 403, 404, 422)
OFFER_TIMEOUT_S = 5.0  # for MCP servers to say whether one of them searches

_NAMES_IT = re.compile(r"web[ _-]?search|server_tool_use|srvtoolu", re.IGNORECASE)
_PLACE = re.compile(r"\btools\W{1,4}(\d+)")  # of a tool in their list
_NAMES_MESSAGE = re.compile(r"\bmessages\b")
_WITHOUT_RESULT = re.compile(r"without a corresponding")
_SEARCHES = re.compile(r"mcp__\w*search[\w-]*", re.IGNORECASE)


def asks_for_searches(launch: LaunchOptions, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a session has searches; `tools` are those that it has had so far, if any."""
    setting, permissions = launch.settings.web.search, launch.settings.permissions
    # Nobody can be asked in the middle of a reply.
    against = [*permissions.deny, *permissions.ask]
    if setting == "off" or any(parse_rule(rule).tool == WebSearchTool.name for rule in against):
        return False
    if tools:
        return any(tool.get("name") == WIRE_NAME for tool in tools)
    chosen = launch.settings.model
    if launch.model is not None or chosen.id.startswith(SCRIPTED):
        return False
    url = chosen.base_url or launch.environ.get(BASE_URL_VAR) or ""
    return setting == "on" or not url or _host(url) == API_HOST


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class SearchHost(Protocol):
    """A conversation as its searches need it; `AgentState` has these members."""

    view: View
    model: Model
    tools: Sequence[Tool[Any]]
    setup: SessionSetup

    @property
    def mcp(self) -> Servers | None: ...

    @property
    def emit(self) -> Emit: ...

    def record(self, entry: Entry) -> Entry: ...

    def current_window(self) -> Window: ...


class WebSearches:
    """The searches of one conversation."""

    def __init__(self, agent: SearchHost) -> None:
        self._agent = agent

    async def take_out(self, refusal: RequestRejected) -> bool:
        """Take out what a refused request may have been refused for: searches that have no result,
        all others, the tool itself. Return whether something was taken out, so that the request is
        worth another try. Raises RecordError."""
        said = refusal.message
        refused = refusal.status in REFUSED_STATUSES and not isinstance(refusal, PromptTooLong)
        if not refused or not self._is_named(said):
            return False
        if not _NAMES_MESSAGE.search(said):
            return await self._drop_tool(said) or self._drop_searches(said)
        waiting = self._waiting() if _WITHOUT_RESULT.search(said) else []
        return self._mask(waiting, said) or self._drop_searches(said) or await self._drop_tool(said)

    def _is_named(self, said: str) -> bool:
        place = _PLACE.search(said)
        names = [tool.get("name") for tool in self._agent.view.tools]
        by_place = place and names[int(place[1]) : int(place[1]) + 1] == [WIRE_NAME]
        return bool(by_place or _NAMES_IT.search(said))

    async def _drop_tool(self, why: str) -> bool:
        agent = self._agent
        if all(tool.get("name") != WIRE_NAME for tool in agent.view.tools):
            return False
        agent.tools = [tool for tool in agent.tools if tool.name != WebSearchTool.name]
        agent.record(agent.setup.session_entry(agent.view, agent.model.id, agent.tools))
        told = f"this server does not search the web ({why[:200]}); {await self._instead()}"
        agent.emit(Notice("info", told))
        return True

    async def _instead(self) -> str:
        """Say which tool of an MCP server searches in its place."""
        servers, found = self._agent.mcp, ""
        if servers is not None:
            try:
                async with asyncio.timeout(OFFER_TIMEOUT_S):
                    found = await servers.search("search the web")
            except (TimeoutError, ToolError):
                found = ""
        names = list(dict.fromkeys(_SEARCHES.findall(found)))
        if not names:
            return "an MCP server with a search can, and none is configured here"
        return f"Mcp reaches {', '.join(names[:3])} in its place"

    def _drop_searches(self, why: str) -> bool:
        """Put what the searches found into words, and tell of it."""
        view = self._agent.view
        targets = [
            {"seq": each.item.seq, "tool_use_id": each.call.id,
             "stub": stub(each, view.scaled(each.size))}
            for each in view.searches() if not each.masked
        ]  # fmt: skip
        if not self._mask([*targets, *self._waiting()], why):
            return False
        told = f"this server takes no results of searches ({why[:200]}): their titles are sent"
        self._agent.emit(Notice("info", told))
        return True

    def _waiting(self) -> list[dict[str, Any]]:
        """Return a mask's targets for the searches without a result."""
        items = self._agent.view.items
        found = {b.get("tool_use_id") for i in items for b in i.blocks if b.get("type") == FOUND}
        return [
            {"seq": item.seq, "tool_use_id": block["id"], "stub": ""}
            for item in items if item.role == "assistant"
            for block in item.blocks
            if is_search(block) and block.get("id") not in {*found, *item.stubs}
        ]  # fmt: skip

    def _mask(self, targets: Sequence[dict[str, Any]], why: str) -> bool:
        size = self._agent.current_window().tokens
        if targets:
            self._agent.record(
                Mask(layer=LAYER, targets=[*targets], tokens_before=size, tokens_after=size,
                     trigger=why[:300])
            )  # fmt: skip
        return bool(targets)
