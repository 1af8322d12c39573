"""Edits of the context by the user: drop items, restore them, and summarise a part.

A plan is pure: it has the size and the price before and after. Applying it records one entry (a
mask, or a summary of everything up to an item), which `CompactionEngine.uncompact` undoes. The
pairs of calls and results stay complete: a dropped result keeps its call, and a dropped reply takes
its results along. The text that replaces an item names its ref, so Recall finds it.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Reversible, Sequence
from dataclasses import field, replace
from math import ceil, inf
from typing import Any, Literal

from ...tools.system.phrasing import shorten
from ...tools.system.unicode import replace_unprintable
from ..context import tokens
from ..context.items import SUMMARY_SOURCE, Item, ViewResult
from ..context.view import REINSERTED_SOURCES, View, fold
from ..errors import CompactionFailed, UsageError
from ..lazy import dataclass
from ..models.catalog import cost
from ..session.entries import (
    ATTACHMENT,
    LOADED_TOOLS,
    Entry,
    Mask,
    Revert,
    Session,
    Summary,
    Usage,
)
from .engine import CompactionEngine
from .history import acts_to_undo, why_not_in_context
from .layers.by_user import DropItems, RestoreItems, SummarizeSpan
from .layers.clear import stub
from .layers.layer import Layer, stub_target
from .layers.move import is_reference
from .span import span_cost_usd, span_tokens, summarize_span
from .summary.request import Cut, headline, unanswered_items

Action = Literal["drop", "restore", "compact", "undo"]
Author = Literal["user", "model"]
ItemState = Literal[
    "whole", "moved", "cleared", "truncated", "outlined", "dropped", "summarised", "summary"
]
TRIGGERS: dict[Author, str] = {"user": "by the user", "model": "by the model"}
_FROM_USER = ("AskUser", "Plan")  # tools whose results have the user's words
_MAX_ARGUMENT_CHARS = 80
_STAYING = (*REINSERTED_SOURCES, SUMMARY_SOURCE)
_KINDS = {"person": "message", "shell": "command", "": "reply"}  # by source


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One item of the context."""

    ref: int
    kind: str  # message, reply, result, command, or the source of another entry
    what: str  # on one line
    tokens: int  # as it is sent now
    whole: int  # tokens without any replacement
    state: ItemState
    pinned: bool
    age: int  # calls since then
    call_usd: float | None  # price of reading it from the cache once; None if unknown
    spent_usd: float | None  # price so far: written once, read by each call since then
    can_drop: bool
    can_restore: bool

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class EditPlan:
    """What an edit changes, and what that costs. Prices are None if the model's is unknown."""

    action: Action
    refs: tuple[int, ...]  # of the items that change
    tokens_before: int  # of the context
    tokens_after: int  # an estimate if a summary is written
    rewritten: int  # tokens after the first change, which are written to the cache again
    before_usd: float | None = None  # of reading the prompt from the cache, at each call
    after_usd: float | None = None
    rewrite_usd: float | None = None  # once, at the next call; 0 if the cache has expired
    summary_usd: float | None = 0.0  # of the request for a summary
    targets: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    cut: Cut | None = field(default=None, repr=False)
    in_place: bool = False  # whether a summary replaces a part after the beginning

    @property
    def pays_after(self) -> int | None:
        """The calls until the edit has paid for itself; None if never, or if prices are unknown."""
        prices = self.before_usd, self.after_usd, self.rewrite_usd, self.summary_usd
        before, after, rewrite, summary = prices
        if before is None or after is None or rewrite is None or summary is None or after >= before:
            return None
        return ceil((rewrite + summary) / (before - after))

    def to_json(self) -> dict[str, Any]:
        shown = [name for name in self.__slots__ if name not in ("targets", "cut", "in_place")]
        values = {name: getattr(self, name) for name in shown}
        return {**values, "refs": [*self.refs], "pays_after": self.pays_after}


