"""The live view of a fleet and its page: progress, activity of each agent, cost, estimated end.

Each refresh reads only the new lines of the ledger and of running tasks' logs. A run leaves notes
for other processes that watch it: when it began, and which outages it waits for. Only the ledger is
authoritative.

The page is served on the loopback address under a secret path. This module renders HTML, so
importing it loads jinja2.
"""

import json
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ...api.base import CtxagentError, UsageError, dataclass
from ...api.files import open_kept, replace_file
from ...api.pages import page_headers, render
from ...api.record import Assistant, Entry, ToolResult, is_in_use, try_parse_entry
from ...api.text import as_sentences, count_of, cut_at_word
from .ledger import FleetFolder, LedgerReader, SessionSums, TaskRecord, TaskState, find_logs
from .manifest import Manifest
from .outages import KEY, OUTAGE_TEXTS
from .report import bars
from .summary import STATES, LogSums, cached_sums, catch_up, cost_text

NAME = "run.json"


@dataclass(frozen=True, slots=True)
class OutageNote:
    """An outage. Times are in seconds since 1970."""

    cause: str
    why: str
    since: float
    probe_at: float  # earliest time of the next attempt


@dataclass(frozen=True, slots=True)
class RunNotes:
    """The notes of a run."""

    began: float  # seconds since 1970
    dollars: float  # cost of all sessions when it began
    ended: int  # number of ended tasks when it began
    outages: tuple[OutageNote, ...] = ()

    def write(self, folder: FleetFolder) -> None:
        """Write the notes; ignore errors."""
        with suppress(OSError):
            replace_file(folder.path / NAME, json.dumps(asdict(self)).encode(), durable=False)

    @classmethod
    def read(cls, folder: FleetFolder) -> "RunNotes | None":
        """Return the notes of the newest run, or None if they cannot be read."""
        with suppress(OSError, ValueError, TypeError, LookupError):
            found: Mapping[str, Any] = json.loads((folder.path / NAME).read_bytes())
            outages = tuple(OutageNote(**each) for each in found["outages"])
            return cls(float(found["began"]), float(found["dollars"]), int(found["ended"]), outages)
        return None


WINDOW_S = 600.0  # time span for measuring the pace of a run
MIN_SAMPLED_S = 10.0  # minimum time span for an estimate
MAX_CALL_CHARS = 120  # of the text of an activity
TAIL_BYTES = 1 << 17  # bytes at the end of a log that are read for the current activity
ASKING = "asks the model"


@dataclass(slots=True)
class Activity:
    """The current activity of an agent, read from its log."""

    sums: LogSums = field(default_factory=LogSums)
    calls: dict[str, str] = field(default_factory=dict)  # running calls as text, by ID
    since: float = 0.0  # seconds since 1970

    def read(self, log: Path) -> None:
        """Read the new lines of a log. If the sums of older lines are known, read only the last
        TAIL_BYTES of them for the activity. Raises OSError.
        """
        if self.sums.end and not self.since:
            with open_kept(log) as file:
                file.seek(max(0, self.sums.end - TAIL_BYTES))
                for line in file.read(self.sums.end - file.tell()).splitlines():
                    if entry := try_parse_entry(line):
                        self.update(entry)
        self.sums, _ = catch_up(self.sums, log, self.update)

    def update(self, entry: Entry) -> None:
        """Update the activity from an entry."""
        if isinstance(entry, Assistant) and entry.purpose == "turn":
            uses = (block for block in entry.content if block.get("type") == "tool_use")
            self.calls = {str(use.get("id")): _call_text(use) for use in uses}
        elif isinstance(entry, ToolResult):
            self.calls.pop(entry.tool_use_id, None)
        with suppress(ValueError):
            self.since = datetime.fromisoformat(entry.at).timestamp()

    @property
    def text(self) -> str:
        """The current activity as text."""
        if not self.calls:
            return ASKING
        first, *more = self.calls.values()
        return f"{first} and {len(more)} more" if more else first


def _call_text(use: dict[str, object]) -> str:
    """Return the tool of a call and its first text argument."""
    given = use.get("input")
    values = given.values() if isinstance(given, dict) else ()
    text = next((value for value in values if isinstance(value, str)), "")
    return cut_at_word(f"{use.get('name')} {as_sentences(text)}".strip(), MAX_CALL_CHARS)


