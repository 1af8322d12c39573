"""The log that a repair would write: its rows in order, and what was done to come to them.

Numbers are kept, because stubs, summaries and people refer to them. So entries that stand out of
order go back into it, a number that does not fit between its neighbours is put right, and where
entries are lost a note takes their place. Only entries of a second writer, which have numbers that
are taken, get new ones behind all others. After the first change of what was sent no thinking
stays: a server takes it back only after the very words it was given after.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..record.entries import (
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
)
from ..record.log import line_of
from .lines import Line, is_written, thinks, without_thinking

NAMED = 20  # things of one kind that are named one by one
LOST = "lost"  # in the data of a note: the first and the last number that it stands for

_OFFLOADED = re.compile(r"\d{8}_\d{6}_(.+)_(\d+)\.md")
Texts = dict[int, tuple[str, str]]  # by number: a tool, and the file of its result's text

_REF = re.compile(r"#(\d{1,18})\b")


@dataclass(slots=True)
class Row:
    """A line of the mended log: the bytes of the original from `offset` on, or `entry` where that
    is not None. `last` is the last number that it stands for, `line` the original's (0: new)."""

    seq: int
    last: int
    kind: str
    line: int
    offset: int
    length: int
    digest: bytes
    thinks: bool
    entry: Entry | None = None


@dataclass(slots=True)
class Mending:
    """The rows, and in `said` what there was to do, a line for each thing; none for a whole log.
    `first` is the number from which on what would be sent is not what was sent."""

    rows: list[Row] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    count: int = 0  # lines of the original
    broken: int = 0  # of them cannot be read as they stand
    versions: Counter[str] = field(default_factory=Counter)  # of lines that another one wrote
    first: int | None = None

    def changed(self, seq: int) -> None:
        self.first = seq if self.first is None else min(self.first, seq)


def take(mending: Mending, line: Line) -> None:
    """Add one more line of the original."""
    mending.count = line.number
    if line.version != VERSION:
        mending.versions[f"{line.version}"[:20]] += 1
    if line.reason:
        mending.broken += 1
        left = ", ".join(f"#{entry.seq} ({entry.kind})" for entry in line.entries)
        kept = f"what is whole of {left} is kept" if left else "nothing in it can be read"
        mending.said.append(f"line {line.number}: {line.reason}; {kept}")
    elif not line.plain:
        (entry,) = line.entries
        mending.said.append(f"line {line.number}: #{entry.seq} written as the log writes it")
    as_it_is = not line.reason and line.plain
    for entry in line.entries:
        canonical = line.raw if as_it_is else line_of(entry)
        row = Row(
            entry.seq, _last(entry), entry.kind, line.number, line.offset, len(line.raw),
            blake2b(canonical, digest_size=8).digest(), thinks(entry),
        )  # fmt: skip
        mending.rows.append(row if as_it_is else replace(row, entry=entry))
        if line.reason and not is_written(entry, line.raw):
            mending.changed(entry.seq)


def mend(mending: Mending, load: Callable[[Row], Entry], folder: Path) -> None:
    """Put the rows right. `load` reads the entry of a row, `folder` is the session's."""
    _put_numbers_right(mending, load)
    _drop_doubles(mending)
    _put_in_order(mending)
    _move_second_writer(mending, load)
    texts = _texts(folder)
    _fill_gaps(mending, load, texts)
    _name_texts(mending, texts)
    _leave_out_thinking(mending, load)


def lost(entry: Entry) -> range:
    """The numbers of lost entries that an entry stands for; none for any but our notes."""
    told = entry.data.get(LOST) if isinstance(entry, Note) else None
    if isinstance(told, list) and len(told) == 2 and isinstance(told[1], int):
        return range(entry.seq, told[1] + 1)
    return range(0)


def _last(entry: Entry) -> int:
    gone = lost(entry)
    return gone[-1] if gone else entry.seq


def _renumber(row: Row, seq: int, load: Callable[[Row], Entry]) -> None:
    row.entry = replace(load(row), seq=seq)
    row.seq = seq
    row.last = max(seq, _last(row.entry))


def _put_numbers_right(mending: Mending, load: Callable[[Row], Entry]) -> None:
    rows, there = mending.rows, {row.seq for row in mending.rows}
    for before, row, after in zip([None, *rows], rows, rows[1:], strict=False):
        right = before.last + 1 if before else 1
        doubled = before is not None and before.digest == row.digest
        if after.seq == right + 1 and row.seq != right and right not in there and not doubled:
            mending.said.append(f"line {row.line}: it says #{row.seq}, and must be #{right}")
            _renumber(row, right, load)
            there.add(right)
            mending.changed(right)


def _drop_doubles(mending: Mending) -> None:
    seen: set[tuple[int, bytes]] = set()
    kept = []
    for row in mending.rows:
        if (row.seq, row.digest) in seen:
            mending.said.append(f"line {row.line}: #{row.seq} a second time; left out")
            mending.changed(row.seq + 1)
        else:
            kept.append(row)
        seen.add((row.seq, row.digest))
    mending.rows = kept


def _put_in_order(mending: Mending) -> None:
    ordered = sorted(mending.rows, key=lambda row: row.seq)
    moved = [new for new, old in zip(ordered, mending.rows, strict=True) if new.seq != old.seq]
    if moved:
        mending.said.append(f"{_refs(moved)}: put back into the order of their numbers")
        mending.changed(min(row.seq for row in moved))
    mending.rows = ordered


