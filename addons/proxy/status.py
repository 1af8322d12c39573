"""Statistics of the proxy's sessions, computed from their logs; the proxy does not need to run.

The cost without the proxy assumes that the client sent its complete history each time, up to the
window size, and got the same replies. Requests that are not in a log are not counted: asides, and
the client's own compactions.
"""

import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...api.base import dataclass
from ...api.context import ListedEdit, listed_edits
from ...api.files import open_kept
from ...api.models import DEFAULT_LIMITS, cache_terms, cost, known_limits
from ...api.pages import clean_text as clean
from ...api.record import (
    TITLE_TOPIC,
    Assistant,
    Entry,
    Mask,
    Note,
    Revert,
    Session,
    Summary,
    ToolResult,
    Usage,
    User,
    content_text,
    parse_entry,
    reverted_seqs,
)
from ...api.text import cut_after, cut_at_word
from .history import PROXY_TOPIC
from .way_back import WARNINGS, WayBack, way_back_of

MAX_SESSIONS = 50  # shown, newest first
MAX_LOGS = 500  # searched for sessions, newest change first
MAX_READ_BYTES = 256 << 20  # of all logs together
MAX_TITLE_CHARS = 90
MAX_CLIENT_CHARS = 40
RUNNING_NAME = "proxy.json"  # file in a project's folder with the running proxy's address
_HEAD_BYTES = 200  # of a line; contain the entry's kind
_RESULT, _SAVED = b'"kind": "tool_result"', b'"tokens_saved"'


class CallKey(NamedTuple):
    """The identity of a call, equal in the copies in forks."""

    seq: int
    at: str
    message_id: str | None


@dataclass(frozen=True, slots=True)
class ProxiedCall:
    """A request of a client and its price."""

    key: CallKey
    with_tokens: int  # of the prompt sent to the server
    without_tokens: int  # of the client's prompt
    with_dollars: float | None  # None if the model's price is unknown
    without_dollars: float | None
    is_turn: bool  # False for a retry and for the proxy's own requests


@dataclass(frozen=True, slots=True)
class ProxyNote:
    """A failure, or the reason why a session is no longer edited."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """The statistics of one session."""

    id: str
    log: Path
    title: str
    client: str
    protocol: str
    model: str
    window: int
    changed: str  # time of the newest entry
    calls: tuple[ProxiedCall, ...]  # including the proxy's own calls
    inherited: frozenset[CallKey]  # calls that are counted in another session
    edits: tuple[ListedEdit, ...]
    notes: tuple[ProxyNote, ...]
    way_back: WayBack = "recall"

    @property
    def warning(self) -> str:
        """Why the model cannot get back every text with `recall`, or ""."""
        return WARNINGS[self.way_back]

    @property
    def turns(self) -> list[ProxiedCall]:
        """The calls of the client's main line, including inherited ones."""
        return [call for call in self.calls if call.is_turn]

    @property
    def own(self) -> list[ProxiedCall]:
        """The calls paid for in this session."""
        return [call for call in self.calls if call.key not in self.inherited]

    @property
    def with_dollars(self) -> float | None:
        return _sum(call.with_dollars for call in self.own)

    @property
    def without_dollars(self) -> float | None:
        return _sum(call.without_dollars for call in self.own)

    def to_json(self) -> dict[str, Any]:
        turns = self.turns
        return {
            "id": self.id,
            "log": str(self.log),
            "title": self.title,
            "client": self.client,
            "protocol": self.protocol,
            "model": self.model,
            "window": self.window,
            "changed": self.changed,
            "calls": len(turns),
            "dollars": {"with": self.with_dollars, "without": self.without_dollars},
            "context": {
                "with": [call.with_tokens for call in turns],
                "without": [call.without_tokens for call in turns],
            },
            "edits": [asdict(edit) for edit in self.edits],
            "notes": [asdict(note) for note in self.notes],
            "way_back": self.way_back,
        }


@dataclass(frozen=True, slots=True)
class ProxyStatus:
    """The statistics of all sessions, the newest first."""

    sessions: tuple[SessionStatus, ...]
    left_out: int = 0  # older logs, possibly of further sessions

    @property
    def with_dollars(self) -> float:
        return sum(spent for spent, _ in self._priced)

    @property
    def without_dollars(self) -> float:
        return sum(unedited for _, unedited in self._priced)

    @property
    def _priced(self) -> list[tuple[float, float]]:
        pairs = ((each.with_dollars, each.without_dollars) for each in self.sessions)
        return [(one, two) for one, two in pairs if one is not None and two is not None]

    def to_json(self) -> dict[str, Any]:
        return {
            "sessions": [each.to_json() for each in self.sessions],
            "dollars": {"with": self.with_dollars, "without": self.without_dollars},
            "left_out": self.left_out,
        }


