"""Reports on compaction as plain text: the status, the event log, the preserved intent and the
metrics. They are made from log entries, so a resumed session reports the same.
"""

from collections.abc import Iterable, Iterator, Reversible, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...tools.system.plural import count_of
from ..compaction.history import Act, Mark, describe, intent_preserved, readable_trigger, savings
from ..compaction.layers.known import done_by, known_layers, layer_named
from ..compaction.metrics import CompactionMetrics, left_less_than_half
from ..models.catalog import cache_terms
from ..session.entries import (
    WARMING,
    Assistant,
    Entry,
    Mask,
    Revert,
    Session,
    Summary,
    Usage,
    encode,
)
from ..session.store import content_text
from ..session.totals import count_name
from .status import WOULD_COST

if TYPE_CHECKING:
    from ..context.window import Level, Window
    from ..events import Compacted

MAX_INTENT_CHARS = 2_000
MAX_MESSAGE_CHARS = 300
MAX_ENTRY_CHARS = 160
MAX_SHOWN_MESSAGES = 10  # of the user's newest messages
MAX_SHOWN_ACTS = 20  # in the log and the history
MIN_CACHEABLE_TOKENS = 1_024  # a shorter prompt may never be cached
_MET = {True: "met", False: "not met", None: "–"}
ADVICE: "dict[Level, str]" = {  # with the manual command
    "GREEN": "Continue normally",
    "YELLOW": "Monitor, prepare compression (/compact --dry-run shows what it would do)",
    "ORANGE": "Apply Tier 1 & 2 (automatic; by default when it pays)",
    "RED": "Apply Tier 3 summarisation (/compact)",
    "CRITICAL": "Checkpoint + fresh session (/clear), or summarise now (/compact)",
}


def last_cache_miss_reason(entries: Reversible[Entry]) -> str | None:
    """Return the reason of the newest prompt cache miss among turn calls, or None. A call missed if
    less than half of its prompt came from the cache, although the previous call had cached it.
    """
    missed, got = None, Usage()
    for entry in reversed(entries):
        if not isinstance(entry, Assistant) or entry.purpose != "turn":
            continue
        had = Usage.from_json(entry.usage)
        if had.prompt <= MIN_CACHEABLE_TOKENS:
            continue
        if missed and had.prompt > had.input and got.cache_read < had.prompt / 2:
            return _why_missed(entries, entry, missed)
        missed, got = entry, had
    return None


def _why_missed(entries: Iterable[Entry], before: Assistant, missed: Assistant) -> str:
    between = [entry for entry in entries if before.seq < entry.seq < missed.seq]
    for entry in reversed(between):
        if edit := _edit(entry, before.seq):
            return f"#{entry.seq} changed what was sent before ({edit})"
    opened = [e for e in entries if isinstance(e, Session) and e.seq < missed.seq]
    if _prompt_head(e for e in opened if e.seq < before.seq) != _prompt_head(opened):
        return "the system prompt, tools or model changed"
    readings = [e for e in between if isinstance(e, Assistant) and e.purpose == WARMING]
    sent, missed_at = _parse_time([before, *readings][-1].at), _parse_time(missed.at)
    life = cache_terms(missed.model).life
    if sent and missed_at and (missed_at - sent).total_seconds() > life:
        return f"more than {life / 60:g} minutes passed"
    return "the server had dropped it from its cache"


def _edit(entry: Entry, sent: int) -> str:
    """Describe the change an entry made before entry `sent`; "" if it changed nothing there."""
    if isinstance(entry, Revert):
        return f"#{entry.target} undone"
    if isinstance(entry, Summary):
        return f"summary: {readable_trigger(entry.trigger)}"
    if isinstance(entry, Mask):
        seqs = (target.get("seq") for target in entry.targets if isinstance(target, dict))
        if any(isinstance(seq, int) and seq < sent for seq in seqs):
            return done_by(entry.layer, len(entry.targets))
    return ""


def _prompt_head(entries: Iterable[Session]) -> tuple[object, object, object]:
    """Return the system prompt, tools and model after these session entries."""
    system: object = None
    tools: object = None
    model: object = None
    for opened in entries:
        system = system if opened.system is None else opened.system
        tools = tools if opened.tools is None else opened.tools
        model = opened.model
    return system, tools, model


