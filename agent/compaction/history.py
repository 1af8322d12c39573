"""The history of compaction in a session, computed from its log alone, so a resume does not change
it.

An act is a result or user message moved to a file, a pass of masks, or a summary. A mark is any
other event for the compression log: checkpoints, drift, phases, failed recoveries and reverts. This
module does not print and does not read files.
"""

import re
from collections.abc import Iterable, Reversible, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from ..context import tokens
from ..errors import CompactionFailed
from ..lazy import dataclass, regex
from ..session.entries import (
    Assistant,
    Checkpoint,
    End,
    Entry,
    Mask,
    Note,
    Revert,
    Summary,
    ToolResult,
    User,
    reverted_seqs,
)
from .drift import WATCHED_TURNS
from .layers.known import done_by, layer_named, ordered
from .layers.layer import WITH_SUMMARY
from .layers.move import MoveResults
from .recovery import RECOVERY_TOPIC

_GATE = regex(r"\bHOOK-CTX-\d+: ")
_FILE = regex(r"^\*\*File:\*\* (.+)$", re.MULTILINE)  # in the reference to a moved result


@dataclass(frozen=True, slots=True)
class Act:
    """One act of compaction."""

    seq: int
    at: str
    layer: str
    trigger: str
    before: int  # tokens of the context; of the result, if it was moved to a file
    after: int
    files: tuple[str, ...] = ()
    # Whether the context still has the user's intent. Masks never remove user messages. A summary
    # must name the intent, and no drift may follow within the watched turns.
    verified: bool = True
    undone: bool = False  # whether it was reverted

    @property
    def saved(self) -> int:
        return self.before - self.after

    @property
    def tier(self) -> str:
        return layer_named(self.layer).tier or self.layer

    def to_json(self) -> dict[str, Any]:
        """Return the act as an event of the compression log."""
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
            "intent_preserved": intent_preserved(self),
            "taken_back": self.undone,
        }


@dataclass(frozen=True, slots=True)
class Mark:
    """Another log entry that the compression log shows."""

    seq: int
    at: str
    kind: str  # checkpoint, drift, phase, recovery or revert
    text: str  # one line; for a phase, only its name
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
    """Return all acts of compaction in a log, oldest first. `entries` is iterated several times."""
    undone = reverted_seqs(entries)
    drifted = _drifted(entries)
    return [
        act
        for entry in entries
        if (act := _act(entry, entry.seq in undone, entry.seq not in drifted))
    ]


def marks(entries: Iterable[Entry]) -> list[Mark]:
    """Return all marks, oldest first: checkpoints with a file, drift, phases, failed recoveries and
    reverts.
    """
    return [mark for entry in entries if (mark := _mark(entry))]


def intent_preserved(act: Act) -> str:
    """Return the compression log's value for whether the intent is preserved."""
    return "YES" if act.verified else "VERIFICATION_NEEDED"


def last_acts(entries: Reversible[Entry]) -> list[Mask | Summary]:
    """Return the newest act that was not reverted, oldest entry first: a summary with its masks, or
    the masks of one pass. The masks of a pass are consecutive entries with the same trigger.
    """
    reverted, found = reverted_seqs(entries), list[Mask | Summary]()
    for entry in reversed(entries):
        act = entry if isinstance(entry, Mask | Summary) and entry.seq not in reverted else None
        if act is None and found and _came_with_summary(found[0]):
            continue
        if found and not (act and _together(act, found[0])):
            break
        if act:
            found.insert(0, act)
    return found


def acts_to_undo(entries: Reversible[Entry], seq: int | None = None) -> list[Mask | Summary]:
    """Return the newest act, or the act at `seq` with its masks. Raises CompactionFailed if there
    is no such act.
    """
    last = last_acts(entries) if seq is None else act_with_masks(entries, seq)
    if not last:
        raise CompactionFailed(
            "there is no compaction to undo", hint="/context shows what was cleared."
        )
    return last


