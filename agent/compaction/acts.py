"""The acts: what compaction has done to a session, folded from its log, so that it holds after a
resume as it did live. An act is one result moved to a file, that of a person's own command too, one
pass of masks, or one summary; a mark is what else a reader of the compression log needs:
checkpoints, drift, phases, what was taken back. Nothing here prints, and nothing looks at the
disk."""

import re
from collections.abc import Iterable, Reversible, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ..context import tokens
from ..record.entries import (
    Checkpoint,
    End,
    Entry,
    Mask,
    Note,
    Revert,
    Summary,
    ToolResult,
    User,
    taken_back,
)
from .drift import TURNS

LAYERS = ("demote", "microcompact", "truncate", "summary")
TIERS = dict(zip(LAYERS, ("TIER_1", "TIER_1", "TIER_2", "TIER_3"), strict=True))  # S0

_GATE = re.compile(r"\bHOOK-CTX-\d+: ")
_FILE = re.compile(r"^\*\*File:\*\* (.+)$", re.MULTILINE)  # in the reference to a moved result


@dataclass(frozen=True, slots=True)
class Act:
    """One act of compaction. Tokens are those of the context; for a result that went to a file,
    those of the result. `verified` says that the person's intent stands in the context after it:
    masks leave every word of theirs, a summary must name it and no drift may follow within three
    turns. `undone` says that it was taken back."""

    seq: int
    at: str
    layer: str
    trigger: str
    before: int
    after: int
    files: tuple[str, ...] = ()
    verified: bool = True
    undone: bool = False

    @property
    def saved(self) -> int:
        return self.before - self.after

    @property
    def tier(self) -> str:
        return TIERS.get(self.layer, self.layer)

    def to_json(self) -> dict[str, Any]:
        """S0's fields of an event, and the ref and layer."""
        return {
            "ref": self.seq,
            "timestamp": self.at,
            "event_type": self.tier,
            "layer": self.layer,
            "trigger": self.trigger,
            "tokens_before": self.before,
            "tokens_after": self.after,
            "tokens_saved": self.saved,
            "files_created": list(self.files),
            "intent_preserved": preserved(self),
            "taken_back": self.undone,
        }


@dataclass(frozen=True, slots=True)
class Mark:
    """Something beside the acts. `kind` is checkpoint, drift, phase or revert; `text` says what in
    one line, for a phase its name alone."""

    seq: int
    at: str
    kind: str
    text: str
    files: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "ref": self.seq,
            "timestamp": self.at,
            "event_type": self.kind.upper(),
            "text": self.text,
            "files_created": list(self.files),
        }


def acts(entries: Iterable[Entry]) -> list[Act]:
    """Every act of compaction in a log, oldest first. The entries are gone through several times:
    here, and wherever a log may be long, they are read again and not held."""
    undone = taken_back(entries)
    drifted = _drifted(entries)
    return [
        act
        for entry in entries
        if (act := _act(entry, entry.seq in undone, entry.seq not in drifted))
    ]


def marks(entries: Iterable[Entry]) -> list[Mark]:
    """Checkpoints that have a file, drift, phases and what was taken back, oldest first."""
    return [mark for entry in entries if (mark := _mark(entry))]


def preserved(act: Act) -> str:
    """S0's word for whether the intent is preserved."""
    return "YES" if act.verified else "VERIFICATION_NEEDED"


def last_acts(entries: Reversible[Entry]) -> list[Mask | Summary]:
    """The newest act that was not taken back: a summary, or the masks of one pass, oldest first;
    none when there is none. A pass records its masks one right after the other, for one reason."""
    reverted, found = taken_back(entries), list[Mask | Summary]()
    for entry in reversed(entries):
        act = entry if isinstance(entry, Mask | Summary) and entry.seq not in reverted else None
        if found and not (act and _together(act, found[0])):
            break
        if act:
            found.insert(0, act)
    return found


def _together(one: Mask | Summary, other: Mask | Summary) -> bool:
    """Whether an act and the one that stands after it are masks of one pass."""
    masks = isinstance(one, Mask) and isinstance(other, Mask) and one.seq + 1 == other.seq
    return masks and reason(one.trigger) == reason(other.trigger)


