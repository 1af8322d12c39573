"""What compaction has done and what it would do, as plain text for people: S1's status report, S0's
event log, and the preview of the next compaction. Read from the log, so that it holds after a
resume as it did live; no terminal is needed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..context import tokens
from ..record.entries import (
    Assistant,
    Entry,
    Mask,
    Revert,
    Session,
    Summary,
    ToolResult,
    Usage,
    User,
)

if TYPE_CHECKING:
    from ..compaction.engine import Preview
    from ..context.window import Level, Window
    from ..events import Compacted

LAYERS = ("demote", "microcompact", "truncate", "summary")
TIERS = dict(zip(LAYERS, ("TIER_1", "TIER_1", "TIER_2", "TIER_3"), strict=True))  # S0
RECENT = 20  # acts that the log and the history show
CACHEABLE = 1_024  # tokens of prompt; what is shorter may never be cached
CACHE_LIFE = 300  # seconds
ADVICE: "dict[Level, str]" = {  # S1 "Check Context Status", and where it is done by hand
    "GREEN": "Continue normally",
    "YELLOW": "Monitor, prepare compression (/compact --dry-run shows what it would do)",
    "ORANGE": "Apply Tier 1 & 2 (done by itself before the next call)",
    "RED": "Apply Tier 3 summarisation (/compact)",
    "CRITICAL": "Checkpoint + fresh session (/clear), or summarise now (/compact)",
}


@dataclass(frozen=True, slots=True)
class Act:
    """One act of compaction. Tokens are those of the context; for a result that went to a file,
    those of the result. `undone` says that it was taken back."""

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


def acts(entries: Sequence[Entry]) -> list[Act]:
    """Every act of compaction in a log, oldest first."""
    undone: set[int] = set()
    for entry in reversed(entries):  # a revert may itself be reverted later
        if isinstance(entry, Revert) and entry.seq not in undone:
            undone.add(entry.target)
    return [act for entry in entries if (act := _act(entry, entry.seq in undone))]


def _act(entry: Entry, undone: bool) -> Act | None:
    if isinstance(entry, ToolResult) and entry.offloaded:
        after = tokens.of_content(entry.content)
        before = after + int(entry.details.get("tokens_saved", 0))
        files = (entry.offloaded,)
        return Act(entry.seq, entry.at, "demote", "oversize result", before, after, files)
    if isinstance(entry, Mask):
        before, after = entry.tokens_before, entry.tokens_after
        return Act(entry.seq, entry.at, entry.layer, entry.trigger, before, after, undone=undone)
    if isinstance(entry, Summary):
        return Act(
            entry.seq,
            entry.at,
            "summary",
            entry.trigger,
            entry.tokens_before,
            entry.tokens_after,
            tuple(entry.files),
            verified=bool(str(entry.document.get("intent", "")).strip()),
            undone=undone,
        )
    return None


def describe(entry: Mask | Summary) -> str:
    """An act as people name it."""
    if isinstance(entry, Mask):
        return f"{entry.layer} of {len(entry.targets):,} ({entry.trigger})"
    first, last = entry.covers
    return f"summary of #{first} to #{last} ({entry.trigger})"


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


def last_miss(entries: Sequence[Entry]) -> str | None:
    """Why the newest turn call that missed the prompt cache did; None when none has.

    A call missed when less than half of the prompt before it came from the cache, though the call
    before had it cached.
    """
    calls = [
        (entry, usage)
        for entry in entries
        if isinstance(entry, Assistant) and entry.purpose == "turn"
        if (usage := Usage.from_json(entry.usage)).prompt > CACHEABLE
    ]
    for (before, had), (missed, got) in zip(calls[-2::-1], calls[:0:-1], strict=True):
        if had.prompt > had.input and got.cache_read < had.prompt / 2:
            return _why_missed(entries, before, missed)
    return None


def _why_missed(entries: Sequence[Entry], before: Assistant, missed: Assistant) -> str:
    between = [entry for entry in entries if before.seq < entry.seq < missed.seq]
    for entry in reversed(between):
        if edit := _edit(entry, before.seq):
            return f"history was edited by #{entry.seq} ({edit})"
    earlier = [entry for entry in entries if entry.seq < before.seq]
    if _told(earlier) != _told([*earlier, *between]):
        return "the system prompt, tools or model changed"
    if _seconds(before.at, missed.at) > CACHE_LIFE:
        return "more than five minutes passed"
    return "the server's cache had dropped it"


def _edit(entry: Entry, sent: int) -> str:
    """What an entry did to the history before entry `sent`; "" when it left that as it was."""
    if isinstance(entry, Revert):
        return f"revert of #{entry.target}"
    if isinstance(entry, Summary):
        return f"summary: {entry.trigger}"
    if isinstance(entry, Mask):
        seqs = (target.get("seq") for target in entry.targets if isinstance(target, dict))
        if any(isinstance(seq, int) and seq < sent for seq in seqs):
            return f"{entry.layer}: {entry.trigger}"
    return ""


def _told(entries: Iterable[Entry]) -> tuple[object, object, object]:
    """The system prompt, tools and model as the session entries leave them."""
    system: object = None
    tools: object = None
    model: object = None
    for opened in (entry for entry in entries if isinstance(entry, Session)):
        system = system if opened.system is None else opened.system
        tools = tools if opened.tools is None else opened.tools
        model = opened.model
    return system, tools, model


def _seconds(start: str, end: str) -> float:
    try:
        times = [datetime.fromisoformat(at).timestamp() for at in (start, end)]
    except ValueError:  # an entry that was never given a time
        return 0.0
    return times[1] - times[0]


def status(window: "Window", done: Sequence[Act], counts: dict[str, int], now: datetime) -> str:
    """S1's status report. `counts` are those of the session's totals."""
    saved = {layer: tokens for layer, _, tokens in savings(done)}
    history = [
        f"| {_time(a.at)} | {a.tier}{' (taken back)' if a.undone else ''} | {a.saved:,} |"
        for a in done[-RECENT:]
    ]
    return "\n".join(
        (
            "## Context Status Report",
            f"**Timestamp:** {_stamp(now)}",
            f"**Estimated Usage:** {window.share:.0%} ({window.tokens:,} of {window.size:,} "
            "tokens)",
            f"**Level:** {window.level}",
            "",
            "### Current State",
            f"- **Tool results offloaded:** {counts['demoted']} "
            f"({saved.get('demote', 0):,} tokens saved)",
            f"- **Tool results cleared:** {counts['microcompacted']} "
            f"({saved.get('microcompact', 0):,} tokens saved)",
            f"- **Tool inputs truncated:** {counts['truncated']} "
            f"({saved.get('truncate', 0):,} tokens saved)",
            f"- **Summarisations performed:** {counts['summaries']} "
            f"({saved.get('summary', 0):,} tokens saved)",
            "",
            "### Recommendation",
            ADVICE[window.level],
            "",
            "### Compression History",
            "| Time | Type | Tokens Saved |",
            "|------|------|--------------|",
            *(history or ["| – | none yet | 0 |"]),
        )
    )


def events(done: Sequence[Act]) -> str:
    """S0's compression event log, the newest acts last."""
    parts = []
    for act in done[-RECENT:]:
        trigger = f"{act.layer}: {act.trigger}" + (", taken back later" if act.undone else "")
        parts.append(
            "\n".join(
                (
                    f"## Compression Event Log · #{act.seq}",
                    f"**Timestamp:** {_time(act.at)}",
                    f"**Event Type:** {act.tier}",
                    f"**Trigger:** {trigger}",
                    f"**Tokens Before:** {act.before:,}",
                    f"**Tokens After:** {act.after:,}",
                    f"**Tokens Saved:** {act.saved:,}",
                    f"**Files Created:** {', '.join(act.files) or 'none'}",
                    f"**Intent Preserved:** {'YES' if act.verified else 'VERIFICATION_NEEDED'}",
                )
            )
        )
    return "\n\n".join(parts) or "nothing has been compacted in this session"


