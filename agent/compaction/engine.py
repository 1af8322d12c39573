"""The compaction engine: decide before each model call which layer runs.

Old results and inputs are cleared when that saves money. A summary is prepared in the background
and applied at its threshold. If the next request still does not fit, stronger measures follow until
it fits or LimitReached is raised. Each act is one log entry and one event. A failed act changes
nothing. Triggers in the log have gate names (HOOK-CTX-001 to 005).
"""

import asyncio
import re
import time
from bisect import bisect
from collections.abc import Callable, Reversible, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from ...tools.system.phrasing import count_of
from ..context.window import MIN_OUTPUT_TOKENS, Window
from ..errors import CompactionFailed, ModelError
from ..events import Notice, waiting
from ..lazy import dataclass, regex
from ..models.base import text_of
from ..session.entries import Entry, Mask, Note, Revert, Summary
from .apply_summary import SHORTEST_DIVISOR, TASK_BOUNDARY, SummaryApplier, too_large_message
from .full_window import full_window_error
from .history import acts_to_undo
from .host import EngineHost
from .in_time import policy_in_time
from .layers.apply import LayerRunner
from .layers.images import NOT_TAKEN, REFUSED, results_with_images
from .layers.layer import Layer, RefusedPart
from .policy import Policy, reached, summary_due_at
from .preserve import DECISION_LOG, missing_sections
from .summary.background import (
    REPLY_SHARE,
    BackgroundSummary,
    SummaryAccount,
    SummaryCost,
    output_price,
)
from .summary.preview import SummaryPreview
from .summary.request import (
    Cut,
    expected_summary_tokens,
    find_cut,
    headline,
    max_summary_tokens,
    max_tokens_after,
    seqs_before_tail,
)
from .summary.writer import (
    INSTRUCTIONS_IGNORED,
    SummaryDraft,
    SummaryWriter,
    UnusableSummaries,
    document_of,
)
from .verify import exam

MANUAL = "manual"  # trigger of a summary that the user asks for
WHILE_AWAY = "the cache ended while you were away"  # trigger
MIN_CALLS_BETWEEN_SUMMARIES = 3  # for automatic ones
SMALLER_KEEP_MESSAGES = (2, 1)  # messages to keep if the policy's number keeps too much
_NAMES_IMAGE = regex(r"image|multimodal|vision|pixels|media.type|document|base64", re.I)
LEVELS_SUMMARIZED_AT_END = ("ORANGE", "RED", "CRITICAL")
THINKING_REFUSED = "the server refused the request with it"
CHANGE_HOOK = "Change the hook, or start with --safe."
NOTHING_YET = "there is nothing to summarise yet"


