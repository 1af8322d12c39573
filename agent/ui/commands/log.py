"""The command about the log: its newest entries, one of them in full, and what compaction did."""

import asyncio
import json
from itertools import islice
from typing import TYPE_CHECKING

from ...errors import UsageError
from . import offers
from .registry import Desk, command

if TYPE_CHECKING:
    from ...record.log import Log

LOGGED = 20  # entries that are shown


@command(
    "the newest entries of the log, or one in full",
    argument="[REF|compaction|stats]",
    anytime=True,
    complete=offers.among(("compaction", "stats"), also=offers.refs),
)
async def _log(desk: Desk, argument: str) -> None:
    from ...compaction import acts, metrics
    from .. import report
    from ..look import markdown, render

    log = desk.loop.log
    if argument and argument not in ("compaction", "stats"):
        desk.put(render.verbatim(await asyncio.to_thread(_whole, log, argument)))
        return
    entries = log.entries()
    if argument == "compaction":
        done = await asyncio.to_thread(acts.acts, entries)
        others = await asyncio.to_thread(acts.marks, entries)
        text = report.events(done, others, limit=report.RECENT)
        desk.put(render.inset(markdown.report(text)))
    elif argument == "stats":
        text = report.metrics(await asyncio.to_thread(metrics.measure, entries))
        desk.put(render.inset(markdown.report(text)))
    else:
        newest = await asyncio.to_thread(lambda: [*islice(reversed(entries), LOGGED)])
        rows = [(f"#{e.seq}", e.kind, report.line(e)) for e in newest[::-1]]
        desk.put(render.table(rows, wrap=False), render.dim(str(log.path)))


def _whole(log: "Log", ref: str) -> str:
    """An entry in full: a summary as the model reads it, anything else as its line says. Raises
    UsageError when there is no such entry."""
    from ...record.entries import Summary, encode
    from ...record.log import find

    number = ref.removeprefix("#")
    found = find(log.path, int(number)) if number.isdecimal() else None
    if found is None:
        raise UsageError(
            f"there is no entry {ref}",
            hint=f"1 to {log.last_seq}." if log.last_seq else "This session is empty.",
        )
    if isinstance(found, Summary):
        return found.text
    return json.dumps(encode(found), ensure_ascii=False, indent=1)
