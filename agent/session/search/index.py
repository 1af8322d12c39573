"""The search index: full-text search over everything a project's sessions recorded, including
subagents.

`index.db` (SQLite, FTS5) is a cache: it may be deleted at any time, and it is replaced if it is
damaged or has another version. It contains no text, only word positions; matching entries are read
from the logs. A search first spends at most a second on indexing new log lines. Logs changed last
come first and each is read from its end, so the newest entries are found at once. Texts larger than
4 MB are not indexed: the index only lists them, and each search reads them.

Deleted sessions must not stay in the index, so the index is rebuilt when a log is missing, shorter
or replaced. No file stays open between calls. If no file can be written (a read-only folder), the
index is in memory.
"""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from ....tools.system.files import open_kept
from ...lazy import dataclass
from ..log import LOG_NAME as LOG
from ..log import end_of_whole_lines
from .query import LARGE, Hit, find_hits, index_pieces, query_words, unindexed_lines

INDEX_NAME = "index.db"
CATCH_UP_S = 1.0  # time that a search spends on indexing new log lines
SCHEMA_VERSION = 1

_BATCH_S = 0.2  # maximum time of one transaction, because other processes wait for it
_PAUSE_S = 0.02  # between two transactions in the background
_in_background = threading.Lock()  # held for each step of indexing in the background
_TABLES = """
CREATE TABLE logs (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE, inode INTEGER,
    first INTEGER, done INTEGER  -- the bytes that are indexed
);
CREATE TABLE pieces (id INTEGER PRIMARY KEY, offset INTEGER, start INTEGER);  -- id: log << 32 | n
CREATE VIRTUAL TABLE words USING fts5 (
    said, other, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('hashsize', 16777216);
"""
_NOT_DAMAGE = {  # errors that a new file would not fix
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
}  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of a search, and the share of the logs that was searched."""

    hits: list[Hit]
    indexed: int  # searched bytes of the logs
    size: int  # all bytes of the logs

    @property
    def is_whole(self) -> bool:
        """True if at least 99 % of the bytes were searched. The last line of a log may still be
        written.
        """
        return self.size - self.indexed <= self.size // 100


@dataclass(frozen=True, slots=True)
class _IndexedLog:
    """A log on disk and its state in the index."""

    name: str
    path: Path
    inode: int
    size: int
    changed: int  # nanoseconds since the epoch
    id: int = 0  # 0 if nothing is indexed
    first: int = 0  # the bytes from `first` to `done` are indexed
    done: int = 0

    @property
    def is_behind(self) -> bool:
        """Whether parts of the log are not indexed."""
        return self.first > 0 or self.done < self.size


class SearchIndex:
    """The index of one project, usable from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # of the project
        self.sessions = folder / "sessions"

    def search(
        self,
        query: str,
        *,
        session: str | None = None,
        limit: int = 8,
        patience: float | None = CATCH_UP_S,
    ) -> SearchResult:
        """Find entries with the words of a query, best first and newer before older ones.

        A query is plain words without syntax; `src/auth.py` and `KeyError:` are words too. Entries
        with the whole phrase come first, then those with all words, then those with some. If there
        are none, words match as prefixes. `session` limits the search to one session and its
        subagents. `patience` is the time for indexing in seconds; None means until everything is
        indexed.
        """
        words = query_words(query)

        def work(db: sqlite3.Connection) -> SearchResult:
            self._catch_up(db, patience, session)
            logs = [log for log in self._logs(db) if _belongs(log.name, session)]
            names = {log.id: log.name for log in logs if log.id}
            found = find_hits(db, self.sessions, words, names, limit) if words else []
            indexed = sum(log.done - log.first for log in logs)
            return SearchResult(found, indexed, sum(log.size for log in logs))

        return self._with_database(work, self._in_memory)

    def catch_up(self, patience: float | None = None) -> int:
        """Index new log lines and return the number of bytes read, or 0 if no index file can be
        written.
        """
        return self._with_database(lambda db: self._catch_up(db, patience, None), lambda _: 0)

    def clear(self) -> None:
        """Empty the index, if there is one; the next search builds it again. Raises OSError."""
        if (self.folder / INDEX_NAME).is_file():
            self._create(only_missing=False)

    def catch_up_in_background(self, delay: float = 0.0) -> threading.Thread:
        """Index new log lines in a thread after `delay` seconds, in short steps between which
        searches can run. In one process, one thread indexes at a time.
        """

        def run() -> None:
            time.sleep(delay)
            is_behind = True
            while is_behind:
                with _in_background:
                    is_behind = self.catch_up(_BATCH_S) > 0
                time.sleep(_PAUSE_S)

        thread = threading.Thread(target=run, name="index", daemon=True)
        thread.start()
        return thread

    # The file

    def _with_database(
        self,
        work: Callable[[sqlite3.Connection], T],
        otherwise: Callable[[Callable[[sqlite3.Connection], T]], T],
    ) -> T:
        """Call `work` with the index on disk. Replace a damaged index. Fall back to `otherwise`."""
        for only_missing in (True, False):
            try:
                self._create(only_missing=only_missing)
                with closing(_connect(self.folder / INDEX_NAME)) as db:
                    return work(db)
            except (sqlite3.DatabaseError, OSError) as error:
                if not _is_damage(error):
                    break
        return otherwise(work)

    def _in_memory(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            db.executescript(_TABLES)
            return work(db)

    def _create(self, *, only_missing: bool) -> None:
        """Create an empty index atomically, one process at a time."""
        path, new = self.folder / INDEX_NAME, self.folder / f"{INDEX_NAME}.new"
        if only_missing and path.is_file():
            return
        lock = os.open(self.folder / "index.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if only_missing and path.is_file():
                return
            for old in (path, new):
                for part in ("", "-wal", "-shm"):  # a new file must not find an old one's journal
                    old.with_name(old.name + part).unlink(missing_ok=True)
            os.close(os.open(new, os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(new, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(f"{_TABLES} PRAGMA user_version = {SCHEMA_VERSION};")
            new.rename(path)
        finally:
            os.close(lock)

    # Catching up

    def _catch_up(self, db: sqlite3.Connection, patience: float | None, session: str | None) -> int:
        ends = float("inf") if patience is None else time.monotonic() + patience
        total, read, left = 0, 1, list[_IndexedLog]()
        # List all logs once, and again after all listed logs were read.
        while left or (read and (left := self._logs_behind(db, session)[::-1])):
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                break  # another process writes, or the file is read-only: use the index as it is
            batch = min(ends, time.monotonic() + _BATCH_S)
            read = 0
            while left:
                log = _with_state(db, left[-1])  # another process may have indexed more
                gained = _index(db, log, batch) if log.is_behind else 0
                read += gained
                if not gained or not _with_state(db, log).is_behind:
                    left.pop()
                if time.monotonic() >= batch:
                    break
            db.execute("COMMIT")
            total += read
            if time.monotonic() >= ends:
                break
        return total

    def _logs_behind(self, db: sqlite3.Connection, session: str | None) -> list[_IndexedLog]:
        """Return the logs that are not fully indexed, newest first.

        If a known log is missing or shorter, raise DatabaseError so that the index is rebuilt. An
        index in memory only forgets the log.
        """
        logs = self._logs(db)
        kept = {log.id for log in logs if log.size >= log.done}
        known = {id for (id,) in db.execute("SELECT id FROM logs WHERE name IS NOT NULL")}
        if gone := known - kept:
            if _is_on_disk(db):
                raise sqlite3.DatabaseError("a log is gone")
            # Its ID must not be reused, because row IDs in the index begin with it.
            db.executemany("UPDATE logs SET name = NULL WHERE id = ?", [(id,) for id in gone])
            logs = self._logs(db)
        wanted = [log for log in logs if log.is_behind and _belongs(log.name, session)]
        return sorted(wanted, key=lambda log: log.changed, reverse=True)

    def _logs(self, db: sqlite3.Connection) -> list[_IndexedLog]:
        """List all logs on disk with their state in the index."""
        rows = db.execute("SELECT name, inode, id, first, done FROM logs")
        known = {(name, inode): state for name, inode, *state in rows}
        logs = []
        for path in _paths(self.sessions):
            with suppress(OSError):
                stat = path.stat()
                name = path.parent.relative_to(self.sessions).as_posix()
                state = known.get((name, stat.st_ino), ())
                logs.append(
                    _IndexedLog(name, path, stat.st_ino, stat.st_size, stat.st_mtime_ns, *state)
                )
        return logs


def _connect(path: Path) -> sqlite3.Connection:
    """Open an index on disk. Raises DatabaseError if it is not an index or has another version."""
    uri = f"file:{quote(str(path))}?mode=rw"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=3 * _BATCH_S)
    try:
        if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
            raise sqlite3.DatabaseError("an index of another version")
        db.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


def _with_state(db: sqlite3.Connection, log: _IndexedLog) -> _IndexedLog:
    """Return a log with its current state in the index."""
    query = "SELECT id, first, done FROM logs WHERE name = ? AND inode = ?"
    id, first, done = db.execute(query, (log.name, log.inode)).fetchone() or (0, 0, 0)
    return replace(log, id=id, first=first, done=done)


def _is_on_disk(db: sqlite3.Connection) -> bool:
    return bool(db.execute("PRAGMA database_list").fetchone()[2])


def _is_damage(error: Exception) -> bool:
    """Return True if a new index file would fix the error."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, sqlite3.DatabaseError) and code not in _NOT_DAMAGE


def _belongs(name: str, session: str | None) -> bool:
    return session is None or name == session or name.startswith(f"{session}/")


def _paths(folder: Path) -> Iterator[Path]:
    """Yield possible log paths below a folder of sessions or subagents. Ignore folders deleted
    meanwhile.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 (a generator would fail half way)
    except OSError:
        return
    for name in names:
        yield folder / name / LOG
        yield from _paths(folder / name / "agents")


def _index(db: sqlite3.Connection, log: _IndexedLog, ends: float) -> int:
    """Index lines of a log until the time `ends`, and return the bytes read: first new lines, then
    the log backwards from its end.
    """
    try:
        with open_kept(log.path) as file:
            if not log.id:
                end = end_of_whole_lines(file, log.size)
                made = db.execute(
                    "INSERT INTO logs (name, inode, first, done) VALUES (?, ?, ?, ?)",
                    (log.name, log.inode, end, end),
                )
                log = replace(log, id=made.lastrowid or 0, first=end, done=end)
            newest = db.execute("SELECT max(id) FROM pieces WHERE id < ?", ((log.id + 1) << 32,))
            row = max(newest.fetchone()[0] or 0, log.id << 32)
            first, done = log.first, log.done
            for offset, line in unindexed_lines(file, first, done):
                for start, said, other in index_pieces(line, log.path.parent):
                    row += 1
                    db.execute("INSERT INTO pieces VALUES (?, ?, ?)", (row, offset, start))
                    if start != LARGE:
                        db.execute(
                            "INSERT INTO words (rowid, said, other) VALUES (?, ?, ?)",
                            (row, said, other),
                        )
                first, done = min(first, offset), max(done, offset + len(line))
                if time.monotonic() >= ends:
                    break
    except OSError:
        return 0  # the next call detects what happened to the log
    db.execute("UPDATE logs SET first = ?, done = ? WHERE id = ?", (first, done, log.id))
    return (log.first - first) + (done - log.done)
