"""The view: what the model sees, folded from the entries of a log.

`fold(entries)` and adding the same entries one by one to a `View` give equal views; adding costs
the same however long the log is. Nothing here looks at the clock, the disk or the settings, so a
view in a fresh process equals the live one.

An edit of history (a mask, a summary, a changed system prompt) leaves out all thinking that comes
after it, because newer models bind each thinking block to everything before it (DESIGN section 5).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..record.entries import (
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
    taken_back,
)
from . import tokens

REFUSED = "refusal"
SUMMARY = "summary"  # the source of the item that a summary is
THINKING = ("thinking", "redacted_thinking")
RENEWED = ("environment", "instructions")  # sources of what is said again after a summary
ENOUGH = 1_000  # tokens of a prompt whose usage teaches how its text is counted
CREDIBLE = 3.0  # a usage further than this factor from the estimate is not believed

# The first of these arguments that a call has is its main one.
_MAIN = ("command", "pattern", "path", "description", "query")


@dataclass(slots=True)
class Item:
    """One entry as it stands in the view.

    `source` says whose words a user item holds: as in the entry, or summary; "" for results and
    replies. `stubs` replace results and `inputs` replace arguments, both by tool_use id.
    `thinking` is False once something before this item was edited. `sent` are the blocks it shows
    and what `wire` has made of them, so that this is done once.
    """

    seq: int
    role: Literal["user", "assistant"]
    blocks: list[Block]
    size: int
    stop_reason: str | None = None
    source: str = ""
    thinking: bool = True
    stubs: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent: tuple[list[Block], list[Block]] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in the view, with the place of its item. `input` is as the model wrote it."""

    id: str
    seq: int
    name: str
    input: dict[str, Any]

    @property
    def argument(self) -> str:
        """Its main argument on one line, "" when it has none."""
        given = (self.input.get(name) for name in _MAIN)
        return " ".join(next((text for text in given if isinstance(text, str)), "").split())


@dataclass(frozen=True, slots=True)
class Result:
    """A tool result in the view: its item, block and call. `size` is in unscaled tokens, as it
    stands now; `masked` says that a stub stands for it. `details` are those of its entry."""

    item: Item
    block: Block
    call: Call
    size: int
    masked: bool
    details: dict[str, Any]
    offloaded: str | None


