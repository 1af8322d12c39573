"""What the sessions of tasks that have not ended have used, by their logs.

The sums are kept in a file between two looks, so that only what was appended to a log is read. The
file is a cache: it may be deleted, and where it cannot be written all logs are read again.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from ...tools.system.files import open_kept, replace_file
from ..lazy import dataclass
from ..session.codec import from_json, signature, to_json
from ..session.log import try_parse_entry
from ..session.totals import Totals
from .ledger import FleetFolder, SessionSums, TaskRecord, find_logs

CACHE_NAME = "sums.json"


@dataclass(slots=True)
class _LogSums:
    """The sums of a log up to an offset."""

    inode: int = 0
    end: int = 0
    totals: Totals = field(default_factory=Totals)


def count_from_logs(records: Iterable[TaskRecord], folder: FleetFolder) -> None:
    """Count what the sessions of tasks that run, or were cut, have used: their ends are not in the
    ledger."""
    running = [record for record in records if record.state == "running"]
    known, kept = _read_cache(folder), dict[str, _LogSums]()
    logs, has_read = find_logs(folder, running), False
    for record in running:
        sums = known.get(record.session, _LogSums())
        if log := logs.get(record.session):
            with suppress(OSError):
                sums, is_new = _caught_up(sums, log)
                has_read = has_read or is_new
            kept[record.session] = sums
        record.sums[record.session] = SessionSums.of(sums.totals)
    if has_read:
        _write_cache(folder, kept)


def _caught_up(sums: _LogSums, log: Path) -> tuple[_LogSums, bool]:
    """Add the whole lines that a log has gained, and return the sums and whether there were some;
    of a log that was replaced all lines. Raises OSError."""
    stat = log.stat()
    if stat.st_ino != sums.inode or stat.st_size < sums.end:
        sums = _LogSums(stat.st_ino)
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
    return sums, True


def _read_cache(folder: FleetFolder) -> dict[str, _LogSums]:
    try:
        kept = json.loads((folder.path / CACHE_NAME).read_bytes())
        if kept["of"] == signature(_LogSums):
            found: dict[str, _LogSums] = from_json(dict[str, _LogSums], kept["logs"])
            return found
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    return {}


def _write_cache(folder: FleetFolder, kept: dict[str, _LogSums]) -> None:
    data = {"of": signature(_LogSums), "logs": to_json(dict[str, _LogSums], kept)}
    with suppress(OSError):
        replace_file(folder.path / CACHE_NAME, json.dumps(data).encode(), durable=False)
