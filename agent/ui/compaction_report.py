"""Reports on compaction as plain text: status, log, preserved intent, metrics, next compaction.

They are made from log entries, so a resumed session reports the same. The effect and the time of
the next compaction have the same figures in `/context`, `/compact --dry-run` and `ctxagent compact
--dry-run`.
"""

from collections.abc import Iterable, Iterator, Reversible, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...tools.system.phrasing import count_of
from ..compaction.history import (
    Act,
    CompactionMetrics,
    Mark,
    describe,
    intent_preserved,
    left_less_than_half,
    readable_trigger,
    savings,
)
from ..compaction.layers.known import done_by, known_layers, layer_named, word_for
from ..errors import CompactionFailed
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
from .fill import fullness, kind_of, trigger_text
from .status import WOULD_COST

if TYPE_CHECKING:
    from ..compaction.summary.preview import SummaryPreview
    from ..context.window import Level, Window
    from ..events import Compacted
    from ..loop.agent import AgentState

ALL = "/compact --all"


def usage_line(window: "Window") -> str:
    """Describe in one line how full the context window is."""
    return (
        f"{window.tokens:,} of {window.size:,} tokens · {fullness(window)} · {window.free:,} free"
    )


def next_lines(agent: "AgentState", planned: "SummaryPreview | None" = None) -> list[str]:
    """Return lines on the effect of the next compaction and when it starts automatically. `planned`
    is the engine's preview of a summary, if the caller has it.
    """
    try:
        would = summary_line(planned or agent.engine.preview())
    except CompactionFailed as error:
        would = error.message
    window, freed = agent.model.current_window(), agent.engine.tokens_freed_instead_of_summary()
    when = _when(agent, window, is_clearing=freed is not None)
    if (calls := agent.engine.calls_until_summary_pays()) is not None:
        when += f"; a summary pays {in_calls(calls)}"
    if freed is None:
        return [f"next compaction: {would}", when]
    cleared = f"{window.tokens:,} → about {window.tokens - freed:,} tokens"
    first = f"next compaction: {cleared} · old results and inputs cleared, no summary"
    return [first, when, f"/compact: {would}"]


def pause_lines(agent: "AgentState") -> list[str]:
    """Return a line on the summary that is made when the user returns after a pause, if any."""
    if (after := agent.engine.tokens_after_pause()) is None:
        return []
    pause = _life_text(agent.engine.host.cache_terms().life)
    sizes = f"{agent.model.current_window().tokens:,} → about {after:,} tokens"
    return [f"after a pause of more than {pause}: {sizes} · a summary from the log"]


def _life_text(seconds: float) -> str:
    """Return the lifetime of a prompt cache as text."""
    return f"{seconds:g} seconds" if seconds < 60 else f"{seconds / 60:g} minutes"


def in_calls(calls: int) -> str:
    """Return a text for "after this many calls"."""
    return f"in about {count_of(calls, 'call')} like the last" if calls else "now"


def dry_run(
    agent: "AgentState", *, limit: int | None = None, newest_only: bool = False, option: str = ALL
) -> str:
    """Return the full plan of a summary, with up to `limit` of the largest items of each kind.
    `newest_only` and `option` are as for `small_saving`. Raises CompactionFailed when it would do
    nothing.
    """
    planned = agent.engine.preview(newest_only=newest_only)
    head = [usage_line(agent.model.current_window())]
    head += [f"{option}: {summary_line(planned)}"] if newest_only else next_lines(agent, planned)
    head += small_saving(agent, newest_only=newest_only, option=option).splitlines()
    return "\n".join([*head, *item_lines(planned, limit=limit)])


def small_saving(agent: "AgentState", *, newest_only: bool, option: str = ALL) -> str:
    """Return the saving of a manual summary if it is too small to pay for a model call, else "".
    `newest_only` plans a summary that keeps just the newest exchange. Otherwise the text also names
    that larger saving and the `option` for it. Makes no model call. Raises CompactionFailed when
    there is nothing to summarise.
    """
    planned = agent.engine.preview(newest_only=newest_only)
    if planned.is_worthwhile:
        return ""
    grows = planned.tokens_after_estimate >= planned.tokens_before
    effect = "not make the context smaller" if grows else "save little"
    text = f"a summary would {effect}: {_saving(planned)}"
    better = planned if newest_only else _plan_of_all(agent)
    if better and better.tokens_after_estimate < planned.tokens_after_estimate:
        text += f"\n{option} leaves just the newest exchange: {_saving(better)}"
    return text


def _plan_of_all(agent: "AgentState") -> "SummaryPreview | None":
    """Return the plan of a summary that keeps just the newest exchange, or None if impossible."""
    try:
        return agent.engine.preview(newest_only=True)
    except CompactionFailed:
        return None


def _saving(planned: "SummaryPreview") -> str:
    """Return the estimated size of the context before and after a summary."""
    sizes = f"{planned.tokens_before:,} → about {planned.tokens_after_estimate:,} tokens"
    growth = planned.tokens_after_estimate / max(1, planned.tokens_before) - 1
    return f"{sizes} ({abs(growth):.0%} {'more' if growth > 0 else 'less'})"


