"""Run the layers that mask results and inputs with stubs; each pass is one entry.

The pure modules demote, microcompact and truncate plan what is due; this module decides when it is
done, records it and tells the front end.
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
from ...session.layer_words import WITH_SUMMARY, done_by
from ..host import EngineHost
from ..policy import Policy, reached, summary_due_at
from ..summary.request import max_tokens_after
from . import demote, images, microcompact, outline, short_outline, truncate
from .break_even import BreakEven, DueMask, PromptPrices
from .later_calls import input_ages, input_curve

LayerName = Literal["demote", "microcompact", "truncate", "outline"]

MIN_TRUNCATION_SHARE = 0.01  # of the window: less saved is not worth an edit of history
MESSAGE_LIMIT_FACTOR = 3  # times the limit of one result: what one message's results may have
GATES: dict[str, str] = {"demote": "HOOK-CTX-001: ", "truncate": "HOOK-CTX-002: "}


@dataclass(slots=True)
class LayerRunner:
    """The masking of results and inputs of one conversation."""

    host: EngineHost
    policy: Policy
    break_even: BreakEven = field(default_factory=BreakEven)  # says when clearing pays
    next_edit_seq: int | None = None  # where the next edit would begin, as it looks now
    due: list[DueMask] = field(default_factory=list)  # not masked yet, as of this call
    _stubs: microcompact.StubCache = field(default_factory=dict)
    _finished: outline.FinishedCache = field(default_factory=outline.FinishedCache)
    _short: short_outline.ShortOutlineCache = field(default_factory=short_outline.ShortOutlineCache)
    _found_at: int = -1  # the newest entry when `due` was all that may be masked

    def demote_together(self) -> None:
        """Move the largest results that are not answered yet to files, until the rest is small
        enough together. Of one that is in a file already, the preview goes."""
        limit, view = self.policy.demotes_above("Read"), self.host.view  # the largest
        if limit is None:
            return
        room = min(MESSAGE_LIMIT_FACTOR * limit, self.host.current_window().size // 4)
        new = sorted(
            (result for result in view.unanswered_results() if not result.masked),
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
        """Take out the oldest images where a request would hold too many, or too large ones; all
        where the model takes none."""
        if not self.host.takes_images():
            self.drop_all_images()
            return
        unseen = {result.item.seq for result in self.host.view.unanswered_results()}
        self._record("microcompact", images.plan(self.host.view, unseen), images.OVER_BOUND)

    def drop_images(self, refusal: str, *, only_unseen: bool) -> bool:
        """Take out images that a server refused: the one that it names, else those that the model
        has seen, else the others. Return whether there were any."""
        unseen = {result.item.seq for result in self.host.view.unanswered_results()}
        found = images.results_with_images(self.host.view)
        new = [result for result in found if result.item.seq in unseen]
        old = [result for result in found if result not in new and not only_unseen]
        refused = images.named_in(refusal, self.host.view) or old or new
        self._record("microcompact", images.targets(refused, images.REFUSED), images.REFUSED)
        return bool(refused)

    def drop_all_images(self) -> bool:
        """Take out all images; return whether there were any."""
        found = images.targets(images.results_with_images(self.host.view), images.NOT_TAKEN)
        self._record("microcompact", found, images.NOT_TAKEN)
        return bool(found)

    def clear(self, window: Window) -> None:
        """Mask old results and inputs, if the policy says that it is time with the context at the
        size of `window`."""
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
        """Return whether masking all that is due would leave as much room as a summary must. Where
        it leaves less, stubs fill much of the window, and the next clearing would come soon."""
        return self._leaves_room(self.due)

    def tokens_freed_if_enough(self) -> int | None:
        """Return what masking all that may go now would free; None if it is not enough."""
        due = self._find_due() if self.policy.clear_when == "pays" else []
        return sum(each.saved for each in due) if self._leaves_room(due) else None

    def clear_if_enough(self) -> bool:
        """Mask what is due if that leaves enough room; return whether it did. Of the edits that
        leave enough, the one that gains most is made; all that is due goes where none does."""
        if not self.is_enough():
            return False
        needed = self.host.current_window().tokens - self._most_to_leave()
        edit = self.break_even.best_edit(self.due, self.host.view, self.prices(), needed)
        chosen = edit.due if edit else tuple(self.due)
        self._mask(chosen, "instead of a summary")
        done = {each.id for each in chosen}
        self.due = [each for each in self.due if done.isdisjoint(each.ids)]
        return True

    def clear_by_extensions(self) -> None:
        """Mask what the layers of extensions plan."""
        for name, targets in self.host.more_masks():
            self._record(name, [*targets], "a layer of an extension")

    def clear_all(self, *, answered_only: bool) -> None:
        """Replace every result by a stub, when nothing else fits; with `answered_only` those the
        model has not answered yet stay."""
        folder = str(self.host.folder)
        targets = microcompact.plan_all(self.host.view, folder, answered_only=answered_only)
        self._record("microcompact", targets, "nothing else fits")

    def truncate_all(self) -> None:
        """Shorten the input of every call whose content is on disk, when nothing else fits: also
        of the newest calls, since one of them may be larger than the window."""
        every = replace(self.policy, clear_keep=0)
        targets = truncate.plan(self.host.view, every, self.host.file_sha256)
        self._record("truncate", targets, "nothing else fits")

    def cost_of_misses(self, seqs: Collection[int]) -> float:
        """Return what it will cost, by their chances, that these entries are needed after they have
        left the context; in tokens at the price of input."""
        prices, is_found = self.prices(), self._found_at == self.host.view.last_seq
        due = self.due if is_found else self._find_due()
        return sum(prices.miss(each) for each in due if each.seq in seqs)

    def _leaves_room(self, due: Sequence[DueMask]) -> bool:
        """Return whether masking these leaves as much room as a summary must when it is due."""
        after = self.host.current_window().tokens - sum(each.saved for each in due)
        return bool(due) and after <= self._most_to_leave()

    def _most_to_leave(self) -> int:
        """Return the most tokens that a summary may leave when it is due."""
        window = self.host.current_window()
        due_at = summary_due_at(self.policy, window) or 0
        full = replace(window, tokens=max(window.tokens, due_at))
        return max_tokens_after(full, must_halve=True)

    def _clear_if_it_pays(self) -> None:
        """Mask what costs more to read on than the rewrite of the history after it. When the cache
        has expired that is all that is due: then everything is written again anyway."""
        due, prices = self._find_due(), self.prices()
        self.break_even.charge_reading(due, prices)
        edit = self.break_even.best_edit(due, self.host.view, prices)
        self.next_edit_seq = edit.due[0].seq if edit else None
        self.due, self._found_at = due, self.host.view.last_seq
        if edit and edit.pays:
            self._mask(edit.due, "the cache has ended" if prices.is_cold else "it pays")
            done = {each.id for each in edit.due}
            self.due = [each for each in due if done.isdisjoint(each.ids)]

    def clear_after_summary(self) -> None:
        """Mask what pays right after a summary, when the next call writes all that stands after it
        to the cache anyway."""
        if self.policy.clear_when != "pays":
            return
        due, prices = self._find_due(), replace(self.prices(), is_cold=True)
        edit = self.break_even.best_edit(due, self.host.view, prices)
        if edit and edit.pays:
            self._mask(edit.due, WITH_SUMMARY)

    def prices(self) -> PromptPrices:
        """Return the prices of the next prompt."""
        cache = self.host.cache_terms()
        return PromptPrices(
            read=cache.read,
            write=cache.write,
            prompt=self.host.current_window().tokens,
            factor=self.host.price_factor,
            is_cold=self.host.cache_is_cold(),
        )

    def _find_due(self) -> list[DueMask]:
        """Return all results and inputs that may be masked now."""
        policy, view = self.policy, self.host.view
        due = microcompact.plan(view, policy, str(self.host.folder), self._stubs)
        if reached(policy.truncate_at, self.host.current_window()):
            ages = input_ages(view)
            for target in truncate.plan(view, policy, self.host.file_sha256):
                saved = view.scaled(_saved_tokens(view, target))
                if saved > 0:
                    id = target["tool_use_id"]
                    chance = input_curve(view.calls[id]).at(ages[id])
                    due.append(DueMask("truncate", target, saved, chance))
        if not policy.outline:
            return due
        shorter = short_outline.plan(view, self._finished, self._short)
        return [*shorter, *outline.plan(view, policy, due, self._finished)]

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
        """Shorten old inputs from the policy's level on, several at a time."""
        if reached(self.policy.truncate_at, window):
            targets = truncate.plan(self.host.view, self.policy, self.host.file_sha256)
            saved = sum(_saved_tokens(self.host.view, target) for target in targets)
            if self.host.view.scaled(saved) > MIN_TRUNCATION_SHARE * window.size:
                self._record("truncate", targets, "level")

    def _demoted(self, result: ViewResult) -> dict[str, Any] | None:
        """Move a result to a file and return a mask's target for it; None when that fails."""
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
            return None  # it stays in the context, as it would without a file
        return _target(result, demoted[0].reference) if demoted else None

    def _record(self, layer: str, targets: list[dict[str, Any]], trigger: str) -> None:
        """Record a mask with these targets, if there are any, and tell the front end."""
        if not targets:
            return
        started, view, trigger = time.monotonic(), self.host.view, GATES.get(layer, "") + trigger
        before, count = self.host.current_window().tokens, len(targets)
        mask = Mask(
            layer=layer,
            targets=targets,
            tokens_before=before,
            tokens_after=before,
            trigger=trigger,
        )
        saved = view.scaled(view.size) - view.scaled(view.size_with(mask))
        if layer == "outline" and saved <= 0:  # of few calls that stand apart
            return
        after = max(0, before - max(0, saved))
        self.host.record(replace(mask, tokens_after=after))
        seconds, text = time.monotonic() - started, done_by(layer, count)
        if layer != "microcompact" or not self.policy.clear_silently:
            self.host.emit(Compacted(layer, trigger, before, after, seconds, 0.0, count, text))


def _account(due: DueMask, read_for: Mapping[str, float]) -> dict[str, Any]:
    """Return what the account said of a mask, for the log; nothing where none was kept."""
    if due.id not in read_for:
        return {}
    return {"need_chance": round(due.need_chance, 4), "read_for": round(read_for[due.id])}


def _target(result: ViewResult, stub: str) -> dict[str, Any]:
    return {"seq": result.item.seq, "tool_use_id": result.call.id, "stub": stub}


def _saved_tokens(view: View, target: dict[str, Any]) -> int:
    """Return the unscaled tokens that one shortened input takes out of the context."""
    call = view.calls.get(target["tool_use_id"])
    old = tokens.estimate_block({"type": "tool_use", "input": call.input}) if call else 0
    return old - tokens.estimate_block({"type": "tool_use", "input": target["input"]})
