"""The items of a view: log entries as they appear in the context, and the blocks they show.

Line numbers of files that were read are left out. They are a fifth of the tokens of a read file,
and no edit needs them. The log keeps the text as it was read.

A compaction block is a summary that the Messages API writes in place of messages. A request with
`compaction` gets a reply with one such block: a readable text and a signature. Every later request
starts with this block, byte for byte, in place of the summarised messages. Some models bind
thinking to all messages before it. With these models, the replies after the block keep their
thinking. After a summary of our own, they lose it. Source: platform.claude.com, "Compaction on
demand" and "Compaction and preserved thinking", as of November 2026.
"""

from collections.abc import Sequence
from dataclasses import field, fields
from operator import attrgetter
from typing import Any, Literal

from ..lazy import dataclass, regex
from ..session.entries import ATTACHMENT, LOADED_TOOLS, Block
from ..session.searches import FOUND, SEARCH

UNNUMBERED = "unnumbered"  # detail of a result: the view shows it without line numbers
MIN_LINES = 3  # consecutive numbers; fewer may be a part of the text
MAX_HEADING_LINES = 8  # lines before the first number
_NUMBERED = regex(r" *(\d+)(→|\t|: )")


def without_line_numbers(text: str) -> str | None:
    """Return a text without its line numbers; None if it has none.

    The numbers are those of consecutive lines, in one form. Lines before and after them stay. If
    the first number is not 1, a line in brackets says it.
    """
    lines = text.split("\n")
    opening = map(_NUMBERED.match, lines[:MAX_HEADING_LINES])
    start, found = next(((n, m) for n, m in enumerate(opening) if m), (0, None))
    if found is None:
        return None
    first, mark = int(found[1]), found[2]
    # A table or a list in the file itself may begin with numbers too. Readers put a tab only in
    # texts without a heading, and a colon only after their own tag.
    is_tagged = start > 0 and lines[start - 1].startswith("<")
    if (mark == "\t" and start) or (mark == ": " and not is_tagged):
        return None
    plain: list[str] = []
    for number, line in enumerate(lines[start:], first):
        before, _, rest = f"{line} ".partition(mark)
        if before.strip(" ") != str(number):
            break
        plain.append(rest[:-1])
    after = lines[start + len(plain) :]
    goes_on = bool(after) and after[0].lstrip(" ").startswith(str(first + len(plain)))
    if len(plain) < MIN_LINES or goes_on:  # a line in another form: the form is not certain
        return None
    told = [f"[from line {first}]"] if first != 1 else []
    return "\n".join([*lines[:start], *told, *plain, *after])


def unnumbered(tool: str, text: str) -> dict[str, Any]:
    """Return the details of a result that the view shows without line numbers, else an empty dict.
    Only files read by the tool Read have line numbers that nobody asked for.
    """
    plain = without_line_numbers(text) if tool == "Read" else None
    return {} if plain is None else {UNNUMBERED: True}


Role = Literal["user", "assistant"]
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
    role: Role
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
    # The text that the user put in place of this item; "" if the item `text_at` has it; None if the
    # user left the item as it is.
    text: str | None = None
    text_at: int = 0
    # Cache of `request.py`: the shown blocks, and the blocks that are sent for them.
    sent: tuple[list[Block], list[Block]] | None = field(default=None, compare=False, repr=False)

    @property
    def is_masked(self) -> bool:
        """Whether a stub or an outline replaces a result of the item or the whole item."""
        return bool(self.stubs) or self.is_replaced

    @property
    def is_replaced(self) -> bool:
        """Whether an outline or a text of the user's replaces the whole item."""
        return self.outline is not None or self.text is not None

    @property
    def sent_role(self) -> Role:
        """The role in a request. The model did not write a text that replaces its reply."""
        return self.role if self.text is None else "user"

    def restore(self) -> None:
        """Show the item whole again."""
        self.stubs, self.inputs, self.masked_at = {}, {}, 0
        self.outline, self.state, self.text, self.text_at = None, "", None, 0

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
    if item.text is not None:
        return [{"type": "text", "text": item.text}] if item.text else []
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


COMPACTION = "compaction"  # type of the block, name of the parameter, and a stop reason
MAX_INSTRUCTIONS_CHARS = 16_384  # of a prompt that replaces the server's own

_FIELDS = ("type", "content", "signature", "encrypted_content", "tool_changes")


def is_compaction(block: Block) -> bool:
    """Return True if a block is a valid compaction block, with a text and a signature."""
    texts = (block.get("content"), block.get("signature"))
    sound = block.get("type") == COMPACTION and block.keys() <= {*_FIELDS}
    return sound and all(isinstance(text, str) and text.strip() for text in texts)


def compaction_in(content: Sequence[Block]) -> Block | None:
    """Return the compaction block in a reply, or None if there is none."""
    return next((block for block in content if is_compaction(block)), None)


def begins_with_block(messages: Sequence[dict[str, Any]]) -> bool:
    """Return True if the messages of a request start with a compaction block."""
    content = messages[0]["content"] if messages else None
    return isinstance(content, list) and bool(content) and content[0].get("type") == COMPACTION


def with_plain_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace a leading compaction block by its text, for servers that do not accept the block.
    Drop thinking, which is bound to the block.
    """
    if not begins_with_block(messages):
        return messages
    block, *_ = messages[0]["content"]
    marked = {name: value for name, value in block.items() if name == "cache_control"}
    content = [{"type": "text", "text": block["content"], **marked}]
    rest = [{**message, "content": _without_thinking(message)} for message in messages[1:]]
    if rest and rest[0]["role"] == "user":
        content += rest.pop(0)["content"]
    return [{"role": "user", "content": content}, *rest]


def _without_thinking(message: dict[str, Any]) -> list[Block]:
    kept = [block for block in message["content"] if block["type"] not in THINKING]
    return kept or message["content"]
