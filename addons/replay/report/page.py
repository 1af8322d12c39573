"""The comparison as a single HTML page that needs no network: headline and sums, then each
recording with its charts. All session content is escaped. Everything is readable without scripts;
scripts add selection of recordings and settings, and values on hover.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from ....api.base import dataclass
from ....api.pages import charts, format_tokens, render
from ....api.text import count_of, cut_after
from ..results import Comparison, Need, ReplayAct, ReplayRun
from . import drawings, measures
from .measures import Figures

_MAX_LISTED = 50  # listed acts and needs per run; the JSON document has all
_MAX_WORDS_CHARS = 160  # of a text from a session


def page(comparison: Comparison) -> str:
    """Return the whole HTML document."""
    totals = measures.total_figures(comparison)
    max_dollars = max((each.sums.dollars for each in totals), default=0.0) or 1.0
    html = render(
        "addons/replay/report/page.html.j2",
        title=measures.headline(comparison),
        price=measures.drawbacks_sentence(comparison),
        scope=_scope(comparison),
        places={label: place for place, label in enumerate(comparison.labels)},
        totals=totals,
        recordings=list(_recordings(comparison)),
        several=len(comparison.runs) > 1,
        charts=charts,
        drawings=drawings,
        measures=measures,
        bar_width=lambda each: f"{100 * each.sums.dollars / max_dollars:.4g}%",
        cut=lambda text: cut_after(text, _MAX_WORDS_CHARS),
    )
    return str(html)


@dataclass(frozen=True, slots=True)
class _Recording:
    number: int
    runs: Sequence[ReplayRun]
    figures: dict[str, Figures]  # by setting

    @property
    def name(self) -> str:
        return self.runs[0].name or "(no name)"

    @property
    def facts(self) -> str:
        run = self.runs[0]
        facts = f"{run.format} · {run.model} · window {run.window:,}"
        peak = run.peak_then
        return facts if peak is None else f"{facts} · largest context as recorded {peak:,}"

    @property
    def acts(self) -> list[tuple[ReplayRun, ReplayAct]]:
        return [(run, act) for run in self.runs for act in run.acts[:_MAX_LISTED]]

    @property
    def needs(self) -> list[tuple[ReplayRun, Need]]:
        return [(run, need) for run in self.runs for need in run.needs[:_MAX_LISTED]]


def _recordings(comparison: Comparison) -> Iterator[_Recording]:
    for number, runs in enumerate(comparison.runs, 1):
        if runs:
            figures = measures.figures_by_setting(comparison.labels, runs)
            yield _Recording(number, runs, {each.label: each for each in figures})


def _scope(comparison: Comparison) -> str:
    """Return one line with the number of recordings and settings, formats, models and windows."""
    runs = list(chain.from_iterable(comparison.runs))
    windows = sorted({run.window for run in runs})
    parts = [
        count_of(len(comparison.runs), "recording"),
        count_of(len(comparison.labels), "setting"),
        ", ".join(sorted({run.format for run in runs})),
        ", ".join(sorted({run.model for run in runs})),
        "window " + ", ".join(map(format_tokens, windows)) if windows else "",
        "tokens are estimates",
    ]
    return " · ".join(filter(None, parts))
