"""Cache a session's state at a point of its log, so that a resume only reads the rest of the log.

`resume.json` may be deleted at any time. It is written again when the log has grown enough. It is
valid only for the same log content: digests are compared, unless the log is unchanged since its
last writer closed it (`resume.stat`). The cache contains the conversation, so only the owner can
read it, like the log. Write failures are ignored.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...tools.system.files import open_kept, replace_file
from ..compaction.drift import WATCHED_TURNS
from ..context import tokens
from ..context.view import Folding, View, start_folding
from ..errors import LogDamaged, RecordError, SessionError
from ..lazy import dataclass
from ..session.checkpoints import PointCounter
from ..session.codec import from_json, signature, to_json
from ..session.conversation import CONVERSATION_NAME, conversation_text, new_conversation
from ..session.copies import LogScan, check_copies
from ..session.entries import End, Entry, Session, Summary, ToolResult, User
from ..session.ledger import Ledger
from ..session.log import Entries, FileState, Log, parse_entry, skipped_line_warning
from ..session.subagent_logs import update_unreported
from ..session.titles import moved_path, rename_of
from ..session.totals import Totals
from ..version import __version__


@dataclass(slots=True)
class SessionState:
    """The state computed from the entries of a session."""

    folding: Folding = field(default_factory=Folding)
    ledger: Ledger = field(default_factory=Ledger)
    totals: Totals = field(default_factory=Totals)
    numbering: PointCounter = field(default_factory=PointCounter)
    entries: int = 0  # number of entries
    newest: int = 0  # seq of the last entry
    highest: int = 0  # the largest seq
    in_order: bool = True  # each seq is larger than all before it
    own_prompt: str = ""  # the user's system prompt, replacing the built-in one
    began: str | None = None  # the directory in which the session was first opened
    session: str = ""  # the ID under which it was last opened
    origins: set[str] = field(default_factory=set)  # all IDs under which it was opened
    # sha256 by path, of the files that the tools have seen
    seen: dict[str, str] = field(default_factory=dict)
    todos: list[Any] = field(default_factory=list)
    directories: dict[str, str] = field(default_factory=dict)  # added: real path by name
    # Old and new path of the project's folder, if it was renamed since the session was last opened.
    renamed: tuple[str, str] | None = None
    # IDs of subagents whose end was not yet reported to the model
    unreported: set[str] = field(default_factory=set)
    ends: list[int] = field(default_factory=list)  # seqs of the newest ends of turns
    conversation_bytes: int = 0  # of `conversation.md`
    # The view is outdated until `catch_up`: an entry changed entries before it.
    behind: bool = False

    @property
    def view(self) -> View:
        return self.folding.view

    @property
    def summary(self) -> Summary | None:
        """The newest summary that was not reverted."""
        return self.view.summary

    @property
    def ended(self) -> int:
        """The number of turns since that summary, at most WATCHED_TURNS."""
        since = self.summary.seq if self.summary else 0
        return sum(end > since for end in self.ends)

    def add(self, entry: Entry) -> bytes:
        """Add an entry. Return the text that it adds to `conversation.md`."""
        self.behind = self.behind or not self.folding.add(entry)
        for fold_of in (self.ledger.add, self.totals.add, self.numbering.add):
            fold_of(entry)
        update_unreported(self.unreported, entry)
        text = conversation_text(entry)
        self.conversation_bytes += len(text)
        self.entries += 1
        self.in_order = self.in_order and entry.seq > self.highest
        self.newest, self.highest = entry.seq, max(self.highest, entry.seq)
        if isinstance(entry, Session):
            self.began = entry.cwd if self.began is None else self.began
            self.session = entry.id
            self.own_prompt = entry.own_prompt or self.own_prompt
            self.origins.add(entry.id)
            self.renamed = None
        elif found := rename_of(entry):
            self.renamed = found
            self.seen = {moved_path(path, *found): digest for path, digest in self.seen.items()}
        elif isinstance(entry, (ToolResult, User)):
            self._add_known(entry.details)
        elif isinstance(entry, End):
            self.ends = [*self.ends, entry.seq][-WATCHED_TURNS:]
        return text

    def catch_up(self, entries: Iterable[Entry]) -> None:
        """Rebuild the view from all entries."""
        self.folding, self.behind = start_folding(entries), False

    def _add_known(self, details: dict[str, Any]) -> None:
        """Add the digest of a file that a tool read, the todo list, or added directories."""
        seen = details.get("seen")
        if isinstance(seen, dict) and "path" in seen and "sha256" in seen:
            self.seen[str(seen["path"])] = str(seen["sha256"])
        if isinstance(details.get("todos"), list):
            self.todos = details["todos"]
        if isinstance(details.get("directories"), dict):
            self.directories |= {str(k): str(v) for k, v in details["directories"].items()}


CACHE_NAME = "resume.json"
LOG_STATE_NAME = "resume.stat"
CACHE_VERSION = 1
MIN_UNCACHED_LOG_BYTES = 1 << 20  # reading less is faster than writing a cache
MAX_CACHED_LOG_BYTES = 32 << 20  # read for the cache while a session is open
MAX_LOG_BYTES_AT_EXIT = 8 << 20  # read for the cache during the exit of the program
SEGMENT_BYTES = 32 << 20  # of log per digest; several digests are checked in parallel
MAX_SKIPPED_LINES_SHOWN = 100  # invalid lines; further ones are only counted
FILE_TIME_GRAIN_NS = 20_000_000  # two changes within this time may have the same time stamp

_READ_BLOCK_BYTES = 1 << 18


@dataclass(slots=True)
class CachedState:
    """A session's state after the first `offset` bytes of its log."""

    state: SessionState = field(default_factory=SessionState)
    offset: int = 0
    lines: int = 0  # in the first `offset` bytes
    # end and digest of each segment of the log
    segments: list[tuple[int, str]] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)
    more_errors: int = 0

    def warnings(self, log: Path) -> list[str]:
        shown = [skipped_line_warning(log, number, why) for number, why in self.errors]
        more = [f"{log}: {self.more_errors:,} more lines skipped"] if self.more_errors else []
        return shown + more

    def follow(self, log: Path, write: Callable[[bytes], None] = lambda text: None) -> None:
        """Read to the end of the log, and pass its conversation text to `write`. The view may be
        outdated afterwards (`behind`).

        Raises SessionError if the log cannot be read.
        """
        try:
            with open_kept(log) as file:
                file.seek(self.offset)
                self._read(file, write)
        except OSError as error:
            raise SessionError(f"cannot read the log {log}: {error.strerror}") from error

    def _read(self, file: BinaryIO, write: Callable[[bytes], None]) -> None:
        digest, begun = hashlib.sha256(), self.offset
        for line in file:
            if not line.endswith(b"\n"):
                break
            digest.update(line)
            self.offset += len(line)
            self.lines += 1
            try:
                write(self.state.add(parse_entry(line)))
            except ValueError as error:
                self._skip(str(error))
            if self.offset - begun >= SEGMENT_BYTES:
                self.segments.append((self.offset, digest.hexdigest()))
                digest, begun = hashlib.sha256(), self.offset
        if self.offset > begun:
            self.segments.append((self.offset, digest.hexdigest()))

    def _skip(self, why: str) -> None:
        if len(self.errors) < MAX_SKIPPED_LINES_SHOWN:
            self.errors.append((self.lines, why))
        else:
            self.more_errors += 1


