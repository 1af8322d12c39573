"""The view: what the model sees, folded from the entries of a log.

`fold(entries)` and adding the same entries one by one to a `View` give equal views. The cost of
adding does not depend on the length of the log. Pure: no clock, disk or settings, so a view in a
new process equals the live one.

A request has the thinking and the call signatures of its own model only. Those of another model are
shown again when that model is used again. Newer models bind each thinking block to everything
before it. So an edit of history (a mask, a summary) hides the thinking after it, except after a
summary by the API (`items`). Thinking from requests with another system prompt or other
tools is hidden until that prompt and those tools are used again.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from itertools import islice, takewhile
from typing import Any

from ..lazy import dataclass
from ..session.codec import Derived
from ..session.entries import (
    ATTACHMENT,
    DROP,
    FREE,
    HOOK,
    LOADED_TOOLS,
    MEMORY,
    PLAN,
    SKILL,
    SKILL_LIST,
    Assistant,
    Block,
    Entry,
    Mask,
    Revert,
    Session,
    Summary,
    ToolResult,
    Usage,
    User,
    attachment_call,
    reverted_seqs,
)
from ..session.searches import FOUND, SEARCH_TOOL, is_search
from . import tokens
from .items import (
    SUMMARY_SOURCE,
    THINKING,
    UNNUMBERED,
    Call,
    Item,
    RequestBase,
    Role,
    ViewResult,
    shown_blocks,
    without_line_numbers,
)

REFUSAL = "refusal"  # a stop reason
# Sources re-inserted after a summary.
REINSERTED_SOURCES = (
    "environment", "instructions", PLAN, SKILL_LIST, SKILL, MEMORY, HOOK, LOADED_TOOLS,
)  # fmt: skip
MIN_JUDGED_TOKENS = 1_000  # an estimation error is divided by at least this number of tokens
MAX_CREDIBLE_FACTOR = 3.0  # ignore a usage that differs from the estimate by a larger factor
MIN_ERROR, MAX_ERROR = 0.4, 0.5  # limits of `View.error`; a single text may err by the minimum
ERROR_FACTOR = 2  # safety factor on a measured error, because the next one may be larger
ERROR_DECAY = 0.99  # per reply: decay old estimation errors
# Stop reasons that this program adds: the user interrupted the reply, or its text repeated.
INTERRUPTED, REPEATED = "interrupted", "repetition"


@dataclass(slots=True)
class View:
    """The model's view of a session. All sizes are estimates in unscaled tokens. `scaled` converts
    them to real tokens at the ratio of the newest usage: exact for the content counted by that
    usage, an estimate for later additions.
    """

    model: str = ""
    binds_thinking: bool = True  # the model binds its thinking to everything before it
    system: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    size: int = 0  # of all items, system and tools
    # The size of all additions and removals since the newest credible usage. The size of the whole
    # view if there is no usage yet or the prefix has changed since.
    size_changed: int = 0
    ratio: float = 1.0  # real tokens per estimated token, according to that usage
    error: float = MIN_ERROR  # possible shortfall of an estimate, as a share of it; learned
    last_seq: int = 0
    edits: int = 0  # number of edits of history
    calls: dict[str, Call] = field(default_factory=dict)
    summary: Summary | None = None  # the newest summary, which is the view's first item
    # Calls whose masks the user reverted. They are not masked again.
    unmasked_calls: set[str] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)  # seqs of the items that the user dropped
    _bases: list[RequestBase] = field(default_factory=lambda: [RequestBase()])  # oldest first
    _ratios: dict[str, float] = field(default_factory=dict)  # by model
    _positions: dict[int, int] = field(default_factory=dict)
    _facts: dict[int, tuple[dict[str, Any], str | None]] = field(default_factory=dict)
    # Used several times before each call, so only new items are scanned.
    _listed: "_Listed" = field(
        default_factory=lambda: _Listed(), init=False, compare=False, repr=False
    )

    def add(self, entry: Entry, *, edited: bool = False) -> None:
        """Fold one more entry. `edited` means that the history before the entry has changed since
        it was written. Raises ValueError for a `revert`, which needs `fold` over the whole log.
        """
        self.last_seq = max(self.last_seq, entry.seq)
        if isinstance(entry, User):
            self._append(entry.seq, "user", self._user_blocks(entry)).source = entry.source
            if entry.details or entry.offloaded:
                self._facts[entry.seq] = (entry.details, entry.offloaded)
        elif isinstance(entry, ToolResult):
            shown = entry.content
            if isinstance(shown, str) and entry.details.get(UNNUMBERED) is True:
                shown = without_line_numbers(shown) or shown
            block: Block = {
                "type": "tool_result",
                "tool_use_id": entry.tool_use_id,
                "content": shown,
                "is_error": entry.is_error,
            }
            self._append(entry.seq, "user", [block])
            self._facts[entry.seq] = (entry.details, entry.offloaded)
        elif isinstance(entry, Assistant):
            self._add_assistant(entry, edited)
        elif isinstance(entry, Session):
            self._add_session(entry)
        elif isinstance(entry, Mask):
            self._add_mask(entry)
        elif isinstance(entry, Summary):
            self._add_summary(entry)
        elif isinstance(entry, Revert):
            raise ValueError("a revert changes what was folded before it: use fold()")

    def scaled(self, size: int) -> int:
        """Return an estimated size of this view in real tokens."""
        return round(size * self.ratio)

    def prompt_tokens(self) -> tuple[int, int]:
        """Return the tokens of the next prompt, and how many of them are estimated. Estimated are
        the changes since the newest usage, at most the whole view.
        """
        return self.scaled(self.size), self.scaled(min(self.size_changed, self.size))

    def copy(self) -> "View":
        """Return a copy that accepts masks and summaries and that another thread may read. Blocks
        are shared, because they never change.
        """
        items = [item.copy() for item in self.items]
        return replace(self, items=items, calls={**self.calls})

    def size_with(self, act: Mask | Summary) -> int:
        """Return the size of this view after one more mask or summary."""
        stay = self._remaining_items(act) if isinstance(act, Summary) else self.items
        changed = replace(self, items=[item.copy() for item in stay], _facts={})
        changed.size -= sum(item.size for item in self.items) - sum(item.size for item in stay)
        changed.add(act)
        return changed.size

    def results(self) -> Sequence[ViewResult]:
        """Return the tool results in the view, oldest first."""
        return self._listed.after(self).results

    def searches(self) -> Sequence[ViewResult]:
        """Return the results of web searches, which are parts of replies, oldest first."""
        return self._listed.after(self).searches

    def facts(self, item: Item) -> tuple[dict[str, Any], str | None]:
        """Return the details of an item's entry, and the file with its full text."""
        return self._facts.get(item.seq, ({}, None))

    def is_unnumbered(self, item: Item) -> bool:
        """Return True if an item is shown without the line numbers of its entry."""
        return self.facts(item)[0].get(UNNUMBERED) is True

    def unanswered_results(self) -> list[ViewResult]:
        """Return the results after the newest reply with a text or a call, oldest first. The model
        has not seen them, or was interrupted before it answered them.
        """
        begin = len(self.items)
        while begin and not _answers(self.items[begin - 1]):
            begin -= 1
        newer = takewhile(lambda r: self._positions[r.item.seq] >= begin, reversed(self.results()))
        return [*newer][::-1]

    def thinking_items(self) -> list[Item]:
        """Return the replies whose thinking is in the view, oldest first."""
        return [
            item for item in self.items
            if item.thinking and any(block.get("type") in THINKING for block in shown_blocks(item))
        ]  # fmt: skip

    def position(self, seq: int) -> int | None:
        """Return the index of an entry's item, or None if the entry is not in the view."""
        return self._positions.get(seq)

    def _append(self, seq: int, role: Role, blocks: list[Block], size: int | None = None) -> Item:
        """Append an item. Without a size, estimate it."""
        if size is None:
            size = sum(map(tokens.estimate_block, blocks))
        item = Item(seq, role, blocks, size)
        self._positions[seq] = len(self.items)
        self.items.append(item)
        self.size += item.size
        self.size_changed += item.size
        return item

    def _user_blocks(self, entry: User) -> list[Block]:
        """Return the blocks of a user entry. An attachment is stored as a tool result, so that
        compaction can shrink it like one. `shown_blocks` unwraps it.
        """
        content = entry.content
        if entry.source == ATTACHMENT:
            call = Call(f"{ATTACHMENT}-{entry.seq}", entry.seq, *attachment_call(entry))
            self.calls[call.id] = call
            return [{"type": "tool_result", "tool_use_id": call.id, "content": content}]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    def _add_assistant(self, entry: Assistant, edited: bool) -> None:
        # A refused reply in the context would make the model refuse again.
        if entry.purpose != "turn" or entry.stop_reason == REFUSAL:
            return
        before, (expected, estimated) = max(self.size, 1), self.prompt_tokens()
        base = self._base_at(entry.request.get("upto"))
        is_known = not edited and base.model == self.model
        usage = Usage.from_json(entry.usage) if is_known else Usage()
        # A usage counts search results as prompt, and the prompt once per search.
        is_credible = (
            1 / MAX_CREDIBLE_FACTOR <= usage.prompt / before <= MAX_CREDIBLE_FACTOR
            and not any(block.get("type") == FOUND for block in entry.content)
        )
        # Of an interrupted reply, the size of the kept part is unknown.
        is_measured = is_credible and entry.stop_reason not in (INTERRUPTED, REPEATED)
        item = self._append(entry.seq, "assistant", entry.content, 0 if is_measured else None)
        item.base, item.edited = base, edited
        self._show(item)
        if not edited and any(block.get("altered") for block in entry.content):
            self._hide_thinking_of_base(base)
        item.stop_reason = entry.stop_reason
        for block in entry.content:
            arguments = block.get("input")
            name = SEARCH_TOOL if is_search(block) else str(block.get("name"))
            is_call = block.get("type") == "tool_use" or name == SEARCH_TOOL
            if is_call and isinstance(arguments, dict):
                call = Call(str(block.get("id")), entry.seq, name, arguments)
                self.calls[call.id] = call
                if call.id in self._listed.ids:  # the result came before the call
                    self._listed = _Listed()
        if not is_credible:
            return
        short = (usage.prompt - expected) / max(estimated, MIN_JUDGED_TOKENS)
        feared = max(ERROR_FACTOR * short, ERROR_DECAY * self.error)
        self.error = min(MAX_ERROR, max(MIN_ERROR, feared))
        self.ratio = usage.prompt / before
        if is_measured:
            item.size = item.measured = round(usage.output / self.ratio)
            self.size_changed = 0
            self.size = before + item.size
            self.ratio = usage.total / self.size
        else:
            self.size_changed = item.size

    def _add_session(self, entry: Session) -> None:
        binds_thinking = entry.thinking != FREE
        changed = (entry.model, binds_thinking) != (self.model, self.binds_thinking)
        self._ratios[self.model] = self.ratio
        self.ratio = self._ratios.get(entry.model, self.ratio)
        self.model, self.binds_thinking = entry.model, binds_thinking
        if entry.system is not None and entry.system != self.system:
            self.size += tokens.estimate(entry.system) - tokens.estimate(self.system)
            self.system, changed = entry.system, True
        if entry.tools is not None and entry.tools != self.tools:
            self.size += tokens.estimate_content(entry.tools)
            self.size -= tokens.estimate_content(self.tools)
            self.tools, changed = entry.tools, True
        if changed:
            prompt = json.dumps([self.system, self.tools]).encode()
            base = RequestBase(entry.seq, self.model, hashlib.sha256(prompt).hexdigest()[:16])
            # Older versions dropped all earlier thinking permanently, from every request.
            is_old = not entry.thinking
            self._bases = [replace(base, since=0)] if is_old else [*self._bases, base]
            self.edits += 1
            for item in self.items:
                if is_old:
                    item.base, item.edited = base, True
                self._show(item)
            self.size_changed = self.size

    def _add_mask(self, entry: Mask) -> None:
        self._listed = _Listed()
        first: int | None = None
        for target in entry.targets:
            seq = target.get("seq") if isinstance(target, dict) else None
            place = self._positions.get(seq) if isinstance(seq, int) else None
            if place is None:
                continue
            item, call = self.items[place], str(target.get("tool_use_id", ""))
            if target.get("thinking") is False:
                item.without_thinking = True
                self._show(item)
                continue
            if target.get("whole") is True:
                item.restore()
                self.dropped = self.dropped - {item.seq}  # a copy of the view may share the set
                self.unmasked_calls = self.unmasked_calls | _call_ids(item)
                after = place
            elif isinstance(target.get("text"), str):
                item.text, item.masked_at = target["text"], entry.seq
                item.text_at = target["at"] if isinstance(target.get("at"), int) else item.seq
                after = place
            elif isinstance(target.get("stub"), str):
                item.stubs[call], item.masked_at = target["stub"], entry.seq
                # Thinking may follow a search in the same message.
                after = place + (item.role == "user")
            elif isinstance(target.get("input"), dict):
                item.inputs[call] = target["input"]
                after = place  # thinking may follow the call in the same message
            elif isinstance(target.get("outline"), str):
                after = self._outline(item, target.get("reply"), target["outline"])
                item.masked_at = item.masked_at or entry.seq
            else:
                continue
            if entry.layer == DROP:
                self.dropped = self.dropped | {item.seq}
            self._resize(item)
            first = after if first is None else min(first, after)
        if entry.state and (moved := self._move_state(entry.state)) is not None:
            first = moved if first is None else min(first, moved)
        if first is not None:
            self._hide_thinking_from(first)

    def shown_with(self, item: Item) -> list[Item]:
        """Return the items that one text of the user's or one outline replaces, `item` among them.
        Return the item alone if nothing replaces it.
        """
        if item.text is not None:
            at = item.text_at
            return [each for each in self.items if each.text is not None and each.text_at == at]
        place = self._positions[item.seq]
        if item.outline is None:
            return [item]
        first = last = place
        while first and self.items[first - 1].outline == "":
            first -= 1
        while self.items[last].outline == "" and last + 1 < len(self.items):
            last += 1
        return self.items[first : last + 1]

    def _move_state(self, text: str) -> int | None:
        """Show the state block behind the newest outlined item and nowhere else. Return the index
        of the first changed item; None if there is none.
        """
        outlined = [
            n for n, item in enumerate(self.items) if item.outline is not None and item.text is None
        ]
        changed = [n for n, item in enumerate(self.items) if item.state] + outlined[-1:]
        for place in dict.fromkeys(changed):
            item = self.items[place]
            item.state = text if place in outlined[-1:] else ""
            self._resize(item)
        return min(changed, default=None)

    def state_seq(self) -> int | None:
        """Return the seq of the item that the state block follows; None if there is no block."""
        return next((item.seq for item in reversed(self.items) if item.state), None)

    def _outline(self, item: Item, reply_seq: object, text: str) -> int:
        """Replace a result, and the reply that made its call, by an outline. Return the index of
        the first changed item.
        """
        item.outline, place = text, self._positions[item.seq]
        found = self._positions.get(reply_seq) if isinstance(reply_seq, int) else None
        if found is None:
            return place
        place = found
        reply = self.items[place]
        reply.outline = ""
        self._resize(reply)
        return place

    def _add_summary(self, entry: Summary) -> None:
        self.summary, self._listed = entry, _Listed()
        tail = self._remaining_items(entry)
        for item in tail if not entry.keeps_thinking else ():
            if item.state:  # the summary has these facts
                item.state = ""
                self._resize(item)
        self.size -= sum(i.size for i in self.items)
        self.items, self._positions = [], {}
        text: Block = {"type": "text", "text": entry.text}
        first = entry.block if isinstance(entry.block, dict) else text
        self._append(entry.seq, "user", [first]).source = SUMMARY_SOURCE
        for item in tail:
            self._positions[item.seq] = len(self.items)
            self.items.append(item)
            self.size += item.size
        if first is not text:
            self._append(entry.seq, "user", [text]).source = SUMMARY_SOURCE
            self._positions[entry.seq] = 0
        left = {item.seq for item in self.items}
        self.calls = {id: call for id, call in self.calls.items() if call.seq in left}
        self._facts = {seq: facts for seq, facts in self._facts.items() if seq in left}
        self._hide_thinking_from(1, keeps_shown=entry.keeps_thinking)
        self.size_changed = self.size

    def _remaining_items(self, entry: Summary) -> list[Item]:
        """Return the items that stay in the view after a summary."""
        kept = {seq for seq in entry.keep if isinstance(seq, int)}
        return [
            item
            for item in self.items
            if (item.seq in kept or item.seq >= entry.keep_from)
            and not (entry.replaces_earlier and item.source == SUMMARY_SOURCE)
        ]

    def _base_at(self, upto: object) -> RequestBase:
        """Return the base of a request whose newest entry was `upto`."""
        newest = self._bases[-1]
        if not isinstance(upto, int):
            return newest
        return next((base for base in reversed(self._bases) if base.since <= upto), newest)

    def _hide_thinking_of_base(self, base: RequestBase) -> None:
        """Hide all earlier thinking of requests with this base. Later thinking stays bound to the
        items before it.
        """
        for item in self.items:
            if item.base.matches(base):
                item.edited = True
                self._show(item)

    def _hide_thinking_from(self, start: int, *, keeps_shown: bool = False) -> None:
        """Count an edit of history, and hide the thinking from the item at index `start` on,
        because history before it changed. With `keeps_shown`, count no edit and keep the thinking
        that is currently shown.
        """
        self.edits += not keeps_shown
        for item in self.items[start:]:
            if not (keeps_shown and item.thinking):
                item.edited = True
                self._show(item)

    def _show(self, item: Item) -> None:
        """Update which thinking and signatures of an item the current model may get."""
        if item.role == "user":
            return
        item.by_other_model = item.base.model != self.model
        bound = item.edited or not item.base.matches(self._bases[-1])
        hidden = item.by_other_model or item.without_thinking
        thinking = not hidden and not (self.binds_thinking and bound)
        changed, item.thinking = thinking != item.thinking, thinking
        if changed and any(block.get("type") in THINKING for block in item.blocks):
            self._resize(item)

    def _resize(self, item: Item) -> None:
        before, shown = item.size, shown_blocks(item)
        item.size = sum(tokens.estimate_block(b) for b in shown)
        if item.measured and shown == item.blocks:
            item.size = item.measured
        self.size += item.size - before
        self.size_changed += abs(item.size - before)


