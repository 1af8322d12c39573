"""A summary of a part of the context, which stands in the place of that part.

The model reads the part as text, without the rest of the context. Without a model, the summary has
what the log recorded in the part. The user's messages in the part follow verbatim. Recorded facts
that the summary misses are added, as to the summary of everything.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from ..context import tokens
from ..errors import CompactionFailed
from ..events import Notice
from ..models.catalog import cost
from ..session.entries import Entry, Mask, Revert, Usage
from ..session.ledger import Ledger
from ..session.user_messages import LoggedMessage
from . import verify
from .apply_summary import WRITTEN_SHARE
from .document import SummaryDocument, render
from .engine import CHANGE_HOOK
from .host import EngineHost
from .own_marks import without_marks_in
from .policy import Policy
from .summary.request import Cut, expected_summary_tokens, max_summary_tokens, where_to_look
from .summary.shorten import shortened_to
from .summary.standing import standing_text
from .summary.user_messages import budget_tokens, messages_section, section_tokens
from .summary.writer import INSTRUCTIONS_IGNORED, SummaryDraft, SummaryWriter

MIN_TOKENS = 300  # of an estimated summary, with its heading
# The user's messages follow, and the todo list of the part is out of date.
_UNPROBED = ("intent", "in_progress", "next_steps")
HEADING = (
    "[Entries #{first} to #{last}, summarised at the user's request. This is history, not an "
    "instruction.]"
)


class _SpanHost:
    """A conversation that has only one part of its context."""

    def __init__(self, host: EngineHost, cut: Cut, entries: Iterable[Entry]) -> None:
        self._host, seqs = host, [item.seq for item in cut.evicted]
        self.view, self.ledger = replace(host.view, items=[*cut.evicted], summary=None), Ledger()
        for entry in entries:
            if seqs[0] <= entry.seq <= seqs[-1] or isinstance(entry, Mask | Revert):
                self.ledger.add(entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


def span_tokens(host: EngineHost, cut: Cut) -> int:
    """Estimate the tokens of the summary of a part, scaled."""
    window = host.current_window()
    said = section_tokens(_messages(host, cut), budget_tokens(window, host.view.ratio))
    return host.view.scaled(expected_summary_tokens(cut.evicted, window, MIN_TOKENS) + said)


def span_cost_usd(host: EngineHost, policy: Policy, cut: Cut) -> float | None:
    """Return the price of the request for the summary of a part; None if it is unknown."""
    if policy.summarizer == "mechanical":
        return 0.0
    output = expected_summary_tokens(cut.evicted, host.current_window(), MIN_TOKENS)
    return cost(policy.model or host.model_id, Usage(input=cut.tokens, output=output))


async def summarize_span(
    host: EngineHost, policy: Policy, cut: Cut, entries: Iterable[Entry], instructions: str
) -> str:
    """Return the text that replaces a part. `entries` is the whole log. Raises CompactionFailed if
    the text would not be smaller, or if a hook refuses.
    """
    host.record_model()
    if instructions and policy.summarizer == "mechanical":
        host.emit(Notice("warning", INSTRUCTIONS_IGNORED))
    event = {"trigger": "manual", "tokens": host.current_window().tokens, "covers": cut.covers}
    if veto := await host.before_summary({**event, "instructions": instructions}):
        raise CompactionFailed(f"a before_compact hook refused it: {veto}", hint=CHANGE_HOOK)
    own = cast(EngineHost, _SpanHost(host, cut, entries))
    policy = replace(policy, instructions=(standing_text(host.view, policy.instructions),))
    draft = await SummaryWriter(own, policy, only_span=True).write(
        cut, instructions, emit=host.emit, by_api=False
    )
    first, last = cut.covers
    room = budget_tokens(host.current_window(), host.view.ratio)
    head = [
        HEADING.format(first=first, last=last),
        where_to_look(host.folder, "here", host.offered),
    ]
    said = messages_section(_messages(host, cut), room, host.offered)
    outside = tokens.estimate("\n\n".join([*head, said]))
    document, line = await asyncio.to_thread(_with_missed_facts, own, cut, draft, outside)
    if line and not line.startswith("none"):
        host.emit(Notice("info", f"the summary of the part: {line}"))
    text = "\n\n".join(filter(None, [*head, render(document), said]))
    if host.view.scaled(tokens.estimate(text)) >= cut.tokens:
        raise CompactionFailed(
            f"the part would not get smaller: it has {cut.tokens:,} tokens, its summary "
            f"{host.view.scaled(tokens.estimate(text)):,}",
            hint="Choose a longer part.",
        )
    return text


def _with_missed_facts(
    own: EngineHost, cut: Cut, draft: SummaryDraft, outside_tokens: int
) -> tuple[SummaryDocument, str]:
    """Return the document of a part with the recorded facts that it misses, if they fit, and a line
    for the report. The text next to the document takes `outside_tokens`.
    """
    cap = max_summary_tokens(own.current_window())
    chosen = verify.choose_probes(
        cut.evicted, own.ledger, None, cap, written=draft.document, standing=draft.standing
    )
    probes = [probe for probe in chosen if probe.section not in _UNPROBED]
    document = shortened_to(
        draft.document, int(WRITTEN_SHARE * cap), verify.probed_facts_test(probes)
    )
    room = min(cap, sum(item.size for item in cut.evicted) - outside_tokens - 1)
    document = without_marks_in(verify.add_missed_facts(document, probes, room))
    return document, verify.tally_probes(probes, draft.raw_text, render(document)).line()


def _messages(host: EngineHost, cut: Cut) -> list[LoggedMessage]:
    """Return the user's messages in a part."""
    there = {item.seq for item in cut.evicted}
    return [message for message in host.ledger.messages if message.ref in there]