class ResumeCache:
    """The cache of one log. `keep`, `renew` and `save_at_close` require the log's lock."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._path, self._left = log.with_name(CACHE_NAME), log.with_name(LOG_STATE_NAME)
        self.reached = 0
        self._size = 0  # bytes of the cache
        self.contradicting = CachedState()  # the content of a cache that does not match the log
        self._behind = False  # a newer entry requires reading the whole log
        self._thread: threading.Thread | None = None

    def read(self, *, writes: bool = False) -> CachedState:
        """Return the state of the session, from the cache and the rest of the log. With `writes`,
        write the conversation file if there is no usable cache.

        Raises SessionError if the log cannot be read.
        """
        cached, kept = self._load(), None
        if cached is not None:
            with ThreadPoolExecutor(1) as aside:  # checking and parsing are slow
                holds = aside.submit(self._matches_log, cached.segments)
                kept = cached.state()
                if kept is not None and not holds.result():
                    self.contradicting, kept = kept, None
        if kept is None:
            kept, self._size = CachedState(), 0
        self.reached = kept.offset
        if writes and not kept.offset:
            with new_conversation(self._log.parent) as write:
                kept.follow(self._log, write)
        else:
            kept.follow(self._log)
        if kept.state.behind:
            kept.state.catch_up(Entries(self._log))
            self.reached = 0  # makes `keep` write, else each resume reads the whole log
        return kept

    def stored(self) -> CachedState | None:
        """Return the content of the cache, whether or not it matches the log."""
        cached = self._load()
        return cached.state() if cached else None

    def renew(self, most: int = MAX_CACHED_LOG_BYTES) -> None:
        """Rewrite the cache if the log has grown enough.

        If it has grown by more than `most` bytes, leave the slow rewrite to the next process that
        opens the session.
        """
        with suppress(OSError, SessionError):
            size = self._log.stat().st_size
            if self._behind or size - self.reached < self._min_growth:
                return
            kept = self.stored() or CachedState()
            if size - kept.offset > most:
                return
            kept.follow(self._log)
            self._behind = kept.state.behind
            if not self._behind:
                self.keep(kept)

    def renew_in_background(self) -> None:
        """Run `renew` in the background."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self.renew, name="resumption", daemon=True)
            self._thread.start()

    def keep(self, kept: CachedState) -> None:
        """Write the state to the cache if it has grown enough. The state must not have been
        extended since it was read.
        """
        if kept.offset - self.reached < self._min_growth:
            return
        told = {"form": _cache_key(), "segments": kept.segments}
        with suppress(OSError, RecursionError):
            state = to_json(replace(kept, segments=[]))
            data = json.dumps(told, separators=(",", ":")).encode() + b"\n" + state
            checked = hashlib.sha256(data).hexdigest().encode() + b"\n" + data
            replace_file(self._path, checked, single_writer=True, durable=False)
            self.reached, self._size = kept.offset, len(data)

    def save_at_close(self, log: Log) -> None:
        """Renew the cache and save the state of the log file, unless another program changed the
        file.

        Blocking. Does nothing for a read-only log.
        """
        if self._thread is not None:
            self._thread.join()
        if log.refusal:
            return
        self.renew(MAX_LOG_BYTES_AT_EXIT)
        if not self.reached:
            return
        with suppress(OSError, RecordError):
            log.sync()
            left = log.unchanged_state
            while left and 0 <= time.time_ns() - left.changed < FILE_TIME_GRAIN_NS:
                time.sleep(FILE_TIME_GRAIN_NS / 4e9)  # else a later change might go unnoticed
            if left:
                replace_file(
                    self._left, json.dumps(left).encode(), single_writer=True, durable=False
                )

    @property
    def _min_growth(self) -> int:
        return max(MIN_UNCACHED_LOG_BYTES, self._size)

    def _load(self) -> "_CacheFile | None":
        """Return the content of the cache file; None if it is incomplete or has another format."""
        try:
            with open_kept(self._path) as file:
                digest, _, data = file.read().partition(b"\n")
            if hashlib.sha256(data).hexdigest().encode() != digest:
                return None
            head, _, state = data.partition(b"\n")
            told: dict[str, Any] = json.loads(head)
            if told["form"] != _cache_key():
                return None
            segments = [(end, digest) for end, digest in told["segments"]]
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            return None
        self._size = len(data)
        return _CacheFile(segments, state)

    def _matches_log(self, segments: Sequence[tuple[int, str]]) -> bool:
        """Return True if the log begins with the bytes that the cache was made from."""
        try:
            stat = self._log.stat()
            if segments[-1][0] > stat.st_size:
                return False
            with suppress(OSError, ValueError), open_kept(self._left) as file:
                if json.load(file) == [*FileState.of(stat)]:
                    return True
            return _match_digests(self._log, segments)
        except OSError:
            return False


