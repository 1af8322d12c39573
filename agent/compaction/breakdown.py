"""The breakdown of the window: tokens by kind of content, and the largest items.

The window's tokens are divided among the parts in proportion to their estimates, so the parts add
up exactly to the window.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from ..context import tokens
from ..context.items import SUMMARY_SOURCE, THINKING, Call, Item, shown_blocks
from ..context.view import View
from ..context.window import Window
from ..lazy import dataclass
from ..session.entries import HOOK, LOADED_TOOLS, MEMORY, PLAN, SKILL, SKILL_LIST, Block
from ..session.searches import FOUND, SEARCH, SEARCH_TOOL
from . import preserve
from .history import int_field
from .summary.request import PINNED_HEADING

ContentKind = Literal[
    "system",
    "tools",
    "instructions",
    "skills",
    "memory",
    "plan",
    "environment",
    "preserved",
    "summary",
    "pinned",
    "notices",
    "words",
    "commands",
    "notes",
    "text",
    "thinking",
    "calls",
    "results",
    "images",
    "stubs",
    "other",
]
KINDS: tuple[ContentKind, ...] = get_args(ContentKind)
MAX_LARGE_ITEMS = 10
_SOURCES: dict[str, ContentKind] = {
    "environment": "environment",
    "instructions": "instructions",
    "notice": "notices",
    "note": "notes",
    HOOK: "notices",
    PLAN: "plan",
    SKILL: "skills",
    SKILL_LIST: "skills",
    MEMORY: "memory",
    SUMMARY_SOURCE: "summary",
}
# Kinds whose text may end with a part of another kind: the beginning of that part, and its kind.
_TRAILING_KINDS: dict[ContentKind, tuple[str, ContentKind]] = {
    "environment": (f"\n{preserve.PRESERVED_HEADING}", "preserved"),
    "summary": (PINNED_HEADING, "pinned"),
}


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One kind of content in the context."""

    kind: ContentKind
    of: str  # the tool for results, the MCP server for tools; "" for any other kind
    tokens: int
    count: int  # of items, calls or tools
    saved: int  # tokens that compaction keeps out