class _Listed(Derived):
    """A cache of the results in a view, up to the last item scanned. A change of an earlier item
    replaces the whole cache.
    """

    __slots__ = ("_count", "ids", "results", "searches")

    def __init__(self) -> None:
        self.results = list[ViewResult]()
        self.searches = list[ViewResult]()
        self.ids = set[str]()  # call IDs that the results name
        self._count = 0  # number of items scanned

    def after(self, view: View) -> "_Listed":
        """Scan the new items of a view."""
        for item in islice(view.items, self._count, None):
            if item.role == "user":
                self._add(view, item, item.blocks[:1], "tool_result")
            else:
                self._add(view, item, item.blocks, FOUND)
        self._count = len(view.items)
        return self

    def _add(self, view: View, item: Item, blocks: Iterable[Block], kind: str) -> None:
        for block in blocks:
            if block.get("type") != kind:
                continue
            id = str(block.get("tool_use_id"))
            self.ids.add(id)
            if (call := view.calls.get(id)) is None:
                continue
            masked = id in item.stubs or item.is_replaced
            if kind == FOUND:
                size = tokens.estimate_block(block)
                self.searches.append(ViewResult(item, block, call, size, masked, {}, None))
            else:
                facts = view.facts(item)
                self.results.append(ViewResult(item, block, call, item.size, masked, *facts))