class _CacheFile(NamedTuple):
    """The content of a cache file."""

    segments: list[tuple[int, str]]
    json: bytes  # of the state, without the segments

    def state(self) -> CachedState | None:
        """Return the state; None if it is invalid."""
        try:
            kept: CachedState = from_json(CachedState, self.json)
        except (ValueError, RecursionError):
            return None
        kept.segments = self.segments
        return kept


class OpenedLog(NamedTuple):
    """The open log of a session."""

    log: Log
    state: SessionState
    cache: ResumeCache


def create_session(path: Path) -> OpenedLog:
    """Create a log and return it with an empty state. Raises LogDamaged if the session's folder
    has copies of a log that is missing.
    """
    log = Log(path)
    check_copies(path, (), LogScan())
    log.keep_conversation(0)
    return OpenedLog(log, SessionState(), ResumeCache(path))


def read_cache(log: Path) -> bytes:
    """Return the cache of a log for a copy of the log, b"" if there is none. Call this before the
    log is copied, because the cache must not contain more than the copy.
    """
    with suppress(OSError), open_kept(log.with_name(CACHE_NAME)) as file:
        return file.read()
    return b""


def write_cache(copy: Path, data: bytes) -> None:
    """Write the result of `read_cache` next to the copy of the log."""
    if data:
        with suppress(OSError):
            replace_file(copy.with_name(CACHE_NAME), data, single_writer=True, durable=False)


