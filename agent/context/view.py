"""The view: what the model sees, folded from the entries of a log.

`fold(entries)` and adding the same entries one by one to a `View` give equal views; adding costs
the same however long the log is. Nothing here looks at the clock, the disk or the settings, so a
view in a fresh process equals the live one.

A request has the thinking and the signed calls of the model that gets it, and of no other: those of
another one stand again once that one is asked. Newer models bind each thinking block to everything
before it. So an edit of history (a mask, a summary) leaves out the thinking that comes after it,
but for a summary by the API's own block (`compaction_block`); and what was thought behind another
system prompt or other tools stands only behind those.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from itertools import islice, takewhile
from typing import Any, Literal

from ..lazy import dataclass
from ..session.entries import (
    ATTACHMENT,
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
from .items import SUMMARY_SOURCE, THINKING, Asked, Call, Item, ViewResult, shown_blocks

REFUSAL = "refusal"  # a stop reason
# Of what is said again after a summary.
REINSERTED_SOURCES = (
    "environment", "instructions", PLAN, SKILL_LIST, SKILL, MEMORY, HOOK, LOADED_TOOLS,
)  # fmt: skip
MIN_JUDGED_TOKENS = 1_000  # an error in fewer tokens is judged as if it were in so many
MAX_CREDIBLE_FACTOR = 3.0  # a usage further than this from the estimate is not believed
MIN_ERROR, MAX_ERROR = 0.4, 0.5  # of `View.error`; one text alone may err by the first
ERROR_FACTOR = 2  # times an error that was seen: the next one may be larger
ERROR_DECAY = 0.99  # for each reply, so that what was seen once is not feared for ever
# Stop reasons that this program adds: the user cut the reply short, or its text repeated.
INTERRUPTED, REPEATED = "interrupted", "repetition"


@dataclass(slots=True)
class View:
    """The model's view of a session. All sizes are estimates in unscaled tokens; `scaled` gives the
    tokens that people are shown, of one item as of all: what the newest usage counted is then
    exactly what stood in the view, and what was added since is estimated at the same ratio.
    """

    model: str = ""
    binds: bool = True  # whether it binds its thinking to all that comes before
    system: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    size: int = 0  # of all items, system and tools
    # The size of all that was added or taken away since the newest usage that can be true; of
    # everything where there was none yet, or the prefix is a new one since.
    size_changed: int = 0
    ratio: float = 1.0  # real tokens per estimated one, by that usage
    error: float = MIN_ERROR  # how far an estimate may fall short, as a share of it; learned too
    last_seq: int = 0
    edits: int = 0  # of history, so far
    calls: dict[str, Call] = field(default_factory=dict)
    summary: Summary | None = None  # the newest one; the first item of the view is of it
    # Calls whose masks the person took back: they are not masked again.
    unmasked_calls: set[str] = field(default_factory=set)
    _asked: list[Asked] = field(default_factory=lambda: [Asked()])  # oldest first
    _ratios: dict[str, float] = field(default_factory=dict)  # of models that were asked before
    _positions: dict[int, int] = field(default_factory=dict)
    _facts: dict[int, tuple[dict[str, Any], str | None]] = field(default_factory=dict)
    # Asked for several times before each call: only what is new since is gone through.
    _listed: "_Listed" = field(
        default_factory=lambda: _Listed(), init=False, compare=False, repr=False
    )

    def add(self, entry: Entry, *, edited: bool = False) -> None:
        """Fold one more entry; `edited` tells that what stood before it then is not what stands
        there now. Raises ValueError for a `revert`: that needs `fold` over the log."""
        self.last_seq = max(self.last_seq, entry.seq)
        if isinstance(entry, User):
            self._append(entry.seq, "user", self._user_blocks(entry)).source = entry.source
            if entry.details or entry.offloaded:
                self._facts[entry.seq] = (entry.details, entry.offloaded)
        elif isinstance(entry, ToolResult):
            block: Block = {
                "type": "tool_result",
                "tool_use_id": entry.tool_use_id,
                "content": entry.content,
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
        """Return how many tokens an estimated size of this view stands for."""
        return round(size * self.ratio)

    def prompt_tokens(self) -> tuple[int, int]:
        """Return how many tokens the next prompt has, and how many of them are estimated: what
        changed since the newest usage, or everything where that is less or there is none."""
        return self.scaled(self.size), self.scaled(min(self.size_changed, self.size))

    def copy(self) -> "View":
        """Return a copy that masks and summaries can be added to, and that another thread may
        read; blocks are shared, since nothing changes them."""
        items = [item.copy() for item in self.items]
        return replace(self, items=items, calls={**self.calls})

    def size_with(self, act: Mask | Summary) -> int:
        """Return the size that this view would have with one more act of compaction."""
        stay = self._staying(act) if isinstance(act, Summary) else self.items
        changed = replace(self, items=[item.copy() for item in stay], _facts={})
        changed.size -= sum(item.size for item in self.items) - sum(item.size for item in stay)
        changed.add(act)
        return changed.size

    def results(self) -> Sequence[ViewResult]:
        """Return the tool results in the view, oldest first."""
        return self._listed.after(self).results

    def searches(self) -> Sequence[ViewResult]:
        """Return what searches of the web found, which stands in replies, oldest first."""
        return self._listed.after(self).searches

    def facts(self, item: Item) -> tuple[dict[str, Any], str | None]:
        """Return the details of an item's entry, and the file that has its whole text."""
        return self._facts.get(item.seq, ({}, None))

    def unanswered_results(self) -> list[ViewResult]:
        """Return the results after the newest reply that says or calls something, oldest first: the
        model has not seen them, or was interrupted before it said a word about them."""
        begin = len(self.items)
        while begin and not _answers(self.items[begin - 1]):
            begin -= 1
        newer = takewhile(lambda r: self._positions[r.item.seq] >= begin, reversed(self.results()))
        return [*newer][::-1]

    def position(self, seq: int) -> int | None:
        """Return the index of an entry's item, or None when it does not stand in the view."""
        return self._positions.get(seq)

    def _append(self, seq: int, role: Literal["user", "assistant"], blocks: list[Block]) -> Item:
        item = Item(seq, role, blocks, sum(map(tokens.estimate_block, blocks)))
        self._positions[seq] = len(self.items)
        self.items.append(item)
        self.size += item.size
        self.size_changed += item.size
        return item

    def _user_blocks(self, entry: User) -> list[Block]:
        """Return the blocks of a user's entry. An attachment is kept as the result of a call, so
        that what makes results smaller holds for it too; `shown_blocks` takes it out again."""
        content = entry.content
        if entry.source == ATTACHMENT:
            call = Call(f"{ATTACHMENT}-{entry.seq}", entry.seq, *attachment_call(entry))
            self.calls[call.id] = call
            return [{"type": "tool_result", "tool_use_id": call.id, "content": content}]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    def _add_assistant(self, entry: Assistant, edited: bool) -> None:
        # A refused reply stays in the log only: in the context it makes the next one refuse too.
        if entry.purpose != "turn" or entry.stop_reason == REFUSAL:
            return
        before, (expected, estimated) = max(self.size, 1), self.prompt_tokens()
        item = self._append(entry.seq, "assistant", entry.content)
        item.asked, item.edited = self._asked_at(entry.request.get("upto")), edited
        self._show(item)
        if not edited and any(block.get("altered") for block in entry.content):
            self._leave_out_thinking(item.asked)
        item.stop_reason = entry.stop_reason
        for block in entry.content:
            arguments = block.get("input")
            name = SEARCH_TOOL if is_search(block) else str(block.get("name"))
            is_call = block.get("type") == "tool_use" or name == SEARCH_TOOL
            if is_call and isinstance(arguments, dict):
                call = Call(str(block.get("id")), entry.seq, name, arguments)
                self.calls[call.id] = call
                if call.id in self._listed.ids:  # its result is there already
                    self._listed = _Listed()
        usage = Usage() if edited or item.foreign else Usage.from_json(entry.usage)
        if any(block.get("type") == FOUND for block in entry.content):
            return  # what was found counts as prompt, and the prompt once for each search
        if 1 / MAX_CREDIBLE_FACTOR <= usage.prompt / before <= MAX_CREDIBLE_FACTOR:
            short = (usage.prompt - expected) / max(estimated, MIN_JUDGED_TOKENS)
            feared = max(ERROR_FACTOR * short, ERROR_DECAY * self.error)
            self.error = min(MAX_ERROR, max(MIN_ERROR, feared))
            self.ratio = usage.prompt / before
            if entry.stop_reason in (
                INTERRUPTED,
                REPEATED,
            ):  # how much was said and kept is not known
                self.size_changed = item.size
                return
            item.size = item.measured = round(usage.output / self.ratio)
            self.size_changed = 0
            self.size = before + item.size
            self.ratio = usage.total / self.size

    def _add_session(self, entry: Session) -> None:
        binds = entry.thinking != FREE
        changed = (entry.model, binds) != (self.model, self.binds)
        self._ratios[self.model] = self.ratio
        self.ratio = self._ratios.get(entry.model, self.ratio)
        self.model, self.binds = entry.model, binds
        if entry.system is not None and entry.system != self.system:
            self.size += tokens.estimate(entry.system) - tokens.estimate(self.system)
            self.system, changed = entry.system, True
        if entry.tools is not None and entry.tools != self.tools:
            self.size += tokens.estimate_content(entry.tools)
            self.size -= tokens.estimate_content(self.tools)
            self.tools, changed = entry.tools, True
        if changed:
            told = json.dumps([self.system, self.tools])
            asked = Asked(entry.seq, self.model, hashlib.sha256(told.encode()).hexdigest()[:16])
            # An older program left out all earlier thinking for ever, and told no replies apart.
            is_old = not entry.thinking
            self._asked = [replace(asked, since=0)] if is_old else [*self._asked, asked]
            self.edits += 1
            for item in self.items:
                if is_old:
                    item.asked, item.edited = asked, True
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
            if isinstance(target.get("stub"), str):
                item.stubs[call], item.masked_at = target["stub"], entry.seq
                # Thinking may stand behind a search in the same message.
                after = place + (item.role == "user")
            elif isinstance(target.get("input"), dict):
                item.inputs[call] = target["input"]
                after = place  # thinking may follow the call in the same message
            elif isinstance(target.get("outline"), str):
                after = self._outline(item, target.get("reply"), target["outline"])
                item.masked_at = item.masked_at or entry.seq
            else:
                continue
            self._resize(item)
            first = after if first is None else min(first, after)
        if first is not None:
            self._edited(first)

    def _outline(self, item: Item, reply_seq: object, text: str) -> int:
        """Let an outline stand for a result and for the reply that made the call; return the place
        of the first that changed."""
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
        tail = self._staying(entry)
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
        self._edited(1, keeps_shown=entry.keeps_thinking)
        self.size_changed = self.size

    def _staying(self, entry: Summary) -> list[Item]:
        """Return the items that a summary leaves in the view."""
        kept = {seq for seq in entry.keep if isinstance(seq, int)}
        return [
            item
            for item in self.items
            if (item.seq in kept or item.seq >= entry.keep_from)
            and not (entry.replaces_earlier and item.source == SUMMARY_SOURCE)
        ]

    def _asked_at(self, upto: object) -> Asked:
        """Return what a request asked that was made when the entry `upto` was the newest."""
        newest = self._asked[-1]
        if not isinstance(upto, int):
            return newest
        return next((asked for asked in reversed(self._asked) if asked.since <= upto), newest)

    def _leave_out_thinking(self, asked: Asked) -> None:
        """Leave out all thinking so far that the same requests have: what comes later stays bound
        to what stands before it."""
        for item in self.items:
            if item.asked.begins_as(asked):
                item.edited = True
                self._show(item)

    def _edited(self, start: int, *, keeps_shown: bool = False) -> None:
        """Note that history changed before the item `start`: later thinking is left out, but with
        `keeps_shown` not what the model is shown now."""
        self.edits += not keeps_shown
        for item in self.items[start:]:
            if not (keeps_shown and item.thinking):
                item.edited = True
                self._show(item)

    def _show(self, item: Item) -> None:
        """See to it that an item shows what the model that is asked now can take back of it."""
        if item.role == "user":
            return
        foreign = item.asked.model != self.model
        bound = item.edited or not item.asked.begins_as(self._asked[-1])
        thinking = not foreign and not (self.binds and bound)
        changed, item.foreign, item.thinking = thinking != item.thinking, foreign, thinking
        if changed and any(block.get("type") in THINKING for block in item.blocks):
            self._resize(item)

    def _resize(self, item: Item) -> None:
        before, shown = item.size, shown_blocks(item)
        item.size = sum(tokens.estimate_block(b) for b in shown)
        if item.measured and shown == item.blocks:
            item.size = item.measured
        self.size += item.size - before
        self.size_changed += abs(item.size - before)