class Pace:
    """The rate at which a run spends dollars and finishes tasks, over the last WINDOW_S seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, int]] = deque()

    def add(self, now: float, dollars: float, ended: int) -> None:
        """Add a sample: the time, the dollars spent and the number of finished tasks."""
        while len(self._samples) > 1 and now - self._samples[1][0] > WINDOW_S:
            self._samples.popleft()
        self._samples.append((now, dollars, ended))

    @property
    def dollars_per_hour(self) -> float | None:
        """Dollars spent per hour, or None without enough samples."""
        (began, before, _), (now, dollars, _) = self._samples[0], self._samples[-1]
        if now - began < MIN_SAMPLED_S:
            return None
        return 3_600 * (dollars - before) / (now - began)

    def seconds_left(self, tasks: int) -> float | None:
        """Return the estimated seconds for this number of tasks, or None without enough samples."""
        (began, _, before), (now, _, ended) = self._samples[0], self._samples[-1]
        if now - began < MIN_SAMPLED_S or ended <= before:
            return None
        return tasks * (now - began) / (ended - before)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A running agent and its current activity."""

    id: str  # ID of the task
    activity: str
    since: float  # seconds since 1970; 0 if unknown
    calls: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class EndView:
    """A task that ended."""

    id: str
    state: TaskState
    why: str
    cost_usd: float | None
    at: str


@dataclass(frozen=True, slots=True)
class LiveView:
    """The state of a fleet at one moment."""

    tasks: int
    is_running: bool
    counts: dict[str, int]
    dollars: float
    is_priced: bool
    calls: int
    tokens: int
    dollars_per_hour: float | None
    seconds_left: float | None
    outages: Sequence[OutageNote]
    workers: Sequence[WorkerView]  # longest activity first
    ended: Sequence[EndView]  # newest first

    @property
    def finished(self) -> int:
        """The number of done and failed tasks."""
        return self.counts["done"] + self.counts["failed"]


