"""Reports on the items of the context and on edits of them, as plain text."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...tools.system.phrasing import count_of, shorten

if TYPE_CHECKING:
    from ..compaction.edits import ContextItem, EditPlan

MAX_WHAT_CHARS = 60
MAX_REFS = 12  # of an edit, on one line
_HEAD = ("ref", "kind", "tokens", "a call", "so far", "calls ago", "state", "")
_RIGHT = frozenset({"tokens", "a call", "so far", "calls ago"})
UNKNOWN_PRICE = "price not known"


def dollars(usd: float | None) -> str:
    """Return a price with four decimals; "–" if it is unknown."""
    return "–" if usd is None else f"${usd:.4f}"


def state_of(item: "ContextItem") -> str:
    """Return the state of an item, and whether it is pinned."""
    return f"{item.state}, pinned" if item.pinned else item.state


def searched_text(item: "ContextItem") -> str:
    """Return the text that a search looks through."""
    return f"#{item.ref} {item.kind}: {item.what} {state_of(item)}".casefold()


def item_row(item: "ContextItem") -> tuple[str, ...]:
    """Return the cells of an item, in the order of the list."""
    prices = dollars(item.call_usd), dollars(item.spent_usd)
    what = shorten(item.what, MAX_WHAT_CHARS)
    return (
        f"#{item.ref}",
        item.kind,
        f"{item.tokens:,}",
        *prices,
        f"{item.age:,}",
        state_of(item),
        what,
    )


def item_lines(items: "Sequence[ContextItem]") -> Iterator[str]:
    """Yield a heading and a line for each item, in columns."""
    rows = [_HEAD, *map(item_row, items)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for cell, width, name in zip(row, widths, _HEAD, strict=True)
        )
        yield "  ".join(cells).rstrip()


def plan_lines(plan: "EditPlan") -> Iterator[str]:
    """Yield what an edit changes and what it costs."""
    shown = [f"#{ref}" for ref in plan.refs[:MAX_REFS]]
    left = len(plan.refs) - len(shown)
    named = ", ".join([*shown, *([f"{left:,} more"] if left else [])])
    about = "about " if plan.action == "compact" else ""
    yield f"{plan.action} {named}: {plan.tokens_before:,} → {about}{plan.tokens_after:,} tokens"
    if plan.before_usd is None or plan.after_usd is None:
        yield UNKNOWN_PRICE
        return
    yield f"each call reads {dollars(plan.before_usd)} → {about}{dollars(plan.after_usd)}"
    once = [
        f"{plan.rewritten:,} tokens are written to the cache again, {dollars(plan.rewrite_usd)}"
    ]
    if plan.summary_usd is None or plan.summary_usd > 0:
        once.append(f"the request for the summary, {about}{dollars(plan.summary_usd)}")
    yield f"once: {'; '.join(once)}"
    if plan.pays_after is not None:
        calls = count_of(plan.pays_after, "call")
        yield f"it has paid for itself after {calls}" if plan.pays_after else "it pays at once"