@dataclass
class CompactionEngine:
    """The compaction of one conversation."""

    host: EngineHost
    policy: Policy
    more_layers: Callable[[], Sequence[Layer]] = tuple  # of extensions, as loaded now
    _calls_since_summary: int = MIN_CALLS_BETWEEN_SUMMARIES
    _calls_to_wait: int = 0  # before the next automatic summary, after a failed or reverted one
    _done_since_summary: set[str] = field(default_factory=set)  # names of actions
    _boundary_todos: tuple[str, ...] = ()  # the completed todo list that last was a boundary
    _completed_todos: tuple[str, ...] = ()  # at the previous call, () if open or summarised
    _span_start: tuple[float, int] = (0.0, 0)  # Unix time and newest seq at start or last summary
    _account: SummaryAccount = field(default_factory=SummaryAccount)
    _unusable: UnusableSummaries = field(init=False)

    def __post_init__(self) -> None:
        self._span_start = (time.time(), self.host.view.last_seq)
        self._unusable = UnusableSummaries.from_summary(self.host.view.summary)
        self._layers = LayerRunner(self.host, self.policy, self.more_layers)
        self._applier = SummaryApplier(self.host)
        self._background = BackgroundSummary(self.host, self._would_leave_room)

    def use_policy(self, policy: Policy) -> None:
        """Follow another policy from now on."""
        self.policy = self._layers.policy = policy

    async def before_call(self, *, turn_start: bool) -> None:
        """Compact if needed so that the next request fits. Raises LimitReached if it cannot fit,
        and RecordError if a background reply was not recorded.
        """
        self._background.raise_record_error()
        self._follow_speed()
        self._calls_since_summary += 1
        self._calls_to_wait -= 1
        self._layers.act_first()
        if self.policy.mode != "off":
            if turn_start and self.host.user_was_away():
                await self._summarize_after_pause()
            full = self.host.current_window()
            summary_first = self.policy.summarize_first and reached(self.policy.summarize_at, full)
            if not summary_first:
                self._layers.clear(full)
            window = self.host.current_window()
            await self._checkpoint_if_due(window)
            await self._summarize_if_due(window, turn_start=turn_start)
            if summary_first:
                self._layers.clear(full)
            elif self._calls_since_summary == 0:
                self._layers.clear_after_summary()
        await self.force_fit()

    def _follow_model(self) -> None:
        self.host.record_model()  # a resumed session may have another model
        self._follow_speed()

    def _follow_speed(self) -> None:
        """Adapt the layers to the speed of a server whose price is time."""
        speed, window = self.host.token_seconds(), self.host.current_window()
        self._layers.policy = policy_in_time(self.policy, speed, window)

    async def force_fit(self, *, again: bool = False) -> None:
        """Shrink the context until the next request fits; results that the model has not answered
        are cleared last. With `again`, summarise even soon after a summary. Raises LimitReached,
        with the largest parts, if it cannot fit.
        """
        if self._fits():
            return
        why = ""
        if self.policy.mode != "off":
            self._layers.shrink(self._fits, answered_only=True)
            is_due = again or self._calls_since_summary > MIN_CALLS_BETWEEN_SUMMARIES
            if is_due and not self._fits():
                try:
                    await self.compact(trigger="HOOK-CTX-003: nothing else fits")
                except CompactionFailed as error:
                    why = f": {error.message}"
            self._layers.shrink(self._fits, answered_only=False)
            if self._fits():
                return
        raise full_window_error(self.host.view, self.host.current_window(), self.policy, why)

    def drop_refused_images(self, refusal: ModelError) -> bool:
        """Remove images that may have caused a refusal. Return True if there were any.

        If the server does not mention images, only images new in this request can be the cause.
        """
        if not self.host.takes_images():
            return self._layers.leave_out(RefusedPart("images", self.host.offered.say(*NOT_TAKEN)))
        unseen = not self.names_images(refusal)
        images = RefusedPart("images", refusal.message, every=False, only_unseen=unseen)
        return self._layers.leave_out(images)

    def names_images(self, refusal: ModelError) -> bool:
        """Return True if a refusal may be about the images of earlier requests."""
        return refusal.status == 413 or bool(_NAMES_IMAGE.search(refusal.message))

    def has_images(self) -> bool:
        """Return True if the context has images."""
        return bool(results_with_images(self.host.view))

    def drop_optional(self, *, images: bool) -> bool:
        """Remove the thinking of all replies after a refusal; with `images`, also all images.
        Return True if there was any.
        """
        dropped = images and self._layers.leave_out(RefusedPart("images", REFUSED))
        return self._layers.leave_out(RefusedPart("thinking", THINKING_REFUSED)) or dropped

    async def compact(
        self,
        instructions: str = "",
        *,
        trigger: str = MANUAL,
        draft: SummaryDraft | None = None,
        must_halve: bool = False,
        max_words: int | None = None,
        newest_only: bool = False,
        cut: Cut | None = None,
    ) -> Summary:
        """Summarise now, and return the recorded summary.

        Use `draft` and `cut` if given. `max_words` limits the prose. `must_halve`: at least halve
        the context. `newest_only`: keep the newest exchange. Raises CompactionFailed.
        """
        self._follow_model()
        policy = self.policy if trigger == MANUAL else self._layers.policy
        self._layers.act_first()  # the summary request has images too
        started, before = time.monotonic(), self.host.current_window()
        max_after = max_tokens_after(before, must_halve=must_halve)
        is_custom = bool(instructions or draft or newest_only or cut)
        ready = None if is_custom else self._background.usable_summary()
        max_after = max(max_after, before.tokens - 1) if cut else max_after
        cut = cut or (ready and ready.cut) or self._find_cut(max_after, newest_only=newest_only)
        if must_halve:
            self._check_worth(cut, before, max_after)
        if instructions and draft is None and not self._uses_model(policy):
            self.host.emit(Notice("warning", INSTRUCTIONS_IGNORED))
        event = {
            "trigger": trigger,
            "tokens": before.tokens,
            "covers": cut.covers,
            "summary": str(self.host.folder / "summary.md"),
            "instructions": instructions,
        }
        self._check_preserved()
        if veto := await self.host.before_summary(event):
            raise CompactionFailed(f"a before_compact hook refused it: {veto}", hint=CHANGE_HOOK)
        if self.policy.checkpoint_always:
            await self.host.take_checkpoint(f"before a summary: {trigger}")
        if ready:
            with waiting(self.host.emit, "the summary is being written"):
                draft = await asyncio.shield(ready.task)
        elif draft is None:
            self._background.discard()
            await self._check_can_shrink(cut, before, max_after, policy)
            # The length of an API summary cannot be limited.
            draft = await self._writer(policy).write(
                cut, instructions, emit=self.host.emit, by_api=max_words is None
            )
            draft = replace(draft, max_words=max_words)
        self._background.discard()
        summary = await self._applier.apply(cut, draft, trigger, before, max_after)
        self._calls_since_summary, self._done_since_summary, self._completed_todos = 0, set(), ()
        self._span_start, self._account = (time.time(), summary.seq), SummaryAccount()
        self._background.allow_attempts()
        await self.host.after_summary({**event, "seq": summary.seq})
        self._applier.report(summary, draft, started)
        return summary

    async def draft_summary(
        self, instructions: str = "", *, newest_only: bool = False
    ) -> tuple[SummaryDraft, str]:
        """Return the summary that `compact` would apply, with its text. Raises CompactionFailed."""
        self.host.record_model()
        self._background.discard()
        cut, before = self._find_cut(newest_only=newest_only), self.host.current_window()
        await self._check_can_shrink(cut, before, max_tokens_after(before), self.policy)
        draft = await self._writer(self.policy).write(
            cut, instructions, emit=self.host.emit, by_api=False
        )
        fitted = await self._applier.fit(cut, draft, before, max_tokens_after(before))
        return replace(draft, document=fitted.document), fitted.text

    async def examine(self, summary: Summary) -> exam.ExamReport:
        """Ask the model the probes of the newest summary, and grade its answers. The request has
        only the summary as context. Raises ModelError.
        """
        probes, window = self._applier.probes, self.host.current_window()
        request = exam.exam_request(
            summary.whole_text,
            probes,
            model=self.policy.examiner or self.policy.model or self.host.model_id,
            effort=self.host.effort,
            max_tokens=2 * max_summary_tokens(window),
        )
        reply = await self.host.ask_model(request, "verify")
        report = exam.grade(text_of(reply.content), probes)
        text = f"summary #{summary.seq}: {'met' if report.met else 'not met'}"
        self.host.record(Note(topic="quality", text=text, data=report.to_json()))
        return report

    def preview(self, *, newest_only: bool = False, cut: Cut | None = None) -> SummaryPreview:
        """Estimate the effect of `compact` without a model call. Raises CompactionFailed."""
        view, window = self.host.view, self.host.current_window()
        cut = cut or self._find_cut(newest_only=newest_only)
        gone = {item.seq for item in cut.evicted}
        rows = [(i, (i.seq, headline(i), view.scaled(i.size))) for i in view.items]
        if self.policy.summarizer == "mechanical":
            call_tokens, call_cost = 0, None
        else:
            call_tokens = window.tokens
            written = expected_summary_tokens(cut.evicted, window)
            call_cost = self.host.call_cost_usd(call_tokens, written)
        return SummaryPreview(
            kept=[row for i, row in rows if i.seq not in gone and not i.is_masked],
            masked=[row for i, row in rows if i.seq not in gone and i.is_masked],
            dropped=[row for i, row in rows if i.seq in gone],
            fixed=view.scaled(view.size - sum(i.size for i in view.items)),
            tokens_before=window.tokens,
            tokens_after_estimate=self._tokens_after(cut, window),
            call_tokens=call_tokens,
            call_cost_usd=call_cost,
        )

    def uncompact(self, entries: Reversible[Entry], seq: int | None = None) -> list[Mask | Summary]:
        """Undo the newest act of compaction, or the act at `seq`, and return its entries. `entries`
        is the whole log. Raises CompactionFailed if there is no such act.
        """
        last = acts_to_undo(entries, seq)
        self._background.discard()
        self._calls_to_wait = MIN_CALLS_BETWEEN_SUMMARIES
        for act in reversed(last):
            self.host.record(Revert(target=act.seq, reason="taken back by the user"))
        self.host.rebuild_view()
        return last

    def edit(self, layer: Layer, targets: list[dict[str, Any]], trigger: str) -> None:
        """Record an edit of the user, which a summary in preparation does not know."""
        self._background.discard()
        self._layers.apply(layer, (targets, trigger))

    @property
    def is_preparing(self) -> bool:
        """True while a summary is being written in the background."""
        return self._background.is_pending

    async def wait_for_background(self) -> None:
        """Wait until no summary is being written in the background."""
        await self._background.wait()

    def tokens_freed_instead_of_summary(self) -> int | None:
        """Return the tokens to clear instead of an automatic summary; None if too few or off."""
        is_automatic = self.policy.mode == "auto" and self.policy.summarize_at is not None
        return self._layers.tokens_freed_if_enough() if is_automatic else None

    def stable_before(self) -> int | None:
        """Return the seq for a cache breakpoint. Results after it may be cleared."""
        next_edit = self._layers.next_edit_seq
        return self._layers.oldest_clearable() if next_edit is None else next_edit

    async def finish(self) -> None:
        """Make a summary or a checkpoint at the end of a session, as set in the policy."""
        if not self.policy.at_end or self.policy.mode != "auto" or not self.host.view.items:
            return
        if self.host.current_window().level in LEVELS_SUMMARIZED_AT_END:
            with suppress(CompactionFailed):
                self._find_cut()  # raises if there is nothing to summarise
                self.host.emit(Notice("info", "writing a summary of the session …"))
                await self.compact(trigger="end of the session", must_halve=True)
                return
        await self.host.take_checkpoint("end of the session")

    async def close(self) -> None:
        """Cancel a summary that is being prepared, and wait until its task ends."""
        await self._background.close()

    async def _checkpoint_if_due(self, window: Window) -> None:
        """Take checkpoints at the policy's fill levels, each level once between two summaries."""
        if reached(self.policy.checkpoint_at, window) and self._first_time("checkpoint"):
            await self.host.take_checkpoint(f"{window.share:.0%} of the window")
        if reached(self.policy.fresh_at, window) and self._first_time("fresh"):
            taken = await self.host.take_checkpoint(
                f"HOOK-CTX-005: {window.share:.0%} of the window"
            )
            how = f": ctxagent --from {self.host.folder.name}:{taken.number}" if taken else ""
            text = f"the context is {window.share:.0%} full; a fresh session is recommended{how}"
            self.host.emit(Notice("warning", text))

    async def _summarize_if_due(self, window: Window, *, turn_start: bool) -> None:
        due_at = summary_due_at(self.policy, window)
        due = due_at is not None and window.tokens >= due_at
        if self.policy.mode == "remind":
            if due and self._first_time("reminded"):
                share = f"{window.share:.0%}"
                self.host.emit(Notice("info", f"the context is {share} full: run /compact"))
            return
        if self._calls_since_summary <= MIN_CALLS_BETWEEN_SUMMARIES or self._calls_to_wait > 0:
            return
        if due and not self._layers.clear_if_enough():
            try:
                trigger = f"HOOK-CTX-003: {window.share:.0%} of the window"
                await self.compact(trigger=trigger, must_halve=True)
            except CompactionFailed as error:
                self._calls_to_wait = MIN_CALLS_BETWEEN_SUMMARIES
                self.host.emit(Notice("warning", f"not compacted: {error.message}"))
        elif reason := self._boundary_reason(turn_start=turn_start):
            try:
                await self.compact(trigger=reason, must_halve=True)
            except CompactionFailed as error:  # not urgent: there is still room
                self.host.emit(Notice("info", f"not compacted: {error.message}"))
        elif await self._summarize_if_it_pays(window):
            return
        elif not due and reached(self.policy.prepare_at, window) and not self._layers.is_enough():
            self._prepare_summary()

    async def _summarize_after_pause(self) -> None:
        """Summarise if it pays after the prompt cache has expired: with the prepared summary, or
        else from the ledger.
        """
        if self._calls_to_wait > 0 or not self.tokens_after_pause():
            return
        ready, writer = self._background.is_ready, self._writer(self._layers.policy)
        draft = None if ready else writer.from_ledger(document_of(self.host.view.summary))
        with suppress(CompactionFailed):  # not urgent: the context fits
            await self.compact(trigger=WHILE_AWAY, draft=draft)

    def tokens_after_pause(self) -> int | None:
        """Estimate the size of the context after the summary that is made if the user returns after
        the prompt cache has expired. Return None if none is made.
        """
        if not self.policy.while_away or self.policy.mode != "auto":
            return None
        with suppress(CompactionFailed):  # there is nothing to summarise
            cut, window = self._find_cut(), self.host.current_window()
            if window.tokens <= self.policy.keep_tokens:  # its newest part would shrink too
                return None
            prices = self._layers.prices()
            after = self._applier.tokens_after(cut, int(REPLY_SHARE * max_summary_tokens(window)))
            misses = self._layers.cost_of_misses({item.seq for item in cut.evicted})
            return after if prices.pays_after_pause(window.tokens - after, misses) else None
        return None

    async def _summarize_if_it_pays(self, window: Window) -> bool:
        """Prepare a summary when it costs less than keeping the old part, and apply it once it is
        written. Return True if it pays.
        """
        cost = self._summary_cost(window)
        if cost is None:
            return False
        self._account.charge(cost)
        if not self._account.pays(cost) or not self._would_halve():
            return False
        if self._writes_in_background and not self._background.is_ready:
            if not self._background.is_pending:
                self._prepare_summary()
            return True
        try:
            await self.compact(trigger="it pays", must_halve=True)
        except CompactionFailed as error:
            self._calls_to_wait = MIN_CALLS_BETWEEN_SUMMARIES
            self._background.discard()  # it may be older than the last clearing
            self._account = SummaryAccount()
            self.host.emit(Notice("info", f"not compacted: {error.message}"))
        return True

    def _summary_cost(self, window: Window) -> SummaryCost | None:
        """Return the price of reading the part that a summary would replace, and the price of a
        summary. Return None if the part is empty or the policy does not summarise by cost.
        """
        policy, view = self.policy, self.host.view
        if policy.summarize_when != "pays" or policy.mode != "auto":
            return None
        fixed = view.scaled(view.size - sum(item.size for item in view.items))
        text = REPLY_SHARE * max_summary_tokens(window)
        tail = min(policy.keep_tokens, int(policy.keep_share * window.size))
        old = window.tokens - fixed - text - tail
        if old <= 0:
            return None
        prices = self._layers.prices()
        once = prices.write if prices.is_cold else prices.read
        written = text * (output_price(self.host) + prices.write)
        gone = seqs_before_tail(view, tail)
        price = once * window.tokens + written + prices.rewrite * (fixed + tail)
        return SummaryCost(prices.read * old, price + self._layers.cost_of_misses(gone))

    def calls_until_summary_pays(self) -> int | None:
        """Return the number of further calls until a summary pays; None if never."""
        cost = self._summary_cost(self.host.current_window())
        return None if cost is None else self._account.calls_left(cost)

    def _boundary_reason(self, *, turn_start: bool) -> str:
        """Return the reason for a summary at a boundary, or "".

        A completed todo list is a reason at the start of a turn, or within a turn after one more
        call. Too many turns since the last summary are a reason at the start of a turn.
        """
        ledger = self.host.ledger
        todos = tuple(t["content"] for t in ledger.todos)
        done = all(t["status"] == "completed" for t in ledger.todos)
        done_before, new = self._completed_todos, ledger.todos != ledger.summarized_todos
        self._completed_todos = todos if done and new else ()
        finished = self._completed_todos if turn_start else done_before
        if self.policy.boundaries and finished and finished != self._boundary_todos:
            self._boundary_todos = finished
            return f"{TASK_BOUNDARY}: the todo list is done"
        if not turn_start:
            return ""
        last = self.host.view.summary.seq if self.host.view.summary else 0
        turns = len(ledger.turns) - bisect(ledger.turns, last)
        if self.policy.turns is not None and turns > self.policy.turns and self._would_halve():
            return f"{count_of(turns, 'turn')} since the last summary"
        return ""

    def _would_halve(self) -> bool:
        """Return True if a summary now would at least halve the context."""
        window = self.host.current_window()
        try:
            return self._tokens_after(self._find_cut(), window) < window.tokens / 2
        except CompactionFailed:
            return False

    def _tokens_after(self, cut: Cut, window: Window) -> int:
        """Estimate the size of the context after a model's summary at this cut."""
        return self._applier.tokens_after(cut, expected_summary_tokens(cut.evicted, window))

    def _first_time(self, what: str) -> bool:
        """Return True on the first call with `what` since the newest summary."""
        first = what not in self._done_since_summary
        self._done_since_summary.add(what)
        return first

    def _prepare_summary(self) -> None:
        """Start a summary in the background, unless a usable one exists."""
        if not (self._writes_in_background and self._background.is_wanted()):
            return
        with suppress(CompactionFailed):
            max_after = self._layers.most_to_leave()
            cut = self._find_cut(max_after)
            self._check_worth(cut, self.host.current_window(), max_after)
            if self._background.should_start(cut):
                writer = self._writer(self._layers.policy)
                self._background.start(cut, self._applier.prepare(cut, writer))

    def _would_leave_room(self, cut: Cut) -> bool:
        """Return True if a summary at this cut would leave enough room."""
        text = max_summary_tokens(self.host.current_window())
        return self._applier.tokens_after(cut, text) <= self._layers.most_to_leave()

    def _find_cut(self, max_after: int | None = None, *, newest_only: bool = False) -> Cut:
        """Find a cut that leaves at most `max_after` tokens (default: half the window). If none
        does, return the last cut that was tried. With `newest_only`, only the newest exchange
        stays. Raises CompactionFailed if there is nothing to summarise.
        """
        view, window = self.host.view, self.host.current_window()
        if newest_only:
            if cut := find_cut(view, self.policy, window, newest_only=True):
                return cut
            raise CompactionFailed(NOTHING_YET, hint="Continue the conversation first.")
        max_after = max_tokens_after(window) if max_after is None else max_after
        found = None
        for keep_messages in (None, self.policy.keep_messages, *SMALLER_KEEP_MESSAGES):
            cut = find_cut(view, self.policy, window, keep_messages=keep_messages)
            found = cut or found
            if cut and self._applier.tokens_after(cut, max_summary_tokens(window)) <= max_after:
                return cut
        if found is None:
            raise CompactionFailed(NOTHING_YET, hint="Continue the conversation first.")
        return found

    def _check_worth(self, cut: Cut, before: Window, max_after: int) -> None:
        """Raise CompactionFailed if even a short summary leaves more than `max_after` tokens."""
        after = self._applier.tokens_after(cut, max_summary_tokens(before) // SHORTEST_DIVISOR)
        if after > max_after:
            raise CompactionFailed(
                too_large_message(before, after), hint="/compact summarizes anyway."
            )

    async def _check_can_shrink(
        self, cut: Cut, before: Window, max_after: int, policy: Policy
    ) -> None:
        """Raise CompactionFailed if even the shortest summary would leave too much. The check uses
        a summary of the recorded facts, user messages and rules, so no model is called. After a
        refused request, also remove what may be the cause, whatever the size.
        """
        if self.host.ledger.was_refused:
            self.drop_optional(images=True)
        elif self._uses_model(policy):
            draft = self._writer(policy).from_ledger(document_of(self.host.view.summary))
            await self._applier.fit(cut, draft, before, max_after, is_estimate=True)

    def _uses_model(self, policy: Policy) -> bool:
        """Return True if a model writes the summaries."""
        writer = policy.model or self.host.model_id
        return policy.summarizer != "mechanical" and not self._unusable.should_skip(writer)

    @property
    def _writes_in_background(self) -> bool:
        """True if summaries are prepared in the background, which needs a second server slot."""
        return self._uses_model(self._layers.policy) and not self.host.has_one_slot()

    def _check_preserved(self) -> None:
        """Warn once about each required section that is missing, and about an outdated decision
        log. Raises CompactionFailed for a missing section in strict mode.
        """
        sections, (since, newest) = self.host.preserved_sections(), self._span_start
        changed = sum(fact.ref > newest for fact in self.host.ledger.files.values())
        is_outdated = any(s.name == DECISION_LOG and s.found and s.at < since for s in sections)
        is_expected = self.policy.rules.expected or self.policy.rules.strict
        if is_expected and changed and is_outdated and self._first_time("decision log"):
            text = f"the Decision Log was not updated, though files were changed: {changed:,}"
            self.host.emit(Notice("warning", f"{text}. Record your decisions there"))
        for section in missing_sections(sections):
            text = f"{section.problem}; `ctxagent preserve --create` writes it"
            if self.policy.rules.strict:
                raise CompactionFailed(
                    f"preserve.strict is set, and {text}",
                    hint="Add the section, or set preserve.strict to false.",
                )
            self.host.warn_once(text)

    def _writer(self, policy: Policy) -> SummaryWriter:
        return SummaryWriter(self.host, policy, self._unusable)

    def _fits(self) -> bool:
        return self.host.current_window().max_output(MIN_OUTPUT_TOKENS) > 0
