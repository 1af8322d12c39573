"""The masks: the layers that put stubs in the place of results and inputs, each pass one entry.

What is due is planned elsewhere and purely (demote, microcompact, truncate); when it is done, and
that it is recorded and told, is decided here.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..context import tokens
from ..context.view import Result, View
from ..events import Compacted
from ..record.entries import Mask
from . import demote, microcompact, truncate
from .account import Account, Due
from .host import Host
from .moving import moved
from .policy import Policy, reached
from .summarize import MOST_AFTER

Layer = Literal["demote", "microcompact", "truncate"]

BATCH = 0.01  # of the window: what truncating must save to be worth an edit of history
TOGETHER = 3  # times the limit of one result: what the results of one message may have in all
GATES: dict[Layer, str] = {"demote": "HOOK-CTX-001: ", "truncate": "HOOK-CTX-002: "}  # of S1
DONE: dict[Layer, tuple[str, str]] = {  # for one, and for several
    "demote": ("result moved to a file", "results moved to files"),
    "microcompact": ("old result cleared", "old results cleared"),
    "truncate": ("input truncated", "inputs truncated"),
}


@dataclass(slots=True)
class Masks:
    """One conversation's. The account says when clearing pays (DESIGN section 5)."""

    host: Host
    policy: Policy
    account: Account = field(default_factory=Account)
    next: int | None = None  # where the next edit would begin, as it looks now
    due: list[Due] = field(default_factory=list)  # what may go and has not, as of this call

    def demote_together(self) -> None:
        """Results that are each small enough and together too much, before they are first sent:
        the largest go to files until the rest may stay. Of one that is in a file already, what is
        shown of it goes."""
        limit, view = self.policy.demote_above, self.host.view
        if limit is None:
            return
        most = min(TOGETHER * limit, self.host.measured().size // 4)
        fresh = sorted(_unsent(view), key=lambda result: result.size)
        total, targets = sum(result.size for result in fresh), []
        while fresh and total > most:
            result = fresh.pop()
            target = self._offloaded(result)
            if target is not None:
                targets.append(target)
                total -= result.size
        self._record("demote", targets, "several results in one message")

    def clear(self) -> None:
        """Stubs for old results, and short inputs for old calls, when the policy says that it is
        time."""
        policy, self.next, self.due = self.policy, None, []
        if policy.clear_when == "pays":
            self._clear_by_account()
            return
        if policy.clear_when != "off":
            due = microcompact.plan(self.host.view, policy, str(self.host.folder))
            if due and policy.clear_when == "every-call":
                self._take(due, "every call")
            elif due and reached(policy.clear_from, self.host.measured()):
                self._take(due, "level")
        self._truncate()

    def suffices(self) -> bool:
        """Whether clearing all that is due would leave as much room as a summary must. Where it
        leaves less, stubs alone fill much of the window, and the next clearing would come soon."""
        return self._is_enough(self.due)

    def instead(self) -> int | None:
        """The tokens that clearing all that may go by now would free, if that suffices."""
        due = self._found() if self.policy.clear_when == "pays" else []
        return sum(each.saved for each in due) if self._is_enough(due) else None

    def _is_enough(self, due: Sequence[Due]) -> bool:
        window = self.host.measured()
        after = window.tokens - sum(each.saved for each in due)
        return bool(due) and after <= MOST_AFTER * window.size

    def clear_instead(self) -> bool:
        """Take all that is due where that suffices; whether it did."""
        if not self.suffices():
            return False
        self._take(self.due, "instead of a summary")
        self.due = []
        return True

    def _clear_by_account(self) -> None:
        """What is due goes where reading it on costs more than the rewrite; all of it, when the
        cache has ended: then everything is written again anyway."""
        due, cold = self._found(), self.host.cold()
        read, write = self.host.prices()
        self.account.charge(due, read)
        edit = self.account.best(due, self.host.view, 0.0 if cold else write - read)
        self.next = edit.due[0].seq if edit else None
        self.due = due
        if edit and edit.pays:
            self._take(edit.due, "the cache has ended" if cold else "it pays")
            self.due = [each for each in due if each not in edit.due]

    def _found(self) -> list[Due]:
        """All results and inputs that may go now."""
        policy, view = self.policy, self.host.view
        due = microcompact.plan(view, policy, str(self.host.folder))
        if reached(policy.truncate_at, self.host.measured()):
            targets = truncate.plan(view, policy, self.host.digest)
            saved = (round(_saved(view, target) * view.ratio) for target in targets)
            pairs = zip(targets, saved, strict=True)
            due += [Due("truncate", target, saving) for target, saving in pairs if saving > 0]
        return due

    def _take(self, due: Sequence[Due], trigger: str) -> None:
        layers: tuple[Layer, ...] = ("microcompact", "truncate")
        for layer in layers:
            targets = [dict(each.target) for each in due if each.layer == layer]
            self._record(layer, targets, trigger)

    def clear_all(self) -> None:
        """Stubs for every result, when nothing else fits."""
        targets = microcompact.plan_all(self.host.view, str(self.host.folder))
        self._record("microcompact", targets, "nothing else fits")

    def truncate_all(self) -> None:
        """Short inputs for every call whose content is on disk, when nothing else fits: one that
        has only just been made may be larger than the window."""
        every = replace(self.policy, clear_keep=0)
        targets = truncate.plan(self.host.view, every, self.host.digest)
        self._record("truncate", targets, "nothing else fits")

    def _truncate(self) -> None:
        """Short inputs for old calls whose content is on disk, from the policy's level on and
        several at a time."""
        window = self.host.measured()
        if reached(self.policy.truncate_at, window):
            targets = truncate.plan(self.host.view, self.policy, self.host.digest)
            saved = sum(_saved(self.host.view, target) for target in targets)
            if saved * self.host.view.ratio > BATCH * window.size:
                self._record("truncate", targets, "level")

    def _offloaded(self, result: Result) -> dict[str, Any] | None:
        """A target for a result whose text is in a file now; None when that fails."""
        content, seq = result.block.get("content"), result.item.seq
        if not isinstance(content, str):
            return None
        if result.offloaded:
            short = demote.brief(content)
            target = {"seq": seq, "tool_use_id": result.call.id, "stub": short}
            return target if short != content else None
        every = replace(self.policy, demote_above=0)
        try:
            found = moved(
                content, tool=result.call.name, seq=seq, folder=self.host.folder, policy=every
            )
        except OSError:
            return None  # it stays in the context, as it would without a file
        if found is None:
            return None
        return {"seq": seq, "tool_use_id": result.call.id, "stub": found[0].reference}

    def _record(self, layer: Layer, targets: list[dict[str, Any]], trigger: str) -> None:
        if not targets:
            return
        started, view, trigger = time.monotonic(), self.host.view, GATES.get(layer, "") + trigger
        before = self.host.measured().tokens
        saved = round(sum(_saved(view, target) for target in targets) * view.ratio)
        after = max(0, before - max(0, saved))
        self.host.record(
            Mask(
                layer=layer,
                targets=targets,
                tokens_before=before,
                tokens_after=after,
                trigger=trigger,
            )
        )
        seconds, what = (
            time.monotonic() - started,
            f"{len(targets)} {DONE[layer][len(targets) > 1]}",
        )
        self.host.emit(Compacted(layer, trigger, before, after, seconds, 0.0, len(targets), what))


def _unsent(view: View) -> list[Result]:
    """Results that stand after the newest reply, so no request has held them yet."""
    newest = next((i.seq for i in reversed(view.items) if i.role == "assistant"), 0)
    return [r for r in view.results() if r.item.seq > newest and not r.masked]


def _saved(view: View, target: dict[str, Any]) -> int:
    """Unscaled tokens that one target takes out of the context."""
    place = view.position(target["seq"])
    if place is None:
        return 0
    if "stub" in target:
        return view.items[place].size - tokens.estimate(target["stub"])
    call = view.calls.get(target["tool_use_id"])
    old = tokens.of_block({"type": "tool_use", "input": call.input}) if call else 0
    return old - tokens.of_block({"type": "tool_use", "input": target["input"]})
