"""Write a summary document: with the model, or from the ledger if that fails.

The request extends the session's own prefix, or uses chunks if the prefix no longer fits. An
unusable answer is requested once more, with the reason. The result is merged with the previous
summary; facts are corrected from the ledger when it is applied. If the policy says so, the API's
own summary is requested first (`block`). Cancelling changes nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ....tools.system.plural import count_of
from ...context.compaction_block import compaction_in
from ...context.window import Window
from ...errors import ModelError, PromptTooLong, RequestRejected
from ...events import Emit, Event, Notice, Waiting, waiting
from ...lazy import dataclass
from ...models.base import Reply, text_of
from ...models.catalog import cost
from ...session.entries import Summary
from ...session.user_messages import LoggedMessage
from ..document import SummaryDocument, parse, render, superseded_lines
from ..host import EngineHost
from ..policy import Policy
from ..sections import TITLES
from .block import BlockSummary, block_request
from .facts import aged, sourced_facts
from .merge import document_from_ledger, merge
from .request import (
    Cut,
    chunk_requests,
    max_summary_tokens,
    room_for_summary,
    summary_question,
    summary_request,
    why_unusable,
)
from .resolved_errors import claim_lines, open_failures_text, resolution_rows
from .sources import MAX_SEARCHED_CHARS, SourceFinder
from .supersede import Superseded, superseded_entries, without_superseded
from .unusable import UnusableSummaries
from .user_rules import merged_rules, quoted_rules


@dataclass(frozen=True, slots=True)
class ReadBack:
    """A check that entries which a summary replaces can be read back from the log, by sample."""

    replies: int  # in the sample
    results: int
    lost_replies: Sequence[int]  # seqs of entries that the log does not have in full
    lost_results: Sequence[int]
    files: Mapping[str, tuple[int, int]]  # inode and size of the moved results


@dataclass(frozen=True, slots=True)
class SummaryDraft:
    """A summary document that is not applied yet."""

    document: SummaryDocument
    cost_usd: float | None  # of the requests for it; None if a price is unknown
    author: str  # "model", "api", "ledger" or "user"
    raw_text: str  # the document as written, before facts were added
    seconds: float | None = None  # time to write it in the background
    max_words: int | None = None  # limit without file lists; None: only its cap applies
    resolved: tuple[dict[str, Any], ...] = ()  # claims about earlier failures, to record
    superseded: tuple[Superseded, ...] = ()  # dropped entries of the previous summary
    by_api: BlockSummary | None = None  # set if the API wrote it
    unusable: Mapping[str, Any] = field(default_factory=dict)  # count of unusable ones, to record
    read_back: ReadBack | None = None  # set if the check was made in the background


def _ignore(event: Event) -> None:
    """Ignore an event, for summaries in the background."""


@dataclass(slots=True)
class SummaryWriter:
    """Writes the summaries of one conversation."""

    host: EngineHost
    policy: Policy
    unusable: UnusableSummaries = field(default_factory=UnusableSummaries)

    async def write(
        self, cut: Cut, instructions: str = "", *, emit: Emit = _ignore, by_api: bool = True
    ) -> SummaryDraft:
        """Write a document for the span of `cut`, merged with the previous summary. With `by_api`,
        the API's own summary may be used, which cannot be edited, if the policy allows it.
        """
        previous, problem, is_answered = document_of(self.host.view.summary), "", False
        model = self.policy.model or self.host.model_id
        spent: float | None = 0.0
        with waiting(emit, "writing a summary"):
            if self.policy.summarizer == "mechanical":
                return self.from_ledger(previous)
            if by_api and self.policy.summarizer == "api":
                draft, spent = await self._ask_api(cut, instructions)
                if draft:
                    return draft
            if self.unusable.should_skip(model):
                self.unusable.skip()
                return replace(self._from_ledger_after(previous), cost_usd=spent)
            for _ in range(self.unusable.attempts(model)):
                window = self.host.current_window()  # may have changed since the last attempt
                ledger = self.host.ledger
                failures = ledger.unresolved()
                try:
                    replies = await self._ask(cut, instructions, problem, window, emit)
                except ModelError as error:
                    problem = error.message
                    break
                spent, is_answered = _with_costs(spent, replies), True
                texts = [text_of(reply.content) for reply in replies]
                problem = "it is empty"
                if texts:
                    problem = why_unusable(texts[-1], replies[-1].stop_reason, window)
                if not problem:
                    new, gone = await asyncio.to_thread(self._read, texts, previous)
                    held = without_superseded(previous or SummaryDocument(), gone)
                    document = merge(aged(held), new)
                    problem = self._why_without_intent(document)
                if not problem:
                    self.unusable.clear()
                    resolved = resolution_rows(new.errors, "model", ledger, failures)
                    return SummaryDraft(
                        document,
                        spent,
                        "model",
                        render(document),
                        resolved=resolved,
                        superseded=gone,
                    )
        text = f"the model's summary was not usable ({problem}); made from the ledger"
        if is_answered:
            self.unusable.add(model)
        if self.unusable.should_skip(model):
            left_out = count_of(self.unusable.to_skip, "summary", "summaries")
            text += f". {model} is not asked for the next {left_out}; /model selects another model"
        self.host.emit(Notice("warning", text))
        return replace(self._from_ledger_after(previous), cost_usd=spent)

    def _why_without_intent(self, document: SummaryDocument) -> str:
        """Return the reason to refuse a document without an intent, or "". Without a message of the
        user, there is no intent.
        """
        if document.intent.strip() or not self.host.ledger.typed_messages:
            return ""
        return f"it lacks {TITLES['intent']}: no previous record states it"

    def _from_ledger_after(self, previous: SummaryDocument | None) -> SummaryDraft:
        """Make a summary from the ledger after unusable answers of the model."""
        return replace(self.from_ledger(previous), unusable=self.unusable.to_check())

    async def _ask_api(
        self, cut: Cut, instructions: str
    ) -> tuple[SummaryDraft | None, float | None]:
        """Return a draft with the API's own summary, and the cost of the request in dollars. The
        draft is None if the API does not offer summaries, if it may not be used, or if its summary
        is unusable.
        """
        host = self.host
        if self.policy.model not in (None, host.model_id) or not host.has_compaction():
            return None, 0.0
        window, failures = host.current_window(), host.ledger.unresolved()
        listed = open_failures_text(failures)
        question = summary_question(window, host.redact(instructions), listed, is_merged=False)
        model, effort = host.model_id, host.effort
        found = block_request(host.view, cut, window, question, model=model, effort=effort)
        if found is None:
            return None, 0.0
        request, whole_cut = found
        edits = host.view.edits
        try:
            reply = await host.ask_model(request, "summary")
        except ModelError:  # reported by the request for the model's summary that follows
            return None, 0.0
        spent, block = _with_costs(0.0, [reply]), compaction_in(reply.content)
        problem = f"there is none, the server stopped with {reply.stop_reason}"
        if block is not None:
            problem = why_unusable(block["content"], "end_turn", window)
        new, gone = SummaryDocument(), tuple[Superseded, ...]()
        previous = document_of(host.view.summary)
        if block is not None and not problem:
            new, gone = await asyncio.to_thread(self._read, [block["content"]], previous)
            problem = self._why_without_intent(new)
        if block is None or problem:
            text = f"the API's own summary was not usable ({problem}); the model is asked"
            host.emit(Notice("info", text))
            return None, spent
        # The block replaces the previous summary, except its rules. A rule is lifted only by a
        # claim that quotes the user.
        held = without_superseded(previous or SummaryDocument(), gone).rules
        draft = SummaryDraft(
            merge(SummaryDocument(rules=held), new),
            spent,
            "api",
            block["content"],
            resolved=resolution_rows(new.errors, "model", host.ledger, failures),
            superseded=gone,
            by_api=BlockSummary(block, whole_cut, edits),
        )
        return draft, spent

    def _read(
        self, texts: Sequence[str], previous: SummaryDocument | None
    ) -> tuple[SummaryDocument, tuple[Superseded, ...]]:
        """Return the document in a model's answers, and the superseded entries of the previous
        document and of earlier answers.

        Claims apply in the order of the answers, which is the order of the log. An entry that a
        later answer states again stays. Only rules that quote a user message are kept. Blocking:
        long messages are read from their files.
        """
        messages, resolved, gone = [*self.host.ledger.messages], list[str](), list[Superseded]()
        new, old = SummaryDocument(), previous or SummaryDocument()
        sources = SourceFinder(self.host, self._whole_text)
        for text in texts:
            claims, part = superseded_lines(text), parse(text)
            rules = quoted_rules(part.rules, messages, self._whole_text)
            facts = sourced_facts(part.facts, old, (*old.rules, *rules), sources.find)
            stated = replace(new, rules=merged_rules(new.rules, rules))
            found = [*superseded_entries(claims, stated, messages, self._whole_text)]
            gone += superseded_entries(claims, old, messages, self._whole_text)
            gone += found
            kept = without_superseded(stated, found)
            new = replace(merge(kept, replace(part, rules=(), facts=facts)), rules=kept.rules)
            resolved += claim_lines(part.errors)
        errors = tuple(dict.fromkeys((*new.errors, *resolved)))
        return replace(new, errors=errors), tuple(dict.fromkeys(gone))

    def _whole_text(self, message: LoggedMessage) -> str:
        refs = [message.ref] if message.is_in_file or message.is_file else []
        found = self.host.recall(refs).get(message.ref)
        return message.text if found is None else found.part(0, MAX_SEARCHED_CHARS)[0]

    def from_ledger(self, previous: SummaryDocument | None) -> SummaryDraft:
        """Make a summary from the ledger, without a model."""
        document = document_from_ledger(self.host.ledger, previous)
        return SummaryDraft(document, 0.0, "ledger", render(document))

    async def _ask(
        self, cut: Cut, instructions: str, problem: str, window: Window, emit: Emit
    ) -> list[Reply]:
        """Return the model's answer, or its answers for chunks up to the first unusable one.
        `problem` is the reason why the previous answer was unusable.
        """
        host = self.host
        failures = open_failures_text(host.ledger.unresolved())
        asked = host.redact(instructions)
        question = summary_question(window, asked, failures, problem=problem)
        view, model, effort = host.view, host.model_id, host.effort
        # Another model cannot read this model's thinking, so it gets chunks of text.
        is_own_model = self.policy.model in (None, model)
        if is_own_model and room_for_summary(window, question) >= max_summary_tokens(window) // 2:
            request = summary_request(view, window, question, model=model, effort=effort)
            try:
                return [await host.ask_model(request, "summary")]
            except RequestRejected as refusal:
                # The estimate was too low, or the model takes no images: chunks are text.
                if not isinstance(refusal, PromptTooLong) and host.takes_images():
                    raise
        replies, model = list[Reply](), self.policy.model or model
        upto, effort = host.view.last_seq, host.effort
        chunks = chunk_requests(cut, window, question, upto=upto, model=model, effort=effort)
        for number, request in enumerate(chunks, 1):
            emit(Waiting(f"writing a summary, part {number} of {len(chunks)}"))
            replies.append(await host.ask_model(request, "summary"))
            if why_unusable(text_of(replies[-1].content), replies[-1].stop_reason, window):
                break
        return replies


def _with_costs(spent: float | None, replies: Iterable[Reply]) -> float | None:
    """Add the cost of replies; None if a price is unknown."""
    for reply in replies:
        more = cost(reply.model, reply.usage)
        spent = None if spent is None or more is None else spent + more
    return spent


def document_of(summary: Summary | None) -> SummaryDocument | None:
    """Return the document of a recorded summary; None if there is none or it is unreadable."""
    if summary is None:
        return None
    try:
        return SummaryDocument.from_json(summary.document)
    except (KeyError, TypeError, ValueError):
        return None