def act_with_masks(entries: Iterable[Entry], seq: int) -> list[Mask | Summary]:
    """Return the act at `seq`, and the masks that came with it if it is a summary. Return an empty
    list if there is no such act or it was reverted.
    """
    reverted, found = reverted_seqs(entries), list[Mask | Summary]()
    for entry in entries:
        if not isinstance(entry, Mask | Summary) or entry.seq in reverted or entry.seq < seq:
            continue
        if found and not (isinstance(found[0], Summary) and _came_with_summary(entry)):
            break
        if found or entry.seq == seq:
            found.append(entry)
    return found


def _together(one: Mask | Summary, other: Mask | Summary) -> bool:
    """Return True if two consecutive acts are masks of one pass, or a summary and its mask."""
    if isinstance(one, Summary):
        return _came_with_summary(other)
    masks = isinstance(one, Mask) and isinstance(other, Mask) and one.seq + 1 == other.seq
    by_user = masks and layer_named(one.layer).by_user
    return (
        masks and not by_user and readable_trigger(one.trigger) == readable_trigger(other.trigger)
    )


def _came_with_summary(act: Mask | Summary) -> bool:
    return isinstance(act, Mask) and readable_trigger(act.trigger) == WITH_SUMMARY


def readable_trigger(trigger: str) -> str:
    """Return a trigger without its gate name, for display."""
    return _GATE.sub("", trigger)


def describe(*done: Mask | Summary) -> str:
    """Return a description of the acts for display."""
    return " and ".join(map(_described, done))


def _described(act: Mask | Summary) -> str:
    if isinstance(act, Mask):
        done = done_by(act.layer, len(act.targets))
        return f"{done} ({readable_trigger(act.trigger)})"
    return f"summary of {act.span} ({readable_trigger(act.trigger)})"


def why_not_in_context(entries: Reversible[Entry], seq: int) -> str:
    """Return the reason why an entry is not in the context in full, for display; "" if it is."""
    undone, found = reverted_seqs(entries), ""
    for entry in reversed(entries):
        if isinstance(entry, Summary) and entry.seq not in undone and not found:
            first, last = entry.covers
            if first <= seq <= last and seq not in entry.keep:
                found = f"replaced by the summary #{entry.seq} ({_why(entry)})"
        elif isinstance(entry, Mask) and entry.seq not in undone:
            for target in entry.targets:
                if seq in (target.get("seq"), target.get("reply")):
                    if target.get("whole") is True:
                        return found
                    return _why_masked(entry, target)
        elif entry.seq == seq:
            offloaded = getattr(entry, "offloaded", None)
            return found or (
                f"moved to a file when it was recorded: {offloaded}" if offloaded else ""
            )
    return found


def _why_masked(mask: Mask, target: dict[str, Any]) -> str:
    what = done_by(mask.layer, 1)
    chance, spent = target.get("need_chance"), target.get("read_for")
    if not isinstance(chance, int | float) or not isinstance(spent, int | float):
        return f"#{mask.seq}: {what} ({_why(mask)})"
    return (
        f"#{mask.seq}: {what} ({_why(mask)}). Keeping it after it became due cost as "
        f"much as {spent:,.0f} input tokens; the chance that it is needed again was {chance:.1%}"
    )


def _why(act: Mask | Summary) -> str:
    return readable_trigger(act.trigger)


def user_wrote_since(entries: Iterable[Entry], seq: int) -> bool:
    """Return True if the user sent a message after an entry."""
    return any(isinstance(e, User) and e.source == "person" and e.seq > seq for e in entries)


def savings(done: Sequence[Act]) -> list[tuple[str, int, int]]:
    """Return (layer, acts, tokens saved) for each layer that acted, without undone acts."""
    saved: dict[str, list[int]] = {}
    for act in done:
        if not act.undone:
            saved.setdefault(act.layer, []).append(act.saved)
    return [(layer, len(saved[layer]), sum(saved[layer])) for layer in ordered(saved)]


