"""Check and repair one session: the references in its log, its lock, file modes and disk space.

The references, to entries and to files, are collected in one pass. A repair writes a new log file
and replaces the old one, of which an exact copy is kept next to it. An intact log is not rewritten,
so a second repair has nothing to do.
"""

import fcntl
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import BinaryIO

from ...api.base import SessionError, dataclass
from ...api.context import RECOVERY_TOPIC, build_messages, fold
from ...api.files import keeping_old, replacing
from ...api.record import (
    AGENTS,
    CONVERSATION_NAME,
    LOG_NAME,
    Assistant,
    Checkpoint,
    Entries,
    Entry,
    Mask,
    Note,
    Pin,
    Revert,
    SubagentRun,
    Summary,
    ToolResult,
    Unknown,
    Unpin,
    User,
    acquire_lock,
    encode_line,
    parse_entry,
    reverted_seqs,
    timestamp,
    unwritable,
    write_conversation,
)
from ...api.record import LOCK_NAME as LOCK
from ...api.session import CACHE_NAME
from ...api.text import count_of
from .copies import restore_from_copies
from .repair import LogRow, RepairedLog, add_line, complete_rows, correct_rows, lost_seqs
from .salvage import read_lines
from .setup import Finding, listed, repair_findings

MAX_NAMED = 5  # listed items of one kind


