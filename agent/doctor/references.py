"""Collect the references of a log's entries, to each other and to files, in one pass."""

from collections import Counter
from dataclasses import field
from pathlib import Path

from ..compaction.recovery import RECOVERY_TOPIC
from ..lazy import dataclass
from ..session.entries import (
    Assistant,
    Checkpoint,
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
    reverted_seqs,
)
from .finding import Finding, listed
from .repair import lost_seqs

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
