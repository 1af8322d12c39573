"""Resumption: how a session stood at a point of its log, kept beside it, so that one that goes on
reads the log from there and not from its beginning.

`resume.json` is a cache: it may be deleted at any time, and comes back once there is enough behind
it. It counts only for the very bytes it was made from: their digests are in it, and they are
held against the log, unless the log is in every respect as its last writer left it (`resume.stat`).
It holds what a view is made of, so it is the owner's alone, like the log. That it cannot be written
is no error of the session.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from .. import __version__
from .context import tokens
from .errors import RecordError, SessionError
from .record.codec import from_json, signature, to_json
from .record.log import Entries, Log, parse, skipped
from .record.tail import State
from .record.whole import put
from .standing import Standing

NAME = "resume.json"
LEFT = "resume.stat"
VERSION = 1
WORTH = 1 << 20  # bytes of log from which on reading them costs more than this is worth
MOST = 32 << 20  # bytes of log that are read for it while a session is open
SEGMENT = 32 << 20  # bytes of log under one digest: several are checked side by side
TOLD = 100  # lines that are no entries, of which each is told
GRAIN = 20_000_000  # nanoseconds in which two changes of a file may look like one

SOON = 8 << 20  # as `MOST`, while somebody waits for it

_BLOCK = 1 << 18


@dataclass(slots=True)
class Kept:
    """`standing` after the first `offset` bytes, which are `lines` lines. `segments` are where each
    stretch of them ends, with its digest. Of the lines that are no entries, `bad` has the first
    ones, by number and with the reason, `worse` counts the others."""

    standing: Standing = field(default_factory=Standing)
    offset: int = 0
    lines: int = 0
    segments: list[tuple[int, str]] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    worse: int = 0

    def warnings(self, log: Path) -> list[str]:
        told = [skipped(log, number, why) for number, why in self.bad]
        return [*told, f"{log}: {self.worse:,} more lines skipped"] if self.worse else told

    def follow(self, log: Path) -> None:
        """Go on to the end of the log; the view may be behind then. Raises SessionError when the
        log cannot be read."""
        try:
            with log.open("rb") as file:
                file.seek(self.offset)
                self._read(file)
        except OSError as error:
            raise SessionError(f"cannot read the log {log}: {error.strerror}") from error

    def _read(self, file: BinaryIO) -> None:
        digest, begun = hashlib.sha256(), self.offset
        for line in file:
            if not line.endswith(b"\n"):
                break
            digest.update(line)
            self.offset += len(line)
            self.lines += 1
            try:
                self.standing.add(parse(line))
            except ValueError as error:
                self._skip(str(error))
            if self.offset - begun >= SEGMENT:
                self.segments.append((self.offset, digest.hexdigest()))
                digest, begun = hashlib.sha256(), self.offset
        if self.offset > begun:
            self.segments.append((self.offset, digest.hexdigest()))

    def _skip(self, why: str) -> None:
        if len(self.bad) < TOLD:
            self.bad.append((self.lines, why))
        else:
            self.worse += 1


class Resumption:
    """That of one log. `reached` are the bytes of it that what is kept covers. The one who holds
    the lock of the log calls `keep`, `renew` and `leave`."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._path, self._left = log.with_name(NAME), log.with_name(LEFT)
        self.reached = 0
        self._size = 0  # bytes that are kept
        self._behind = False  # whether an entry since needs all of the log to be read
        self._thread: threading.Thread | None = None

    def read(self) -> Kept:
        """How the session stands, from what is kept and the log after it. Raises SessionError when
        the log cannot be read."""
        told, kept = self._load(), None
        if told is not None:
            with ThreadPoolExecutor(1) as aside:  # both take their time
                holds = aside.submit(self._holds, told["segments"])
                kept = _kept(told)
                kept = kept if holds.result() else None
        if kept is None:
            kept, self._size = Kept(), 0
        self.reached = kept.offset
        kept.follow(self._log)
        if kept.standing.behind:
            kept.standing.catch_up(Entries(self._log))
            self.reached = 0  # so that it is kept: to read all of it once is enough
        return kept

    def renew(self, most: int = MOST) -> None:
        """Keep how the session stands now, if there is enough behind what is kept. What would take
        long, more than `most` bytes, is left to the next one who opens the session."""
        with suppress(OSError, SessionError):
            size = self._log.stat().st_size
            if self._behind or size - self.reached < self._worth:
                return
            told = self._load()
            kept = (_kept(told) if told else None) or Kept()
            if size - kept.offset > most:
                return
            kept.follow(self._log)
            self._behind = kept.standing.behind
            if not self._behind:
                self.keep(kept)

    def renew_aside(self) -> None:
        """As `renew`, in the background."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self.renew, name="resumption", daemon=True)
            self._thread.start()

    def keep(self, kept: Kept) -> None:
        """Write what was read, if it is worth it. Nothing may have been added to its folds."""
        if kept.offset - self.reached < self._worth:
            return
        rest = to_json(Kept, replace(kept, segments=[]))
        told = {"form": _form(), "segments": kept.segments, "kept": rest}
        with suppress(OSError, RecursionError):
            data = json.dumps(told, separators=(",", ":")).encode()
            put(self._path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data, lasting=False)
            self.reached, self._size = kept.offset, len(data)

    def leave(self, log: Log) -> None:
        """Renew, and keep what the log is like, unless something else has changed it. Where nothing
        may be appended to the log, nothing is kept. Blocking."""
        if self._thread is not None:
            self._thread.join()
        if log.refusal:
            return
        self.renew(SOON)
        if not self.reached:
            return
        with suppress(OSError, RecordError):
            log.sync()
            left = log.left()
            while left and 0 <= time.time_ns() - left.changed < GRAIN:
                time.sleep(GRAIN / 4e9)  # or a later change might not show
            if left:
                put(self._left, json.dumps(left).encode(), lasting=False)

    @property
    def _worth(self) -> int:
        return max(WORTH, self._size)

    def _load(self) -> dict[str, Any] | None:
        """What is kept, as it stands in the file, where that is whole and of this form."""
        try:
            digest, _, data = self._path.read_bytes().partition(b"\n")
            if hashlib.sha256(data).hexdigest().encode() != digest:
                return None
            told: dict[str, Any] = json.loads(data)
            if told["form"] != _form():
                return None
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            return None
        self._size = len(data)
        return told

    def _holds(self, segments: Sequence[tuple[int, str]]) -> bool:
        """Whether the log still begins with the bytes that this was made from."""
        try:
            stat = self._log.stat()
            if segments[-1][0] > stat.st_size:
                return False
            with suppress(OSError, ValueError):
                if json.loads(self._left.read_bytes()) == [*State.of(stat)]:
                    return True
            return _are(self._log, segments)
        except OSError:
            return False


def _kept(told: dict[str, Any]) -> Kept | None:
    """None for what only looks like ours."""
    try:
        kept: Kept = from_json(Kept, told["kept"])
        kept.segments = [(end, digest) for end, digest in told["segments"]]
    except (ValueError, TypeError, LookupError, AttributeError):
        return None
    return kept


def begin(path: Path) -> tuple[Log, Standing, Resumption]:
    """As `go_on`, for a log that is still to be made."""
    return Log.create(path), Standing(), Resumption(path)


def carry(log: Path, copy: Path) -> None:
    """Give a copy of a log what is kept beside the log itself."""
    with suppress(OSError):
        put(copy.with_name(NAME), log.with_name(NAME).read_bytes(), lasting=False)


def go_on(path: Path, *, read_only: bool = False) -> tuple[Log, Standing, Resumption]:
    """An existing log, open, with how its session stands. Raises as `Log.open` does."""
    resumption, kept = Resumption(path), Kept()

    def read(log: Log) -> tuple[int, list[str]]:
        nonlocal kept
        kept = resumption.read()
        if not read_only:
            resumption.keep(kept)
        return kept.standing.highest, kept.warnings(path)

    log = Log.open(path, read, read_only=read_only)
    return log, kept.standing, resumption


@cache
def _form() -> str:
    """What must be the same for a fold to go on where another process stopped: this program, the
    fields that it keeps, and how it counts. A version may be that of several programs, so the folds
    are taken as they are written."""
    told = [VERSION, __version__, tokens.use_vocabulary(), signature(Kept)]
    digest = hashlib.sha256(json.dumps(told).encode())
    for path in sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def sources() -> list[Path]:
    """The modules that the folds are made of."""
    here = Path(__file__).parent
    packages = (here / "context", here / "record", here / "compaction" / "drift")
    files = (path for package in packages for path in package.rglob("*.py"))
    return sorted([here / "standing.py", here / "resumption.py", *files])


def _are(log: Path, segments: Sequence[tuple[int, str]]) -> bool:
    """Whether a log has these digests, stretch by stretch."""
    starts = [0, *(end for end, _ in segments)]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        found = pool.map(lambda stretch: _digest(log, *stretch), pairwise(starts))
        return all(one == digest for one, (_, digest) in zip(found, segments, strict=True))


def _digest(log: Path, start: int, end: int) -> str:
    digest, room = hashlib.sha256(), memoryview(bytearray(_BLOCK))
    with log.open("rb", buffering=0) as file:
        file.seek(start)
        while start < end and (count := file.readinto(room[: end - start])):
            digest.update(room[:count])
            start += count
    return digest.hexdigest()