@dataclass(frozen=True, slots=True)
class LargeItem:
    """One of the largest items."""

    item: Item
    tokens: int
    calls: tuple[Call, ...]  # the calls of a reply, or the call of a result
    masked: bool  # the result is replaced by a stub
    offloaded: bool  # the text is in a file


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The content of a window, by kind and by largest item."""

    window: Window
    parts: tuple[ContextPart, ...]  # in the order of KINDS, results by size; none is empty
    largest: tuple[LargeItem, ...]  # the largest first

    @property
    def reserve(self) -> int:
        """The tokens kept free in case the estimates are too low."""
        return max(0, self.window.size - self.window.tokens - self.window.free)


def break_down(view: View, window: Window) -> Breakdown:
    """Return the breakdown of a window with this view."""
    sizes: Counter[tuple[ContentKind, str]] = Counter()
    counts: Counter[tuple[ContentKind, str]] = Counter()
    saved: Counter[tuple[ContentKind, str]] = Counter()
    for kind, of, size, kept_out in _weights(view):
        sizes[kind, of] += size
        counts[kind, of] += 1
        saved[kind, of] += kept_out
    if not sizes.total() and window.tokens:
        sizes["other", ""] = 1
    shares = apportion(window.tokens, list(sizes.values()))
    parts = [
        ContextPart(kind, of, share, counts[kind, of], saved[kind, of])
        for (kind, of), share in zip(sizes, shares, strict=True)
        if share or saved[kind, of]
    ]
    parts.sort(key=lambda part: (KINDS.index(part.kind), -part.tokens, part.of))
    return Breakdown(window, tuple(parts), tuple(_largest(view)))


def apportion(whole: int, weights: Sequence[int]) -> list[int]:
    """Divide `whole` into integers in proportion to the weights. Units lost to rounding go to the
    shares with the largest remainders.
    """
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    exact = [divmod(whole * weight, total) for weight in weights]
    shares = [share for share, _ in exact]
    order = sorted(range(len(weights)), key=lambda place: -exact[place][1])
    for place in order[: whole - sum(shares)]:
        shares[place] += 1
    return shares


def _weights(view: View) -> Iterator[tuple[ContentKind, str, int, int]]:
    """Yield (kind, tool or MCP server, size, tokens kept out) for each piece of the view."""
    if view.system:
        yield "system", "", tokens.estimate(view.system), 0
    for tool in view.tools:
        source = Call("", 0, str(tool.get("name")), {}).source
        of = source if source.startswith("mcp ") else ""
        yield "tools", of, tokens.estimate_block(tool), 0
    results = {result.item.seq: result for result in view.results()}
    for item in view.items:
        result, (details, offloaded) = results.get(item.seq), view.facts(item)
        saved = int_field(details, "tokens_saved") if offloaded else 0
        if item.source == "shell":
            yield "commands", "", item.size, saved
        elif item.source == LOADED_TOOLS:
            yield "tools", "", item.size, 0
        elif result is None:
            yield from _item_weights(view, item)
        elif result.masked:
            cut = max(0, tokens.estimate_block(result.block) - item.size)
            yield "stubs", "", item.size, view.scaled(cut) + saved
        elif result.images:
            yield "images", "", item.size, 0
        else:
            yield "results", result.call.source, item.size, saved


def _item_weights(view: View, item: Item) -> Iterator[tuple[ContentKind, str, int, int]]:
    """Yield (kind, tool, size, tokens kept out) for each piece of an item that is not the result of
    a known call.
    """
    blocks = shown_blocks(item) or [{}]
    for block, size in zip(blocks, _block_sizes(item, blocks), strict=True):
        kind = _kind(item, block)
        if kind in _TRAILING_KINDS:
            begin, tail = _TRAILING_KINDS[kind]
            _, found, rest = str(block.get("text", "")).partition(begin)
            trailing_size = min(size, tokens.estimate(found + rest)) if found else 0
            if trailing_size:
                yield tail, "", trailing_size, 0
            size -= trailing_size
        whole = 0
        if kind == "calls" and str(block.get("id")) in item.inputs:
            same = (b for b in item.blocks if b.get("id") == block.get("id"))
            whole = sum(map(tokens.estimate_block, same)) - tokens.estimate_block(block)
        if kind == "stubs":
            same = (b for b in item.blocks if item.stubs.get(_search_id(b)) == block.get("text"))
            whole = sum(map(tokens.estimate_block, same)) - tokens.estimate_block(block)
        of = SEARCH_TOOL if kind == "results" else ""
        yield kind, of, size, view.scaled(max(0, whole))


def _block_sizes(item: Item, blocks: Sequence[Block]) -> list[int]:
    """Divide an item's size among its blocks. If a reply is larger than its blocks, the difference
    is hidden thinking that the server counted.
    """
    sizes = [tokens.estimate_block(block) for block in blocks]
    hidden = next((n for n, b in enumerate(blocks) if b.get("type") in THINKING), None)
    if hidden is not None and sum(sizes) < item.size:
        sizes[hidden] += item.size - sum(sizes)
    return apportion(item.size, sizes if any(sizes) else [1] * len(sizes))


def _kind(item: Item, block: Block) -> ContentKind:
    kind = block.get("type")
    if item.text is not None:
        return "stubs"
    if kind in ("tool_use", SEARCH):
        return "calls"
    if kind == FOUND:
        return "results"
    if item.role == "assistant" and block.get("text") in item.stubs.values():
        return "stubs"
    if kind == "tool_result":
        return "other"  # its call is not in the view
    if kind in THINKING:
        return "thinking"
    return "text" if item.role == "assistant" else _SOURCES.get(item.source, "words")


def _search_id(block: Block) -> str:
    """Return the ID of the search that a block belongs to."""
    return str(block.get("id") or block.get("tool_use_id"))


def _largest(view: View) -> Iterator[LargeItem]:
    results = {result.item.seq: result for result in view.results()}
    for item in sorted(view.items, key=lambda item: -item.size)[:MAX_LARGE_ITEMS]:
        result = results.get(item.seq)
        size, offloaded = view.scaled(item.size), view.facts(item)[1] is not None
        if result is not None:
            yield LargeItem(item, size, (result.call,), result.masked, offloaded)
        else:
            used = (str(b.get("id")) for b in item.blocks if b.get("type") == "tool_use")
            calls = tuple(view.calls[id] for id in used if id in view.calls)
            yield LargeItem(item, size, calls, masked=False, offloaded=offloaded)