@dataclass(slots=True)
class View:
    """`size` is the estimate over all items, system and tools, in unscaled tokens.

    `used` is the usage of the newest turn call and `size_then` the estimate of what stood in the
    view once its reply was added, so that `used.total` plus the growth since is the size now.
    `size_then` is None when there is no such base: no call yet, history edited since, or a usage
    that cannot be true. `ratio` is real tokens per estimated one, learned from each reply.
    `summary` is the newest one, which stands in the view as its first item. `spared` are the
    calls whose masks were taken back: what the person undid is not done again.
    """

    model: str = ""
    system: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    size: int = 0
    used: Usage | None = None
    size_then: int | None = None
    ratio: float = 1.0
    last_seq: int = 0
    calls: dict[str, Call] = field(default_factory=dict)
    summary: Summary | None = None
    spared: set[str] = field(default_factory=set)
    _based: int = 0  # how many items stood in the view at `size_then`
    _where: dict[int, int] = field(default_factory=dict)
    _facts: dict[int, tuple[dict[str, Any], str | None]] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Fold one more entry. Raises ValueError for a `revert`: that needs `fold` over the log."""
        self.last_seq = max(self.last_seq, entry.seq)
        if isinstance(entry, User):
            self._append(entry.seq, "user", _blocks(entry.content)).source = entry.source
            if entry.details or entry.offloaded:
                self._facts[entry.seq] = (entry.details, entry.offloaded)
        elif isinstance(entry, ToolResult):
            self._append(entry.seq, "user", [_result(entry)])
            self._facts[entry.seq] = (entry.details, entry.offloaded)
        elif isinstance(entry, Assistant):
            self._add_assistant(entry)
        elif isinstance(entry, Session):
            self._add_session(entry)
        elif isinstance(entry, Mask):
            self._add_mask(entry)
        elif isinstance(entry, Summary):
            self._add_summary(entry)
        elif isinstance(entry, Revert):
            raise ValueError("a revert changes what was folded before it: use fold()")

    def results(self) -> Iterator[Result]:
        """The tool results in the view, oldest first."""
        for item in self.items:
            block = item.blocks[0] if item.role == "user" and item.blocks else {}
            call = self.calls.get(str(block.get("tool_use_id")))
            if block.get("type") == "tool_result" and call is not None:
                details, offloaded = self.facts(item)
                masked = call.id in item.stubs
                yield Result(item, block, call, item.size, masked, details, offloaded)

    def facts(self, item: Item) -> tuple[dict[str, Any], str | None]:
        """The details of an item's entry, and the file that its text went to."""
        return self._facts.get(item.seq, ({}, None))

    def position(self, seq: int) -> int | None:
        """The index of an entry's item, None when it does not stand in the view."""
        return self._where.get(seq)

    def _append(self, seq: int, role: Literal["user", "assistant"], blocks: list[Block]) -> Item:
        item = Item(seq, role, blocks, sum(tokens.of_block(b) for b in blocks))
        self._where[seq] = len(self.items)
        self.items.append(item)
        self.size += item.size
        return item

    def _add_assistant(self, entry: Assistant) -> None:
        # A refused reply stays in the log only: in the context it makes the next one refuse too.
        if entry.purpose != "turn" or entry.stop_reason == REFUSED:
            return
        before = max(self.size, 1)
        item = self._append(entry.seq, "assistant", entry.content)
        item.stop_reason = entry.stop_reason
        for block in entry.content:
            name, given = block.get("name"), block.get("input")
            if block.get("type") == "tool_use" and isinstance(given, dict):
                call = Call(str(block.get("id")), entry.seq, str(name), given)
                self.calls[call.id] = call
        usage = Usage.from_json(entry.usage)
        if 1 / CREDIBLE <= usage.prompt / before <= CREDIBLE:
            self.used, self.size_then, self._based = usage, self.size, len(self.items)
            weight = min(before / ENOUGH, 1) / 2  # of a small prompt the frame is the most
            self.ratio += weight * (usage.prompt / before - self.ratio)

    def _add_session(self, entry: Session) -> None:
        changed = bool(self.model) and entry.model != self.model  # thinking is its model's own
        self.model = entry.model
        if entry.system is not None and entry.system != self.system:
            self.size += tokens.estimate(entry.system) - tokens.estimate(self.system)
            self.system, changed = entry.system, True
        if entry.tools is not None and entry.tools != self.tools:
            self.size += _weight(entry.tools) - _weight(self.tools)
            self.tools, changed = entry.tools, True
        if changed:
            self._edited(0)

    def _add_mask(self, entry: Mask) -> None:
        first: int | None = None
        for target in entry.targets:
            seq = target.get("seq") if isinstance(target, dict) else None
            place = self._where.get(seq) if isinstance(seq, int) else None
            if place is None:
                continue
            item, call = self.items[place], str(target.get("tool_use_id", ""))
            if isinstance(target.get("stub"), str):
                item.stubs[call] = target["stub"]
                after = place + 1
            elif isinstance(target.get("input"), dict):
                item.inputs[call] = target["input"]
                after = place  # thinking may follow the call in the same message
            else:
                continue
            self._resize(item)
            first = after if first is None else min(first, after)
        if first is not None:
            self._edited(first)

    def _add_summary(self, entry: Summary) -> None:
        self.summary = entry
        kept = {seq for seq in entry.keep if isinstance(seq, int)}
        tail = [i for i in self.items if i.seq in kept or i.seq >= entry.keep_from]
        self.size -= sum(i.size for i in self.items)
        self.items, self._where = [], {}
        self._append(entry.seq, "user", [{"type": "text", "text": entry.text}]).source = SUMMARY
        for item in tail:
            self._where[item.seq] = len(self.items)
            self.items.append(item)
            self.size += item.size
        left = {item.seq for item in self.items}
        self.calls = {id: call for id, call in self.calls.items() if call.seq in left}
        self._facts = {seq: facts for seq, facts in self._facts.items() if seq in left}
        self._edited(1)

    def _edited(self, start: int) -> None:
        for item in self.items[start:]:
            if item.role == "assistant" and item.thinking:
                item.thinking = False
                if any(block.get("type") in THINKING for block in item.blocks):
                    self._resize(item)
        if start <= self._based:
            self.size_then = None

    def _resize(self, item: Item) -> None:
        before = item.size
        item.size = sum(tokens.of_block(b) for b in shown(item))
        self.size += item.size - before