@dataclass(slots=True)
class References:
    """The references in the entries of a log, and the existing entries and files."""

    kinds: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)  # kinds that this version does not know
    seqs: set[int] = field(default_factory=set)
    lost: list[range] = field(default_factory=list)  # seqs of lost entries, replaced by notes
    named: list[tuple[str, set[int]]] = field(default_factory=list)  # entry, seqs it refers to
    calls: dict[str, str] = field(default_factory=dict)  # unanswered calls: "#seq Tool" by ID
    orphans: list[str] = field(default_factory=list)  # results without a call
    offloaded: dict[int, str] = field(default_factory=dict)  # files by seq
    checkpoints: dict[int, str] = field(default_factory=dict)  # files by number
    agents: dict[str, str] = field(default_factory=dict)  # logs by id
    reverts: list[Entry] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    failed_recoveries: list[str] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Process one entry."""
        self.kinds[entry.kind] += 1
        self.seqs.add(entry.seq)
        if gone := lost_seqs(entry):
            self.lost.append(gone)
        if isinstance(entry, Unknown):
            self.unknown[entry.name[:40]] += 1
        elif isinstance(entry, Assistant) and entry.purpose == "turn":
            for block in entry.content:
                if block.get("type") == "tool_use":
                    self.calls[str(block.get("id"))] = f"#{entry.seq} {block.get('name')}"
        elif isinstance(entry, ToolResult) and self.calls.pop(entry.tool_use_id, None) is None:
            self.orphans.append(f"#{entry.seq}")
        if isinstance(entry, ToolResult | User) and entry.offloaded:
            self.offloaded[entry.seq] = entry.offloaded
        elif isinstance(entry, Checkpoint) and entry.path:
            self.checkpoints[entry.number] = entry.path
        elif isinstance(entry, SubagentRun):
            self.agents[entry.id] = entry.log
        elif isinstance(entry, Revert):
            self.reverts.append(entry)
        elif isinstance(entry, Summary):
            self.summaries.append(entry)
        elif isinstance(entry, Note) and entry.topic == RECOVERY_TOPIC:
            self.failed_recoveries.append(f"#{entry.seq} {entry.text}")
        if names := _names(entry):
            self.named.append((f"{entry.kind} #{entry.seq}", names))

    def dangling(self) -> list[str]:
        """Return the references to missing entries. Readers of the log ignore these references."""
        return [
            f"{who} refers to #{seq}"
            for who, names in self.named
            for seq in sorted(names - self.seqs)[:1]
            if not any(seq in gone for gone in self.lost)
        ]

    def impossible_summaries(self) -> list[Summary]:
        """Return the unreverted summaries whose `keep_from` is after the summary itself. They would
        drop all the newest messages.
        """
        reverted = reverted_seqs(self.reverts)
        return [s for s in self.summaries if s.keep_from > s.seq and s.seq not in reverted]

    def missing_texts(self, folder: Path) -> dict[int, str]:
        """Return the offloaded files that are missing or empty, by the seq of the entry that names
        them.
        """
        return {seq: path for seq, path in self.offloaded.items() if not _is_there(folder, path)}

    def findings(self, folder: Path) -> list[Finding]:
        """Return findings about the references and about missing entries and files in the session's
        folder.
        """
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.kinds.items()) or "none"
        found = [Finding("entries", kinds)]
        if self.unknown:
            counts = [f"{n} {kind}" for kind, n in self.unknown.most_common(MAX_NAMED)]
            found.append(Finding("unknown kinds", ", ".join(counts)))
        if dangling := self.dangling():
            names = f"{listed(dangling, MAX_NAMED)}; ignored"
            found.append(Finding("references to missing entries", names))
        found += [
            Finding(
                "summary",
                f"#{s.seq} keeps only entries from #{s.keep_from} on, after itself",
                False,
            )
            for s in self.impossible_summaries()
        ]
        calls = [f"{call} ({id[:40]})" for id, call in self.calls.items()]
        unanswered = f"{listed(calls, MAX_NAMED)}; the model is told that the outcome is unknown"
        found.append(Finding("calls without a result", unanswered if calls else "none"))
        if self.failed_recoveries:
            told = listed(self.failed_recoveries, MAX_NAMED)
            found.append(Finding("failed recoveries, to be reviewed", told))
        if self.orphans:
            names = f"{listed(self.orphans, MAX_NAMED)}; not sent"
            found.append(Finding("results without a call", names))
        return found + self._file_findings(folder)

    def _file_findings(self, folder: Path) -> list[Finding]:
        rows = (
            ("results in files", {f"#{seq} {path}": path for seq, path in self.offloaded.items()},
             "missing or empty: {}; only the beginning and the end of these texts are left"),
            ("checkpoints", {f"{number}": path for number, path in self.checkpoints.items()},
             "no file for {}: you cannot rewind to it, but the log has its messages"),
            ("subagents", self.agents,
             "no log of {}: the answer is in this log, but the work cannot be shown"),
        )  # fmt: skip
        found = []
        for what, files, lost in rows:
            gone = [name for name, path in files.items() if not _is_there(folder, path)]
            text = lost.format(listed(gone, MAX_NAMED)) if gone else f"{len(files)} there"
            if files:
                found.append(Finding(what, text, not gone or what != "results in files"))
        return found


def _names(entry: Entry) -> set[int]:
    """Return the seqs that an entry refers to."""
    if isinstance(entry, Mask):
        return {t["seq"] for t in entry.targets if isinstance(t.get("seq"), int)}
    if isinstance(entry, Summary):
        return {*entry.covers, *entry.keep}
    if isinstance(entry, Revert):
        return {entry.target}
    return {entry.ref} if isinstance(entry, Pin | Unpin) and entry.ref is not None else set()


def _is_there(folder: Path, path: str) -> bool:
    try:
        return (folder / path).stat().st_size > 0
    except (OSError, ValueError):  # a damaged log may contain any path
        return False


HELD_BY_PROCESS = "held by process"
MIN_FREE_BYTES = 64 << 20
MAX_NAMED_FILES = 5
_MAX_FILES = 100_000  # checked files of a session


def check_lock(log: Path) -> Finding:
    """Return a finding with the process that has the session open, if any."""
    path = log.with_name(LOCK)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Finding("lock", "not held")
    except OSError as error:
        return Finding("lock", f"{path} cannot be opened: {error.strerror}; remove it", False)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Finding("lock", f"{path} is not a file; remove it", False)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        return Finding("lock", f"{HELD_BY_PROCESS} {pid}")
    except OSError:
        return Finding(
            "lock", "this file system has no locks: let only one process write at a time"
        )
    finally:
        os.close(descriptor)
    return Finding("lock", "not held")


def check_disk_space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    return Finding("disk space", f"{free >> 20:,} MiB free", free >= MIN_FREE_BYTES)


def check_modes(folder: Path) -> Finding:
    wrong = [
        f"{path.relative_to(folder.parent)} {mode:04o}" for path, mode, _ in wrong_modes(folder)
    ]
    if not wrong:
        return Finding("modes", "only the owner can open the files and folders")
    names = listed(wrong, MAX_NAMED_FILES)
    return Finding("modes", f"{names}; must be 0600, and 0700 for folders", False)


def fix_modes(folder: Path) -> int:
    """Correct the modes of the files in a session's folder, and return the number of changed
    ones.
    """
    count = 0
    for path, _, right in wrong_modes(folder):
        path.chmod(right)
        count += 1
    return count


def wrong_modes(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield (path, mode, correct mode) for paths that other users can open or the owner cannot. A
    folder is yielded before it is read, so that the caller can correct its mode first.
    """
    waiting, count = [folder], 0
    while waiting and count < _MAX_FILES:
        path = waiting.pop()
        count += 1
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            continue
        right = 0o700 if stat.S_ISDIR(mode) else 0o600
        if mode & 0o077 or mode & right != right:
            yield path, stat.S_IMODE(mode), right
        if stat.S_ISDIR(mode) and os.access(path, os.R_OK | os.X_OK):
            waiting += sorted(path.iterdir(), reverse=True)


MAX_LISTED_REPAIRS = 200  # listed one by one
EMPTY_LOG = "the log is empty: nothing can be recovered, and resuming starts from scratch"


def check_session(log: Path) -> list[Finding]:
    """Return all findings about a session, including what a repair would do. Changes nothing.
    Raises SessionError if the log cannot be read.
    """
    if not log.exists() and (copies := _other_copies(log.parent)):
        return [Finding("log", f"{log} is missing", ok=False), *copies]
    folder, state = log.parent, check_lock(log)
    with _examined(log, in_use=HELD_BY_PROCESS in state.found) as examined:
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
        findings += [check_modes(folder), check_disk_space(folder)]
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
    if count := fix_modes(log.parent):
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