@dataclass(slots=True)
class _Listed:
    """The results in the items of a view, as far as those were gone through. It holds until what
    was there changes; then another one is begun."""

    results: list[ViewResult] = field(default_factory=list)
    searches: list[ViewResult] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)  # of the calls that results say they are of
    _count: int = 0  # of items

    def after(self, view: View) -> "_Listed":
        """Go through the items that are new."""
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
            masked = id in item.stubs or item.outline is not None
            if kind == FOUND:
                size = tokens.estimate_block(block)
                self.searches.append(ViewResult(item, block, call, size, masked, {}, None))
            else:
                facts = view.facts(item)
                self.results.append(ViewResult(item, block, call, item.size, masked, *facts))


@dataclass(slots=True)
class Folding:
    """A view that entries are still added to, and what of those before decides how."""

    view: View = field(default_factory=View)
    reverted: set[int] = field(default_factory=set)  # the seqs that the reverts so far take back
    # The last entry is a summary that was taken back, or was said again because of one.
    dropping_reinserted: bool = False

    def add(self, entry: Entry) -> bool:
        """Fold one more entry, if it changes nothing that was folded before it. Returns False for
        one that does: then `start_folding` must go through the log."""
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
    """Return the view of a log: every entry folded in order, reverted ones left out.

    With a summary goes what was said again because of it: the words right after it that are no
    person's. A reply loses its thinking and its usage if other masks and summaries stood when it
    was given than stand now. The entries are gone through once, and twice more where one is
    reverted.
    """
    folding = Folding()
    if not all(map(folding.add, entries)):
        folding = start_folding(entries)
    return folding.view


def start_folding(entries: Iterable[Entry]) -> Folding:
    """Fold a log with reverts as `fold` does, and return the folding, to which entries can be
    added. The entries are gone through twice."""
    acts, reverts = set[int](), list[Revert]()
    for entry in entries:
        if isinstance(entry, Mask | Summary):
            acts.add(entry.seq)
        elif isinstance(entry, Revert):
            reverts.append(entry)
    folding = Folding(reverted=reverted_seqs(reverts))
    reverted = acts & folding.reverted
    passed: list[Revert] = []
    # The first act that stood at this point of the log and does not now, or the reverse.
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


def _answers(item: Item) -> bool:
    """Return whether an item is a reply with words or a call in it."""
    return item.role == "assistant" and any(
        b.get("type") == "tool_use" or str(b.get("text", "")).strip() for b in item.blocks
    )