def status(
    window: "Window",
    done: Sequence[Act],
    others: Sequence[Mark],
    counts: dict[str, int],
    now: datetime,
) -> str:
    """Return the status report. `counts` are the counters of the session's totals."""
    saved = {layer: tokens for layer, _, tokens in savings(done)}
    phases = [mark.text for mark in others if mark.kind == "phase"]
    lines = [
        "## Context Status Report",
        f"**Timestamp:** {_stamp(now)}",
        f"**Estimated Usage:** {window.share:.0%} ({window.tokens:,} of {window.size:,} tokens)",
        f"**Level:** {window.level}",
        "",
        "### Current State",
    ]
    for layer in known_layers():
        count = counts.get(count_name(layer.name), 0)
        if layer.title or count:
            title, tokens = layer.title or layer.heading(), saved.get(layer.name, 0)
            lines.append(f"- **{title}:** {count} ({tokens:,} tokens saved)")
    lines.append(f"- **Checkpoints:** {sum(mark.kind == 'checkpoint' for mark in others)}")
    lines += [f"- **Phase:** {phases[-1]}"] if phases and phases[-1] else []
    lines += ["", "### Recommendation", ADVICE[window.level], "", "### Compression History"]
    lines += ["| Time | Type | Tokens Saved |", "|------|------|--------------|"]
    lines += [
        f"| {_time(a.at)} | {a.tier}{' (undone)' if a.undone else ''} | {a.saved:,} |"
        for a in done[-MAX_SHOWN_ACTS:]
    ] or ["| – | none yet | 0 |"]
    return "\n".join(lines)


def event_log(done: Sequence[Act], others: Sequence[Mark] = (), *, limit: int | None = None) -> str:
    """Return the event log in order: the newest `limit` acts, and the marks among them."""
    shown = done[-limit:] if limit else done
    first = shown[0].seq if len(shown) < len(done) else 0
    texts = [(act.seq, _event(act)) for act in shown]
    texts += [(mark.seq, _remark(mark)) for mark in others if mark.seq > first]
    log = "\n\n".join(text for _, text in sorted(texts))
    return log or "nothing has been compacted in this session"


def _event(act: Act) -> str:
    lines = [
        f"## Compression Event Log · #{act.seq}",
        f"**Timestamp:** {_time(act.at)}",
        f"**Event Type:** {act.tier}",
        f"**Trigger:** {act.layer}: {act.trigger}{', undone later' * act.undone}",
        f"**Tokens Before:** {act.before:,}",
        f"**Tokens After:** {act.after:,}",
        f"**Tokens Saved:** {act.saved:,}",
        f"**Files Created:** {', '.join(act.files) or 'none'}",
        f"**Intent Preserved:** {intent_preserved(act)}",
    ]
    return "\n".join(lines)


def _remark(mark: Mark) -> str:
    names = {
        "phase": "Phase", "drift": "Drift", "revert": "Undone", "checkpoint": "Checkpoint",
        "recovery": "Recovery failed",
    }  # fmt: skip
    lines = [f"{names[mark.kind]} · #{mark.seq} · {_time(mark.at)}: {mark.text or 'none'}"]
    return "\n".join([*lines, *(f"**Files Created:** {path}" for path in mark.files)])


def metrics(measured: CompactionMetrics) -> str:
    """Return the metrics as a table, each with its target and whether it is met."""
    cost = measured.cost_usd
    rows = [*_sizes(measured), *_checks(measured)]
    rows += [
        (
            f"saved: {layer_named(layer).heading()}",
            f"{tokens:,} tokens, {count_of(acts, 'time')}",
            "–",
            "–",
        )
        for layer, acts, tokens in measured.saved
    ]
    spent = "price not known" if cost is None else f"${cost:.4f}"
    rows.append(("spent on summaries", spent, "–", "–"))
    head = f"## Compression Metrics · {count_of(measured.sessions, 'session')}"
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [head, "| Metric | Value | Target | |", "|--------|-------|--------|--|", *table]
    )


def _sizes(measured: CompactionMetrics) -> list[tuple[str, str, str, str]]:
    """Return rows on the context size after summaries: a row per summary for one session, a share
    for several.
    """
    if measured.sessions > 1:
        below = measured.halved
        value = f"{_part(below.after, below.asked)} below"
        return [("summaries: size after", value, "< 50 % of before", _MET[below.met])]
    return [
        (
            f"#{act.seq}: size after",
            f"{_part(act.after, act.before)} tokens",
            "< 50 % of before",
            _MET[left_less_than_half(act)],
        )
        for act in measured.summaries
    ] or [("summaries", "none", "< 50 % of before", "–")]


