"""The live page of a session's context: its size over time, its edits, its items and the bill."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...tools.system.phrasing import count_of
from ..compaction.edits import ContextItem
from ..compaction.listed_edits import ListedEdit, listed_edits
from ..context.window import Window
from ..errors import CompactionFailed, SessionError
from ..launch import LaunchOptions
from ..lazy import dataclass
from ..pages import charts
from ..pages.live_page import CONNECT, EditsPage
from ..pages.templates import format_tokens, render, short_tokens
from ..session.entries import Assistant, Entry, Usage, reverted_seqs
from ..session.listing import is_in_use
from ..ui.edit_report import dollars, state_of
from .compact import load_known_window, open_session
from .options import say

STYLES = ("agent/pages/charts.css", "agent/pages/report.css", "agent/pages/edits.css")
SCRIPTS = ("agent/pages/follow.js", "agent/pages/edits.js")
MAX_LISTED = 300  # items, and edits, newest first
COLOUR = 1  # line number in the chart


@dataclass(frozen=True, slots=True)
class ContextView:
    """What the page shows."""

    state: tuple[int, int, bool]  # size and time of the log, and whether a process has it open
    session: str
    model: str
    window: Window
    cost_usd: float | None
    calls: Sequence[int]  # tokens of the context at each call
    edits: Sequence[ListedEdit]
    items: Sequence[ContextItem]  # oldest first

    @property
    def is_open(self) -> bool:
        """True if another process has the session open."""
        return self.state[-1]


class ServedContext(EditsPage[ContextView]):
    """The served page of a session's context."""

    styles, scripts = STYLES, SCRIPTS

    def __init__(self, launch: LaunchOptions, log: Path, port: int = 0) -> None:
        """Listen on a port. See `EditsPage`."""
        super().__init__(port)
        self._launch, self._log = launch, log
        self._view: ContextView | None = None

    def read(self) -> ContextView:
        """Return the context as it is now. The log is read only after a change."""
        try:
            stat = self._log.stat()
        except OSError as error:
            raise SessionError(f"the session cannot be read: {error.strerror}") from error
        state = stat.st_size, stat.st_mtime_ns, self._is_open
        if self._view is None or self._view.state != state:
            self._view = asyncio.run(self._read(state))
        return self._view

    def compared(self, view: ContextView) -> tuple[int, int, bool]:
        """Return the state of the log."""
        return view.state

    def html(self, view: ContextView) -> str:
        """Return the HTML document."""
        return page(view)

    def undo_edit(self, seq: int) -> None:
        """Undo the edit at `seq`. Raises CompactionFailed if another process has the session open,
        or if there is no such edit.
        """
        if self._is_open:
            raise CompactionFailed(
                "another process has the session open", hint="Undo it there with /uncompact."
            )
        asyncio.run(self._undo(seq))

    @property
    def _is_open(self) -> bool:
        return is_in_use(self._log.with_name("lock"))

    async def _read(self, state: tuple[int, int, bool]) -> ContextView:
        id = self._log.parent.name
        async with open_session(self._launch, id, read_only=True, quiet=True) as agent:
            await load_known_window(agent, self._launch)
            calls, edits = _history(agent.log.entries())
            return ContextView(
                state=state,
                session=id,
                model=agent.model.id,
                window=agent.model.current_window(),
                cost_usd=agent.totals.all.cost_usd,
                calls=calls,
                edits=edits,
                items=agent.edits.items(),
            )

    async def _undo(self, seq: int) -> None:
        async with open_session(self._launch, self._log.parent.name, quiet=True) as agent:
            await agent.edits.undo(seq)


def serve_page(page: ServedContext) -> None:
    """Print the address of the page, and serve it until Ctrl-C."""
    say(page.url)
    say("Only users with this address can read the page and undo edits. Ctrl-C stops it.", err=True)
    with suppress(KeyboardInterrupt):
        page.serve()


def page(view: ContextView) -> str:
    """Return the HTML document."""
    window = view.window
    headline = f"{window.tokens:,} of {window.size:,} tokens"
    html = render(
        "agent/pages/context.html.j2",
        title=f"{headline} · {view.session}",
        styles=STYLES,
        scripts=SCRIPTS,
        connect=CONNECT,
        headline=headline,
        view=view,
        facts=list(_facts(view)),
        drawing=_drawing,
        kinds=charts.edit_kinds(view.edits),
        dollars=dollars,
        state_of=state_of,
        max_listed=MAX_LISTED,
    )
    return str(html)


def _history(entries: Iterable[Entry]) -> tuple[list[int], list[ListedEdit]]:
    """Return the size of the context at each call, and the edits with the call after each."""
    calls, edits = list[int](), list[ListedEdit]()
    undone = reverted_seqs(entries)
    for entry in entries:
        if isinstance(entry, Assistant) and entry.purpose == "turn":
            if prompt := Usage.from_json(entry.usage).prompt:
                calls.append(prompt)
        else:
            found = listed_edits(entry, len(calls) + 1)
            edits += (replace(edit, is_undone=edit.seq in undone) for edit in found)
    return calls, edits


def _facts(view: ContextView) -> Iterator[str]:
    """Yield the sums of a session as text."""
    bill = "price not known" if view.cost_usd is None else f"{dollars(view.cost_usd)} so far"
    saved = sum(edit.before - edit.after for edit in view.edits if not edit.is_undone)
    yield f"{bill} for {count_of(len(view.calls), 'call')}"
    if view.edits:
        yield f"{count_of(len(view.edits), 'edit')} left out {format_tokens(saved)} tokens"


def _drawing(view: ContextView) -> Any:
    """Draw the context of each call, and the edits below."""
    sizes, window = view.calls, view.window.size
    frame = charts.Frame(len(sizes), max(sizes), short_tokens)
    lanes = charts.edit_lanes(view.edits, frame, COLOUR)
    return charts.draw(
        frame,
        f"Context over {count_of(len(sizes), 'call')}: {format_tokens(sizes[-1])} tokens at the "
        f"newest, {format_tokens(max(sizes))} at most",
        lines=charts.drawn_lines([(COLOUR, [*enumerate(sizes, 1)])]),
        window=window if window <= frame.top else 0,
        lanes=lanes,
        below=charts.lanes_height(len(lanes)),
    )
