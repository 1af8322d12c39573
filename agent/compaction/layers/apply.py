"""Run the layers: ask each for its masks, in order, and record them. Each pass is one log entry.

A layer plans (see `layer.Layer`). This module decides with `break_even` when masks pay, records
them and emits the events. It knows no layer by name.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import takewhile
from typing import Any

from ...context.window import Window
from ...events import Compacted
from ...lazy import dataclass
from ...session.entries import Mask
from ...session.server_speed import TokenSeconds
from ..host import EngineHost
from ..policy import Policy, summary_due_at
from ..state_block import state_block
from ..summary.request import max_tokens_after
from .break_even import BreakEven, DueMask, HistoryEdit, PromptPrices
from .known import LAYERS
from .later_calls import MAX_MISS_SHARE, MISS_TOKENS
from .layer import WITH_SUMMARY, Layer, LayerState, Pass, RefusedPart


def _own_layers() -> list[Layer]:
    return [kind() for kind in LAYERS]


@dataclass(slots=True)
class LayerRunner:
    """Masks the results and inputs of one conversation."""

    host: EngineHost
    policy: Policy
    more_layers: Callable[[], Sequence[Layer]] = tuple  # of extensions, as loaded now
    break_even: BreakEven = field(default_factory=BreakEven)  # decides when clearing pays
    next_edit_seq: int | None = None  # start of the next edit, as currently planned
    due: list[DueMask] = field(default_factory=list)  # due but not masked at this call
    _own: list[Layer] = field(default_factory=_own_layers)
    _found_at: int = -1  # newest seq when `due` was computed

    @property
    def layers(self) -> list[Layer]:
        """All layers in their order. A layer whose masks include those of others comes after them,
        so layers of extensions come before it at the latest.
        """
        found = [*self._own]
        for layer in self.more_layers():
            places = (
                n for n, each in enumerate(found) if each.joins or each.is_called(layer.before)
            )
            found.insert(next(places, len(found)), layer)
        return found

    def act_first(self) -> None:
        """Apply the masks that no request can do without, in every mode."""
        state = self._state()
        for layer in self.layers:
            self.apply(layer, layer.first(state))

    def leave_out(self, refusal: RefusedPart) -> bool:
        """Mask what a server refused. Return True if there was any."""
        state = self._state()
        masked = [self.apply(layer, layer.refused(state, refusal)) for layer in self.layers]
        return any(masked)

    def clear(self, window: Window) -> None:
        """Mask old results and inputs if the policy asks for it at the size of `window`."""
        self.next_edit_seq, self.due = None, []
        if self.policy.clear_when == "pays":
            self._clear_if_it_pays()
        state = LayerState(self.host, self.policy, window)
        masked = [self.apply(layer, layer.now(state)) for layer in self.layers]
        if self.due and any(masked):
            self.due, self._found_at = self._find_due(), self.host.view.last_seq

    def shrink(self, fits: Callable[[], bool], *, answered_only: bool) -> None:
        """Apply all masks that are possible, layer by layer, until the next request fits. With
        `answered_only`, keep what the model has not answered.
        """
        state = self._state()
        for layer in self.layers:
            if not fits():
                targets = layer.to_fit(state, answered_only=answered_only)
                self.apply(layer, (targets, "nothing else fits"))

    def oldest_clearable(self) -> int | None:
        """Return the seq of the oldest entry that may be masked now or later; None if unknown."""
        state = self._state()
        found = (layer.oldest_clearable(state) for layer in self._own)
        return min((seq for seq in found if seq is not None), default=None)

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
        needed = self.host.current_window().tokens - self.most_to_leave()
        return account.best_edit(due, self.host.view, self.prices(), needed)

    def _leaves_room(self, due: Sequence[DueMask]) -> bool:
        """Return True if masking these leaves as much room as a summary must leave at its
        threshold.
        """
        after = self.host.current_window().tokens - sum(each.saved for each in due)
        return bool(due) and after <= self.most_to_leave()

    def most_to_leave(self) -> int:
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
        """Return the seq where an edit begins; masks that join others also move the state block."""
        joining = {layer.name for layer in self._own if layer.joins}
        moves = any(each.layer in joining for each in due)
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
        prices = PromptPrices(
            read=cache.read,
            write=cache.write,
            prompt=window.tokens,
            extra_call=min(MISS_TOKENS, MAX_MISS_SHARE * window.size),
            factor=self.host.price_factor,
            margin=self.policy.edit_margin,
            is_cold=self.host.cache_is_cold(),
        )
        speed = self.host.token_seconds()
        return self._in_time(prices, speed) if speed and self.policy.saves_time else prices

    def _in_time(self, prices: PromptPrices, speed: TokenSeconds) -> PromptPrices:
        """Return the prices as seconds, divided by the seconds to read a token at the end of the
        prompt.
        """
        view = self.host.view
        new = takewhile(lambda item: item.role != "assistant", reversed(view.items))
        return replace(
            prices,
            read=min(1.0, speed.kept() / speed.prefill_at(prices.prompt)),
            write=1.0,
            new=view.scaled(sum(item.size for item in new)),
        )

    def _state(self) -> LayerState:
        return LayerState(self.host, self.policy, self.host.current_window())

    def _find_due(self) -> list[DueMask]:
        """Return all masks that may be applied now."""
        state, due = self._state(), list[DueMask]()
        for layer in self.layers:
            due = layer.due(state, due)
        return due

    def _mask(self, due: Sequence[DueMask], trigger: str) -> None:
        for layer in self.layers:
            its = [
                replace(each, target={**each.target, **self._account(each)})
                for each in due
                if each.layer == layer.name
            ]
            if its:
                self.apply(layer, (layer.targets(self._state(), its), trigger))

    def _account(self, due: DueMask) -> dict[str, Any]:
        """Return the break-even figures of a mask for the log; an empty dict if there are none."""
        if due.id not in self.break_even.reading_cost:
            return {}
        read_for = round(self.break_even.read_for(due))
        return {"need_chance": round(due.need_chance, 4), "read_for": read_for}

    def _reaches_state(self, targets: Sequence[Mapping[str, Any]]) -> bool:
        """Return True if an edit reaches the state block, which is then written again."""
        state, seqs = self.host.view.state_seq(), (target.get("seq") for target in targets)
        return state is not None and any(isinstance(seq, int) and seq <= state for seq in seqs)

    def apply(self, layer: Layer, masks: Pass) -> bool:
        """Record a mask with these targets and emit the event. Return True if there are any."""
        targets, trigger = masks
        if not targets:
            return False
        started, view, count = time.monotonic(), self.host.view, len(targets)
        trigger = f"{layer.gate}: {trigger}" if layer.gate else trigger
        window = self.host.current_window()
        before, moves = window.tokens, layer.joins or self._reaches_state(targets)
        mask = Mask(
            layer=layer.name,
            targets=targets,
            tokens_before=before,
            tokens_after=before,
            trigger=trigger,
            state=state_block(self.host.ledger, window.size, view.summary, self.host.offered)
            if moves
            else "",
        )
        saved = view.scaled(view.size) - view.scaled(view.size_with(mask))
        if layer.joins and saved <= 0:  # possible for a few separate calls
            return True
        after = max(0, before - (saved if layer.by_user else max(0, saved)))
        self.host.record(replace(mask, tokens_after=after))
        seconds, text = time.monotonic() - started, layer.done_by(count)
        if not layer.is_silent(self.policy):
            self.host.emit(Compacted(layer.name, trigger, before, after, seconds, 0.0, count, text))
        return True