@dataclass(slots=True)
class ContextEditor:
    """Edits the context of one conversation. An edit waits for the end of a model call, so it holds
    from the next call on.
    """

    engine: CompactionEngine
    entries: Callable[[], Reversible[Entry]]  # the whole log
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held during each model call

    @property
    def _view(self) -> View:
        return self.engine.host.view

    def items(self) -> list[ContextItem]:
        """Return the items of the context, oldest first."""
        view, host = self._view, self.engine.host
        replies = [item.seq for item in view.items if item.role == "assistant"]
        window = host.current_window()
        read = _per_token(host.model_id, Usage(cache_read=window.tokens))
        write = _per_token(host.model_id, Usage(cache_creation=window.tokens))
        results = {result.item.seq: result for result in view.results()}
        found = []
        for item in view.items:
            result, state = results.get(item.seq), _state(item, view)
            size, age = view.scaled(item.size), len(replies) - bisect_right(replies, item.seq)
            whole = item.measured or item.size
            if _can_restore(item):
                whole = item.measured or sum(map(tokens.estimate_block, item.blocks))
            call = None if read is None else read * size
            spent = None if write is None or call is None else write * size + call * age
            found.append(
                ContextItem(
                    item.seq,
                    _kind(item, result),
                    _what(item, result, view),
                    size,
                    view.scaled(whole),
                    state,
                    item.seq in host.ledger.pins,
                    age,
                    call,
                    spent,
                    _can_drop(item),
                    _can_restore(item),
                )
            )
        return found

    def plan_drop(self, refs: Sequence[int], *, author: Author = "user") -> EditPlan:
        """Plan to replace items by a line each. A reply takes the results of its calls along.
        Raises UsageError for a ref that cannot be dropped, and CompactionFailed if nothing is left
        to drop. The model may not drop what the user wrote.
        """
        view, folder = self._view, str(self.engine.host.folder)
        results = {result.item.seq: result for result in view.results()}
        its = _results_of_replies(view)
        targets: dict[int, dict[str, Any]] = {}
        for item in self._items_at(refs):
            if not _can_drop(item):
                if item.source == SUMMARY_SOURCE:
                    raise UsageError(f"#{item.seq} is a summary", hint="Undo it instead.")
                continue
            if author == "model" and not self._is_models(item, its.get(item.seq, [])):
                raise UsageError(
                    f"#{item.seq} is the user's; only the user can drop it",
                    hint="Drop replies and their results.",
                )
            if (result := results.get(item.seq)) is not None:
                targets.setdefault(item.seq, _dropped_result(result, view, folder, author))
            else:
                self._check_whole_client()
                text = _dropped_text(item, its.get(item.seq, []), view, author)
                targets[item.seq] = {"seq": item.seq, "text": text, "at": item.seq}
                for each in its.get(item.seq, []):
                    seq = each.item.seq
                    targets[seq] = {"seq": seq, "text": "", "at": item.seq}
        if not targets:
            raise CompactionFailed(
                "there is nothing to drop: only lines with refs are left of it",
                hint="Choose another item.",
            )
        return self._plan("drop", [targets[seq] for seq in sorted(targets)], DropItems)

    def plan_restore(self, refs: Sequence[int]) -> EditPlan:
        """Plan to show items whole again. Items that one text replaces come back together. Raises
        UsageError for a ref outside the context, and CompactionFailed if all items are whole.
        """
        view, found = self._view, set[int]()
        for item in self._items_at(refs):
            found |= {each.seq for each in view.shown_with(item) if _can_restore(each)}
        if not found:
            raise CompactionFailed(
                "there is nothing to restore: the items are whole, or their text is in a file",
                hint="Choose a cleared item.",
            )
        targets = [{"seq": seq, "whole": True} for seq in sorted(found)]
        return self._plan("restore", targets, RestoreItems)

    def plan_compact(
        self, first: int | None = None, last: int | None = None, *, before: int | None = None
    ) -> EditPlan:
        """Plan a summary of the items from `first` to `last`, both included. Without `first`, the
        summary replaces everything up to `last`, or everything before the item `before`. Without
        any of them, it replaces what a compaction would replace. A reply and its results stay
        together. Raises UsageError and CompactionFailed.
        """
        if first is last is before is None:
            return self._plan_beginning(None)
        start, end = self._range(first, last, before)
        return self._plan_span(start, end) if start else self._plan_beginning(end)

    async def drop(self, refs: Sequence[int], *, author: Author = "user") -> EditPlan:
        """Drop items. See `plan_drop`."""
        async with self.lock:
            plan = self.plan_drop(refs, author=author)
            self.engine.edit(DropItems(), [*plan.targets], TRIGGERS[author])
        return plan

    async def restore(self, refs: Sequence[int], *, author: Author = "user") -> EditPlan:
        """Restore items. See `plan_restore`."""
        async with self.lock:
            plan = self.plan_restore(refs)
            self.engine.edit(RestoreItems(), [*plan.targets], TRIGGERS[author])
            self.engine.host.rebuild_view()  # the layers have plans for the items as they were
        return plan

    async def compact(
        self,
        first: int | None = None,
        last: int | None = None,
        instructions: str = "",
        *,
        before: int | None = None,
        author: Author = "user",
    ) -> EditPlan:
        """Summarise a part. See `plan_compact`."""
        engine = self.engine
        async with self.lock:
            plan = self.plan_compact(first, last, before=before)
            cut = plan.cut
            if cut is not None and plan.in_place:
                host, log = engine.host, self.entries()
                text = await summarize_span(host, engine.policy, cut, log, instructions)
                at = cut.evicted[0].seq
                targets: list[dict[str, Any]] = [{"seq": at, "text": text, "at": at}]
                targets += [{"seq": i.seq, "text": "", "at": at} for i in cut.evicted[1:]]
                engine.edit(SummarizeSpan(), targets, TRIGGERS[author])
            else:
                await engine.compact(instructions, cut=cut)
            after = engine.host.current_window().tokens
        return self._priced(replace(plan, tokens_after=after))

    async def plan_undo(self) -> EditPlan:
        """Plan the undo of the newest compaction or edit. Raises CompactionFailed without one."""
        view, entries = self._view, [*self.entries()]
        before = {item.seq: item for item in view.items}
        reverts = [Revert(target=act.seq, reason="") for act in acts_to_undo(entries)]
        after = await asyncio.to_thread(fold, [*entries, *reverts])
        window = self.engine.host.current_window()
        changed = [n for n, item in enumerate(after.items) if before.get(item.seq) != item]
        plan = EditPlan(
            "undo",
            tuple(after.items[n].seq for n in changed),
            window.tokens,
            window.tokens + after.scaled(after.size) - view.scaled(view.size),
            after.scaled(sum(item.size for item in after.items[min(changed, default=0) :])),
        )
        return self._priced(plan)

    async def undo(self, seq: int | None = None) -> list[Mask | Summary]:
        """Undo the newest compaction or edit, or the one at `seq`."""
        async with self.lock:
            return self.engine.uncompact(self.entries(), seq)

    def _plan_beginning(self, end: int | None) -> EditPlan:
        """Plan a summary of the items before the index `end`; None for the cut of a compaction."""
        cut = None if end is None else self._cut(0, end, keeps_unanswered=True)
        planned = self.engine.preview(cut=cut)
        after = planned.tokens_after_estimate
        plan = EditPlan(
            "compact",
            tuple(ref for ref, _, _ in planned.dropped),
            planned.tokens_before,
            after,
            max(0, after - planned.fixed),
            summary_usd=planned.call_cost_usd if planned.call_tokens else 0.0,
            cut=cut,
        )
        return self._priced(plan)

    def _plan_span(self, start: int, end: int) -> EditPlan:
        """Plan a summary of the items between two indexes, in their place."""
        self._check_whole_client()
        host, view = self.engine.host, self._view
        cut, before = self._cut(start, end, keeps_unanswered=False), host.current_window().tokens
        written = span_tokens(host, cut)
        if written >= cut.tokens:
            raise CompactionFailed(
                f"a summary would not make the part smaller: {cut.tokens:,} → about {written:,} "
                "tokens",
                hint="Choose a longer part.",
            )
        plan = EditPlan(
            "compact",
            tuple(item.seq for item in cut.evicted),
            before,
            before - cut.tokens + written,
            written + view.scaled(sum(item.size for item in view.items[end:])),
            summary_usd=span_cost_usd(host, self.engine.policy, cut),
            cut=cut,
            in_place=True,
        )
        return self._priced(plan)

    def items_of_model(self) -> list[ContextItem]:
        """Return the items that the model may drop, the largest first."""
        items, view = {item.seq: item for item in self._view.items}, self._view
        its = _results_of_replies(view)
        found = [
            each
            for each in self.items()
            if each.can_drop and self._is_models(items[each.ref], its.get(each.ref, []))
        ]
        return sorted(found, key=lambda each: -each.tokens)

    def _is_models(self, item: Item, results: Sequence[ViewResult]) -> bool:
        """Return True for a reply or a result without words of the user and without a pin.
        `results` are those that leave the context with the item.
        """
        gone = {item.seq, *(each.item.seq for each in results)}
        return (
            not item.source
            and gone.isdisjoint(self.engine.host.ledger.pins)
            and not any(
                each.call.name in _FROM_USER or each.details.get("denied") for each in results
            )
        )

    def _items_at(self, refs: Sequence[int]) -> list[Item]:
        """Return the items with these refs, each once. Raises UsageError for a ref that has no item
        in the context.
        """
        found = []
        for ref in dict.fromkeys(refs):
            place = self._view.position(ref)
            if place is None:
                raise UsageError(f"#{ref} is not in the context", hint=self._where(ref))
            found.append(self._view.items[place])
        if not found:
            raise UsageError(
                "no ref given",
                hint="Give refs of items, such as 42. `ctxagent context` lists them.",
            )
        return found

    def _where(self, ref: int) -> str:
        """Return why an entry is not in the context."""
        reason = why_not_in_context(self.entries(), ref)
        return f"It was {reason}." if reason else "`ctxagent context` lists the refs."

    def _check_whole_client(self) -> None:
        """Raise UsageError in a session of the proxy, which can replace only results."""
        first = next(iter(self.entries()), None)
        if isinstance(first, Session) and first.client:
            raise UsageError(
                "in a session of the proxy, only results can be dropped",
                hint="Give the refs of results.",
            )

    def _range(self, first: int | None, last: int | None, before: int | None) -> tuple[int, int]:
        """Return the indexes where a part begins and ends. Results stay with their reply."""
        items = self._view.items
        if (last is None) == (before is None):
            raise UsageError(
                "a part needs its last item, or the item after it", hint="Give one of both."
            )
        given = [ref for ref in (first, last, before) if ref is not None]
        places = dict(zip(given, map(self._place, given), strict=True))
        start = 0 if first is None else places[first]
        end = places[before] if before is not None else places[last or 0] + 1
        while 0 < start < len(items) and _is_result(items[start]):
            start -= 1
        while end < len(items) and _is_result(items[end]):
            end += 1 if before is None else -1
        if start >= end:
            raise UsageError(
                "the part is empty: its end is before its beginning", hint="Exchange the two."
            )
        return start, end

    def _place(self, ref: int) -> int:
        (item,) = self._items_at([ref])
        place = self._view.position(item.seq)
        return place or 0

    def _cut(self, start: int, end: int, *, keeps_unanswered: bool) -> Cut:
        """Return the items to summarise. Of a part in the middle, entries that a summary would
        record again stay.
        """
        view = self._view
        items = view.items
        unanswered = {item.seq for item in unanswered_items(items, inf)}
        chosen = items[start:end]
        if keeps_unanswered:
            evicted = [item for item in chosen if item.seq not in unanswered]
        else:
            if waiting := [item.seq for item in chosen if item.seq in unanswered]:
                raise CompactionFailed(
                    f"#{waiting[0]} is not answered yet; the part must end before it",
                    hint="Choose an earlier end.",
                )
            evicted = [item for item in chosen if item.source not in _STAYING]
        if not any(item.source != SUMMARY_SOURCE for item in evicted):
            raise CompactionFailed(
                "there is nothing to summarise in this part", hint="Choose a longer part."
            )
        gone = {item.seq for item in evicted}
        keep_from = items[end].seq if end < len(items) else view.last_seq + 1
        keep = tuple(item.seq for item in items[:end] if item.seq not in gone)
        return Cut(tuple(evicted), keep_from, keep, view.scaled(sum(i.size for i in evicted)))

    def _plan(self, action: Action, targets: list[dict[str, Any]], layer: type[Layer]) -> EditPlan:
        """Return the plan of a mask."""
        view, window = self._view, self.engine.host.current_window()
        changed = view.copy()
        changed.add(
            Mask(layer=layer.name, targets=targets, tokens_before=0, tokens_after=0, trigger="")
        )
        place = view.position(targets[0]["seq"]) or 0
        rewritten = view.scaled(sum(item.size for item in changed.items[place:]))
        after = window.tokens + view.scaled(changed.size) - view.scaled(view.size)
        refs = tuple(target["seq"] for target in targets)
        plan = EditPlan(action, refs, window.tokens, after, rewritten, targets=tuple(targets))
        return self._priced(plan)

    def _priced(self, plan: EditPlan) -> EditPlan:
        """Return a plan with its prices."""
        host = self.engine.host
        model, after, written = (
            host.model_id,
            plan.tokens_after,
            min(plan.rewritten, plan.tokens_after),
        )
        read = cost(model, Usage(cache_read=after))
        once = cost(model, Usage(cache_read=after - written, cache_creation=written))
        rewrite = None if read is None or once is None else once - read
        return replace(
            plan,
            before_usd=cost(model, Usage(cache_read=plan.tokens_before)),
            after_usd=read,
            rewrite_usd=0.0 if rewrite is not None and host.cache_is_cold() else rewrite,
        )