@dataclass(slots=True)
class Folding:
    """A view that still receives entries, with the state needed to fold them."""

    view: View = field(default_factory=View)
    reverted: set[int] = field(default_factory=set)  # seqs that are reverted so far
    # Whether the last entry is a reverted summary, or was re-inserted after one.
    dropping_reinserted: bool = False

    def add(self, entry: Entry) -> bool:
        """Fold one more entry. Return False if the entry changes already folded history; the log
        then needs `start_folding`.
        """
        act = isinstance(entry, (Mask, Summary))
        if isinstance(entry, Revert) or (act and entry.seq in self.reverted):
            return False
        self.dropping_reinserted = self.dropping_reinserted and _is_reinserted(entry)
        if self.dropping_reinserted:
            self.view.last_seq = max(self.view.last_seq, entry.seq)
        else:
            self.view.add(entry)
        return True


def fold(entries: Iterable[Entry]) -> View:
    """Return the view of a log: all entries in order, without the reverted ones.

    A reverted summary also removes the entries that were re-inserted right after it. A reply loses
    its thinking and usage if other masks and summaries were active when it was given than are
    active now. The entries are read once, or three times if something is reverted.
    """
    folding = Folding()
    if not all(map(folding.add, entries)):
        folding = start_folding(entries)
    return folding.view


