"""The document of a comparison, for programs.

    {"v": 1, "headline": "default costs …", "price": "Largest context …", "labels": ["none", …],
     "totals": [SUMS, …],                          one for each label
     "recordings": [{"name", "format", "runs": [RUN, …]}, …]}

SUMS: `label`; `calls`, `peak`, `mean`, `sent`, `read`, `written`, `plain`, `output` (tokens; `read`
from the cache, `written` to it, `plain` the rest); `cached` (0 to 1, null without tokens);
`dollars`, and `ratio` to the dollars of the first label (null if those are 0); `edits`, `stubs`,
`summaries`; `missed`, `asked_again`, `used`, `missed_usd`; `lost_facts`; `paths`, `errors`,
`recovered`, `explored` (files read by subagents, and later by their parent): [part, whole];
`thinking`: the thinking that edits drop on models that bind it to the preceding context (`told`,
[part, whole] of the replies; `tokens`, `dropped`, and `saved_usd` and `again_usd`, which are not
part of `dollars`); `pauses`: of the user (`all`, `away`: that outlasted the cache, `used`: after
which a summary was made, `usd`: of the calls after those that outlasted the cache); `stopped`:
recordings not played to the end.

RUN: `label`, `model`, `window`, `peak_then` (null if not recorded), `stopped` ("" if it was played
to the end), `sums` (SUMS), and the events of the run. `calls` and `fills` are columns of equal
length: `calls` has the fields of `results.PricedCall` (`at` in seconds since 1970 or null); `fills`
has `number` and one column for each kind of content. `acts`, `needs`, `lost_facts` and `pauses` are
lists of objects, with the fields of `results.ReplayAct`, `results.Need`, `lost_facts.LostFact` and
`results.Pause`.
"""

from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from typing import Any

from ..results import Comparison, Fill, PricedCall, ReplayRun
from .measures import Figures, drawbacks_sentence, figures_by_setting, headline, total_figures

VERSION = 1
_DECIMALS = 6  # of dollars and shares

_Object = dict[str, Any]


def document(comparison: Comparison) -> _Object:
    """Return the document as values for `json.dumps`. Keep its `ensure_ascii`, since file names can
    contain lone surrogates.
    """
    return {
        "v": VERSION,
        "headline": headline(comparison),
        "price": drawbacks_sentence(comparison),
        "labels": list(comparison.labels),
        "totals": [_sums(each) for each in total_figures(comparison)],
        "recordings": [
            {
                "name": row[0].name,
                "format": row[0].format,
                "runs": [
                    _run(run, each)
                    for each in figures_by_setting(comparison.labels, row)
                    for run in row
                    if run.label == each.label
                ],
            }
            for row in comparison.runs
            if row
        ],
    }


def _sums(each: Figures) -> _Object:
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
        "lost_facts": sums.lost,
        "paths": [*astuple(sums.paths)],
        "errors": [*astuple(sums.errors)],
        "recovered": [*astuple(sums.recovered)],
        "explored": [*astuple(sums.explored)],
        "thinking": {
            "told": [*astuple(sums.thinking.told)],
            "tokens": sums.thinking.tokens,
            "dropped": sums.thinking.dropped,
            "saved_usd": _rounded(sums.thinking.saved_usd),
            "again_usd": _rounded(sums.thinking.again_usd),
        },
        "pauses": {
            "all": sums.pauses,
            "away": sums.pauses_away,
            "used": sums.pauses_used,
            "usd": _rounded(sums.pauses_usd),
        },
        "stopped": sums.stopped,
    }


def _run(run: ReplayRun, each: Figures) -> _Object:
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
        "lost_facts": [asdict(fact) for fact in run.lost],
        "pauses": [asdict(pause) for pause in run.pauses],
        "fills": _fills(run.fills),
    }


def _calls(priced: Sequence[PricedCall]) -> _Object:
    names = [each.name for each in fields(PricedCall)]
    columns: _Object = {name: [getattr(call, name) for call in priced] for name in names}
    return {**columns, "dollars": [_rounded(call.dollars) for call in priced]}


def _fills(fills: Sequence[Fill]) -> _Object:
    """Return the fills as columns; a kind missing from a fill has 0 tokens."""
    kinds = dict.fromkeys(kind for fill in fills for kind, _ in fill.parts)
    parts = [dict(fill.parts) for fill in fills]
    columns = {kind: [part.get(kind, 0) for part in parts] for kind in kinds}
    return {"number": [fill.number for fill in fills], **columns}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)