@dataclass
class _LogStatistics:
    """The statistics of a session, up to the last line read from its log."""

    log: Path
    window: int | None
    inode: int = 0
    read: int = 0  # bytes of the log
    client: Mapping[str, Any] | None = None  # {} for a session that is not from the proxy
    title: str = ""
    model: str = ""
    changed: str = ""
    calls: list[ProxiedCall] = field(default_factory=list)
    edits: list[ListedEdit] = field(default_factory=list)
    notes: list[ProxyNote] = field(default_factory=list)
    reverts: list[Revert] = field(default_factory=list)
    way_back: WayBack = "recall"
    _saved: int = 0  # tokens saved in the previous call
    _is_edited: bool = False  # edited since the previous call
    _is_cached: bool = False

    def add_line(self, line: bytes) -> None:
        """Process a line of the log. Skip results without savings before parsing, which takes most
        of the time.
        """
        if _RESULT in line[:_HEAD_BYTES] and _SAVED not in line:
            return
        with suppress(ValueError):
            self.add(parse_entry(line))

    def add(self, entry: Entry) -> None:
        self.changed = entry.at or self.changed
        if isinstance(entry, Session):
            self.client = entry.client if self.client is None else self.client
            self.model = entry.model
            if entry.tools is not None:
                self.way_back = way_back_of(entry.tools)
        elif isinstance(entry, User):
            if entry.source == "person" and not self.title:
                self.title = _first_words(content_text(entry.content))
        elif isinstance(entry, Assistant):
            self._add_call(entry)
        elif isinstance(entry, Note):
            self._add_note(entry)
        elif isinstance(entry, Revert):
            self.reverts.append(entry)
            self._is_edited = True
        elif isinstance(entry, Mask | Summary | ToolResult):
            self._add_edit(entry)

    def status(self) -> SessionStatus:
        client, undone = self.client or {}, reverted_seqs(self.reverts)
        model = self.model
        return SessionStatus(
            id=self.log.parent.name,
            log=self.log,
            title=self.title,
            client=_short_agent(str(client.get("agent", ""))),
            protocol=str(client.get("protocol", "")),
            model=model,
            window=self._window(model),
            changed=self.changed,
            calls=tuple(self.calls),
            inherited=frozenset(),
            edits=tuple(replace(e, is_undone=e.seq in undone) for e in self.edits),
            notes=tuple(self.notes),
            way_back=self.way_back,
        )

    def _window(self, model: str) -> int:
        return self.window or (known_limits(model) or DEFAULT_LIMITS).window

    def _add_note(self, note: Note) -> None:
        if note.topic == PROXY_TOPIC:
            self.notes.append(ProxyNote(note.at, note.text))
        elif note.topic == TITLE_TOPIC:
            self.title = _first_words(note.text)

    def _add_edit(self, entry: Mask | Summary | ToolResult) -> None:
        for edit in listed_edits(entry, sum(call.is_turn for call in self.calls) + 1):
            if edit.after < edit.before or edit.can_undo:  # else only a file was written
                self.edits.append(edit)
        self._is_edited = self._is_edited or not isinstance(entry, ToolResult)

    def _add_call(self, entry: Assistant) -> None:
        usage = Usage.from_json(entry.usage)
        key, spent = CallKey(entry.seq, entry.at, entry.message_id), entry.cost_usd
        is_turn = entry.purpose == "turn"
        if not usage.total:
            return  # the reply is from the client's history
        if "saved" not in entry.request:
            self.calls.append(ProxiedCall(key, usage.prompt, 0, spent, 0.0, is_turn=False))
            return
        saved, window = _count(entry.request["saved"]), self._window(entry.model)
        unedited = max(usage.prompt, min(usage.prompt + saved, window))
        without = spent
        if saved or self._saved:
            self._is_edited = self._is_edited or saved < self._saved  # an edit was dropped
            without = cost(entry.model, self._usage_without(entry, usage, unedited))
        self.calls.append(ProxiedCall(key, usage.prompt, unedited, spent, without, is_turn))
        if is_turn:
            self._saved, self._is_edited = saved, False
            self._is_cached = self._is_cached or bool(usage.cache_read + usage.cache_creation)

    def _usage_without(self, entry: Assistant, usage: Usage, unedited: int) -> Usage:
        """Return the usage of the unedited request.

        After an edit, assume that the server had the previous unedited prompt in its cache, unless
        it expired. Without an edit since the previous request, scale the share of that request
        which the server reports as cached.
        """
        before = next((call for call in reversed(self.calls) if call.is_turn), None)
        if before is None:
            read = usage.cache_read
        elif self._is_edited:
            age = _seconds(entry.at) - _seconds(before.key.at)
            is_cached = self._is_cached or usage.cache_read + usage.cache_creation > 0
            is_warm = is_cached and age <= cache_terms(entry.model).life
            read = min(before.without_tokens, unedited) if is_warm else 0
        else:
            older = min(unedited, before.without_tokens) - min(usage.prompt, before.with_tokens)
            share = min(1.0, usage.cache_read / max(1, before.with_tokens))
            read = usage.cache_read + round(share * max(0, older))
        read = min(read, unedited)
        paid = usage.cache_creation + usage.input
        share = usage.cache_creation / paid if paid else 1.0
        written = round((unedited - read) * share)
        return replace(
            usage, input=unedited - read - written, cache_read=read, cache_creation=written
        )


