"""The log that a repair would write: its rows in order, and the changes.

Seqs are kept, because stubs, summaries and users refer to them. Entries out of order are moved
back, a seq that does not fit between its neighbours is corrected, and a note replaces lost entries.
Only entries of a second writer, whose seqs are already taken, get new seqs after all others.
Thinking after the first changed entry is dropped: a server accepts it only after exactly the same
context.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...api.base import dataclass, regex
from ...api.record import (
    VERSION,
    Assistant,
    Entry,
    Mask,
    Note,
    Pin,
    Revert,
    Summary,
    ToolResult,
    Unpin,
    User,
    encode_line,
)
from .salvage import RawLine, has_thinking, is_written, without_thinking
from .setup import listed

MAX_NAMED_ENTRIES = 20  # listed entries of one kind
LOST_KEY = "lost"  # in a note's data: first and last seq of the lost entries that it replaces

_OFFLOADED = regex(r"\d{8}_\d{6}_(.+)_(\d+)\.md")
_REF = regex(r"#(\d{1,18})\b")

OffloadedTexts = dict[int, tuple[str, str]]  # by seq: a tool, and the file with its result


@dataclass(slots=True)
class LogRow:
    """A line of the repaired log."""

    seq: int
    last: int  # the last seq that it covers
    kind: str
    line: int  # number of the original line, 0 for a new row
    offset: int  # of the original line, which is copied if `entry` is None
    length: int
    digest: bytes
    has_thinking: bool
    entry: Entry | None = None


@dataclass(slots=True)
class RepairedLog:
    """The rows that a repair would write and its changes. Without changes, the log is intact."""

    rows: list[LogRow] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)  # one text per change
    line_count: int = 0  # of the original
    broken_count: int = 0  # damaged lines of the original
    other_versions: Counter[str] = field(default_factory=Counter)  # number of lines by version
    first_changed: int | None = None  # seq from which the content to send differs
    end: int = 0  # the last seq that the log had according to its copies

    def note_change(self, seq: int) -> None:
        first = self.first_changed
        self.first_changed = seq if first is None else min(first, seq)


def add_line(log: RepairedLog, line: RawLine) -> None:
    """Add a line of the original log."""
    log.line_count = line.number
    if line.version != VERSION:
        log.other_versions[f"{line.version}"[:20]] += 1
    if line.reason:
        log.broken_count += 1
        left = ", ".join(f"#{entry.seq} ({entry.kind})" for entry in line.entries)
        kept = f"the complete fields of {left} are kept" if left else "nothing could be recovered"
        log.changes.append(f"line {line.number}: {line.reason}; {kept}")
    elif not line.canonical:
        (entry,) = line.entries
        log.changes.append(f"line {line.number}: #{entry.seq} rewritten in the format of the log")
    unchanged = not line.reason and line.canonical
    for entry in line.entries:
        raw = line.raw if unchanged else encode_line(entry)
        row = LogRow(
            entry.seq, _last_seq(entry), entry.kind, line.number, line.offset, len(line.raw),
            blake2b(raw, digest_size=8).digest(), has_thinking(entry),
        )  # fmt: skip
        log.rows.append(row if unchanged else replace(row, entry=entry))
        if line.reason and not is_written(entry, line.raw):
            log.note_change(entry.seq)


def correct_rows(log: RepairedLog, load: Callable[[LogRow], Entry]) -> None:
    """Correct the seqs and the order of the rows. `load` reads the entry of a row."""
    _correct_seqs(log, load)
    _drop_duplicates(log)
    _restore_order(log)
    _move_second_writer(log, load)


def complete_rows(log: RepairedLog, load: Callable[[LogRow], Entry], folder: Path) -> None:
    """Fill the gaps between the rows, and remove what a server no longer accepts. `folder` is the
    session's.
    """
    texts = offloaded_texts(folder)
    _fill_gaps(log, load, texts)
    for row in log.rows:  # a recovered result refers to the file with its text again
        result = row.entry
        if isinstance(result, ToolResult) and result.offloaded is None and row.seq in texts:
            row.entry = replace(result, offloaded=texts[row.seq][1])
    _drop_thinking(log, load)


def lost_seqs(entry: Entry) -> range:
    """Return the seqs of the lost entries that a note of a repair replaces. Empty for other
    entries.
    """
    lost = entry.data.get(LOST_KEY) if isinstance(entry, Note) else None
    if isinstance(lost, list) and len(lost) == 2 and isinstance(lost[1], int):
        return range(entry.seq, lost[1] + 1)
    return range(0)


def new_row(entry: Entry) -> LogRow:
    """Return the row of an entry that the original log does not have."""
    return LogRow(
        entry.seq, _last_seq(entry), entry.kind, 0, 0, 0, b"", has_thinking(entry), entry=entry
    )


def seq_ranges(seqs: Sequence[int]) -> str:
    """Return rising seqs as text. Consecutive seqs become a range."""
    ranges = list[tuple[int, int]]()
    for seq in seqs:
        first = ranges.pop()[0] if ranges and ranges[-1][1] == seq - 1 else seq
        ranges.append((first, seq))
    return listed([_seq_range(*each) for each in ranges], MAX_NAMED_ENTRIES)


def _last_seq(entry: Entry) -> int:
    lost = lost_seqs(entry)
    return lost[-1] if lost else entry.seq


def _renumber(row: LogRow, seq: int, load: Callable[[LogRow], Entry]) -> None:
    row.entry = replace(load(row), seq=seq)
    row.seq = seq
    row.last = max(seq, _last_seq(row.entry))


def _correct_seqs(log: RepairedLog, load: Callable[[LogRow], Entry]) -> None:
    rows, there = log.rows, {row.seq for row in log.rows}
    for before, row, after in zip([None, *rows], rows, rows[1:], strict=False):
        right = before.last + 1 if before else 1
        doubled = before is not None and before.digest == row.digest
        if after.seq == right + 1 and row.seq != right and right not in there and not doubled:
            log.changes.append(f"line {row.line}: #{row.seq} corrected to #{right}")
            _renumber(row, right, load)
            there.add(right)
            log.note_change(right)


def _drop_duplicates(log: RepairedLog) -> None:
    seen: set[tuple[int, bytes]] = set()
    kept = []
    for row in log.rows:
        if (row.seq, row.digest) in seen:
            log.changes.append(f"line {row.line}: duplicate of #{row.seq} removed")
            log.note_change(row.seq + 1)
        else:
            kept.append(row)
        seen.add((row.seq, row.digest))
    log.rows = kept


def _restore_order(log: RepairedLog) -> None:
    ordered = sorted(log.rows, key=lambda row: row.seq)
    moved = [new for new, old in zip(ordered, log.rows, strict=True) if new.seq != old.seq]
    if moved:
        log.changes.append(f"{_refs(moved)}: moved back into order")
        log.note_change(min(row.seq for row in moved))
    log.rows = ordered


def _move_second_writer(log: RepairedLog, load: Callable[[LogRow], Entry]) -> None:
    """Move entries whose seq is taken to the end, in their order, with new seqs."""
    kept: list[LogRow] = []
    late: list[LogRow] = []
    for row in log.rows:
        (late if kept and row.seq <= kept[-1].seq else kept).append(row)
    if not late:
        return
    late.sort(key=lambda row: row.line)
    end = max(row.last for row in kept)
    first, numbers = late[0].seq, {row.seq: end + n for n, row in enumerate(late, 1)}
    moved = f"{_refs(late)}: number already used; now {_seq_range(end + 1, end + len(late))}"
    for seq, row in enumerate(late, end + 1):
        row.entry = _with_new_seqs(load(row), numbers)
        _renumber(row, seq, load)
    log.changes.append(moved)
    log.note_change(first)
    log.rows = [*kept, *late]


def _with_new_seqs(entry: Entry, numbers: dict[int, int]) -> Entry:
    """Return the entry with its references updated to the new seqs."""

    def now(seq: Any) -> Any:
        return numbers.get(seq, seq) if isinstance(seq, int) else seq

    def text_now(text: Any) -> Any:
        new = lambda found: f"#{now(int(found[1]))}"  # noqa: E731
        return _REF.sub(new, text) if isinstance(text, str) else text

    if isinstance(entry, Mask):
        new = {"seq": now, "reply": now, "stub": text_now, "outline": text_now}
        targets = [{k: new[k](v) if k in new else v for k, v in t.items()} for t in entry.targets]
        return replace(entry, targets=targets)
    if isinstance(entry, Summary):
        return replace(
            entry, covers=[*map(now, entry.covers)], keep=[*map(now, entry.keep)],
            keep_from=now(entry.keep_from),
        )  # fmt: skip
    if isinstance(entry, Revert):
        return replace(entry, target=now(entry.target))
    return replace(entry, ref=now(entry.ref)) if isinstance(entry, Pin | Unpin) else entry


def _fill_gaps(log: RepairedLog, load: Callable[[LogRow], Entry], texts: OffloadedTexts) -> None:
    """Replace lost entries with notes, or with a result whose text is still in a file of the
    session.
    """
    new: list[Entry] = []
    first = 1
    for seq, last in [*((row.seq, row.last) for row in log.rows), (log.end + 1, log.end + 1)]:
        if seq > first:
            log.note_change(first)
            there = [each for each in texts if first <= each < seq]
            for start, end in _ranges_without(first, seq - 1, there):
                log.changes.append(f"{_seq_range(start, end)}: lost; replaced by a note")
                new.append(_note(start, end))
            new += [_restored(log, load, each, texts[each]) for each in there]
        first = max(first, last + 1)
    log.rows = sorted([*log.rows, *map(new_row, new)], key=lambda row: row.seq)


def _ranges_without(first: int, last: int, there: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of `first` to `last` without the seqs in `there`."""
    for seq in [*sorted(there), last + 1]:
        if first < seq:
            yield first, seq - 1
        first = seq + 1