def _checks(measured: CompactionMetrics) -> Iterator[tuple[str, str, str, str]]:
    """Yield rows on facts that survived summaries, and on recovery."""
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
    """Return the preserved intent (from the summary, or else the user's first message) and the
    user's messages since.
    """
    said = [(seq, text) for seq, text in words if text.strip()]
    document = summary.document if summary and isinstance(summary.document, dict) else {}
    kept = str(document.get("intent", "")).strip()
    if summary and kept:
        source, whole = f"the summary #{summary.seq}", kept
        since = [row for row in said if row[0] >= summary.keep_from or row[0] in summary.keep]
    elif said:
        (seq, whole), *since = said
        source = f"your first message, #{seq}"
    else:
        return "you have not sent a message in this session yet"
    lines = [f"### Session Intent · from {source}", _start(whole, MAX_INTENT_CHARS)]
    if since:
        older = len(since) - MAX_SHOWN_MESSAGES
        lines += ["", "Your messages since:"]
        before = f"… {count_of(older, 'older message')} (/log #REF shows one)"
        lines += [before] if older > 0 else []
        lines += [
            f"- #{seq}: {' '.join(_start(text, MAX_MESSAGE_CHARS).split())}"
            for seq, text in since[-MAX_SHOWN_MESSAGES:]
        ]
    return "\n".join(lines)


def _start(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit].rstrip()} …"


def entry_line(entry: Entry) -> str:
    """Describe an entry of the log in one line."""
    if isinstance(entry, Mask | Summary):
        sizes = f"{entry.tokens_before:,} → {entry.tokens_after:,} tokens"
        return f"{describe(entry)}: {sizes}"
    content = getattr(entry, "content", None)
    if content is None:
        skipped = ("v", "seq", "at", "kind", "system", "tools")
        fields = ((k, v) for k, v in encode(entry).items() if k not in skipped)
        return " ".join(_in_words(dict(fields)).split())[:MAX_ENTRY_CHARS]
    calls = [] if isinstance(content, str) else [b for b in content if b.get("type") == "tool_use"]
    names = ", ".join(f"[{b.get('name')}]" for b in calls)
    text = content_text([b for b in content if b not in calls] if calls else content)
    return " ".join(f"{text} {names}".split())[:MAX_ENTRY_CHARS]


def mask_text(mask: Mask) -> str:
    """Describe a mask: its effect, and the replacement text of each entry."""
    lines = [entry_line(mask)]
    for target in mask.targets:
        text = next((target[k] for k in ("outline", "stub", "input") if target.get(k)), None)
        said = "in the outline of the calls around it" if text is None else _in_words(text)
        lines.append(f"\n#{target.get('seq')}: {said}")
    return "\n".join(lines)


def _in_words(value: object) -> str:
    """Describe a JSON value without punctuation: each key before its value."""
    if isinstance(value, dict):
        said = ((str(name).replace("_", " "), _in_words(each)) for name, each in value.items())
        return ", ".join(f"{name} {text}" for name, text in said if text)
    if isinstance(value, list):
        return ", ".join(filter(None, map(_in_words, value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def receipt(event: "Compacted", *, spends: bool = True) -> str:
    """Describe a compaction in one line: tokens before and after, cost, seconds. `spends` is False
    if a scripted model only simulates prices.
    """
    trigger = readable_trigger(event.trigger)
    sizes = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
    is_summary = event.layer == Summary.kind
    parts = [f"{'context compacted' if is_summary else event.detail} ({trigger}): {sizes}"]
    if is_summary:
        parts += [event.detail] if event.detail else []
        price = "price not known" if event.cost_usd is None else f"${event.cost_usd:.4f}"
        parts.append(price if spends or event.cost_usd is None else f"{WOULD_COST} {price}")
        parts.append(f"{event.seconds:.1f} s")
    return " · ".join(parts)


def _parse_time(at: str) -> datetime | None:
    """Return an entry's time, or None if it is missing or invalid."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _time(at: str) -> str:
    parsed = _parse_time(at)
    return _stamp(parsed) if parsed else "–"


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
