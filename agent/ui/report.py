"""What compaction has done and what it would do, as plain text for people: S1's status report, S0's
event log and preserved intent, S3's metrics, and the preview of the next compaction. Made from
entries, so that it holds after a resume as it did live; no terminal is needed."""

from collections.abc import Iterable, Iterator, Reversible, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..compaction.acts import Act, Mark, describe, preserved, reason, savings
from ..compaction.metrics import Metrics, is_small
from ..record.entries import Assistant, Entry, Mask, Revert, Session, Summary, Usage, encode
from ..record.sessions import plain

if TYPE_CHECKING:
    from ..compaction.engine import Preview
    from ..context.window import Level, Window
    from ..events import Compacted

LONG, SHORT, LINE = 2_000, 300, 160  # characters of an intent, of other words, of an entry
WORDS = 10  # of the newest things that the person said
RECENT = 20  # acts that the log and the history show
CACHEABLE = 1_024  # tokens of prompt; what is shorter may never be cached
CACHE_LIFE = 300  # seconds
_MET = {True: "met", False: "not met", None: "–"}
ADVICE: "dict[Level, str]" = {  # S1 "Check Context Status", and where it is done by hand
    "GREEN": "Continue normally",
    "YELLOW": "Monitor, prepare compression (/compact --dry-run shows what it would do)",
    "ORANGE": "Apply Tier 1 & 2 (done by itself, by default when it pays)",
    "RED": "Apply Tier 3 summarisation (/compact)",
    "CRITICAL": "Checkpoint + fresh session (/clear), or summarise now (/compact)",
}


def last_miss(entries: Reversible[Entry]) -> str | None:
    """Why the newest turn call that missed the prompt cache did; None when none has.

    A call missed when less than half of the prompt before it came from the cache, though the call
    before had it cached.
    """
    missed, got = None, Usage()
    for entry in reversed(entries):
        if not isinstance(entry, Assistant) or entry.purpose != "turn":
            continue
        had = Usage.from_json(entry.usage)
        if had.prompt <= CACHEABLE:
            continue
        if missed and had.prompt > had.input and got.cache_read < had.prompt / 2:
            return _why_missed(entries, entry, missed)
        missed, got = entry, had
    return None


def _why_missed(entries: Iterable[Entry], before: Assistant, missed: Assistant) -> str:
    opened: list[Entry] = []  # until then
    edited = ""
    for entry in entries:
        if before.seq < entry.seq < missed.seq and (edit := _edit(entry, before.seq)):
            edited = f"history was edited by #{entry.seq} ({edit})"
        if isinstance(entry, Session) and entry.seq < missed.seq:
            opened.append(entry)
    if edited:
        return edited
    if _told(entry for entry in opened if entry.seq < before.seq) != _told(opened):
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
    except (ValueError, OverflowError):  # an entry that was never given a time, or an odd one
        return 0.0
    return times[1] - times[0]


def status(
    window: "Window",
    done: Sequence[Act],
    others: Sequence[Mark],
    counts: dict[str, int],
    now: datetime,
) -> str:
    """S1's status report. `counts` are those of the session's totals."""
    saved = {layer: tokens for layer, _, tokens in savings(done)}
    phases = [mark.text for mark in others if mark.kind == "phase"]
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
            f"- **Checkpoints:** {sum(mark.kind == 'checkpoint' for mark in others)}",
            *([f"- **Phase:** {phases[-1]}"] if phases and phases[-1] else []),
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


def events(done: Sequence[Act], others: Sequence[Mark] = (), *, limit: int | None = None) -> str:
    """S0's compression event log: the newest `limit` acts, and what else happened among them, in
    order."""
    shown = done[-limit:] if limit else done
    first = shown[0].seq if len(shown) < len(done) else 0
    told = [(act.seq, _event(act)) for act in shown]
    told += [(mark.seq, _remark(mark)) for mark in others if mark.seq > first]
    return "\n\n".join(text for _, text in sorted(told)) or (
        "nothing has been compacted in this session"
    )


def _event(act: Act) -> str:
    return "\n".join(
        (
            f"## Compression Event Log · #{act.seq}",
            f"**Timestamp:** {_time(act.at)}",
            f"**Event Type:** {act.tier}",
            f"**Trigger:** {act.layer}: {act.trigger}{', taken back later' * act.undone}",
            f"**Tokens Before:** {act.before:,}",
            f"**Tokens After:** {act.after:,}",
            f"**Tokens Saved:** {act.saved:,}",
            f"**Files Created:** {', '.join(act.files) or 'none'}",
            f"**Intent Preserved:** {preserved(act)}",
        )
    )


def _remark(mark: Mark) -> str:
    names = {"phase": "Phase", "drift": "Drift", "revert": "Taken back", "checkpoint": "Checkpoint"}
    lines = [f"{names[mark.kind]} · #{mark.seq} · {_time(mark.at)}: {mark.text or 'none'}"]
    return "\n".join([*lines, *(f"**Files Created:** {path}" for path in mark.files)])


