"""The items of a view: log entries as they appear in the context, and the blocks they show."""

from dataclasses import field, fields
from operator import attrgetter
from typing import Any, Literal

from ..lazy import dataclass
from ..session.entries import ATTACHMENT, LOADED_TOOLS, Block
from ..session.searches import FOUND, SEARCH

SUMMARY_SOURCE = "summary"  # source of a summary's item
THINKING = ("thinking", "redacted_thinking")

# The main argument of a call is the first of these that it has.
_MAIN_ARGUMENTS = ("command", "pattern", "path", "description", "query", "tool")


@dataclass(frozen=True, slots=True)
class RequestBase:
    """The fixed part of the requests from a log entry on: the model and the prompt (system prompt
    and tools).
    """

    since: int = 0  # seq of the first entry
    model: str = ""
    prompt: str = ""  # digest of system prompt and tools

    def matches(self, other: "RequestBase") -> bool:
        return (self.model, self.prompt) == (other.model, other.prompt)


@dataclass(slots=True)
class Item:
    """A log entry as it appears in the view."""

    seq: int
    role: Literal["user", "assistant"]
    blocks: list[Block]
    size: int  # in unscaled tokens, as shown now; for a reply from its usage, if that is known
    stop_reason: str | None = None
    source: str = ""  # of a user item: the source of its entry, or SUMMARY_SOURCE; else ""
    thinking: bool = True  # whether thinking is shown
    # For a reply: the base of its request, and whether history before it was edited later.
    base: RequestBase = RequestBase()
    edited: bool = False
    without_thinking: bool = False  # a mask removed the thinking from every request
    by_other_model: bool = False  # another model than the current one gave this reply
    measured: int = 0  # full size according to its usage; 0 if unknown
    # Texts that replace results, by tool_use ID. In a reply they replace a search and its result;
    # "" removes both.
    stubs: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # replaced arguments, by ID
    masked_at: int = 0  # seq of the newest mask that put a stub here; 0 for none
    # The text that replaces this item and its neighbours; "" if that text is in a neighbour; None
    # if the item is not outlined.
    outline: str | None = None
    state: str = ""  # the state block behind this outlined item, if it is the newest one
    # Cache of `request.py`: the shown blocks, and the blocks that are sent for them.
    sent: tuple[list[Block], list[Block]] | None = field(default=None, compare=False, repr=False)

    @property
    def is_masked(self) -> bool:
        """Whether a stub or an outline replaces a result of the item or the whole item."""
        return bool(self.stubs) or self.outline is not None

    def copy(self) -> "Item":
        """Return a copy that can be edited. `replace` would take six times as long, and a long view
        has many items.
        """
        item = Item(*_values_of(self))
        item.stubs, item.inputs = {**self.stubs}, {**self.inputs}
        return item


_values_of = attrgetter(*(field.name for field in fields(Item)))


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in the view."""

    id: str
    seq: int  # of its item
    name: str
    input: dict[str, Any]  # as the model wrote it

    @property
    def source(self) -> str:
        """The tool that did the work: `mcp SERVER` for a tool of an MCP server, else the tool
        name."""
        called = self.input.get("tool") if self.name == "Mcp" else self.name
        if isinstance(called, str) and called.startswith("mcp__"):
            return f"mcp {called[5:].partition('__')[0]}"
        return self.name

    @property
    def argument(self) -> str:
        """The main argument on one line, or "" if the call has none."""
        values = (self.input.get(name) for name in _MAIN_ARGUMENTS)
        return " ".join(next((text for text in values if isinstance(text, str)), "").split())


@dataclass(frozen=True, slots=True)
class ViewResult:
    """A tool result in the view."""

    item: Item
    block: Block
    call: Call
    size: int  # in unscaled tokens, when this was made
    masked: bool  # whether a stub or an outline replaces it
    details: dict[str, Any]  # of its entry
    offloaded: str | None  # the file with its full text

    @property
    def images(self) -> list[Block]:
        """The images and documents in the result, even if a stub replaces the result."""
        content = self.block.get("content")
        blocks = content if isinstance(content, list) else []
        return [b for b in blocks if isinstance(b, dict) and b.get("type") in ("image", "document")]


def shown_blocks(item: Item) -> list[Block]:
    """Return the item's blocks as they are sent: with stubs, outlines and shortened inputs, and
    without thinking and signatures that the model may not get.
    """
    if item.outline is not None:
        return [{"type": "text", "text": text} for text in (item.outline, item.state) if text]
    if item.source == LOADED_TOOLS and item.stubs:
        return [{"type": "text", "text": text} for text in item.stubs.values()]
    out = []
    for block in item.blocks:
        kind = block.get("type")
        if kind in THINKING and not item.thinking:
            continue
        if kind == "tool_result" and (call := str(block.get("tool_use_id"))) in item.stubs:
            block = {**block, "content": item.stubs[call]}
        if kind == SEARCH and str(block.get("id")) in item.stubs:
            continue
        if kind == FOUND and (call := str(block.get("tool_use_id"))) in item.stubs:
            if text := item.stubs[call]:
                out.append({"type": "text", "text": text})
            continue
        if kind == "tool_result" and item.source == ATTACHMENT:
            out += _blocks_of(block["content"])
            continue
        if kind == "tool_use" and (call := str(block.get("id"))) in item.inputs:
            block = {**block, "input": item.inputs[call]}
        if kind == "tool_use" and item.by_other_model and "signature" in block:
            block = {name: value for name, value in block.items() if name != "signature"}
        out.append(block)
    return out


def _blocks_of(content: Any) -> list[Block]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
