"""What fills the window: the view by kind of content, and its largest items.

`fill` is pure, and counts what `measure` counts: the tokens of all parts together are exactly those
of the window, because each part gets its share of them by its estimate. What compaction keeps out
of a part is its `saved`. `still` copies a view so that another thread may look at it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ..context import tokens
from ..context.view import SUMMARY, THINKING, Call, Item, View, shown
from ..context.window import Window
from ..record.entries import Block
from . import preserve, summarize
from .acts import count

Kind = Literal[
    "system",
    "tools",
    "instructions",
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
    "stubs",
    "other",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
LARGEST = 10  # items
_SOURCES: dict[str, Kind] = {
    "environment": "environment",
    "instructions": "instructions",
    "notice": "notices",
    "note": "notes",
    SUMMARY: "summary",
}
_TAILS: dict[Kind, tuple[str, Kind]] = {  # what may stand at the end of such a text
    "environment": (f"\n{preserve.BEGINS}", "preserved"),
    "summary": (summarize.PINNED, "pinned"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """`of` is the tool for results, "" for any other kind; `count` says of how many items, calls or
    tools it is made."""

    kind: Kind
    of: str
    tokens: int
    count: int
    saved: int


@dataclass(frozen=True, slots=True)
class Large:
    """An item that is large. `calls` are those of a reply, or the one of a result; `masked` says
    that a stub stands for a result, `offloaded` that its text is in a file."""

    item: Item
    tokens: int
    calls: tuple[Call, ...]
    masked: bool
    offloaded: bool


@dataclass(frozen=True, slots=True)
class Filling:
    """`parts` are those that are not empty, in the order of `KINDS`, results by size; `largest` is
    the largest item first; `reply` are the tokens that the next reply may have."""

    window: Window
    reply: int
    parts: tuple[Part, ...]
    largest: tuple[Large, ...]

    @property
    def free(self) -> int:
        return max(0, self.window.size - self.window.tokens - self.reply)


def still(view: View) -> View:
    """A copy that later entries leave as it is; blocks are shared, since nothing changes them."""
    items = [replace(i, stubs={**i.stubs}, inputs={**i.inputs}) for i in view.items]
    return replace(view, items=items, calls={**view.calls})


def fill(view: View, window: Window, reply: int) -> Filling:
    """What fills a window whose context is this view, with so much room for the next reply."""
    sizes: Counter[tuple[Kind, str]] = Counter()
    counts: Counter[tuple[Kind, str]] = Counter()
    saved: Counter[tuple[Kind, str]] = Counter()
    for kind, of, size, kept_out in _weights(view):
        sizes[kind, of] += size
        counts[kind, of] += 1
        saved[kind, of] += kept_out
    factor = window.tokens / max(1, sizes.total())
    if not sizes.total() and window.tokens:
        sizes["other", ""] = 1
    shares = apportioned(window.tokens, list(sizes.values()))
    parts = [
        Part(kind, of, share, counts[kind, of], round(saved[kind, of] * factor))
        for (kind, of), share in zip(sizes, shares, strict=True)
        if share or saved[kind, of]
    ]
    parts.sort(key=lambda part: (KINDS.index(part.kind), -part.tokens, part.of))
    return Filling(window, reply, tuple(parts), tuple(_largest(view, factor)))


def apportioned(whole: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers in the proportion of the weights that add up to `whole`: what rounding down
    leaves goes to those that lost most by it."""
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    exact = [divmod(whole * weight, total) for weight in weights]
    shares = [share for share, _ in exact]
    order = sorted(range(len(weights)), key=lambda place: -exact[place][1])
    for place in order[: whole - sum(shares)]:
        shares[place] += 1
    return shares


def _weights(view: View) -> Iterator[tuple[Kind, str, int, int]]:
    """Kind, tool, estimated tokens, and those that are kept out, of every piece of the view."""
    if view.system:
        yield "system", "", tokens.estimate(view.system), 0
    for tool in view.tools:
        yield "tools", "", tokens.of_block(tool), 0
    results = {result.item.seq: result for result in view.results()}
    for item in view.items:
        result, (details, offloaded) = results.get(item.seq), view.facts(item)
        saved = count(details, "tokens_saved") if offloaded else 0
        if item.source == "shell":
            yield "commands", "", item.size, saved
        elif result is None:
            yield from _of_item(item)
        elif result.masked:
            cut = max(0, tokens.of_block(result.block) - item.size)
            yield "stubs", "", item.size, cut + saved
        else:
            yield "results", result.call.name, item.size, saved


def _of_item(item: Item) -> Iterator[tuple[Kind, str, int, int]]:
    """The pieces of an item that is no result of a known call."""
    for block in shown(item):
        size = item.size if len(item.blocks) == 1 else tokens.of_block(block)
        kind = _kind(item, block)
        if kind in _TAILS:
            begin, tail = _TAILS[kind]
            _, found, rest = str(block.get("text", "")).partition(begin)
            behind = min(size, tokens.estimate(found + rest)) if found else 0
            if behind:
                yield tail, "", behind, 0
            size -= behind
        whole = 0
        if kind == "calls" and str(block.get("id")) in item.inputs:
            whole = sum(tokens.of_block(b) for b in item.blocks if b.get("id") == block.get("id"))
        yield kind, "", size, max(0, whole - size)


def _kind(item: Item, block: Block) -> Kind:
    kind = block.get("type")
    if kind == "tool_use":
        return "calls"
    if kind == "tool_result":
        return "other"  # of no call in the view
    if kind in THINKING:
        return "thinking"
    return "text" if item.role == "assistant" else _SOURCES.get(item.source, "words")


def _largest(view: View, factor: float) -> Iterator[Large]:
    results = {result.item.seq: result for result in view.results()}
    for item in sorted(view.items, key=lambda item: -item.size)[:LARGEST]:
        result = results.get(item.seq)
        size, offloaded = round(item.size * factor), view.facts(item)[1] is not None
        if result is not None:
            yield Large(item, size, (result.call,), result.masked, offloaded)
        else:
            used = (str(b.get("id")) for b in item.blocks if b.get("type") == "tool_use")
            calls = tuple(view.calls[id] for id in used if id in view.calls)
            yield Large(item, size, calls, masked=False, offloaded=offloaded)
