"""The touch record: the files that a project's sessions touch, and when their commands run.

Each session appends to its own file, `touched/<session>.jsonl` in the project's folder, and reads
the files of the others. It writes a row before a call that may change files, and another row with
the changes after the call. So other sessions can attribute a change that they see. A session locks
its file while it is open: the calls of a killed session count as ended.
"""

import fcntl
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from ...tools.system.files import make_private_folder, private_opener
from ..lazy import dataclass
from .diff import TreeChange

RECORD_FOLDER = "touched"
MAX_RECORD_BYTES = 16 << 20  # newest bytes of a record that are read
UNKNOWN, DELETED = "?", "deleted"  # replace git's blob name
MAX_AGE_S = 30 * 86_400  # records without a write for this long are deleted
# The clock of a file system may be one tick behind the clock of the process.
CLOCK_TICK_NS = 20_000_000


@dataclass(slots=True)
class OtherCall:
    """A call of another session that may change files."""

    session: str
    begin: int  # nanoseconds since the epoch
    end: float = inf  # infinite while it runs
    writes: frozenset[str] = frozenset()  # paths that the command line shows as written
    # Certain changes by path: git's blob name of the new content, DELETED or UNKNOWN. None until
    # recorded.
    changed: dict[str, str] | None = None

    @property
    def paths(self) -> frozenset[str]:
        """The files that it changed, and the files it writes to if its changes are not final."""
        unknown = self.changed is None or self.end == inf
        return frozenset(self.changed or ()) | (self.writes if unknown else frozenset())

    def overlaps(self, since: float, until: float) -> bool:
        """Return True if the call ran at any time between `since` and `until`."""
        return self.begin <= until and since <= self.end


@dataclass(frozen=True, slots=True)
class Touches:
    """The calls of other sessions within a period."""

    calls: tuple[OtherCall, ...] = ()

    def without(self, sessions: Collection[str], before: float) -> "Touches":
        """Drop the calls of these sessions that began before a time."""
        left = (c for c in self.calls if c.session not in sessions or c.begin >= before)
        return Touches(tuple(left))

    def claims(self, path: str, content: str) -> bool:
        """Return True if another session recorded that it gave a file this content."""
        claimed = {c.changed[path] for c in self.calls if c.changed and path in c.changed}
        return bool(claimed) and (content == UNKNOWN or bool(claimed & {content, UNKNOWN}))

    def writes(self, path: str) -> bool:
        """Return True if another session's call names or changed this file."""
        return any(path in call.writes or path in call.paths for call in self.calls)

    def may_have_changed(self, path: str) -> bool:
        """Return True if another session's call ran when the file last changed. The time of a
        deletion is unknown, so any call may have deleted the file.
        """
        try:
            moment = os.lstat(path).st_ctime_ns
        except (OSError, ValueError):
            return bool(self.calls)
        return any(call.overlaps(moment, moment + CLOCK_TICK_NS) for call in self.calls)

    @property
    def paths(self) -> frozenset[str]:
        """The files that other sessions changed."""
        return frozenset(path for call in self.calls for path in call.paths)


def content_of(change: TreeChange) -> str:
    """Return the value that a record has for the new content of a changed file."""
    return DELETED if change.action == "deleted" else change.blob or UNKNOWN


class TouchRecord:
    """The record of the session `name` in `folder`. All methods block and none fails: without a
    record, a session neither sees other sessions nor is seen by them.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._file = -1
        self._calls = 0

    def begin(self, writes: Iterable[str] = ()) -> str:
        """Record the start of a call, and return its ID for `record_changes`."""
        self._calls += 1
        id = f"{os.getpid()}.{self._calls}"
        self._append({"call": id, "writes": sorted(writes)})
        return id

    def record_changes(self, id: str, changed: Mapping[str, str], *, ended: bool) -> None:
        """Record the files that a call certainly changed with their new contents, and whether the
        call has ended.
        """
        self._append({"call": id, "changed": dict(changed), "ended": ended})

    def others(self, since: float, until: float = inf) -> Touches:
        """Return the calls of other sessions that ran at any time between `since` and `until`."""
        calls: list[OtherCall] = []
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                if entry.name != f"{self.name}.jsonl" and entry.name.endswith(".jsonl"):
                    calls += _read_calls(entry, since)
        return Touches(tuple(call for call in calls if call.overlaps(since, until)))

    def close(self) -> None:
        """Close the record. Running calls count as ended."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, row: Mapping[str, Any]) -> None:
        with suppress(OSError):
            if self._file < 0:
                self._open()
            line = json.dumps({"at": time.time_ns(), **row}, ensure_ascii=True)
            os.write(self._file, f"{line}\n".encode("ascii"))

    def _open(self) -> None:
        make_private_folder(self.folder)
        _delete_old(self.folder)
        path = str(self.folder / f"{self.name}.jsonl")
        self._file = private_opener(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with suppress(OSError):  # without locks, other sessions assume that this one was killed
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read_calls(entry: "os.DirEntry[str]", since: float) -> Iterator[OtherCall]:
    """Yield the calls of one session. Skip a closed record that was last written before `since`."""
    with suppress(OSError):
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            is_open, found = _is_locked(descriptor), os.fstat(descriptor)
            if not is_open and found.st_mtime_ns + CLOCK_TICK_NS < since:
                return
            file.seek(max(0, found.st_size - MAX_RECORD_BYTES))
            calls = _parse_calls(file.read().splitlines(), entry.name.removesuffix(".jsonl"))
            for call in calls:
                if call.end == inf and not is_open:
                    call.end = found.st_mtime_ns + CLOCK_TICK_NS
                yield call


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _parse_calls(lines: Iterable[bytes], session: str) -> list[OtherCall]:
    """Parse the rows of a session. Damaged rows are ignored."""
    calls: dict[str, OtherCall] = {}
    for line in lines:
        with suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
            row = json.loads(line)
            at, id = int(row["at"]), str(row["call"])
            if "writes" in row:
                calls[id] = OtherCall(session, at, writes=frozenset(map(str, row["writes"])))
            elif id in calls:
                told = {str(path): str(content) for path, content in row["changed"].items()}
                calls[id].changed = {**(calls[id].changed or {}), **told}
                calls[id].end = at if row["ended"] else inf
    return list(calls.values())


def _delete_old(folder: Path) -> None:
    before = time.time() - MAX_AGE_S
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    Path(entry).unlink()
