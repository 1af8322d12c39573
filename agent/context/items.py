"""The items of a view: entries as they stand in the context, and the blocks that each shows."""

from dataclasses import field, fields
from operator import attrgetter
from typing import Any, Literal

from ..lazy import dataclass
from ..session.entries import ATTACHMENT, LOADED_TOOLS, Block
from ..session.searches import FOUND, SEARCH

SUMMARY_SOURCE = "summary"  # of the item that a summary is
THINKING = ("thinking", "redacted_thinking")

# The first of these arguments that a call has is its main one.
_MAIN_ARGUMENTS = ("command", "pattern", "path", "description", "query", "tool")


@dataclass(frozen=True, slots=True)
class Asked:
    """What requests begin with from an entry on, and who gets them."""

    since: int = 0  # seq of the entry
    model: str = ""
    prompt: str = ""  # digest of system prompt and tools

    def begins_as(self, other: "Asked") -> bool:
        return (self.model, self.prompt) == (other.model, other.prompt)


@dataclass(slots=True)
class Item:
    """One entry as it stands in the view."""

    seq: int
    role: Literal["user", "assistant"]
    blocks: list[Block]
    size: int  # in unscaled tokens, as it stands now; of a reply what its usage says, if it can
    stop_reason: str | None = None
    source: str = ""  # of a user's words: the entry's, or SUMMARY_SOURCE; "" for all else
    thinking: bool = True  # whether it is shown
    # Of a reply: what it answers, and whether something before it was edited since.
    asked: Asked = Asked()
    edited: bool = False
    foreign: bool = False  # a reply of another model than is asked now
    measured: int = 0  # its whole size by its usage; 0 where that says nothing
    # In place of results, by tool_use id; in place of a search and its result in a reply, too, ""
    # for none.
    stubs: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # in place of arguments, too
    masked_at: int = 0  # the seq of the newest mask that put a stub here; 0 for none
    # The digest that stands for it and its neighbours, "" where that stands in another; None for
    # an item that is not outlined.
    outline: str | None = None
    # The blocks that it shows, and what `request` made of them, so that this is done once.
    sent: tuple[list[Block], list[Block]] | None = field(default=None, compare=False, repr=False)

    @property
    def is_masked(self) -> bool:
        """Whether something else stands for a result of it, or for all of it."""
        return bool(self.stubs) or self.outline is not None

    def copy(self) -> "Item":
        """Return a copy that can be edited. A long view has many items: `replace` takes six times
        as long."""
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
        """The tool that did the work: of an MCP server `mcp SERVER`, else its name."""
        called = self.input.get("tool") if self.name == "Mcp" else self.name
        if isinstance(called, str) and called.startswith("mcp__"):
            return f"mcp {called[5:].partition('__')[0]}"
        return self.name

    @property
    def argument(self) -> str:
        """The main argument on one line, "" when the call has none."""
        values = (self.input.get(name) for name in _MAIN_ARGUMENTS)
        return " ".join(next((text for text in values if isinstance(text, str)), "").split())


@dataclass(frozen=True, slots=True)
class ViewResult:
    """A tool result in the view."""

    item: Item
    block: Block
    call: Call
    size: int  # in unscaled tokens, when this was made
    masked: bool  # a stub stands for it
    details: dict[str, Any]  # of its entry
    offloaded: str | None  # the file that has its whole text

    @property
    def images(self) -> list[Block]:
        """The images and documents in it, also where a stub stands for it."""
        content = self.block.get("content")
        blocks = content if isinstance(content, list) else []
        return [b for b in blocks if isinstance(b, dict) and b.get("type") in ("image", "document")]


def shown_blocks(item: Item) -> list[Block]:
    """Return the item's blocks as they are sent: with stubs, digests and shortened inputs in place,
    and without thinking and signatures where they are not allowed."""
    if item.outline is not None:
        return [{"type": "text", "text": item.outline}] if item.outline else []
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
        if kind == "tool_use" and item.foreign and "signature" in block:
            block = {name: value for name, value in block.items() if name != "signature"}
        out.append(block)
    return out


def _blocks_of(content: Any) -> list[Block]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
