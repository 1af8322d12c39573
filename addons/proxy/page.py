"""The status page of a proxy: context with and without edits, cost and edits of each session.

All texts from sessions are escaped. The page works without scripts. With scripts it updates itself
and can undo edits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...api.pages import (
    CONNECT,
    charts,
    format_dollars,
    format_percent,
    format_tokens,
    render,
    short_tokens,
    templates,
)
from ...api.text import count_of
from .status import ProxyNote, ProxyStatus, SessionStatus, share_saved

STYLES = ("agent/pages/charts.css", "agent/pages/report.css", "agent/pages/edits.css")
SCRIPTS = ("agent/pages/follow.js", "agent/pages/edits.js")
MAX_LISTED = 100  # edits per session, newest first
WITHOUT, WITH = 0, 1  # line numbers in a chart


def page(status: ProxyStatus, faults: Sequence[ProxyNote], place: str) -> str:
    """Return the HTML document. `place` is the folder of the sessions."""
    html = render(
        "addons/proxy/page.html.j2",
        title=f"ctxagent proxy · {place}",
        styles=STYLES,
        scripts=SCRIPTS,
        connect=CONNECT,
        place=place,
        status=status,
        faults=faults,
        max_listed=MAX_LISTED,
        charts=charts,
        drawing=context_drawing,
        marks=lambda session: charts.edit_kinds(session.edits),
        session_line=session_line,
        cost_sentence=cost_sentence,
        newest_and_largest=newest_and_largest,
    )
    return str(html)


def page_headers() -> Mapping[str, str]:
    """Return security headers that allow only the page's own content."""
    return templates.page_headers(STYLES, SCRIPTS, CONNECT)


def session_line(session: SessionStatus) -> str:
    """Return client, model, number of calls and ID of a session on one line."""
    parts = (session.client, session.model, count_of(len(session.turns), "call"), session.id)
    return " · ".join(filter(None, parts))


def cost_sentence(spent: float | None, unedited: float | None) -> str:
    """Return a sentence with the cost with and without the proxy."""
    if spent is None or unedited is None:
        return "The price of the model is not known."
    share = share_saved(spent, unedited)
    sentence = f"${format_dollars(spent)} instead of ${format_dollars(unedited)}"
    if share is None or abs(unedited - spent) < 0.00005:
        return f"{sentence}: the same."
    return f"{sentence}: {format_percent(abs(share))} {'saved' if share > 0 else 'more'}."


def newest_and_largest(values: Sequence[int]) -> str:
    """Return the newest and the largest context size as text."""
    return f"{format_tokens(values[-1])} now, {format_tokens(max(values))} at most"


def context_drawing(session: SessionStatus) -> Any:
    """Draw the context of each call with and without the proxy, and the edits below."""
    turns = session.turns
    sent = [(number, call.with_tokens) for number, call in enumerate(turns, 1)]
    unedited = [(number, call.without_tokens) for number, call in enumerate(turns, 1)]
    top = max(value for _, value in unedited)
    frame = charts.Frame(len(turns), max(top, 1), short_tokens)
    label = (
        f"Context over {count_of(len(turns), 'call')}: "
        f"{newest_and_largest([value for _, value in sent])}; "
        f"without the proxy {newest_and_largest([value for _, value in unedited])}"
    )
    lanes = charts.edit_lanes(session.edits, frame, WITH)
    return charts.draw(
        frame,
        label,
        lines=charts.drawn_lines([(WITHOUT, unedited), (WITH, sent)]),
        window=session.window if session.window <= frame.top else 0,
        lanes=lanes,
        below=charts.lanes_height(len(lanes)),
    )
