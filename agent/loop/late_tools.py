"""Tools of MCP servers that are loaded late: their definitions stand in a system message behind the
results, so that nothing before it changes.

https://platform.claude.com/docs/en/agents-and-tools/tool-use: `tool_addition` with an inline
definition. What is loaded is an entry of source LOADED_TOOLS, so a resumed session, a copy and a
rewound one have it by themselves. After a summary those called last are said again. A server that
refuses such messages gets the same as text from then on.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from ...tools.base import Tool
from ...tools.mcp import McpCall, Servers
from ..context.tokens import estimate_block
from ..context.view import Item, View
from ..context.window import Window
from ..errors import RequestRejected
from ..events import Emit, Notice
from ..session.entries import LOADED_TOOLS, Block, Entry, Mask, User

LOADED_SHARE = 0.04  # of the window, for one definition, and for all that a summary is followed by
LAYER = "late tools"  # of the mask that takes the definitions out
REFUSED_STATUS = 400

_NAMES_IT = re.compile(r"tool_addition|tool_definition|beta|\brole\b|\bsystem\b", re.IGNORECASE)
_AS_TEXT = (
    "[These tools were found before, and are called by way of Mcp with `tool` and `arguments`: "
    "{names}]"
)


class LateHost(Protocol):
    """A conversation as its late tools need it; `AgentState` has these members."""

    view: View
    loads_late: bool

    @property
    def mcp(self) -> Servers | None: ...

    @property
    def emit(self) -> Emit: ...

    def record(self, entry: Entry) -> Entry: ...

    def current_window(self) -> Window: ...


class LateTools:
    """The tools of one conversation that were loaded late."""

    def __init__(self, agent: LateHost) -> None:
        self._agent = agent
        self._pending: dict[str, Block] = {}

    def load(self, definition: Mapping[str, Any]) -> bool:
        """Have a tool loaded behind the results of the reply that asked for it; return whether it
        is, or will be."""
        agent, name = self._agent, str(definition["name"])
        items = self._items()
        if not agent.loads_late or any(item.stubs for item in items):
            return False
        block = {"type": "tool_addition", "tool": {"type": "tool_definition",
                 "definition": dict(definition)}}  # fmt: skip
        if estimate_block(block) > LOADED_SHARE * agent.current_window().size:
            return False
        if name not in _names(items):
            self._pending[name] = block
        return True

    def record_pending(self) -> None:
        """Record what was loaded. Raises RecordError."""
        if self._pending:
            blocks, self._pending = list(self._pending.values()), {}
            self._agent.record(User(content=blocks, source=LOADED_TOOLS))

    def tools(self) -> dict[str, Tool[Any]]:
        """Return the tools that are loaded, by name."""
        servers = self._agent.mcp
        if servers is None:
            return {}
        return {
            name: McpCall(servers, name, definition)
            for name, definition in self._definitions(self._items()).items()
        }

    def after_summary(self, staying: Collection[int]) -> list[Entry]:
        """Return what is to be said again after a summary behind which the items with the seqs
        `staying` still stand: the definitions of the tools that were called last."""
        items = self._items()
        if any(item.stubs for item in items):
            return []
        there = _names([item for item in items if item.seq in staying])
        missing = {n: d for n, d in self._definitions(items).items() if n not in there}
        called = list(dict.fromkeys(self._calls()))[::-1]
        room, blocks = LOADED_SHARE * self._agent.current_window().size, list[Block]()
        for name in [name for name in called if name in missing]:
            block = {"type": "tool_addition", "tool": {"type": "tool_definition",
                     "definition": missing[name]}}  # fmt: skip
            room -= estimate_block(block)
            if room < 0:
                break
            blocks.append(block)
        return [User(content=blocks, source=LOADED_TOOLS)] if blocks else []

    def take_out(self, refusal: RequestRejected) -> bool:
        """Say the definitions as text, where a refused request may have been refused for them;
        return whether there were any, so that the request is worth another try."""
        standing = [item for item in self._items() if not item.stubs]
        if refusal.status != REFUSED_STATUS or not standing:
            return False
        if not _NAMES_IT.search(refusal.message):
            return False
        text = {item.seq: _AS_TEXT.format(names=", ".join(_names([item]))) for item in standing}
        targets = [
            {"seq": seq, "tool_use_id": LOADED_TOOLS, "stub": stub} for seq, stub in text.items()
        ]
        size = self._agent.current_window().tokens
        mask = Mask(layer=LAYER, targets=targets, tokens_before=size, tokens_after=size,
                    trigger=refusal.message[:300])  # fmt: skip
        self._agent.record(mask)
        told = f"this server does not load tools late ({refusal.message[:200]}); Mcp calls them"
        self._agent.emit(Notice("info", told))
        return True

    def _items(self) -> list[Item]:
        return [item for item in self._agent.view.items if item.source == LOADED_TOOLS]

    def _definitions(self, items: Sequence[Item]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for item in items:
            for block in item.blocks if not item.stubs else ():
                definition = definition_of(block)
                found[str(definition.get("name"))] = definition
        return found

    def _calls(self) -> list[str]:
        """Return the names of the tools that were called, the newest last."""
        blocks = (b for item in self._agent.view.items for b in item.blocks)
        return [str(b.get("name")) for b in blocks if b.get("type") == "tool_use"]


def definition_of(block: Block) -> dict[str, Any]:
    """Return the definition of a tool in a block that adds it, {} where there is none."""
    tool = block.get("tool")
    definition = tool.get("definition") if isinstance(tool, dict) else None
    return definition if isinstance(definition, dict) else {}


def _names(items: Sequence[Item]) -> list[str]:
    return [str(definition_of(block).get("name")) for item in items for block in item.blocks]