def resume_session(path: Path, *, read_only: bool = False) -> OpenedLog:
    """Open an existing log and return it with its state. Raises the errors of `Log.open`."""
    resumption, kept = ResumeCache(path), CachedState()

    def read(log: Log) -> LogScan:
        nonlocal kept
        kept = resumption.read(writes=not read_only)
        state, cached = kept.state, resumption.contradicting.state.entries
        return LogScan(
            state.entries, state.highest, kept.warnings(path), state.conversation_bytes,
            state.in_order, cached,
        )  # fmt: skip

    conversation = path.with_name(CONVERSATION_NAME)
    had_conversation = conversation.exists()
    try:
        log = Log.open(path, read, read_only=read_only)
    except LogDamaged:
        if not had_conversation:  # `read` wrote it
            conversation.unlink(missing_ok=True)
        raise
    if not read_only:
        resumption.keep(kept)
        log.keep_conversation(kept.state.conversation_bytes)
    return OpenedLog(log, kept.state, resumption)


@cache
def _cache_key() -> str:
    """Return a digest of everything that a process must have in common with the writer of the
    cache.

    This is the program's version, the stored fields, the tokenizer and the source of the folding
    modules. Several builds may share a version number.
    """
    told = [CACHE_VERSION, __version__, tokens.use_vocabulary(), signature(CachedState)]
    digest = hashlib.sha256(json.dumps(told).encode())
    for path in fold_sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def fold_sources() -> list[Path]:
    """Return the source files that compute the cached state."""
    agent = Path(__file__).parents[1]
    rooms = ("context", "session", "worktree", "compaction/drift")
    found = [path for room in rooms for path in (agent / room).rglob("*.py")]
    single = [agent / "compaction" / name for name in ("words.py", "recall_hints.py")]
    return sorted([Path(__file__), *single, *found])


def _match_digests(log: Path, segments: Sequence[tuple[int, str]]) -> bool:
    """Return True if the segments of a log have these digests."""
    starts = [0, *(end for end, _ in segments)]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        found = pool.map(lambda stretch: _digest(log, *stretch), pairwise(starts))
        return all(one == digest for one, (_, digest) in zip(found, segments, strict=True))


def _digest(log: Path, start: int, end: int) -> str:
    digest, room = hashlib.sha256(), memoryview(bytearray(_READ_BLOCK_BYTES))
    with open_kept(log) as file:
        file.seek(start)
        while start < end and (count := file.readinto(room[: end - start])):
            digest.update(room[:count])
            start += count
    return digest.hexdigest()