def int_field(facts: Any, name: str) -> int:
    """Return an integer field of a log entry's data; 0 if it is missing or not an integer."""
    value = facts.get(name) if isinstance(facts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _drifted(entries: Iterable[Entry]) -> set[int]:
    """Return the seqs of the summaries that were followed by drift within the watched turns."""
    watched: dict[int, int] = {}  # remaining turns, by the summary's seq
    drifted: set[int] = set()
    for entry in entries:
        if isinstance(entry, Summary):
            watched[entry.seq] = WATCHED_TURNS
        elif isinstance(entry, End):
            watched = {seq: left - 1 for seq, left in watched.items() if left > 1}
        elif isinstance(entry, Note) and entry.topic == "drift":
            drifted |= watched.keys()
    return drifted


def _act(entry: Entry, undone: bool, has_no_drift: bool) -> Act | None:
    if isinstance(entry, ToolResult | User) and entry.offloaded:
        after = tokens.estimate_content(entry.content)
        before = after + int_field(entry.details, "tokens_saved")
        gate = entry.details.get("gate")  # missing in older logs
        trigger = f"{gate}: oversize result" if gate else "oversize result"
        return Act(
            entry.seq, entry.at, MoveResults.name, trigger, before, after, (entry.offloaded,)
        )
    if isinstance(entry, Mask):
        before, after = entry.tokens_before, entry.tokens_after
        files = _moved(entry) if layer_named(entry.layer).moves_files else ()
        return Act(
            entry.seq, entry.at, entry.layer, entry.trigger, before, after, files, undone=undone
        )
    if isinstance(entry, Summary):
        document = entry.document if isinstance(entry.document, dict) else {}
        return Act(
            entry.seq,
            entry.at,
            Summary.kind,
            entry.trigger,
            entry.tokens_before,
            entry.tokens_after,
            tuple(entry.files),
            verified=has_no_drift and bool(str(document.get("intent", "")).strip()),
            undone=undone,
        )
    return None


def _moved(entry: Mask) -> tuple[str, ...]:
    """Return the files in the session's folder that a mask's references name."""
    stubs = (str(target.get("stub", "")) for target in entry.targets if isinstance(target, dict))
    named = (found[1] for stub in stubs if (found := _FILE.search(stub)))
    return tuple(f"offloaded/{PurePath(path).name}" for path in named)


def _mark(entry: Entry) -> Mark | None:
    if isinstance(entry, Checkpoint) and entry.path:
        text = f"checkpoint {entry.number} ({entry.trigger or 'no trigger named'})"
        return Mark(entry.seq, entry.at, "checkpoint", text, (entry.path,))
    if isinstance(entry, Note) and entry.topic in ("drift", "phase", RECOVERY_TOPIC):
        severity = entry.data.get("severity") if isinstance(entry.data, dict) else None
        text = f"{severity}: {entry.text}" if severity else entry.text
        return Mark(entry.seq, entry.at, entry.topic, " ".join(text.split()))
    if isinstance(entry, Revert):
        why = f": {entry.reason}" if entry.reason else ""
        return Mark(entry.seq, entry.at, "revert", f"#{entry.target}{why}")
    return None


MAX_SHARE_LEFT = 0.50  # of the context before a summary; the context after must be smaller
COMPACTION_PURPOSES = ("summary", "verify")  # purposes of compaction's model calls


@dataclass(frozen=True, slots=True)
class Rate:
    """The result of a check, as counts of items."""

    asked: int = 0
    before: int = 0  # present before missing items were added
    after: int = 0  # present in the end

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.asked + other.asked, self.before + other.before, self.after + other.after)

    @property
    def met(self) -> bool | None:
        """True if all items were present in the end; None if there were no items."""
        return self.after >= self.asked if self.asked else None


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """The metrics of one or more sessions. Only `saved` leaves out reverted acts."""

    sessions: int
    summaries: tuple[Act, ...]
    probes: tuple[tuple[str, Rate], ...]  # by kind
    sections: Rate
    recovery: Rate
    saved: tuple[tuple[str, int, int], ...]  # layer, acts, tokens
    cost_usd: float | None  # None if a price is unknown

    @property
    def halved(self) -> Rate:
        """The number of summaries, and how many left less than half of the context."""
        below = sum(map(left_less_than_half, self.summaries))
        return Rate(len(self.summaries), below, below)

    def to_json(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "summaries": [
                {"ref": a.seq, "tokens_before": a.before, "tokens_after": a.after}
                for a in self.summaries
            ],
            "below_half": _json(self.halved),
            "probes": {kind: _json(rate) for kind, rate in self.probes},
            "critical_sections": _json(self.sections),
            "recovery": _json(self.recovery),
            "saved": {layer: {"acts": n, "tokens": t} for layer, n, t in self.saved},
            "cost_usd": self.cost_usd,
        }


