"""Run the layers that replace results and inputs with stubs. Each pass is one log entry.

The modules demote, microcompact, truncate and outline plan masks. This module decides when to apply
them, records them and emits the events.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from ...context import tokens
from ...context.items import ViewResult
from ...context.view import View
from ...context.window import Window
from ...events import Compacted
from ...lazy import dataclass
from ...session.entries import Mask
from ...session.given_back import RECALLED
from ...session.layer_words import THINKING_LAYER, WITH_SUMMARY, done_by
from ..host import EngineHost
from ..policy import Policy, reached, summary_due_at
from ..state_block import state_block
from ..summary.request import max_tokens_after
from . import demote, images, microcompact, outline, short_outline, truncate
from .break_even import BreakEven, DueMask, HistoryEdit, PromptPrices
from .later_calls import input_ages, input_curve
from .need_chances import MAX_MISS_SHARE, MISS_TOKENS

LayerName = Literal["demote", "microcompact", "truncate", "outline"]

MIN_TRUNCATION_SHARE = 0.01  # of the window: smaller savings are not worth an edit of history
MESSAGE_LIMIT_FACTOR = 3  # limit for all results of a message, as a multiple of one result's limit
GATES: dict[str, str] = {"demote": "HOOK-CTX-001: ", "truncate": "HOOK-CTX-002: "}


@dataclass(slots=True)
class LayerRunner:
    """Masks the results and inputs of one conversation."""

    host: EngineHost
    policy: Policy
    break_even: BreakEven = field(default_factory=BreakEven)  # decides when clearing pays
    next_edit_seq: int | None = None  # start of the next edit, as currently planned
    due: list[DueMask] = field(default_factory=list)  # due but not masked at this call
    _stubs: microcompact.StubCache = field(default_factory=dict)
    _finished: outline.FinishedCache = field(default_factory=outline.FinishedCache)
    _short: short_outline.ShortOutlineCache = field(default_factory=short_outline.ShortOutlineCache)
    _found_at: int = -1  # newest seq when `due` was computed

    def demote_together(self) -> None:
        """Move the largest unanswered results to files until the remaining ones are small enough in
        total. For a result that is already in a file, drop the preview. Results that give back
        recorded text stay.
        """
        limit, view = self.policy.demotes_above("Read"), self.host.view  # the highest limit
        if limit is None:
            return
        room = min(MESSAGE_LIMIT_FACTOR * limit, self.host.current_window().size // 4)
        new = sorted(
            (
                result
                for result in view.unanswered_results()
                if not (result.masked or RECALLED in result.details)
            ),
            key=lambda result: result.size,
        )
        total, targets = sum(result.size for result in new), []
        while new and total > room:
            result = new.pop()
            target = self._demoted(result)
            if target is not None:
                targets.append(target)
                total -= result.size
        self._record("demote", targets, "several results in one message")

    def bound_images(self) -> None:
        """Remove the oldest images if a request would have too many or too large ones. Remove all
        images if the model does not accept images.
        """
        if not self.host.takes_images():
            self.drop_all_images()
            return
        unseen = {result.item.seq for result in self.host.view.unanswered_results()}
        self._record("microcompact", images.plan(self.host.view, unseen), images.OVER_BOUND)

    def drop_images(self, refusal: str, *, only_unseen: bool) -> bool:
        """Remove the images that a server refused, and return True if there were any. Choose the
        image that the server names, else the images that the model has seen, else the other images.
        """
        unseen = {result.item.seq for result in self.host.view.unanswered_results()}
        found = images.results_with_images(self.host.view)
        new = [result for result in found if result.item.seq in unseen]
        old = [result for result in found if result not in new and not only_unseen]
        refused = images.named_in(refusal, self.host.view) or old or new
        self._record("microcompact", images.targets(refused, images.REFUSED), images.REFUSED)
        return bool(refused)

    def drop_all_images(self, why: str = images.NOT_TAKEN) -> bool:
        """Remove all images. Return True if there were any."""
        found = images.targets(images.results_with_images(self.host.view), why)
        self._record("microcompact", found, why)
        return bool(found)

    def drop_thinking(self, why: str) -> bool:
        """Remove the thinking of all replies so far. Return True if there was any."""
        found = [{"seq": item.seq, "thinking": False} for item in self.host.view.thinking_items()]
        self._record(THINKING_LAYER, found, why)
        return bool(found)

    def clear(self, window: Window) -> None:
        """Mask old results and inputs if the policy asks for it at the size of `window`."""
        policy, self.next_edit_seq, self.due = self.policy, None, []
        if policy.clear_when == "pays":
            self._clear_if_it_pays()
            return
        if policy.clear_when != "off":
            folder = str(self.host.folder)
            due = microcompact.plan(self.host.view, policy, folder, self._stubs)
            if due and policy.clear_when == "every-call":
                self._mask(due, "every call")
            elif due and reached(policy.clear_from, window):
                self._mask(due, "level")
        self._truncate_if_due(window)

    def is_enough(self) -> bool:
        """Return True if masking all due results leaves as much room as a summary must leave.
        Otherwise stubs fill much of the window, and the next clearing would follow soon.
        """
        return self._leaves_room(self.due)

    def tokens_freed_if_enough(self) -> int | None:
        """Return the tokens that `clear_if_enough` would free now; None if it would do nothing."""
        due = self._find_due() if self.policy.clear_when == "pays" else []
        if not self._leaves_room(due):
            return None
        account = replace(self.break_even)  # the next call adds to it before it clears
        account.charge_reading(due, self.prices())
        edit = self._best_edit_leaving_room(due, account)
        return edit.saved if edit else sum(each.saved for each in due)

    def clear_if_enough(self) -> bool:
        """Mask due results if that leaves enough room; return True if it did. Of the edits that
        leave enough room, choose the most profitable. If there is none, mask all due results.
        """
        if not self.is_enough():
            return False
        edit = self._best_edit_leaving_room(self.due, self.break_even)
        chosen = edit.due if edit else tuple(self.due)
        self._mask(chosen, "instead of a summary")
        done = {each.id for each in chosen}
        self.due = [each for each in self.due if done.isdisjoint(each.ids)]
        return True

    def clear_by_extensions(self) -> None:
        """Apply the masks planned by extensions' layers."""
        for name, targets in self.host.more_masks():
            self._record(name, [*targets], "a layer of an extension")

    def clear_all(self, *, answered_only: bool) -> None:
        """Replace all results with stubs, when nothing else fits. With `answered_only`, keep the
        results that the model has not answered.
        """
        folder = str(self.host.folder)
        targets = microcompact.plan_all(self.host.view, folder, answered_only=answered_only)
        self._record("microcompact", targets, "nothing else fits")

    def truncate_all(self) -> None:
        """Shorten the input of every call whose content is on disk, when nothing else fits. This
        includes the newest calls, since a single call may be larger than the window.
        """
        every = replace(self.policy, clear_keep=0)
        targets = truncate.plan(self.host.view, every, self.host.file_sha256)
        self._record("truncate", targets, "nothing else fits")

    def cost_of_misses(self, seqs: Collection[int]) -> float:
        """Return the expected cost of entries that are needed again after they left the context, in
        input tokens.
        """
        prices, is_found = self.prices(), self._found_at == self.host.view.last_seq
        due = self.due if is_found else self._find_due()
        return sum(prices.miss(each) for each in due if each.seq in seqs)

    def _best_edit_leaving_room(
        self, due: Sequence[DueMask], account: BreakEven
    ) -> HistoryEdit | None:
        """Return the most profitable of the edits that leave enough room; None if there is none."""
        needed = self.host.current_window().tokens - self._most_to_leave()
        return account.best_edit(due, self.host.view, self.prices(), needed)

    def _leaves_room(self, due: Sequence[DueMask]) -> bool:
        """Return True if masking these leaves as much room as a summary must leave at its
        threshold.
        """
        after = self.host.current_window().tokens - sum(each.saved for each in due)
        return bool(due) and after <= self._most_to_leave()

    def _most_to_leave(self) -> int:
        """Return the most tokens that a summary may leave at its threshold."""
        window = self.host.current_window()
        due_at = summary_due_at(self.policy, window) or 0
        full = replace(window, tokens=max(window.tokens, due_at))
        return max_tokens_after(full, must_halve=True)

    def _clear_if_it_pays(self) -> None:
        """Mask the results that cost more to keep than to rewrite the history after them. If the
        cache has expired, mask everything that is due, since the whole prompt is written again
        anyway.
        """
        due, prices = self._find_due(), self.prices()
        self.break_even.charge_reading(due, prices)
        edit = self.break_even.best_edit(due, self.host.view, prices)
        self.next_edit_seq = self._first_changed(edit.due) if edit else None
        self.due, self._found_at = due, self.host.view.last_seq
        if edit and edit.pays:
            self._mask(edit.due, "the cache has ended" if prices.is_cold else "it pays")
            done = {each.id for each in edit.due}
            self.due = [each for each in due if done.isdisjoint(each.ids)]

    def _first_changed(self, due: Sequence[DueMask]) -> int:
        """Return the seq where an edit begins; outlines also move the state block."""
        moves = any(each.layer == "outline" for each in due)
        return min(due[0].seq, (self.host.view.state_seq() if moves else None) or due[0].seq)

    def clear_after_summary(self) -> None:
        """Mask profitable results right after a summary. The next call rewrites the cache after the
        summary anyway.
        """
        if self.policy.clear_when != "pays":
            return
        due, prices = self._find_due(), replace(self.prices(), is_cold=True)
        edit = self.break_even.best_edit(due, self.host.view, prices)
        if edit and edit.pays:
            self._mask(edit.due, WITH_SUMMARY)

    def prices(self) -> PromptPrices:
        """Return the prices of the next prompt."""
        cache, window = self.host.cache_terms(), self.host.current_window()
        return PromptPrices(
            read=cache.read,
            write=cache.write,
            prompt=window.tokens,
            extra_call=min(MISS_TOKENS, MAX_MISS_SHARE * window.size),
            factor=self.host.price_factor,
            is_cold=self.host.cache_is_cold(),
        )

    def _find_due(self) -> list[DueMask]:
        """Return all results and inputs that may be masked now."""
        policy, view = self.policy, self.host.view
        due = microcompact.plan(view, policy, str(self.host.folder), self._stubs)
        if reached(policy.truncate_at, self.host.current_window()):
            due += self._due_inputs()
        if not policy.outline:
            return due
        shorter = short_outline.plan(view, self._finished, self._short)
        return [*shorter, *outline.plan(view, policy, due, self._finished)]

    def _due_inputs(self) -> list[DueMask]:
        """Return all inputs that may be shortened now. A part of the mask of an Edit shortens only
        the replaced text, which nothing needs any more.
        """
        policy, view = self.policy, self.host.view
        replaced = {}
        for target in truncate.plan_replaced(view, policy) if policy.truncate == "all" else ():
            saved = view.scaled(_saved_tokens(view, target))
            if saved > 0:
                part = DueMask("truncate", target, saved, argument=truncate.REPLACED)
                replaced[target["tool_use_id"]] = part
        ages, due = input_ages(view), []
        for target in truncate.plan(view, policy, self.host.file_sha256):
            id, saved = target["tool_use_id"], view.scaled(_saved_tokens(view, target))
            if saved > 0:
                chance = input_curve(view.calls[id]).at(ages[id])
                parts = (replaced.pop(id),) if id in replaced else ()
                due.append(DueMask("truncate", target, saved, chance, parts))
        return [*due, *replaced.values()]

    def _mask(self, due: Sequence[DueMask], trigger: str) -> None:
        layers: tuple[LayerName, ...] = ("microcompact", "truncate", "outline")
        read_for = self.break_even.reading_cost
        for layer in layers:
            its = [
                replace(each, target={**each.target, **_account(each, read_for)})
                for each in due
                if each.layer == layer
            ]
            if layer == "outline":
                old = [each for each in its if "outlined" in each.target]
                new = [each for each in its if "outlined" not in each.target]
                targets = short_outline.targets(self.host.view, old, self._short)
                targets += outline.targets(self.host.view, new, self._finished)
            else:
                targets = [{**each.target} for each in its]
            self._record(layer, targets, trigger)

    def _truncate_if_due(self, window: Window) -> None:
        """Shorten old inputs, if the policy's threshold is reached and it saves enough."""
        if reached(self.policy.truncate_at, window):
            targets = truncate.plan(self.host.view, self.policy, self.host.file_sha256)
            saved = sum(_saved_tokens(self.host.view, target) for target in targets)
            if self.host.view.scaled(saved) > MIN_TRUNCATION_SHARE * window.size:
                self._record("truncate", targets, "level")

    def _demoted(self, result: ViewResult) -> dict[str, Any] | None:
        """Move a result to a file and return the mask target; None if that fails."""
        content, seq = result.block.get("content"), result.item.seq
        if not isinstance(content, str):
            return None
        if result.offloaded:
            stub = demote.without_preview(content)
            return _target(result, stub) if stub != content else None
        every = self.policy.demoting_above(0)
        try:
            demoted = demote.demote_to_file(
                content, tool=result.call.name, seq=seq, folder=self.host.folder, policy=every
            )
        except OSError:
            return None  # the result stays in the context
        return _target(result, demoted[0].reference) if demoted else None

    def _reaches_state(self, targets: Sequence[Mapping[str, Any]]) -> bool:
        """Return True if an edit begins before the state block, which is then written again."""
        state, seqs = self.host.view.state_seq(), (target.get("seq") for target in targets)
        return state is not None and any(isinstance(seq, int) and seq < state for seq in seqs)

    def _record(self, layer: str, targets: list[dict[str, Any]], trigger: str) -> None:
        """Record a mask with these targets, if there are any, and emit the event."""
        if not targets:
            return
        started, view, trigger = time.monotonic(), self.host.view, GATES.get(layer, "") + trigger
        window, count = self.host.current_window(), len(targets)
        before, moves = window.tokens, layer == "outline" or self._reaches_state(targets)
        mask = Mask(
            layer=layer,
            targets=targets,
            tokens_before=before,
            tokens_after=before,
            trigger=trigger,
            state=state_block(self.host.ledger, window.size, view.summary) if moves else "",
        )
        saved = view.scaled(view.size) - view.scaled(view.size_with(mask))
        if layer == "outline" and saved <= 0:  # possible for a few separate calls
            return
        after = max(0, before - max(0, saved))
        self.host.record(replace(mask, tokens_after=after))
        seconds, text = time.monotonic() - started, done_by(layer, count)
        if layer != "microcompact" or not self.policy.clear_silently:
            self.host.emit(Compacted(layer, trigger, before, after, seconds, 0.0, count, text))


def _account(due: DueMask, read_for: Mapping[str, float]) -> dict[str, Any]:
    """Return the break-even figures of a mask for the log; an empty dict if there are none."""
    if due.id not in read_for:
        return {}
    return {"need_chance": round(due.need_chance, 4), "read_for": round(read_for[due.id])}


def _target(result: ViewResult, stub: str) -> dict[str, Any]:
    return {"seq": result.item.seq, "tool_use_id": result.call.id, "stub": stub}


def _saved_tokens(view: View, target: dict[str, Any]) -> int:
    """Return the unscaled tokens that shortening one input saves."""
    call, place = view.calls.get(target["tool_use_id"]), view.position(target["seq"])
    if call is None or place is None:
        return 0
    shown = view.items[place].inputs.get(call.id, call.input)
    old = tokens.estimate_block({"type": "tool_use", "input": shown})
    return old - tokens.estimate_block({"type": "tool_use", "input": target["input"]})