def reason(trigger: str) -> str:
    """A trigger in words for people: the name of a gate in it is for the log."""
    return _GATE.sub("", trigger)


def describe(*done: Mask | Summary) -> str:
    """Acts as people name them."""
    return " and ".join(map(_described, done))


def _described(act: Mask | Summary) -> str:
    if isinstance(act, Mask):
        return f"{act.layer} of {len(act.targets):,} ({act.trigger})"
    first, last = act.covers
    return f"summary of #{first} to #{last} ({act.trigger})"


def later_turn(entries: Iterable[Entry], seq: int) -> bool:
    """Whether the person has spoken since an entry."""
    return any(isinstance(e, User) and e.source == "person" and e.seq > seq for e in entries)


def savings(done: Sequence[Act]) -> list[tuple[str, int, int]]:
    """For each layer that acted: its name, how often, and the tokens it saved; undone ones left
    out."""
    rows = []
    for layer in LAYERS:
        saved = [act.saved for act in done if act.layer == layer and not act.undone]
        if saved:
            rows.append((layer, len(saved), sum(saved)))
    return rows


def count(facts: Any, name: str) -> int:
    """A count that a log has under a name; 0 where it has none, or something else."""
    value = facts.get(name) if isinstance(facts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _drifted(entries: Iterable[Entry]) -> set[int]:
    """The summaries that drift followed while they were watched."""
    watched: dict[int, int] = {}  # turns that are left, by the summary's seq
    drifted: set[int] = set()
    for entry in entries:
        if isinstance(entry, Summary):
            watched[entry.seq] = TURNS
        elif isinstance(entry, End):
            watched = {seq: left - 1 for seq, left in watched.items() if left > 1}
        elif isinstance(entry, Note) and entry.topic == "drift":
            drifted |= watched.keys()
    return drifted


def _act(entry: Entry, undone: bool, steady: bool) -> Act | None:
    if isinstance(entry, ToolResult | User) and entry.offloaded:
        after = tokens.of_content(entry.content)
        before = after + count(entry.details, "tokens_saved")
        return Act(
            entry.seq, entry.at, "demote", "oversize result", before, after, (entry.offloaded,)
        )
    if isinstance(entry, Mask):
        before, after = entry.tokens_before, entry.tokens_after
        files = _moved(entry) if entry.layer == "demote" else ()
        return Act(
            entry.seq, entry.at, entry.layer, entry.trigger, before, after, files, undone=undone
        )
    if isinstance(entry, Summary):
        document = entry.document if isinstance(entry.document, dict) else {}
        return Act(
            entry.seq,
            entry.at,
            "summary",
            entry.trigger,
            entry.tokens_before,
            entry.tokens_after,
            tuple(entry.files),
            verified=steady and bool(str(document.get("intent", "")).strip()),
            undone=undone,
        )
    return None


def _moved(entry: Mask) -> tuple[str, ...]:
    """The files, in the session's folder, that the references of a mask name."""
    stubs = (str(target.get("stub", "")) for target in entry.targets if isinstance(target, dict))
    named = (found[1] for stub in stubs if (found := _FILE.search(stub)))
    return tuple(f"offloaded/{PurePath(path).name}" for path in named)


def _mark(entry: Entry) -> Mark | None:
    if isinstance(entry, Checkpoint) and entry.path:
        text = f"checkpoint {entry.number} ({entry.trigger or 'no trigger named'})"
        return Mark(entry.seq, entry.at, "checkpoint", text, (entry.path,))
    if isinstance(entry, Note) and entry.topic in ("drift", "phase"):
        severity = entry.data.get("severity") if isinstance(entry.data, dict) else None
        text = f"{severity}: {entry.text}" if severity else entry.text
        return Mark(entry.seq, entry.at, entry.topic, " ".join(text.split()))
    if isinstance(entry, Revert):
        why = f": {entry.reason}" if entry.reason else ""
        return Mark(entry.seq, entry.at, "revert", f"#{entry.target}{why}")
    return None