def left_less_than_half(summary: Act) -> bool:
    """Return True if a summary left less than half of the context."""
    return summary.after < MAX_SHARE_LEFT * summary.before


def session_metrics(entries: Iterable[Entry]) -> CompactionMetrics:
    """Return the metrics of one session."""
    found = [e for e in entries if isinstance(e, Summary)]
    done = acts(entries)
    prices = [
        e.cost_usd for e in entries if isinstance(e, Assistant) and e.purpose in COMPACTION_PURPOSES
    ]
    checks = [e.probes if isinstance(e.probes, dict) else {} for e in found]
    return CompactionMetrics(
        sessions=1,
        summaries=tuple(act for act in done if act.layer == Summary.kind),
        probes=_by_kind([row for check in checks for row in _rates(check.get("tally"))]),
        sections=sum(
            (_single_check_rate(check.get("sections"), "critical", "kept") for check in checks),
            Rate(),
        ),
        recovery=sum(
            (_single_check_rate(check.get("recovery"), "asked", "ok") for check in checks), Rate()
        ),
        saved=tuple(savings(done)),
        cost_usd=_total_cost(prices),
    )


def total_metrics(parts: Sequence[CompactionMetrics]) -> CompactionMetrics:
    """Return the sum of several sessions' metrics."""
    saved = [
        (
            layer,
            sum(n for part in parts for name, n, _ in part.saved if name == layer),
            sum(t for part in parts for name, _, t in part.saved if name == layer),
        )
        for layer in ordered(name for part in parts for name, _, _ in part.saved)
    ]
    return CompactionMetrics(
        sessions=sum(part.sessions for part in parts),
        summaries=tuple(act for part in parts for act in part.summaries),
        probes=_by_kind([row for part in parts for row in part.probes]),
        sections=sum((part.sections for part in parts), Rate()),
        recovery=sum((part.recovery for part in parts), Rate()),
        saved=tuple(saved),
        cost_usd=_total_cost([part.cost_usd for part in parts]),
    )


def _rates(facts: Any) -> list[tuple[str, Rate]]:
    rows = facts.items() if isinstance(facts, dict) else ()
    return [
        (str(kind), Rate(*(int_field(row, name) for name in ("asked", "before", "after"))))
        for kind, row in rows
    ]


def _single_check_rate(facts: Any, asked: str, there: str) -> Rate:
    """Return the rate of a check that is made once: `before` and `after` are equal."""
    return Rate(int_field(facts, asked), int_field(facts, there), int_field(facts, there))


def _by_kind(rows: Sequence[tuple[str, Rate]]) -> tuple[tuple[str, Rate], ...]:
    kinds: dict[str, Rate] = {}
    for kind, rate in rows:
        kinds[kind] = kinds.get(kind, Rate()) + rate
    return tuple(kinds.items())


def _total_cost(prices: Sequence[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None


def _json(rate: Rate) -> dict[str, Any]:
    return {**asdict(rate), "met": rate.met}
