"""What the entries of a log say of each other and of files, gathered in one pass over them."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ..record.entries import (
    Agent,
    Assistant,
    Checkpoint,
    Entry,
    Mask,
    Pin,
    Revert,
    Summary,
    ToolResult,
    Unknown,
    Unpin,
    User,
    taken_back,
)
from .finding import Finding
from .rows import lost

NAMED = 5  # of a kind


@dataclass(slots=True)
class References:
    """What was named, and what there is."""

    kinds: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    seqs: set[int] = field(default_factory=set)
    lost: list[range] = field(default_factory=list)  # numbers that notes stand for
    named: list[tuple[str, set[int]]] = field(default_factory=list)  # who names whom
    calls: dict[str, str] = field(default_factory=dict)  # not answered: by id, "#seq Tool"
    orphans: list[str] = field(default_factory=list)  # results without a call
    offloaded: dict[int, str] = field(default_factory=dict)
    checkpoints: dict[int, str] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    reverts: list[Entry] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        """Take one more entry in."""
        self.kinds[entry.kind] += 1
        self.seqs.add(entry.seq)
        if gone := lost(entry):
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
        elif isinstance(entry, Agent):
            self.agents[entry.id] = entry.log
        elif isinstance(entry, Revert):
            self.reverts.append(entry)
        elif isinstance(entry, Summary):
            self.summaries.append(entry)
        if names := _names(entry):
            self.named.append((f"{entry.kind} #{entry.seq}", names))

    def dangling(self) -> list[str]:
        """Who names an entry that is not there; what is read of the log ignores that."""
        return [
            f"{who} names #{seq}"
            for who, names in self.named
            for seq in sorted(names - self.seqs)[:1]
            if not any(seq in gone for gone in self.lost)
        ]

    def beyond(self) -> list[Summary]:
        """Summaries that stand, and keep nothing of what was said last: they say that what they
        leave begins behind themselves."""
        gone = taken_back(self.reverts)
        return [s for s in self.summaries if s.keep_from > s.seq and s.seq not in gone]

    def missing(self, folder: Path) -> dict[int, str]:
        """Offloaded files that are not there, or empty, by the entry that has its text there."""
        return {seq: path for seq, path in self.offloaded.items() if not _is_there(folder, path)}

    def findings(self, folder: Path) -> list[Finding]:
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.kinds.items()) or "none"
        found = [Finding("entries", kinds)]
        if self.unknown:
            found.append(Finding("of kinds not known here", _counted(self.unknown)))
        if dangling := self.dangling():
            found.append(Finding("referring to nothing", f"{_some(dangling)}; ignored"))
        found += [
            Finding("summary", f"#{s.seq} keeps from #{s.keep_from} on, which is behind it", False)
            for s in self.beyond()
        ]
        calls = [f"{call} ({id[:40]})" for id, call in self.calls.items()]
        told = f"{_some(calls)}; the model is told that the outcome is unknown"
        found.append(Finding("calls without a result", told if calls else "none"))
        if self.orphans:
            told = f"{_some(self.orphans)}; not sent"
            found.append(Finding("results without a call", told))
        return found + self._of_files(folder)

    def _of_files(self, folder: Path) -> list[Finding]:
        missing = [f"#{seq} {path}" for seq, path in self.missing(folder).items()]
        told = (
            f"missing or empty: {_some(missing)}; of those only the beginning and the end are left"
        )
        found = []
        if self.offloaded:
            there = f"{len(self.offloaded)} there"
            found.append(Finding("offloaded texts", told if missing else there, not missing))
        gone = [f"{n}" for n, path in self.checkpoints.items() if not _is_there(folder, path)]
        if self.checkpoints:
            told = f"no file for {_some(gone)}: no way back to it, but what was said is in the log"
            there = f"{len(self.checkpoints)} there"
            found.append(Finding("checkpoints", told if gone else there))
        gone = [id for id, log in self.agents.items() if not _is_there(folder, log)]
        if self.agents:
            told = f"no log of {_some(gone)}: its answer is in this one, its work cannot be seen"
            found.append(Finding("subagents", told if gone else f"{len(self.agents)} there"))
        return found


def _names(entry: Entry) -> set[int]:
    """The numbers of entries that an entry names."""
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
    except (OSError, ValueError):  # a garbled log may name anything
        return False


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {what}" for what, n in counts.most_common(NAMED))


def _some(things: list[str]) -> str:
    more = f" and {len(things) - NAMED:,} more" if len(things) > NAMED else ""
    return ", ".join(things[:NAMED]) + more
