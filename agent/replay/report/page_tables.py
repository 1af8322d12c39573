"""The tables of the page: the sums, the recordings beside each other, what was done and missed."""

from collections.abc import Sequence

from ....tools.system.shorten import cut_after
from ...export.html import Html, element, folded, html
from ..results import Comparison, ReplayRun
from .charts import COLOURS, LAYERS, Places, swatch
from .measures import (
    COST_MEASURES,
    KEPT_MEASURES,
    Figures,
    figures_by_setting,
    format_dollars,
    format_ratio,
    format_tokens,
)

_LISTED = 50  # acts of one run, and needs; the JSON document has all
_LONG = 160  # characters of what a session says


def sums(total: Sequence[Figures], places: Places) -> Html:
    """Every measure of every setting."""
    head = element("tr", element("td"), *(_setting(each.label, places) for each in total))
    rows = [
        element(
            "tr",
            element("th", measure.name, scope="row", title=measure.meaning),
            *(_value(measure.value(each), places[each.label]) for each in total),
            class_="telling" if measure.head in ("dollars", "x", "peak") else None,
        )
        for measure in (*COST_MEASURES, *KEPT_MEASURES)
    ]
    rows.insert(
        len(COST_MEASURES), element("tr", element("td", colspan=len(total) + 1), class_="apart")
    )
    return _scrolling("Sums", element("thead", head), element("tbody", *rows))


def meanings() -> Html:
    told = [
        part
        for measure in (*COST_MEASURES, *KEPT_MEASURES)
        for part in (element("dt", measure.name), element("dd", measure.meaning))
    ]
    return folded("What these mean", element("dl", *told, class_="meanings"))


def bars(total: Sequence[Figures], places: Places) -> Html:
    """The dollars of each setting, as lengths."""
    most = max((each.sums.dollars for each in total), default=0.0) or 1.0
    rows = [
        element(
            "li",
            element("span", swatch(places[each.label]), each.label, class_="setting"),
            element(
                "svg",
                element(
                    "rect",
                    width=f"{100 * each.sums.dollars / most:.4g}%",
                    height="100%",
                    rx="3",
                    class_=f"bar s{places[each.label] % COLOURS}",
                ),
                width="100%",
                height="18",
                aria_hidden="true",
            ),
            element("b", f"${format_dollars(each.sums.dollars)}"),
            element("span", format_ratio(each.ratio), class_="quiet"),
            data_label=str(places[each.label]),
        )
        for each in total
    ]
    return element("ul", *rows, class_="bars")


def recordings(comparison: Comparison, places: Places) -> Html:
    """A line for each recording: what it costs under each setting, and its largest context."""
    head = element(
        "tr",
        element("th", "Recording", scope="col"),
        *(_setting(label, places) for label in comparison.labels),
    )
    rows = []
    for number, row in enumerate(comparison.runs, 1):
        if row:
            found = {each.label: each for each in figures_by_setting(comparison.labels, row)}
            link = element("a", row[0].name or "(no name)", href=f"#r{number}")
            shown = [_brief(found.get(label), place) for label, place in places.items()]
            rows.append(element("tr", element("th", link, scope="row"), *shown))
    return _scrolling("Recordings", element("thead", head), element("tbody", *rows))


def acts(runs: Sequence[ReplayRun], places: Places) -> Html:
    """What compaction did, folded."""
    rows = [
        _row(places[run.label], run.label, f"{act.number:,}", LAYERS[act.layer],
             cut(act.trigger), f"{act.count:,}", format_tokens(act.before), format_tokens(act.after))
        for run in runs for act in run.acts[:_LISTED]
    ]  # fmt: skip
    heads = ("setting", "call", "what", "why", "how many", "before", "after")
    return _listed("Acts of compaction", sum(len(run.acts) for run in runs), heads, rows)


def needs(runs: Sequence[ReplayRun], places: Places) -> Html:
    """What was needed when it was gone, folded."""
    rows = [
        _row(places[run.label], run.label, f"{need.number:,}", need.how, cut(need.what),
             f"#{need.ref}", format_tokens(need.tokens), f"${format_dollars(need.dollars)}")
        for run in runs for need in run.needs[:_LISTED]
    ]  # fmt: skip
    heads = ("setting", "call", "how", "what", "entry", "tokens", "cost")
    return _listed("Needed when gone", sum(len(run.needs) for run in runs), heads, rows)


def cut(text: str) -> str:
    return cut_after(text, _LONG)


def _scrolling(told: str, *inside: Html) -> Html:
    """A table that may be wider than the screen."""
    table = element("table", *inside)
    return element("div", table, class_="scrolling", tabindex="0", role="group", aria_label=told)


def _setting(label: str, places: Places) -> Html:
    place = places[label]
    return element("th", swatch(place), label, scope="col", data_label=str(place))


def _value(value: str, place: int) -> Html:
    return element("td", value, data_label=str(place))


def _brief(each: Figures | None, place: int) -> Html:
    if each is None:
        return element("td", data_label=str(place))
    mark = element("b", "!", title="not played to the end") if each.sums.stopped else ""
    cost = element("span", f"${format_dollars(each.sums.dollars)}", mark)
    rest = element("small", f"{format_ratio(each.ratio)} · {format_tokens(each.sums.peak)}")
    return element("td", cost, " ", rest, data_label=str(place))


def _row(place: int, *values: str) -> Html:
    return element("tr", *(element("td", value) for value in values), data_label=str(place))


def _listed(title: str, count: int, heads: Sequence[str], rows: Sequence[Html]) -> Html:
    if not count:
        return html("")
    head = element("tr", *(element("th", each, scope="col") for each in heads))
    table = _scrolling(title, element("thead", head), element("tbody", *rows))
    rest = count - len(rows)
    more = element("p", f"{rest:,} more are in the JSON document.", class_="quiet") if rest else ""
    return folded(f"{title}: {count:,}", table, more, class_="listed")
