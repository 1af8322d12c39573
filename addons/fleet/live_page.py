"""The page of a fleet: its live view for a browser.

This module renders HTML, so importing it loads jinja2.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

from ...api.pages import CONNECT, LivePage, render
from ...api.text import count_of
from .live import LiveFleet, LiveView
from .outages import KEY, OUTAGE_TEXTS
from .report import bars
from .summary import cost_text

STYLES, SCRIPTS = (
    ("addons/fleet/page.css", "addons/fleet/live.css"),
    ("agent/pages/follow.js", "addons/fleet/live.js"),
)
MAX_LISTED = 200  # agents at work


def page(view: LiveView, name: str) -> str:
    """Return the HTML document for the fleet; `name` is the name of its manifest."""
    headline = f"{view.finished:,} of {count_of(view.tasks, 'task')}"
    html = render(
        "addons/fleet/live.html.j2",
        title=f"{headline} · {name}",
        styles=STYLES,
        scripts=SCRIPTS,
        connect=CONNECT,
        headline=headline,
        name=name,
        view=view,
        facts=list(_facts(view)),
        bars=list(bars(view.counts)),
        causes={**OUTAGE_TEXTS, KEY: "the key is refused"},
        max_listed=MAX_LISTED,
        dollars=_dollars,
        elapsed=lambda since: duration_text(max(0.0, time.time() - since)),
        count_of=count_of,
    )
    return str(html)


def duration_text(seconds: float) -> str:
    """Return a duration as text, such as "40 s", "3 min" or "2 h"."""
    if seconds < 90:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 5_400 else f"{round(seconds / 3_600)} h"


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"${amount:,.4f}"


def _facts(view: LiveView) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each sum."""
    yield "spent", cost_text(view.dollars, is_priced=view.is_priced)
    if view.dollars_per_hour:
        yield "pace", f"${view.dollars_per_hour:,.2f} an hour"
    if view.outages:
        yield "left", "waiting"
    elif view.seconds_left is not None:
        end = time.strftime("%H:%M", time.localtime(time.time() + view.seconds_left))
        yield "left", f"about {duration_text(view.seconds_left)}, until {end}"
    yield "calls of the model", f"{view.calls:,}"
    yield "tokens", f"{view.tokens:,}"


class FleetPage(LivePage[LiveView]):
    """The served page of a fleet."""

    styles, scripts = STYLES, SCRIPTS

    def __init__(self, fleet: LiveFleet, name: str, port: int = 0) -> None:
        """Listen on a port. See `LivePage`."""
        super().__init__(port)
        self._fleet, self._name = fleet, name

    def read(self) -> LiveView:
        """Return the state of the fleet. Raises RecordError."""
        return self._fleet.refresh()

    def compared(self, view: LiveView) -> LiveView:
        """Return a view without the estimates that change even if nothing happens."""
        return replace(view, dollars_per_hour=None, seconds_left=None)

    def html(self, view: LiveView) -> str:
        """Return the HTML document."""
        return page(view, self._name)