def outlook(preview: "Preview") -> str:
    """What the next compaction would do, in one line."""
    if not preview.dropped and not preview.masked:
        return "nothing to compact yet"
    return (
        f"{preview.tokens_before:,} → about {preview.tokens_after_estimate:,} tokens · "
        f"{len(preview.kept):,} kept, {len(preview.masked):,} masked, "
        f"{len(preview.dropped):,} summarised · {_call(preview)}"
    )


def preview(planned: "Preview", *, limit: int | None = None) -> str:
    """The plan of the next compaction in full: up to `limit` items of each kind, the largest."""
    lines = [outlook(planned)]
    for title, items in (
        ("kept as they are", planned.kept),
        ("masked by a stub", planned.masked),
        ("dropped, the summary stands for them", planned.dropped),
    ):
        lines += ["", f"{title}: {len(items):,} · {sum(size for _, _, size in items):,} tokens"]
        chosen = set(sorted(items, key=lambda item: -item[2])[:limit])
        lines += [
            f"  {f'#{seq}':<6} {size:>9,}  {what}"
            for seq, what, size in items
            if (seq, what, size) in chosen
        ]
        if len(items) > len(chosen):
            lines.append(f"  … and {len(items) - len(chosen):,} smaller ones")
    return "\n".join(lines)


def receipt(event: "Compacted") -> str:
    """What an act of compaction did, in one line: tokens before and after, money, seconds."""
    what = "context compacted" if event.layer == "summary" else event.layer
    parts = [f"{what} ({event.trigger}): {event.tokens_before:,} → {event.tokens_after:,} tokens"]
    parts += [event.detail] if event.detail else []
    if event.layer == "summary":
        parts.append("price not known" if event.cost_usd is None else f"${event.cost_usd:.4f}")
        parts.append(f"{event.seconds:.1f} s")
    return " · ".join(parts)


def _call(planned: "Preview") -> str:
    if not planned.call_tokens:
        return "no call of the model"
    price = planned.call_cost_usd
    money = "price not known" if price is None else f"about ${price:.4f}"
    return f"a call of {planned.call_tokens:,} tokens, {money}"


def _time(at: str) -> str:
    try:
        return _stamp(datetime.fromisoformat(at))
    except ValueError:  # an entry that was never given a time
        return "–"


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