class LiveFleet:
    """Observer that follows the state of a fleet."""

    def __init__(
        self,
        manifest: Manifest,
        folder: FleetFolder,
        *,
        is_running: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`is_running` returns True during a run; the default checks the lock of the ledger."""
        self._ids, self._folder, self._clock = list(manifest.lines), folder, clock
        self._is_running = is_running or (lambda: is_in_use(folder.lock))
        self._ledger = LedgerReader(folder)
        self._activities: dict[str, Activity] = {}  # by session
        self._logs: dict[str, Path] = {}  # logs of running sessions
        self._kept_sums = cached_sums(folder)
        self._pace, self._began = Pace(), 0.0

    def refresh(self) -> LiveView:
        """Return the current state of the fleet. Raises RecordError for an unreadable ledger."""
        is_running = self._is_running()
        self._ledger.catch_up()
        records, running = self._ledger.records, self.running
        self._read_logs(running)
        states = Counter(self._state(id, is_running) for id in self._ids)
        counts: dict[str, int] = {state: states[state] for state in STATES}
        sums = [each for record in records.values() for each in record.sums.values()]
        dollars = sum(each.cost_usd or 0.0 for each in sums)
        notes = RunNotes.read(self._folder) if is_running else None
        to_do = len(self._ids) - counts["done"] - counts["failed"]
        if notes is not None:
            if notes.began != self._began:
                self._pace, self._began = Pace(), notes.began
                self._pace.add(notes.began, notes.dollars, notes.ended)
            self._pace.add(self._clock(), dollars, len(self._ids) - to_do)
        is_known = notes is not None and not notes.outages
        return LiveView(
            tasks=len(self._ids),
            is_running=is_running,
            counts=counts,
            dollars=dollars,
            is_priced=all(each.cost_usd is not None for each in sums),
            calls=sum(each.calls for each in sums),
            tokens=sum(each.tokens for each in sums),
            dollars_per_hour=self._pace.dollars_per_hour if notes else None,
            seconds_left=self._pace.seconds_left(to_do) if is_known else None,
            outages=notes.outages if notes else (),
            workers=self._workers(running) if is_running else (),
            ended=list(self._ends()),
        )

    @property
    def running(self) -> list[TaskRecord]:
        """The tasks that are begun and not ended, as of the newest refresh."""
        return [each for each in self._ledger.records.values() if each.state == "running"]

    def _state(self, id: str, is_running: bool) -> TaskState:
        record = self._ledger.records.get(id)
        state: TaskState = record.state if record else "waiting"
        return "stopped" if state == "running" and not is_running else state

    def _read_logs(self, running: Sequence[TaskRecord]) -> None:
        """Update the sums of running tasks from their logs."""
        unknown = [record for record in running if record.session not in self._logs]
        self._logs |= find_logs(self._folder, unknown)
        self._activities = {
            record.session: self._activities.get(record.session)
            or Activity(self._kept_sums.pop(record.session, LogSums()))
            for record in running
        }
        for record in running:
            activity = self._activities[record.session]
            if log := self._logs.get(record.session):
                with suppress(OSError):
                    activity.read(log)
            record.sums[record.session] = SessionSums.of(activity.sums.totals)

    def _workers(self, running: Sequence[TaskRecord]) -> list[WorkerView]:
        found = []
        for record in running:
            activity, sums = self._activities[record.session], record.sums[record.session]
            cost = sums.cost_usd
            found.append(WorkerView(record.id, activity.text, activity.since, sums.calls, cost))
        return sorted(found, key=lambda each: each.since)

    def _ends(self) -> Iterator[EndView]:
        for id, at in reversed(self._ledger.ended):
            record = self._ledger.records[id]
            outcome = record.outcome
            if outcome is not None:
                why = as_sentences(f"{outcome.kind}: {outcome.message}").strip(": ")
                cost = record.cost_usd if record.is_priced else None
                yield EndView(id, record.state, why, cost, at)


STYLES, SCRIPTS = (
    ("addons/fleet/page.css", "addons/fleet/live.css"),
    ("agent/pages/follow.js", "addons/fleet/live.js"),
)
CONNECT = "'self'"  # connect-src of the content security policy
MAX_LISTED = 200  # agents at work
TIMEOUT_S = 10.0  # timeout of an idle connection
ADDRESS = "127.0.0.1"


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


class LivePage:
    """Server of a fleet's page."""

    def __init__(self, fleet: LiveFleet, name: str, port: int = 0) -> None:
        """Listen on a port; 0 selects a free port. Raises UsageError if the port is in use."""
        self._fleet, self._name, self._lock = fleet, name, threading.Lock()
        self._view: LiveView | None = None
        self._version = 0  # number of changes so far
        token = secrets.token_urlsafe(24)
        self.path = f"/{token}/"

        class Handler(_Handler):
            page = self

        try:
            self._server = ThreadingHTTPServer((ADDRESS, port), Handler)
        except OSError as error:
            hint = "Give another port, or leave it out to use a free one."
            raise UsageError(f"port {port}: {error.strerror}", hint=hint) from error
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        """The URL of the page. Anyone with the URL can read the page."""
        return f"http://{ADDRESS}:{self.port}{self.path}"

    def serve(self) -> None:
        """Answer requests until `stop` is called."""
        self._server.serve_forever()

    def stop(self) -> None:
        """Stop answering requests."""
        self._server.shutdown()
        self._server.server_close()

    def refresh(self) -> tuple[LiveView, str]:
        """Return the state of the fleet and an ETag that changes with it. Raises RecordError."""
        with self._lock:
            view = self._fleet.refresh()
            if self._view is None or _without_estimates(view) != _without_estimates(self._view):
                self._version += 1
            self._view = view
            return view, f'"{self._version}"'

    def html(self, view: LiveView) -> bytes:
        return page(view, self._name).encode("utf-8", "replace")


def _without_estimates(view: LiveView) -> LiveView:
    """Return a view without the estimates that change even if nothing happens."""
    return replace(view, dollars_per_hour=None, seconds_left=None)


class _Handler(BaseHTTPRequestHandler):
    """Handler that answers only requests with the secret path and a loopback host name. A page of
    another site can send neither.
    """

    page: LivePage
    timeout = TIMEOUT_S
    server_version, sys_version = "ctxagent", ""

    def do_GET(self) -> None:
        hosts = (f"{ADDRESS}:{self.page.port}", f"localhost:{self.page.port}")
        if self.headers.get("host", "").lower() not in hosts:
            self._respond(HTTPStatus.FORBIDDEN)
        elif not secrets.compare_digest(self.path.encode(), self.page.path.encode()):
            self._respond(HTTPStatus.NOT_FOUND)
        else:
            self._send_page()

    do_HEAD = do_GET

    def _send_page(self) -> None:
        try:
            view, tag = self.page.refresh()
        except CtxagentError:
            self._respond(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        headers = {**page_headers(STYLES, SCRIPTS, CONNECT), "etag": tag}
        if self.headers.get("if-none-match") == tag:
            self._respond(HTTPStatus.NOT_MODIFIED, headers=headers)
        elif self.command == "HEAD":
            self._respond(HTTPStatus.OK, headers=headers)
        else:
            headers["content-type"] = "text/html; charset=utf-8"
            self._respond(HTTPStatus.OK, self.page.html(view), headers)

    def _respond(
        self, status: HTTPStatus, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: the log would reveal the secret path."""