def _move_second_writer(mending: Mending, load: Callable[[Row], Entry]) -> None:
    """Entries whose number another one before them has go behind all others, in their order."""
    kept: list[Row] = []
    late: list[Row] = []
    for row in mending.rows:
        (late if kept and row.seq <= kept[-1].seq else kept).append(row)
    if not late:
        return
    late.sort(key=lambda row: row.line)
    end = max(row.last for row in kept)
    first, numbers = late[0].seq, {row.seq: end + n for n, row in enumerate(late, 1)}
    told = f"{_refs(late)}: numbers that others have; now {_stretch(end + 1, end + len(late))}"
    for place, row in enumerate(late, end + 1):
        row.entry = _pointed(load(row), numbers)
        _renumber(row, place, load)
    mending.said.append(told)
    mending.changed(first)
    mending.rows = [*kept, *late]


def _pointed(entry: Entry, numbers: dict[int, int]) -> Entry:
    """The entry with the numbers it names as they are now."""

    def now(seq: Any) -> Any:
        return numbers.get(seq, seq) if isinstance(seq, int) else seq

    def said(text: Any) -> Any:
        told = lambda found: f"#{now(int(found[1]))}"  # noqa: E731
        return _REF.sub(told, text) if isinstance(text, str) else text

    if isinstance(entry, Mask):
        targets = [
            {**t, **{k: f(t[k]) for k, f in (("seq", now), ("stub", said)) if k in t}}
            for t in entry.targets
        ]
        return replace(entry, targets=targets)
    if isinstance(entry, Summary):
        return replace(
            entry, covers=[*map(now, entry.covers)], keep=[*map(now, entry.keep)],
            keep_from=now(entry.keep_from),
        )  # fmt: skip
    if isinstance(entry, Revert):
        return replace(entry, target=now(entry.target))
    return replace(entry, ref=now(entry.ref)) if isinstance(entry, Pin | Unpin) else entry


def _name_texts(mending: Mending, texts: Texts) -> None:
    """What is left of a result names the file of its text again."""
    for row in mending.rows:
        result = row.entry
        if isinstance(result, ToolResult) and result.offloaded is None and row.seq in texts:
            row.entry = replace(result, offloaded=texts[row.seq][1])


def _fill_gaps(mending: Mending, load: Callable[[Row], Entry], texts: Texts) -> None:
    """A note in place of what is lost, or the result that a file of the session still has."""
    gaps = [
        (before.last + 1 if before else 1, row.seq - 1, row)
        for before, row in zip([None, *mending.rows], mending.rows, strict=False)
        if row.seq > (before.last + 1 if before else 1)
    ]
    new: list[Entry] = []
    for first, last, _ in gaps:
        mending.changed(first)
        there = [seq for seq in texts if first <= seq <= last]
        for start, end in _around(first, last, there):
            mending.said.append(f"{_stretch(start, end)}: lost; a note takes the place")
            new.append(_note(start, end))
        new += [_restored(mending, load, seq, texts[seq]) for seq in there]
    mending.rows = sorted([*mending.rows, *map(_new, new)], key=lambda row: row.seq)


def _around(first: int, last: int, there: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The stretches of `first` to `last` without the numbers that are there."""
    for seq in [*sorted(there), last + 1]:
        if first < seq:
            yield first, seq - 1
        first = seq + 1


def _texts(folder: Path) -> Texts:
    """By number, the tool and the path of each offloaded file."""
    found = {}
    for path in sorted((folder / "offloaded").glob("*.md")):
        if (named := _OFFLOADED.fullmatch(path.name)) and path.stat().st_size:
            found[int(named[2])] = (named[1], f"offloaded/{path.name}")
    return found


def _restored(
    mending: Mending, load: Callable[[Row], Entry], seq: int, file: tuple[str, str]
) -> Entry:
    """The entry that a file holds the text of: the result of the one call that it can be of."""
    tool, path = file
    calls: dict[str, str] = {}
    for row in mending.rows:
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
        mending.said.append(f"#{seq}: lost; the words are in {path}, and it names that")
        return User(seq=seq, content=f"[These words were lost from the log. All of them: {path}]")
    if len(open_calls) != 1:
        mending.said.append(f"#{seq}: lost; its text is in {path}, and a note names that")
        return replace(_note(seq, seq), text=f"a result of {tool}, lost; see {path}")
    mending.said.append(f"#{seq}: restored, a result of {tool}, from {path}")
    told = f"[{tool} · its result was restored; full text: #{seq}, or {path}]"
    return ToolResult(seq=seq, tool_use_id=open_calls[0], content=told, offloaded=path)


def _stretch(first: int, last: int) -> str:
    return f"#{first}" if first == last else f"#{first} to #{last}"


def _note(first: int, last: int) -> Note:
    text = f"{_stretch(first, last)}: lost; what is left of it is in the log as it was"
    return Note(seq=first, topic="warning", text=text, data={LOST: [first, last]})


def _new(entry: Entry) -> Row:
    return Row(entry.seq, _last(entry), entry.kind, 0, 0, 0, b"", thinks=False, entry=entry)


def _leave_out_thinking(mending: Mending, load: Callable[[Row], Entry]) -> None:
    if mending.first is None:
        return
    late = [row for row in mending.rows if row.thinks and row.seq >= mending.first]
    for row in late:
        row.entry, row.thinks = without_thinking(load(row)), False
    if late:
        mending.said.append(
            f"{_refs(late)}: without their thinking, which belongs to what was sent before "
            f"#{mending.first} changed"
        )


def _refs(rows: Iterable[Row]) -> str:
    named = [f"#{row.seq}" for row in rows]
    more = f" and {len(named) - NAMED:,} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more