def offloaded_texts(folder: Path) -> OffloadedTexts:
    """Return the files with texts of messages and results."""
    found = {}
    for path in sorted((folder / "offloaded").glob("*.md")):
        if (named := _OFFLOADED.fullmatch(path.name)) and path.stat().st_size:
            found[int(named[2])] = (named[1], f"offloaded/{path.name}")
    return found


def _restored(
    log: RepairedLog, load: Callable[[LogRow], Entry], seq: int, file: tuple[str, str]
) -> Entry:
    """Return the lost entry for an offloaded file: a user message, or the result of the only
    matching open call. If several or no calls match, return a note that names the file.
    """
    tool, path = file
    calls: dict[str, str] = {}
    for row in log.rows:
        if row.kind == Assistant.kind and row.seq < seq:
            reply = load(row)
            assert isinstance(reply, Assistant)
            uses = [b for b in reply.content if b.get("type") == "tool_use"]
            calls |= {str(b.get("id")): str(b.get("name")) for b in uses}
        elif row.kind == ToolResult.kind:
            result = load(row)
            assert isinstance(result, ToolResult)
            calls.pop(result.tool_use_id, None)
    open_calls = [id for id, name in calls.items() if name == tool]
    if tool == "words":
        log.changes.append(f"#{seq}: lost; replaced by a reference to its text in {path}")
        return User(seq=seq, content=f"[These words were lost from the log. All of them: {path}]")
    if len(open_calls) != 1:
        log.changes.append(f"#{seq}: lost; replaced by a note about its text in {path}")
        return replace(_note(seq, seq), text=f"a result of {tool}, lost; see {path}")
    log.changes.append(f"#{seq}: restored, a result of {tool}, from {path}")
    content = f"[{tool} · its result was restored; full text: #{seq}, or {path}]"
    return ToolResult(seq=seq, tool_use_id=open_calls[0], content=content, offloaded=path)


def _seq_range(first: int, last: int) -> str:
    return f"#{first}" if first == last else f"#{first} to #{last}"


def _note(first: int, last: int) -> Note:
    text = f"{_seq_range(first, last)}: lost; what is left of it is in the log as it was"
    return Note(seq=first, topic="warning", text=text, data={LOST_KEY: [first, last]})


def _drop_thinking(log: RepairedLog, load: Callable[[LogRow], Entry]) -> None:
    if log.first_changed is None:
        return
    late = [row for row in log.rows if row.has_thinking and row.seq >= log.first_changed]
    for row in late:
        row.entry, row.has_thinking = without_thinking(load(row)), False
    if late:
        log.changes.append(
            f"{_refs(late)}: thinking removed, because the context changes from "
            f"#{log.first_changed} on"
        )


def _refs(rows: Iterable[LogRow]) -> str:
    return listed([f"#{row.seq}" for row in rows], MAX_NAMED_ENTRIES)