def start_folding(entries: Iterable[Entry]) -> Folding:
    """Fold a log that has reverts, as `fold` does, and return the folding so that more entries can
    be added. The entries are read twice.
    """
    acts, reverts = set[int](), list[Revert]()
    for entry in entries:
        if isinstance(entry, Mask | Summary):
            acts.add(entry.seq)
        elif isinstance(entry, Revert):
            reverts.append(entry)
    folding = Folding(reverted=reverted_seqs(reverts))
    reverted = acts & folding.reverted
    passed: list[Revert] = []
    # The first mask or summary that was active at this point of the log but is not now, or the
    # other way round.
    changed = min(reverted, default=None)
    view, dropping = folding.view, False
    for entry in entries:
        undone = isinstance(entry, (Mask, Summary)) and entry.seq in reverted
        reinserted = dropping and _is_reinserted(entry)
        dropping = reinserted or (undone and isinstance(entry, Summary))
        if isinstance(entry, Revert):
            passed.append(entry)
            changed = min(acts & reverted_seqs(passed) ^ reverted, default=None)
        if undone or reinserted or isinstance(entry, Revert):
            view.last_seq = max(view.last_seq, entry.seq)
            if isinstance(entry, Mask):
                view.unmasked_calls |= {
                    str(t.get("tool_use_id")) for t in entry.targets if isinstance(t, dict)
                }
        elif isinstance(entry, Assistant) and changed is not None and entry.seq > changed:
            view.add(entry, edited=True)
        else:
            view.add(entry)
    folding.dropping_reinserted = dropping
    return folding


def _is_reinserted(entry: Entry) -> bool:
    return isinstance(entry, User) and entry.source in REINSERTED_SOURCES


def _call_ids(item: Item) -> set[str]:
    """Return the IDs of the calls in a reply, or of the call of a result."""
    ids = (block.get("tool_use_id") or block.get("id") for block in item.blocks)
    return {str(id) for id in ids if id}


def _answers(item: Item) -> bool:
    """Return True if an item is a reply with a text or a call."""
    return item.role == "assistant" and any(
        b.get("type") == "tool_use" or str(b.get("text", "")).strip() for b in item.blocks
    )