def _per_token(model: str, usage: Usage) -> float | None:
    """Return the price of a token in a prompt like this one; None if it is unknown."""
    price = cost(model, usage)
    return None if price is None else price / max(1, usage.prompt)


def _is_result(item: Item) -> bool:
    """Return True for the result of a call, which must follow its reply."""
    kinds = [block.get("type") for block in item.blocks]
    return item.source != ATTACHMENT and "tool_result" in kinds


def _can_drop(item: Item) -> bool:
    """Return True unless a text replaces the item already, or it must stay."""
    is_stub = item.role == "user" and bool(item.stubs)
    return not (item.is_replaced or is_stub) and item.source not in (SUMMARY_SOURCE, LOADED_TOOLS)


def _can_restore(item: Item) -> bool:
    return item.is_masked or bool(item.inputs)


def _kind(item: Item, result: ViewResult | None) -> str:
    if _is_result(item):
        return "result"
    return _KINDS.get(item.source, item.source)


def _what(item: Item, result: ViewResult | None, view: View) -> str:
    """Describe an item on one line: calls by tool and argument, all else by its text."""
    calls = [c for id in _call_ids(item) if (c := view.calls.get(id))]
    if result is not None:
        calls = [result.call]
    if calls:
        named = (f"{c.name} {shorten(c.argument, _MAX_ARGUMENT_CHARS)}".rstrip() for c in calls)
        return replace_unprintable("; ".join(named))
    return replace_unprintable(headline(item).partition(": ")[2])