def item_lines(planned: "SummaryPreview", *, limit: int | None = None) -> list[str]:
    """Return a line for each item of the plan, or for the `limit` largest of each kind."""
    lines = ["", f"the system prompt and the tools stay: {planned.fixed:,} tokens"]
    for title, items in (
        ("kept as they are", planned.kept),
        ("cleared", planned.masked),
        ("replaced by the summary", planned.dropped),
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
    return lines


def summary_line(planned: "SummaryPreview") -> str:
    """Describe in one line what a summary would do."""
    if not planned.dropped and not planned.masked:
        return "nothing to compact yet"
    return (
        f"{planned.tokens_before:,} → about {planned.tokens_after_estimate:,} tokens · "
        f"{len(planned.kept):,} kept, {len(planned.masked):,} cleared, "
        f"{len(planned.dropped):,} summarised · {_call(planned)}"
    )


def _call(planned: "SummaryPreview") -> str:
    if not planned.call_tokens:
        return "no call to the model"
    price = planned.call_cost_usd
    money = "price not known" if price is None else f"about ${price:.4f}"
    return f"a call of {planned.call_tokens:,} tokens, {money}"


def _when(agent: "AgentState", window: "Window", *, is_clearing: bool) -> str:
    """Return at which size the next compaction, or its reminder, comes. With `is_clearing`, old
    results are cleared at that size and no summary is made.
    """
    from ..compaction.policy import summary_due_at, threshold_tokens

    policy = agent.policy
    at, start = summary_due_at(policy, window), threshold_tokens(policy.prepare_at, window)
    if policy.mode == "off" or at is None:
        return "only when you run /compact"
    far = f"{at - window.tokens:,} from here" if at > window.tokens else "already reached"
    text = f"at {at:,} tokens ({at / window.size:.0%}), {far}"
    if at == window.full_at:
        text += (
            f" (the last {window.size - at:,} are reserved for the reply and for estimation "
            "errors; new text raises this reserve)"
        )
    if policy.mode == "remind":
        return f"you will be reminded {text}"
    if is_clearing:
        text += ", or earlier when it pays"
    if agent.engine.is_preparing:
        text += "; the summary is being prepared"
    elif not is_clearing and start is not None and start < at and policy.summarizer != "mechanical":
        text += f"; the summary is prepared from {start:,.0f} ({start / window.size:.0%}) on"
    return f"it comes {text}"


MAX_INTENT_CHARS = 2_000
MAX_MESSAGE_CHARS = 300
MAX_ENTRY_CHARS = 160
MAX_SHOWN_MESSAGES = 10  # of the user's newest messages
MAX_SHOWN_ACTS = 20  # in the log and the history
MIN_CACHEABLE_TOKENS = 1_024  # a shorter prompt may never be cached
_MET = {True: "met", False: "not met", None: "–"}
_YES = {True: "yes", False: "not certain: check it"}
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
        return f"more than {_life_text(life)} passed"
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
    """Return the status report of S1, with the names of S0. `counts` are the counters of the
    session's totals.
    """
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
        f"| {_time(a.at)} | {kind_of(a, levels=True)}{' (undone)' * a.undone} | {a.saved:,} |"
        for a in done[-MAX_SHOWN_ACTS:]
    ] or ["| – | none yet | 0 |"]
    return "\n".join(lines)


def event_log(
    done: Sequence[Act],
    others: Sequence[Mark] = (),
    *,
    limit: int | None = None,
    levels: bool = False,
) -> str:
    """Return the event log in order: the newest `limit` acts, and the marks among them. With
    `levels`, tiers and gates have the names of S0.
    """
    shown = done[-limit:] if limit else done
    first = shown[0].seq if len(shown) < len(done) else 0
    texts = [(act.seq, _event(act, levels)) for act in shown]
    texts += [(mark.seq, _remark(mark, levels)) for mark in others if mark.seq > first]
    log = "\n\n".join(text for _, text in sorted(texts))
    return log or "nothing has been compacted in this session"


def _event(act: Act, levels: bool) -> str:
    trigger = trigger_text(act.trigger, levels=levels)
    lines = [
        f"## Compression Event Log · #{act.seq}",
        f"**Timestamp:** {_time(act.at)}",
        f"**Event Type:** {kind_of(act, levels=levels)}",
        f"**Trigger:** {word_for(act.layer)}: {trigger}{', undone later' * act.undone}",
        f"**Tokens Before:** {act.before:,}",
        f"**Tokens After:** {act.after:,}",
        f"**Tokens Saved:** {act.saved:,}",
        f"**Files Created:** {', '.join(act.files) or 'none'}",
        f"**Intent Preserved:** {intent_preserved(act) if levels else _YES[act.verified]}",
    ]
    return "\n".join(lines)


def _remark(mark: Mark, levels: bool) -> str:
    names = {
        "phase": "Phase", "drift": "Drift", "revert": "Undone", "checkpoint": "Checkpoint",
        "recovery": "Recovery failed",
    }  # fmt: skip
    text = trigger_text(mark.text, levels=levels) or "none"
    lines = [f"{names[mark.kind]} · #{mark.seq} · {_time(mark.at)}: {text}"]
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
        return " ".join(readable_trigger(_in_words(dict(fields))).split())[:MAX_ENTRY_CHARS]
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