@dataclass
class StatusReader:
    """Reads the logs of sessions, incrementally."""

    window: int | None = None  # tokens, set by the user
    _read: dict[Path, _LogStatistics] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _state: dict[Path, tuple[int, int]] = field(default_factory=dict)  # (inode, bytes read)
    _last: ProxyStatus = field(default_factory=lambda: ProxyStatus(()))

    def status(self, logs: Iterable[Path]) -> ProxyStatus:
        """Return the statistics for these logs, sorted by newest change. Return the same object if
        nothing has changed.
        """
        with self._lock:
            found, left_out = list[_LogStatistics](), 0
            budget = MAX_READ_BYTES
            for count, log in enumerate(logs):
                if len(found) == MAX_SESSIONS or count >= MAX_LOGS:
                    left_out += 1
                    continue
                try:
                    statistics, size = self._follow(log, budget)
                except OSError:
                    left_out += 1
                    continue
                budget -= size
                if statistics.client:
                    found.append(statistics)
            state = {each.log: (each.inode, each.read) for each in found}
            if state != self._state or left_out != self._last.left_out:
                kept = sorted((each.status() for each in found), key=lambda each: each.id)
                sessions = tuple(reversed([*_mark_inherited(kept)]))
                self._state, self._last = state, ProxyStatus(sessions, left_out)
            return self._last

    def log_of(self, id: str) -> Path | None:
        """Return the log of a session that has been read, None for any other session."""
        with self._lock:
            return next(
                (log for log, each in self._read.items() if log.parent.name == id and each.client),
                None,
            )

    def _follow(self, log: Path, budget: int) -> tuple[_LogStatistics, int]:
        """Return the current statistics of a log, and the number of bytes read. Raises OSError if
        the log cannot be read or has more than `budget` new bytes.
        """
        statistics = self._read.get(log)
        with open_kept(log) as file:
            stat = os.fstat(file.fileno())
            if (
                statistics is None
                or statistics.inode != stat.st_ino
                or statistics.read > stat.st_size
            ):
                statistics = self._read[log] = _LogStatistics(log, self.window, stat.st_ino)
            start = statistics.read
            if statistics.client != {}:
                if stat.st_size - start > budget:
                    raise OSError(errno.EFBIG, "there is too much to read")
                _read_new_lines(statistics, file)
        return statistics, statistics.read - start


def _read_new_lines(statistics: _LogStatistics, file: BinaryIO) -> None:
    """Process the new lines of a file. Stop after the first line if the session is not from the
    proxy.
    """
    file.seek(statistics.read)
    for line in file:
        if not line.endswith(b"\n"):
            break
        statistics.add_line(line)
        statistics.read += len(line)
        if not statistics.client:
            statistics.client = {}
            break


def _mark_inherited(sessions: Iterable[SessionStatus]) -> Iterator[SessionStatus]:
    """Mark copied calls in forks as inherited, so that a call counts only in the oldest session."""
    seen = set[CallKey]()
    for session in sessions:
        keys = {call.key for call in session.calls}
        yield replace(session, inherited=frozenset(keys & seen))
        seen |= keys


def running_address(folder: Path) -> str:
    """Return the address of the running proxy of a project folder, "" if none runs."""
    with suppress(OSError, ValueError, TypeError, LookupError, OverflowError):
        with open_kept(folder / RUNNING_NAME) as file:
            found = json.load(file)
        os.kill(int(found["pid"]), 0)
        return str(found["address"])
    return ""


def share_saved(spent: float, unedited: float) -> float | None:
    """Return the saved share of the cost, None if the unedited cost is zero."""
    return 1 - spent / unedited if unedited > 0 else None


def _sum(dollars: Iterable[float | None]) -> float | None:
    """Return a sum, None if a part is unknown."""
    total = 0.0
    for each in dollars:
        if each is None:
            return None
        total += each
    return total


def _first_words(text: str) -> str:
    return cut_at_word(" ".join(clean(text[: 8 * MAX_TITLE_CHARS]).split()), MAX_TITLE_CHARS)


def _short_agent(agent: str) -> str:
    """Return the first product of a user agent, such as `claude-cli/2.1.197`."""
    return cut_after(clean(agent.partition(" ")[0]), MAX_CLIENT_CHARS)


def _count(value: Any) -> int:
    return max(0, value) if type(value) is int else 0


def _seconds(at: str) -> float:
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(at).timestamp()
    return 0.0
