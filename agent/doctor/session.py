"""Check and repair one session.

A repair writes a new log file and replaces the old one, of which an exact copy is kept next to it.
An intact log is not rewritten, so a second repair has nothing to do.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import BinaryIO

from ...tools.system.files import keeping_old, replacing
from ...tools.system.plural import count_of
from ..context.request import build_messages
from ..context.view import fold
from ..errors import SessionError
from ..lazy import dataclass
from ..loop.resume import CACHE_NAME
from ..session.conversation import CONVERSATION_NAME, write_conversation
from ..session.entries import Entry, Note, Revert, ToolResult, User
from ..session.lock import acquire_lock, unwritable
from ..session.log import LOG_NAME, Entries, encode_line, parse_entry, timestamp
from ..session.store import AGENTS
from . import folder as folder_checks
from .copies import restore_from_copies
from .finding import Finding
from .references import References
from .repair import LogRow, RepairedLog, add_line, complete_rows, correct_rows
from .repairs import repair_findings
from .salvage import read_lines

MAX_LISTED_REPAIRS = 200  # listed one by one
EMPTY_LOG = "the log is empty: nothing can be recovered, and resuming starts from scratch"


def check_session(log: Path) -> list[Finding]:
    """Return all findings about a session, including what a repair would do. Changes nothing.
    Raises SessionError if the log cannot be read.
    """
    if not log.exists() and (copies := _other_copies(log.parent)):
        return [Finding("log", f"{log} is missing", ok=False), *copies]
    folder, state = log.parent, folder_checks.check_lock(log)
    with _examined(log, in_use=folder_checks.HELD_BY_PROCESS in state.found) as examined:
        repaired, broken = examined.repaired, examined.repaired.broken_count
        readable = f"{broken:,} cannot be read" if broken else "every one can be read"
        findings = [
            Finding("log", f"{log}, {log.stat().st_size:,} bytes"),
            Finding("lines", f"{repaired.line_count:,}; {readable}", not broken),
            *(Finding("to repair", change, False) for change in _first(examined.to_do)),
        ]
        if repaired.other_versions:
            counts = ", ".join(f"{n} of {v}" for v, n in repaired.other_versions.items())
            findings.append(Finding("of another version", f"{counts}; unknown fields are ignored"))
        findings += examined.references.findings(folder)
        findings += [examined.next_request(), *repair_findings([log]), state]
        findings += [folder_checks.check_modes(folder), folder_checks.check_disk_space(folder)]
    for agent in _agents(log):
        findings += [
            Finding(f"subagent {agent.parent.name}", f"{f.what}: {f.found}", ok=False)
            for f in check_session(agent)
            if not f.ok and f.what not in ("modes", "disk space")  # already reported
        ]
    if not all(f.ok for f in findings):
        findings += _other_copies(log.parent)
    return findings


def repair(log: Path) -> list[str]:
    """Repair a session and its subagents' logs, and return the changes, one per line. Raises
    SessionError if the session is in use, and RecordError if nothing can be written.
    """
    lock = acquire_lock(log, [])
    try:
        return _repair(log)
    except OSError as error:
        raise unwritable(log, error) from error
    finally:
        os.close(lock)


def _repair(log: Path) -> list[str]:
    done = []
    if not log.exists():
        log.touch(mode=0o600)
    if count := folder_checks.fix_modes(log.parent):
        done.append(
            f"permissions of {count_of(count, 'file or folder', 'files and folders')} fixed"
        )
    with _examined(log) as examined:
        if to_do := examined.to_do:
            kept = _write(log, examined)
            cache = log.with_name(CACHE_NAME)
            if cache.exists():
                with keeping_old(cache):
                    cache.unlink()
            with suppress(OSError):  # the next process that opens the session does it
                write_conversation(log.parent, Entries(log))
            done += [*_first(to_do), f"the old log is kept: {kept}"]
    for agent in _agents(log):
        done += [f"subagent {agent.parent.name}: {told}" for told in repair(agent)]
    return done


@dataclass(slots=True)
class _Examined:
    """A log that was read: its rows after a repair, their references, and the repairs to do."""

    file: BinaryIO
    repaired: RepairedLog = field(default_factory=RepairedLog)
    references: References = field(default_factory=References)
    added: list[Entry] = field(default_factory=list)  # after the rows
    to_do: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries of the repaired log."""
        for row in self.repaired.rows:
            yield self.load(row)
        yield from self.added

    def load(self, row: LogRow) -> Entry:
        return parse_entry(self.raw(row)) if row.entry is None else row.entry

    def raw(self, row: LogRow) -> bytes:
        self.file.seek(row.offset)
        return self.file.read(row.length)

    def drop_missing_texts(self, folder: Path) -> None:
        """Remove references to missing offloaded files."""
        missing = self.references.missing_texts(folder)
        for row in self.repaired.rows if missing else ():
            entry = self.load(row) if row.seq in missing else None
            if isinstance(entry, ToolResult | User):
                gone = entry.offloaded
                details = {**entry.details, "lost": gone}
                row.entry = replace(entry, offloaded=None, details=details)
                self.to_do.append(f"#{row.seq}: reference to the missing file {gone} removed")

    def revert_impossible_summaries(self) -> None:
        """Revert summaries that would drop all the newest messages."""
        for summary in self.references.impossible_summaries():
            reason = f"it keeps only entries from #{summary.keep_from} on, after itself"
            self.add(Revert(target=summary.seq, reason=reason))
            self.to_do.append(f"#{summary.seq}: summary reverted: {reason}")

    def add(self, entry: Entry) -> None:
        """Append an entry to the repaired log."""
        last = max([0, *(row.last for row in self.repaired.rows), *(e.seq for e in self.added)])
        self.added.append(replace(entry, seq=last + 1, at=timestamp()))

    def next_request(self) -> Finding:
        """Return a finding with the size of the next request after a repair."""
        view = fold(self)
        sent = build_messages(view.items)
        size = f"{len(sent):,} messages, about {view.scaled(view.size):,} tokens"
        return Finding("next request", size if view.items else "the log holds nothing to send")


