"""The comparison as one page of HTML that needs no network: the sentence that matters and the sums,
then each recording with its charts. Whatever stood in a session is text here; without scripts all
of it is there to be read, with them recordings and settings can be chosen and values pointed at.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from ...export.html import Html, element, joined, part, sealed
from ..results import Comparison, ReplayRun
from . import page_tables
from .charts import Places, context, cost, fillings, groups, swatch, symbols
from .measures import Figures, count_of, format_tokens, headline, price_sentence, total_figures


def page(comparison: Comparison) -> str:
    """The whole document."""
    places = {label: place for place, label in enumerate(comparison.labels)}
    title = headline(comparison)
    total = total_figures(comparison)
    opening = [
        element("h1", title),
        element("p", price_sentence(comparison), class_="price"),
        element("p", _scope(comparison), class_="quiet"),
    ]
    if total:
        opening += [page_tables.bars(total, places), _tables(comparison, total, places)]
    sections = [_section(n, row, places) for n, row in enumerate(comparison.runs, 1) if row]
    body = [
        symbols(),
        _tools(comparison, places),
        element("header", *opening, class_="opening"),
        element("main", *sections),
    ]
    style = Html(part(__package__, "charts.css") + part(__package__, "page.css"))
    return sealed(title, body, style, part(__package__, "page.js"))


def _scope(comparison: Comparison) -> str:
    """What was played, in a line."""
    runs = list(chain.from_iterable(comparison.runs))
    formats = sorted({run.format for run in runs})
    models = sorted({run.model for run in runs})
    windows = sorted({run.window for run in runs})
    told = [
        count_of(len(comparison.runs), "recording"),
        count_of(len(comparison.labels), "setting"),
        ", ".join(formats),
        ", ".join(models),
        "window " + ", ".join(map(format_tokens, windows)) if windows else "",
        "tokens are estimates",
    ]
    return " · ".join(filter(None, told))


def _tables(comparison: Comparison, total: Sequence[Figures], places: Places) -> Html:
    """The sums, and what they are made of."""
    tables = [
        element(
            "div", element("h2", "In sum"), page_tables.sums(total, places), page_tables.meanings()
        )
    ]
    if len(comparison.runs) > 1:
        head = element("h2", "Each recording")
        tables.append(element("div", head, page_tables.recordings(comparison, places)))
    return element("div", *tables, class_="pair")


def _section(number: int, runs: Sequence[ReplayRun], places: Places) -> Html:
    """One recording."""
    first = runs[0]
    stopped = [
        element("p", f"{run.label} stopped after {count_of(len(run.priced), 'call')}: ",
                page_tables.cut(run.stopped), class_="warning", data_label=str(places[run.label]))
        for run in runs if run.stopped
    ]  # fmt: skip
    played = [run for run in runs if run.priced]
    filled = [run for run in played if run.fills]
    return element(
        "section",
        element("h2", first.name or "(no name)"),
        element("p", joined(_facts(first)), class_="quiet"),
        *stopped,
        *_lines(played, places),
        *_fills(filled, places),
        page_tables.acts(runs, places),
        page_tables.needs(runs, places),
        id=f"r{number}",
    )


def _lines(runs: Sequence[ReplayRun], places: Places) -> Iterator[Html]:
    if not runs:
        yield element("p", "No call of the model.", class_="quiet")
    else:
        yield element("div", context(runs, places), cost(runs, places), class_="pair")


def _fills(runs: Sequence[ReplayRun], places: Places) -> Iterator[Html]:
    if runs:
        yield element("h3", "What fills the window")
        yield groups(runs)
        yield element("div", *fillings(runs, places), class_="areas")


def _facts(run: ReplayRun) -> Iterator[str]:
    yield f"{run.format} · {run.model} · window {run.window:,}"
    if run.peak_then is not None:
        yield f" · largest context as recorded {run.peak_then:,}"


def _tools(comparison: Comparison, places: Places) -> Html:
    """What the script serves; without it there is nothing to press."""
    names = [(n, row[0].name) for n, row in enumerate(comparison.runs, 1) if row]
    options = [element("option", name or "(no name)", value=f"r{n}") for n, name in names]
    several = len(comparison.labels) > 1
    settings = [
        element("button", swatch(place), label, type="button", aria_pressed="true",
                title=label, value=str(place), class_="toggle")
        for label, place in places.items() if several
    ]  # fmt: skip
    chosen = element(
        "select",
        element("option", "All recordings", value=""),
        *options,
        id="recording",
        aria_label="Recording",
    )
    return element(
        "div",
        chosen if len(names) > 1 else "",
        element("div", *settings, class_="toggles", role="group", aria_label="Settings"),
        element("button", "Theme", type="button", id="theme", title="Light, dark, as the system"),
        class_="tools",
        hidden=True,
    )
