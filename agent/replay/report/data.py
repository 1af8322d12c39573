"""The comparison as one document for programs.

    {"v": 1, "headline": "default costs …", "price": "Largest context …", "labels": ["none", …],
     "totals": [SUMS, …],                          one for each label
     "recordings": [{"name", "format", "runs": [RUN, …]}, …]}

SUMS: `label`; `calls`, `peak`, `mean`, `sent`, `read`, `written`, `plain`, `output` (tokens; `read`
from the cache, `written` to it, `plain` neither); `cached` (0 to 1, null of nothing); `dollars`,
and `ratio` to those of the first label (null where that costs nothing); `edits`, `stubs`,
`summaries`; `missed`, `asked_again`, `used`, `missed_usd`; `paths`, `errors`, `recovered`:
[so many, of so many]; `stopped`: in how many recordings.

RUN: `label`, `model`, `window`, `peak_then` (null where it was not recorded), `stopped` ("" when it
was played to its end), `sums` (SUMS), and what happened. `calls` and `fills` are columns of equal
length: `calls` has `number`, `purpose`, `read`, `written`, `plain`, `output`, `dollars`, `at`
(seconds since 1970 or null), `cold`; `fills` has `number` and one column for each kind of content.
`acts` and `needs` are lists of objects, with the fields of `outcome.Act` and `outcome.Need`.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..outcome import Comparison, Fill, Priced, Run, Share
from .measures import Figures, figures, headline, price, summed

VERSION = 1
_PLACES = 6  # of dollars and shares

Document = dict[str, Any]


def document(comparison: Comparison) -> Document:
    """What `json.dumps` takes; names of files may hold what only its ASCII escapes can carry."""
    return {
        "v": VERSION,
        "headline": headline(comparison),
        "price": price(comparison),
        "labels": list(comparison.labels),
        "totals": [_sums(each) for each in summed(comparison)],
        "recordings": [
            {
                "name": row[0].name,
                "format": row[0].format,
                "runs": [
                    _run(run, each)
                    for each in figures(comparison.labels, row)
                    for run in row
                    if run.label == each.label
                ],
            }
            for row in comparison.runs
            if row
        ],
    }


def _sums(each: Figures) -> Document:
    sums = each.sums
    return {
        "label": each.label,
        "calls": sums.calls,
        "peak": sums.peak,
        "mean": round(sums.mean),
        "sent": sums.sent,
        "read": sums.read,
        "written": sums.written,
        "plain": sums.plain,
        "output": sums.output,
        "cached": _rounded(sums.cached),
        "dollars": _rounded(sums.dollars),
        "ratio": _rounded(each.ratio),
        "edits": sums.edits,
        "stubs": sums.stubs,
        "summaries": sums.summaries,
        "missed": sums.missed,
        "asked_again": each.asked,
        "used": each.used,
        "missed_usd": _rounded(sums.missed_usd),
        "paths": _pair(sums.paths),
        "errors": _pair(sums.errors),
        "recovered": _pair(sums.recovered),
        "stopped": each.sums.stopped,
    }


def _run(run: Run, each: Figures) -> Document:
    return {
        "label": run.label,
        "model": run.model,
        "window": run.window,
        "peak_then": run.peak_then,
        "stopped": run.stopped,
        "sums": _sums(each),
        "calls": _calls(run.priced),
        "acts": [asdict(act) for act in run.acts],
        "needs": [{**asdict(need), "dollars": _rounded(need.dollars)} for need in run.needs],
        "fills": _fills(run.fills),
    }


def _calls(priced: Sequence[Priced]) -> Document:
    return {
        "number": [call.number for call in priced],
        "purpose": [call.purpose for call in priced],
        "read": [call.read for call in priced],
        "written": [call.written for call in priced],
        "plain": [call.plain for call in priced],
        "output": [call.output for call in priced],
        "dollars": [_rounded(call.dollars) for call in priced],
        "at": [call.at for call in priced],
        "cold": [call.cold for call in priced],
    }


def _fills(fills: Sequence[Fill]) -> Document:
    """A kind that is missing from a fill has no tokens there."""
    kinds = dict.fromkeys(kind for fill in fills for kind, _ in fill.parts)
    parts = [dict(fill.parts) for fill in fills]
    columns = {kind: [part.get(kind, 0) for part in parts] for kind in kinds}
    return {"number": [fill.number for fill in fills], **columns}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _PLACES)


def _pair(share: Share) -> list[int]:
    return [share.part, share.whole]
