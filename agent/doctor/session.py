"""One session: what is wrong with it, what a repair would do, and the repair.

A repair writes the log that the rows make to a new file and puts that in the log's place; the log
as it was stays beside it, byte for byte. A log that is whole is not written at all, so a second
repair finds nothing to do.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from ..context.view import fold
from ..context.wire import messages
from ..errors import SessionError
from ..record.entries import Entry, Note, Revert, ToolResult, User
from ..record.lock import acquire, unwritable
from ..record.log import NAME, line_of, parse
from ..record.private import copy
from ..record.sessions import AGENTS
from . import place
from .finding import Finding
from .lines import lines
from .references import References
from .rows import Mending, Row, mend, take

MOST_SAID = 200  # things to do that are named one by one
EMPTY = "the log is empty: nothing of the session is left, and who goes on with it begins anew"
_CACHES = ("resume.json",)  # made from the log, and made anew from it


def check_session(log: Path) -> list[Finding]:
    """All that there is to say of a session, and what a repair would do. Changes nothing.

    Raises SessionError when the log cannot be read.
    """
    folder, state = log.parent, place.lock(log)
    with _examined(log, in_use=place.HELD in state.found) as found:
        mending = found.mending
        whole = f"{mending.broken:,} cannot be read" if mending.broken else "every one can be read"
        findings = [
            Finding("log", f"{log}, {log.stat().st_size:,} bytes"),
            Finding("lines", f"{mending.count:,}; {whole}", not mending.broken),
            *(Finding("to repair", told, False) for told in _some(found.to_do)),
        ]
        if mending.versions:
            told = ", ".join(f"{n} of {v}" for v, n in mending.versions.items())
            findings.append(Finding("of another version", f"{told}; read as far as it is known"))
        findings += found.references.findings(folder)
        findings.append(_next_request(found))
        findings += [state, place.modes(folder), place.room(folder)]
    for agent in _agents(log):
        findings += [
            Finding(f"subagent {agent.parent.name}", f"{f.what}: {f.found}", ok=False)
            for f in check_session(agent)
            if not f.ok and f.what not in ("modes", "room on the disk")  # told already
        ]
    if not all(f.ok for f in findings):
        findings += _other_copies(log.parent)
    return findings


def repair(log: Path) -> list[str]:
    """Mend what can be mended, in subagents' logs too; what was done, a line for each thing.

    Raises SessionError when the session is in use, RecordError when nothing can be written.
    """
    lock = acquire(log, [])
    try:
        return _repair(log)
    except OSError as error:
        raise unwritable(log, error) from error
    finally:
        os.close(lock)


def _repair(log: Path) -> list[str]:
    done = []
    if count := place.mend_modes(log.parent):
        done.append(f"modes of {count:,} files and folders put right")
    with _examined(log) as found:
        if to_do := found.to_do:
            kept = _write(log, found)
            for name in _CACHES:
                log.with_name(name).unlink(missing_ok=True)
            done += [*_some(to_do), f"the log as it was is kept: {kept}"]
    for agent in _agents(log):
        done += [f"subagent {agent.parent.name}: {told}" for told in repair(agent)]
    return done


@dataclass(slots=True)
class _Examined:
    """A log that was read: what its rows are to be, what they refer to, and what there is to do."""

    file: BinaryIO
    mending: Mending = field(default_factory=Mending)
    references: References = field(default_factory=References)
    more: list[Entry] = field(default_factory=list)  # to be appended
    to_do: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Entry]:
        """The entries of the mended log."""
        for row in self.mending.rows:
            yield self.load(row)
        yield from self.more

    def load(self, row: Row) -> Entry:
        return parse(self.raw(row)) if row.entry is None else row.entry

    def raw(self, row: Row) -> bytes:
        self.file.seek(row.offset)
        return self.file.read(row.length)


@contextmanager
def _examined(log: Path, *, in_use: bool = False) -> Iterator[_Examined]:
    """The log, read. While a process has it, its last line may be one that is being written."""
    try:
        file = log.open("rb")
    except OSError as error:
        raise SessionError(f"cannot read the log {log}: {error.strerror}") from error
    with file:
        found = _Examined(file)
        for line in lines(log):
            if line.raw.endswith(b"\n") or not in_use:
                take(found.mending, line)
        mend(found.mending, found.load, log.parent)
        for row in found.mending.rows:
            found.references.take(found.load(row))
        found.to_do = [*found.mending.said] if os.fstat(file.fileno()).st_size else [EMPTY]
        _give_up_texts(found, log.parent)
        _take_back(found)
        yield found


def _give_up_texts(found: _Examined, folder: Path) -> None:
    """Entries no longer name files that are gone."""
    missing = found.references.missing(folder)
    for row in found.mending.rows if missing else ():
        entry = found.load(row) if row.seq in missing else None
        if isinstance(entry, ToolResult | User):
            details = {**entry.details, "lost": entry.offloaded}
            row.entry = replace(entry, offloaded=None, details=details)
            found.to_do.append(f"#{row.seq}: it no longer names {entry.offloaded}, which is gone")


def _take_back(found: _Examined) -> None:
    """Summaries that would leave nothing of what was said last are taken back."""
    end = max((row.last for row in found.mending.rows), default=0)
    for count, summary in enumerate(found.references.beyond(), 1):
        reason = f"it keeps from #{summary.keep_from} on, which is behind it"
        found.more.append(Revert(seq=end + count, at=_now(), target=summary.seq, reason=reason))
        found.to_do.append(f"#{summary.seq}: a summary taken back: {reason}")


def _next_request(found: _Examined) -> Finding:
    """Whether one can be made of what the log holds, as it would be when it is mended."""
    view = fold(found)
    sent = messages(view.items)
    told = f"{len(sent):,} messages, about {round(view.size * view.ratio):,} tokens"
    return Finding("next request", told if view.items else "the log holds nothing that is sent")


def _write(log: Path, found: _Examined) -> Path:
    """Put the mended log in place; the path of the original. Raises OSError."""
    now = datetime.now(UTC)
    kept = log.with_name(f"{log.name}.{now:%Y%m%d-%H%M%S}.bak")
    while kept.exists():
        kept = kept.with_name(f"{kept.stem}-2.bak")
    descriptor, part = tempfile.mkstemp(dir=log.parent, prefix=f"{log.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as out:
            for row in found.mending.rows:
                out.write(found.raw(row) if row.entry is None else line_of(row.entry))
            for entry in [*found.more, _account(found, kept.name)]:
                out.write(line_of(entry))
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(log, kept)
        except OSError:  # a file system without hard links
            copy(log, kept)
        Path(part).replace(log)
    finally:
        Path(part).unlink(missing_ok=True)
    return kept


def _account(found: _Examined, kept: str) -> Note:
    """What was done, for the log itself."""
    rows = [row.last for row in found.mending.rows]
    seq = max([0, *rows, *(entry.seq for entry in found.more)]) + 1
    text = f"repaired by ctxagent doctor; the log as it was is {kept}"
    return Note(
        seq=seq, at=_now(), topic="warning", text=text, data={"repaired": _some(found.to_do)}
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _some(told: list[str]) -> list[str]:
    more = [f"and {len(told) - MOST_SAID:,} more"] if len(told) > MOST_SAID else []
    return told[:MOST_SAID] + more


def _agents(log: Path) -> list[Path]:
    return sorted((log.parent / AGENTS).glob(f"*/{NAME}"))


def _other_copies(folder: Path) -> list[Finding]:
    """Where to look for what is lost."""
    there = {
        "conversation.md": "what summaries stand for, word for word",
        "summary.md": "the newest summary",
        "offloaded": "whole texts of large results",
        "checkpoints": "how the session stood",
    }
    found: list[Any] = [f"{name} ({what})" for name, what in there.items()
                        if (folder / name).exists()]  # fmt: skip
    found += sorted(path.name for path in folder.glob(f"{NAME}.*.bak"))
    return [Finding("what else is kept", ", ".join(found))] if found else []
