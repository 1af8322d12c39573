"""The command about money: what the session has used, and what for."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .registry import Desk, command

if TYPE_CHECKING:
    from ...bill import Bill, Line
    from ...loop import Loop
    from ...record.entries import Agent, Entry
    from ...record.totals import Counts

AGENTS = 10  # subagents with a row of their own
LONGEST = 26  # cells of what a row is for
HEAD = ("of these", "calls", "prompt", "cached", "output", "cost")


@command("tokens and money of this session", anytime=True)
async def _cost(desk: Desk, argument: str) -> None:
    """The sums, what each purpose and each subagent has of them, and what the cache saved."""
    from ..look import render

    loop = desk.loop
    found = await asyncio.to_thread(_bill, loop, loop.log.entries())
    totals, usage = found.totals, found.totals.usage
    price = "the model's price is not known"
    rows = [
        ("cost", price if totals.cost_usd is None else render.dollars(totals.cost_usd)),
        ("input", f"{usage.input:,}"),
        ("from cache", f"{usage.cache_read:,}"),
        ("to cache", f"{usage.cache_creation:,}"),
        ("output", f"{usage.output:,}"),
        ("calls", f"{totals.calls:,} of the model, {totals.tool_calls:,} of tools"),
    ]
    out = [render.table(rows)]
    if len(found.lines) > 1:
        out += ["", render.listing(_parts(found), head=HEAD)]
    if usage.prompt and found.saved is not None:
        out += ["", render.dim(_saved(found.saved))]
    desk.put(*out)


def _bill(loop: "Loop", entries: "Iterable[Entry]") -> "Bill":
    from ...bill import bill
    from ...record.log import Entries

    def log(agent: "Agent") -> "Iterable[Entry]":
        path = loop.folder / agent.log
        return Entries(path) if path.is_file() else ()

    return bill(entries, log)


def _parts(found: "Bill") -> list[tuple[str, ...]]:
    """A row for each line, the dearest subagents first, and the sum."""
    from ...record.totals import Counts

    agents = sorted((line for line in found.lines if line.agent), key=_weight, reverse=True)
    rows = [_row(_what(line), line.counts) for line in found.lines if line.agent is None]
    rows += [_row(_what(line), line.counts) for line in agents[:AGENTS]]
    if rest := agents[AGENTS:]:
        counts = sum((line.counts for line in rest), Counts())
        rows.append(_row(f"{len(rest):,} more subagents", counts))
    return [*rows, _row("all", found.totals.all)]


def _weight(line: "Line") -> tuple[float, int]:
    return line.counts.cost_usd or 0.0, line.counts.usage.total


def _what(line: "Line") -> str:
    from rich.text import Text

    if line.agent is None:
        return line.what
    named = Text(" ".join(f"{line.agent.type}: {line.what}".split()))
    named.truncate(LONGEST, overflow="ellipsis")
    return named.plain


def _row(what: str, counts: "Counts") -> tuple[str, ...]:
    from ..look import bar, render

    usage = counts.usage
    return (
        what,
        f"{counts.calls:,}",
        f"{usage.prompt:,}",
        bar.share(usage.cache_read, usage.prompt),
        f"{usage.output:,}",
        render.price(counts.cost_usd),
    )


def _saved(dollars: float) -> str:
    from ..look import render

    if dollars < 0:
        return f"the cache has cost about {render.dollars(-dollars)} more than it has saved so far"
    return f"the cache saved about {render.dollars(dollars)}"