def _call_ids(item: Item) -> Iterator[str]:
    return (str(b.get("id")) for b in item.blocks if b.get("type") == "tool_use")


def _state(item: Item, view: View) -> ItemState:
    if item.source == SUMMARY_SOURCE:
        return "summary"
    if item.seq in view.dropped:
        return "dropped"
    if item.text is not None:
        return "dropped" if item.text_at in view.dropped else "summarised"
    if item.outline is not None:
        return "outlined"
    if item.stubs:
        return "moved" if any(map(is_reference, item.stubs.values())) else "cleared"
    if view.facts(item)[1] is not None:
        return "moved"
    return "truncated" if item.inputs else "whole"


def _results_of_replies(view: View) -> dict[int, list[ViewResult]]:
    """Return the results of each reply, and each result by itself, by the seq of the item."""
    found: dict[int, list[ViewResult]] = {}
    for result in view.results():
        for seq in {result.item.seq, result.call.seq}:
            found.setdefault(seq, []).append(result)
    return found


def _dropped_result(result: ViewResult, view: View, folder: str, author: Author) -> dict[str, Any]:
    text = stub(result, folder, act=f"dropped {TRIGGERS[author]}").text(view.scaled(result.size))
    return stub_target(result, text)


def _dropped_text(item: Item, results: Sequence[ViewResult], view: View, author: Author) -> str:
    """Return the line that replaces a message or a reply with its results."""
    size = view.scaled(item.size + sum(each.item.size for each in results))
    calls = [c for id in _call_ids(item) if (c := view.calls.get(id))]
    named = ", ".join(f'{c.name} "{shorten(c.argument, _MAX_ARGUMENT_CHARS)}"' for c in calls)
    what = f"a reply with {named}" if named else f"a {_kind(item, None)}"
    where = "".join(f", result #{each.item.seq}" for each in results)
    line = f"[{what} · {size:,} tokens dropped {TRIGGERS[author]} · full text: #{item.seq}{where}]"
    return replace_unprintable(line)