@contextmanager
def _examined(log: Path, *, in_use: bool = False) -> Iterator[_Examined]:
    """Read a log. If it is `in_use` by a process, skip an incomplete last line, which may be being
    written.
    """
    try:
        file = log.open("rb")
    except OSError as error:
        raise SessionError(f"cannot read the log {log}: {error.strerror}") from error
    with file:
        examined = _Examined(file)
        for line in read_lines(log):
            if line.raw.endswith(b"\n") or not in_use:
                add_line(examined.repaired, line)
        correct_rows(examined.repaired, examined.load)
        if not in_use:
            restore_from_copies(examined.repaired, examined.load, log)
        complete_rows(examined.repaired, examined.load, log.parent)
        for row in examined.repaired.rows:
            examined.references.add(examined.load(row))
        empty = not os.fstat(file.fileno()).st_size and not examined.repaired.rows
        examined.to_do = [EMPTY_LOG] if empty else [*examined.repaired.changes]
        examined.drop_missing_texts(log.parent)
        examined.revert_impossible_summaries()
        yield examined


def _write(log: Path, examined: _Examined) -> Path:
    """Write the repaired log and return the path of the original's copy. Raises OSError."""
    with keeping_old(log) as kept:
        text = f"repaired by ctxagent doctor; the log as it was is {kept.name}"
        data = {"repaired": _first(examined.to_do)}
        examined.add(Note(topic="warning", text=text, data=data))
        with replacing(log) as out:
            for row in examined.repaired.rows:
                out.write(examined.raw(row) if row.entry is None else encode_line(row.entry))
            for entry in examined.added:
                out.write(encode_line(entry))
        return kept


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - MAX_LISTED_REPAIRS
    return [*lines[:MAX_LISTED_REPAIRS], *([f"and {more:,} more"] if more > 0 else [])]


def _agents(log: Path) -> list[Path]:
    return sorted((log.parent / AGENTS).glob(f"*/{LOG_NAME}"))


def _other_copies(folder: Path) -> list[Finding]:
    """Return a finding that lists other files with content of the session."""
    there = {
        CONVERSATION_NAME: "the whole conversation",
        "summary.md": "the newest summary",
        "offloaded": "whole texts of large results",
        "checkpoints": "saved states of the session",
    }
    found = [f"{name} ({what})" for name, what in there.items() if (folder / name).exists()]
    found += sorted(path.name for path in folder.glob("*.bak"))
    return [Finding("other copies", ", ".join(found))] if found else []