@dataclass(slots=True)
class Folding:
    """A view that entries are still added to, and what of those before decides how: `gone` is what
    their reverts take back, `renewing` that the last of them is a summary that was taken back, or
    was said again because of it."""

    view: View = field(default_factory=View)
    gone: set[int] = field(default_factory=set)
    renewing: bool = False

    def add(self, entry: Entry) -> bool:
        """Fold one more entry. False for one that changes what was folded before it: then `folded`
        must go through the log."""
        act = isinstance(entry, Mask | Summary)
        if isinstance(entry, Revert) or (act and entry.seq in self.gone):
            return False
        self.renewing = self.renewing and _renews(entry)
        if self.renewing:
            self.view.last_seq = max(self.view.last_seq, entry.seq)
        else:
            self.view.add(entry)
        return True


def fold(entries: Iterable[Entry]) -> View:
    """The view of a log: every entry folded in order, reverted ones left out. With a summary goes
    what was said again because of it: the words right after it that are no person's. A reply that
    was given while other acts stood than do now loses what was true only then. The entries are
    gone through twice."""
    return folded(entries).view


def folded(entries: Iterable[Entry]) -> Folding:
    """As `fold`, to go on with."""
    acts, reverts = set[int](), list[Revert]()
    for entry in entries:
        if isinstance(entry, Mask | Summary):
            acts.add(entry.seq)
        elif isinstance(entry, Revert):
            reverts.append(entry)
    folding = Folding(gone=taken_back(reverts))
    reverted = acts & folding.gone
    passed: list[Revert] = []
    changed = min(reverted, default=None)  # the first act that stood then and not now, or reverse
    view, renewing = folding.view, False
    for entry in entries:
        undone = isinstance(entry, (Mask, Summary)) and entry.seq in reverted
        renewal = renewing and _renews(entry)
        renewing = renewal or (undone and isinstance(entry, Summary))
        if isinstance(entry, Revert):
            passed.append(entry)
            changed = min(acts & taken_back(passed) ^ reverted, default=None)
        if undone or renewal or isinstance(entry, Revert):
            view.last_seq = max(view.last_seq, entry.seq)
            if isinstance(entry, Mask):
                view.spared |= {
                    str(t.get("tool_use_id")) for t in entry.targets if isinstance(t, dict)
                }
        elif isinstance(entry, Assistant) and changed is not None and entry.seq > changed:
            view.add(_outdated(entry))
        else:
            view.add(entry)
    folding.renewing = renewing
    return folding


def _renews(entry: Entry) -> bool:
    return isinstance(entry, User) and entry.source in RENEWED


def _outdated(entry: Assistant) -> Assistant:
    """A reply to another prompt than the view has now: its thinking is bound to that one, and its
    usage measured that one."""
    kept = [block for block in entry.content if block.get("type") not in THINKING]
    return replace(entry, content=kept, usage={})


def shown(item: Item) -> list[Block]:
    """The item's blocks as they go out: stubs and shortened inputs in place, thinking left out
    where it may no longer stand."""
    out = []
    for block in item.blocks:
        kind = block.get("type")
        if kind in THINKING and not item.thinking:
            continue
        if kind == "tool_result" and (call := str(block.get("tool_use_id"))) in item.stubs:
            block = {**block, "content": item.stubs[call]}
        elif kind == "tool_use" and (call := str(block.get("id"))) in item.inputs:
            block = {**block, "input": item.inputs[call]}
        out.append(block)
    return out


def _blocks(content: str | list[Block]) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _result(entry: ToolResult) -> Block:
    return {
        "type": "tool_result",
        "tool_use_id": entry.tool_use_id,
        "content": entry.content,
        "is_error": entry.is_error,
    }


def _weight(tools: list[dict[str, Any]]) -> int:
    return sum(tokens.of_block(t) for t in tools)
