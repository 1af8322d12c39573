"""Sums of unfinished sessions, counted from their logs.

The sums are cached in a file, so that only new lines of a log are read. The cache can be deleted;
if it cannot be written, all logs are read again.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from ...api.base import dataclass
from ...api.files import open_kept, replace_file
from ...api.record import Entry, Totals, from_json, signature, to_json, try_parse_entry
from .ledger import FleetFolder, SessionSums, TaskRecord, find_logs

CACHE_NAME = "sums.json"


@dataclass(slots=True)
class LogSums:
    """The sums of a log up to the offset `end`."""

    inode: int = 0
    end: int = 0
    totals: Totals = field(default_factory=Totals)


def count_from_logs(records: Iterable[TaskRecord], folder: FleetFolder) -> None:
    """Count the sums of running or interrupted sessions from their logs, because the ledger has
    only finished attempts.
    """
    running = [record for record in records if record.state == "running"]
    known, kept = cached_sums(folder), dict[str, LogSums]()
    logs, has_read = find_logs(folder, running), False
    for record in running:
        sums = known.get(record.session, LogSums())
        if log := logs.get(record.session):
            with suppress(OSError):
                sums, is_new = catch_up(sums, log)
                has_read = has_read or is_new
            kept[record.session] = sums
        record.sums[record.session] = SessionSums.of(sums.totals)
    if has_read:
        _write_cache(folder, kept)


def catch_up(
    sums: LogSums, log: Path, on_entry: Callable[[Entry], None] | None = None
) -> tuple[LogSums, bool]:
    """Add the new complete lines of a log; return the sums and True if there were new lines. A
    replaced log is read from the beginning. `on_entry` is called with each entry. Raises OSError.
    """
    stat = log.stat()
    if stat.st_ino != sums.inode or stat.st_size < sums.end:
        sums = LogSums(stat.st_ino)
    if stat.st_size == sums.end:
        return sums, False
    with open_kept(log) as file:
        file.seek(sums.end)
        for line in file:
            if not line.endswith(b"\n"):
                break
            sums.end += len(line)
            if entry := try_parse_entry(line):
                sums.totals.add(entry)
                if on_entry is not None:
                    on_entry(entry)
    return sums, True


def cached_sums(folder: FleetFolder) -> dict[str, LogSums]:
    """Return the cached sums by session ID; empty without a valid cache."""
    with suppress(OSError, ValueError, RecursionError):
        form, _, data = (folder.path / CACHE_NAME).read_bytes().partition(b"\n")
        if form.decode() == _form():
            found: dict[str, LogSums] = from_json(dict[str, LogSums], data)
            return found
    return {}


def _write_cache(folder: FleetFolder, kept: dict[str, LogSums]) -> None:
    data = _form().encode() + b"\n" + to_json(kept)
    with suppress(OSError):
        replace_file(folder.path / CACHE_NAME, data, durable=False)


def _form() -> str:
    """Return the first line of the cache, which changes with each field."""
    return json.dumps(signature(LogSums))
