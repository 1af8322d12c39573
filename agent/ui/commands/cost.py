"""/cost: the session's tokens and cost, by purpose."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....tools.system.plural import count_of
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from ...loop.agent import AgentState
    from ...loop.costs import BillLine, SessionBill
    from ...session.entries import Entry, SubagentRun
    from ...session.totals import Counts

MAX_SUBAGENT_ROWS = 10
MAX_PURPOSE_CELLS = 26
HEAD = ("of these", "calls", "prompt", "cached", "output", "cost")


@command("tokens and cost of this session", anytime=True, group="model and cost")
async def _cost(repl: CommandContext, argument: str) -> None:
    from ..render import render

    agent = repl.agent
    found = await asyncio.to_thread(_bill, agent, agent.log.entries())
    totals, usage = found.totals, found.totals.all.usage
    price = "the model's price is not known"
    rows = [
        ("cost", price if totals.all.cost_usd is None else render.dollars(totals.all.cost_usd)),
        ("input", f"{usage.input:,}"),
        ("from cache", f"{usage.cache_read:,}"),
        ("to cache", f"{usage.cache_creation:,}"),
        ("output", f"{usage.output:,}"),
        *_searches(totals.all),
        ("calls", f"{totals.all.calls:,} to the model, {totals.all.tool_calls:,} to tools"),
    ]
    out = [render.table(rows)]
    if len(found.lines) > 1:
        out += ["", render.table(_rows(found), head=HEAD)]
    if usage.prompt and found.saved is not None:
        amount = render.dollars(abs(found.saved))
        saved = f"the cache saved about {amount}"
        if found.saved < 0:
            saved = f"the cache has cost about {amount} more than it has saved so far"
        out += ["", render.dim(saved)]
    repl.put(*out)


def _searches(counts: "Counts") -> list[tuple[str, str]]:
    """Return a row for web searches, if there were any. Their price is part of the cost."""
    from ...models.catalog import DOLLARS_PER_SEARCH
    from ..render import render

    made = counts.usage.web_searches
    price = f", {render.dollars(made * DOLLARS_PER_SEARCH)} of the cost"
    known = counts.cost_usd is not None
    return [("web searches", f"{made:,}{price if known else ''}")] if made else []


def _bill(agent: "AgentState", entries: "Iterable[Entry]") -> "SessionBill":
    from ...loop.costs import session_bill
    from ...session.log import Entries

    def log_of(run: "SubagentRun") -> "Iterable[Entry]":
        path = agent.folder / run.log
        return Entries(path) if path.is_file() else ()

    return session_bill(entries, log_of)


def _rows(found: "SessionBill") -> list[tuple[str, ...]]:
    """Return a row for each purpose, each expensive subagent, the other subagents, and the sum."""
    from ...session.totals import Counts

    agents = [line for line in found.lines if line.agent]
    agents.sort(key=lambda line: (-(line.counts.cost_usd or 0.0), -line.counts.usage.total))
    rows = [_row(_what(line), line.counts) for line in found.lines if line.agent is None]
    rows += [_row(_what(line), line.counts) for line in agents[:MAX_SUBAGENT_ROWS]]
    if rest := agents[MAX_SUBAGENT_ROWS:]:
        counts = sum((line.counts for line in rest), Counts())
        rows.append(_row(count_of(len(rest), "more subagent"), counts))
    return [*rows, _row("all", found.totals.all)]


def _what(line: "BillLine") -> str:
    from rich.text import Text

    if line.agent is None:
        return line.what
    named = Text(" ".join(f"{line.agent.type}: {line.what}".split()))
    named.truncate(MAX_PURPOSE_CELLS, overflow="ellipsis")
    return named.plain


def _row(what: str, counts: "Counts") -> tuple[str, ...]:
    from ..render import bar, render

    usage = counts.usage
    return (
        what,
        f"{counts.calls:,}",
        f"{usage.prompt:,}",
        bar.percentage(usage.cache_read, usage.prompt),
        f"{usage.output:,}",
        render.price(counts.cost_usd),
    )
