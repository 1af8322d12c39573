"""The masks: the layers that put stubs in the place of results and inputs, each pass one entry.

What is due is planned elsewhere and purely (demote, microcompact, truncate); when it is done, and
that it is recorded and told, is decided here.
"""

import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from ..context import tokens
from ..context.view import Result, View
from ..context.window import Window
from ..events import Compacted
from ..record.archive import offload
from ..record.entries import Mask
from . import demote, microcompact, truncate
from .host import Host
from .policy import Policy, reached

Layer = Literal["demote", "microcompact", "truncate"]

BATCH = 0.01  # of the window: what truncating must save to be worth an edit of history
LEVEL_BATCH = 0.50  # of the window: see `Masks._level`
TOGETHER = 3  # times the limit of one result: what the results of one message may have in all
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
    account: microcompact.Account = field(default_factory=microcompact.Account)

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
        self._record("demote", targets, "HOOK-CTX-001: several results in one message")

    def clear(self, *, turn_start: bool) -> None:
        """Stubs for old results, when the policy says that it is time."""
        policy = self.policy
        clearing = None
        if policy.clear_when != "off":
            clearing = microcompact.plan(self.host.view, policy, str(self.host.folder))
        if clearing is None:
            return
        pays = policy.clear_when == "pays" and self.account.due(clearing, *self.host.prices())
        if policy.clear_when == "every-call":
            trigger = "every call"
        elif self._level(clearing):
            trigger = "level"
        elif policy.clear_when == "pays" and turn_start:
            trigger = "turn start"
        elif pays:
            trigger = "it pays"
        else:
            return
        self.account.settle()
        self._record("microcompact", clearing.targets, trigger)

    def _level(self, clearing: microcompact.Clearing) -> bool:
        """Whether the context has come to where results are cleared even if it does not pay.

        Where an account decides below that level, it has its say above it too, unless half of the
        window could go: in a small window the newest results and the stubs alone pass the level,
        and clearing one result before every call, each with its rewrite, cost 2.2 times as much as
        no clearing at all (400 results of 12 kB through 32k tokens).
        """
        window = self.host.measured()
        if self.policy.clear_when == "from" or not reached(self.policy.clear_from, window):
            return reached(self.policy.clear_from, window)
        after = Window(window.tokens - clearing.saved, window.size)
        enough = clearing.saved >= LEVEL_BATCH * window.size
        return enough and not reached(self.policy.clear_from, after)

    def clear_all(self) -> None:
        """Stubs for every result, when nothing else fits."""
        targets = microcompact.plan_all(self.host.view, str(self.host.folder))
        self._record("microcompact", targets, "nothing else fits")

    def truncate_all(self) -> None:
        """Short inputs for every call whose content is on disk, when nothing else fits: one that
        has only just been made may be larger than the window."""
        every = replace(self.policy, clear_keep=0)
        targets = truncate.plan(self.host.view, every, truncate.digest)
        self._record("truncate", targets, "nothing else fits")

    def truncate(self) -> None:
        """Short inputs for old calls whose content is on disk, from the policy's level on and
        several at a time."""
        if reached(self.policy.truncate_at, self.host.measured()):
            view, window = self.host.view, self.host.measured()
            targets = truncate.plan(view, self.policy, truncate.digest)
            if sum(_saved(view, target) for target in targets) * view.ratio > BATCH * window.size:
                self._record("truncate", targets, "HOOK-CTX-002: level")

    def _offloaded(self, result: Result) -> dict[str, Any] | None:
        """A target for a result whose text is in a file now; None when that fails."""
        content, seq = result.block.get("content"), result.item.seq
        if not isinstance(content, str):
            return None
        if result.offloaded:
            short = demote.brief(content)
            target = {"seq": seq, "tool_use_id": result.call.id, "stub": short}
            return target if short != content else None
        name = demote.name(result.call.name, seq, datetime.now())
        path = self.host.folder / "offloaded" / name
        plan = demote.plan(content, path=str(path), policy=replace(self.policy, demote_above=0))
        if plan is None:
            return None
        try:
            offload(path, content)
        except OSError:
            return None  # it stays in the context, as it would without a file
        return {"seq": seq, "tool_use_id": result.call.id, "stub": plan.reference}

    def _record(self, layer: Layer, targets: list[dict[str, Any]], trigger: str) -> None:
        if not targets:
            return
        started, view = time.monotonic(), self.host.view
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