def metrics(measured: Metrics) -> str:
    """The metrics as a table, each with its target and whether that is met."""
    cost, many = measured.cost_usd, "s" * (measured.sessions != 1)
    rows = [
        *_sizes(measured),
        *_checks(measured),
        *(
            (f"saved by {layer}", f"{tokens:,} tokens in {acts:,} acts", "–", "–")
            for layer, acts, tokens in measured.saved
        ),
        ("spent on summaries", "price not known" if cost is None else f"${cost:.4f}", "–", "–"),
    ]
    return "\n".join(
        (
            f"## Compression Metrics · {measured.sessions:,} session{many}",
            "| Metric | Value | Target | |",
            "|--------|-------|--------|--|",
            *(f"| {' | '.join(row)} |" for row in rows),
        )
    )


def _sizes(measured: Metrics) -> list[tuple[str, str, str, str]]:
    """How small summaries made the context: each of one session, or how many did well."""
    if measured.sessions > 1:
        below = measured.halved
        value = f"{_part(below.after, below.asked)} below"
        return [("summaries: size after", value, "< 50 % of before", _MET[below.met])]
    return [
        (
            f"#{act.seq}: size after",
            f"{_part(act.after, act.before)} tokens",
            "< 50 % of before",
            _MET[is_small(act)],
        )
        for act in measured.summaries
    ] or [("summaries", "none", "< 50 % of before", "–")]


def _checks(measured: Metrics) -> Iterator[tuple[str, str, str, str]]:
    """What stood in the summaries, and what could be recovered."""
    for kind, rate in measured.probes:
        value = f"{rate.before:,} before, {_part(rate.after, rate.asked)} after"
        yield f"probes: {kind}", value, "100 %", _MET[rate.met]
    for name, rate in (
        ("critical sections preserved", measured.sections),
        ("recovery success", measured.recovery),
    ):
        value = _part(rate.after, rate.asked) if rate.asked else "none checked"
        yield name, value, "100 %", _MET[rate.met]


def _part(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}" + (f" ({part / whole:.0%})" if whole else "")


def intent(summary: Summary | None, words: Sequence[tuple[int, str]]) -> str:
    """The preserved intent (S0 "show session intent") and where it comes from: the summary that
    stands, else the person's first words; then what they said since."""
    said = [(seq, text) for seq, text in words if text.strip()]
    document = summary.document if summary and isinstance(summary.document, dict) else {}
    kept = str(document.get("intent", "")).strip()
    if summary and kept:
        source, whole = f"the summary #{summary.seq}", kept
        since = [row for row in said if row[0] >= summary.keep_from or row[0] in summary.keep]
    elif said:
        (seq, whole), *since = said
        source = f"your first words, #{seq}"
    else:
        return "nothing has been said in this session yet"
    lines = [f"### Session Intent · from {source}", _start(whole, LONG)]
    if since:
        older = len(since) - WORDS
        lines += ["", "Your words since:"]
        lines += [f"… {older:,} things before these (/log #REF shows one)"] if older > 0 else []
        lines += [
            f"- #{seq}: {' '.join(_start(text, SHORT).split())}" for seq, text in since[-WORDS:]
        ]
    return "\n".join(lines)


def _start(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()} …"


def line(entry: Entry) -> str:
    """An entry of the log in one line."""
    if isinstance(entry, Mask | Summary):
        sizes = f"{entry.tokens_before:,} → {entry.tokens_after:,} tokens"
        return f"{describe(entry)}: {sizes}"
    content = getattr(entry, "content", None)
    if content is None:
        skipped = ("v", "seq", "at", "kind", "system", "tools")
        fields = {
            k: v for k, v in encode(entry).items() if k not in skipped and v not in (None, "")
        }
        said = ", ".join(f"{name} {value}" for name, value in fields.items())
        return " ".join(said.split())[:LINE]
    calls = [] if isinstance(content, str) else [b for b in content if b.get("type") == "tool_use"]
    names = ", ".join(f"[{b.get('name')}]" for b in calls)
    said = plain([b for b in content if b not in calls] if calls else content)
    return " ".join(f"{said} {names}".split())[:LINE]


def outlook(preview: "Preview") -> str:
    """What the next compaction would do, in one line."""
    if not preview.dropped and not preview.masked:
        return "nothing to compact yet"
    return (
        f"{preview.tokens_before:,} → about {preview.tokens_after_estimate:,} tokens · "
        f"{len(preview.kept):,} kept, {len(preview.masked):,} masked, "
        f"{len(preview.dropped):,} summarised · {_call(preview)}"
    )


def clearing(tokens: int, freed: int) -> str:
    """What the next compaction would do where clearing takes the place of a summary."""
    return (
        f"{tokens:,} → about {tokens - freed:,} tokens · old results and inputs cleared, no summary"
    )


def preview(planned: "Preview", *, instead: int | None = None, limit: int | None = None) -> str:
    """The plan of a summary in full: up to `limit` items of each kind, the largest. `instead` are
    the tokens that clearing would free in its place, where none was asked for."""
    lines = [outlook(planned)]
    if instead is not None:
        lines += [f"by itself: {clearing(planned.tokens_before, instead)}"]
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
    trigger = reason(event.trigger)
    parts = [f"{what} ({trigger}): {event.tokens_before:,} → {event.tokens_after:,} tokens"]
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
    except (ValueError, OverflowError):  # an entry that was never given a time, or an odd one
        return "–"


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
