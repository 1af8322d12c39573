"""The effect and the time of the next compaction, in the same figures for `/context`, `/compact
--dry-run` and `ctxagent compact --dry-run`.
"""

from typing import TYPE_CHECKING

from ...tools.system.plural import count_of
from ..errors import CompactionFailed

if TYPE_CHECKING:
    from ..compaction.engine import SummaryPreview
    from ..context.window import Window
    from ..loop.agent import AgentState

ALL = "/compact --all"


def usage_line(window: "Window") -> str:
    """Describe in one line how full the context window is."""
    return (
        f"{window.tokens:,} of {window.size:,} tokens · {window.share:.0%} {window.level} · "
        f"{window.free:,} free"
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

    policy = agent.handle.policy
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
