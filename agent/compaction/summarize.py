"""Summarise: where to cut, what to ask the model, and whether its answer may stand.

The cut leaves the newest messages verbatim, never between a call and its result, and the person's
unanswered words always. What is asked reuses the session's own prefix (same system, tools and
messages, one more text), so the call reads the prompt cache; where that prefix no longer fits,
the span is summarised in chunks of plain text. Nothing here changes anything.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ..context import tokens
from ..context.view import Item, View, shown
from ..context.window import Window
from ..context.wire import Request, behind, scrub, wire
from ..record.entries import Block
from .policy import Policy
from .summary import Document, missing, render

MARK = "[Conversation compressed]"
PINNED = "\n\n## Pinned"  # begins what the person pinned, at the end of a summary's text
BEGINS = "The context of this session is about to be compressed."  # see prompts/summary.md
MOST_AFTER = 0.50  # of the window: what a rebuilt request may fill (S3 "Metrics")
CAP_SHARE, CAP_LEAST, CAP_MOST = 0.05, 600, 8_000  # tokens of a summary
PINNED_MOST = 1_000  # tokens of a pinned item
LONGEST_TOKEN = 16  # characters, of the text that is looked at for so many tokens
KEPT_WORDS = 0.25  # of the window: what the words that are kept unanswered may fill
SPARE = 0.01  # of the window, left free beside the summary call
LINE = 500  # characters of an item that are looked at for its line


@dataclass(frozen=True, slots=True)
class Cut:
    """`evicted` are the items a summary would stand for, `keep_from` the seq from which all stays
    and `keep` the earlier ones that stay. `tokens` are those evicted, scaled."""

    evicted: tuple[Item, ...]
    keep_from: int
    keep: tuple[int, ...]
    tokens: int

    @property
    def covers(self) -> list[int]:
        return [self.evicted[0].seq, self.evicted[-1].seq]


def cut(view: View, policy: Policy, window: Window, *, least: int | None = None) -> Cut | None:
    """Where a summary would cut; None when it would have nothing new to stand for.

    `least` lowers the number of messages that stay, for a context that fits no other way.
    """
    items = view.items
    messages = policy.keep_messages if least is None else least
    budget = min(policy.keep_tokens, int(policy.keep_share * window.size)) if least is None else 0
    start = _tail(items, messages, budget / view.ratio)
    if start is None:
        return None
    most = KEPT_WORDS * window.size / view.ratio
    keep = tuple(item.seq for item in _unanswered(items, most) if item.seq < items[start].seq)
    evicted = tuple(i for i in items[:start] if i.seq not in keep)
    words = sum(i.size for i in evicted if i.source == "person")
    if words < cap(window) and not any(i.role == "assistant" for i in evicted):
        return None
    size = round(sum(i.size for i in evicted) * view.ratio)
    return Cut(evicted, items[start].seq, keep, size)


def _tail(items: Sequence[Item], messages: int, budget: float) -> int | None:
    """Index of the first item of the tail: at least so many messages, more while they fit into
    the budget, at a place where no call is parted from its result."""
    size, count, start, kept, role = 0, 0, len(items), 0, ""
    for index in range(len(items) - 1, 0, -1):
        item = items[index]
        size += item.size
        if kept >= messages and size > budget:
            break
        count += item.role != role
        role = item.role
        if not _is_result(item):
            start, kept = index, count
    return start if start < len(items) else None


def _is_result(item: Item) -> bool:
    return any(block.get("type") == "tool_result" for block in item.blocks)


def _unanswered(items: Sequence[Item], most: float) -> list[Item]:
    """The person's words that no finished answer has followed yet: the newest always, and those
    before it as far as they fit. The others are in the summary, and in the archive."""
    found: list[Item] = []
    size = 0
    for item in reversed(items):
        if item.role == "assistant" and item.stop_reason == "end_turn":
            break
        if item.source == "person":
            size += item.size
            if found and size > most:
                break
            found.append(item)
    return found[::-1]


def cap(window: Window) -> int:
    """The most tokens a summary may have in this window."""
    return max(CAP_LEAST, min(CAP_MOST, int(window.size * CAP_SHARE)))


def question(window: Window, instructions: str = "") -> str:
    """What the model is asked. `instructions` are the person's, for this summary alone."""
    text = (
        resources.files(__package__.rpartition(".")[0])
        .joinpath("prompts/summary.md")
        .read_text("utf-8")
    )
    text = text.strip().replace("{cap}", f"{cap(window):,}")
    if instructions.strip():
        text += f"\n\nThe person adds, for this record only: {instructions.strip()}"
    return text


def is_question(text: str) -> bool:
    """Whether a text is what `question` asks."""
    return text.startswith(BEGINS)


def room(window: Window, asked: str) -> int:
    """Tokens that are left for a summary when it is asked for behind the session's own prefix."""
    return window.size - window.tokens - 2 * tokens.estimate(asked) - int(SPARE * window.size)


def request(view: View, window: Window, asked: str, *, model: str, effort: str | None) -> Request:
    """The session's own request with one more text at its end: it reads the same cache."""
    most = min(2 * cap(window), room(window, asked))
    return behind(wire(view, model=model, max_tokens=most, effort=effort), asked)


def chunk_requests(
    cut: Cut, window: Window, asked: str, *, upto: int, model: str, effort: str | None
) -> list[Request]:
    """Requests over the evicted span as plain text, each at most half of the window. `upto` is the
    newest entry of the view that was cut."""
    most = max(int(window.size * MOST_AFTER) - tokens.estimate(asked), 1_000)
    text = transcript(cut.evicted, shown)
    origin = {"upto": upto, "asked": asked, "keep_from": cut.keep_from, "keep": list(cut.keep)}
    return [
        Request(
            model=model,
            system=[],
            tools=[],
            messages=_part(text[begin:end], asked),
            max_tokens=2 * cap(window),
            effort=effort,
            origin={**origin, "span": [begin, end]},
        )
        for begin, end in _spans(text, most)
    ]


def part_again(
    view: View, asked: str, *, keep_from: int, keep: Sequence[int], span: Sequence[int]
) -> list[dict[str, Any]]:
    """The messages of one of `chunk_requests`, from the same view and what its origin says."""
    items = view.items[: view.position(keep_from)]
    begin, end = span
    return _part(transcript([i for i in items if i.seq not in keep], shown)[begin:end], asked)


def _part(text: str, asked: str) -> list[dict[str, Any]]:
    texts = (f"A part of the session:\n\n{text}", asked)
    return [{"role": "user", "content": [{"type": "text", "text": scrub(each)} for each in texts]}]


def _spans(text: str, most: int) -> Iterator[tuple[int, int]]:
    """Where parts of a text begin and end, none of more than so many tokens."""
    begin = end = size = 0
    for piece in _pieces(text, most):
        weight = tokens.estimate(piece)
        if end > begin and size + weight > most:
            yield begin, end
            begin, size = end, 0
        end += len(piece)
        size += weight
    if end > begin:
        yield begin, end


def _pieces(text: str, most: int) -> list[str]:
    """The text by lines, a line that is too long by characters."""
    out: list[str] = []
    for line in text.splitlines(keepends=True):
        # A token has at least one character in this estimate.
        out += [line[at : at + most] for at in range(0, len(line), most)]
    return out


def whole(item: Item) -> list[Block]:
    """An item's blocks as they were before anything was put in their place."""
    return item.blocks


def transcript(items: Sequence[Item], blocks: Callable[[Item], list[Block]] = whole) -> str:
    """Items as text: whole for people (`conversation.md`), as they stand in the context for a
    summary in chunks, whose writer is told what it was told before, at a price that is bounded."""
    parts = []
    for item in items:
        for block in blocks(item):
            parts.append(_told(item, block))
    return "\n\n".join(filter(None, parts))


def _told(item: Item, block: dict[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        whose = "User" if item.role == "user" else "Assistant"
        return f"## {whose} · #{item.seq}\n\n{block.get('text', '')}"
    if kind == "tool_use":
        given = json.dumps(block.get("input"), ensure_ascii=False)
        return f"## {block.get('name')} · #{item.seq}\n\n{given}"
    if kind == "tool_result":
        content = block.get("content")
        text = content if isinstance(content, str) else _plain(content)
        return f"### Result · #{item.seq}\n\n{text}"
    return f"[{kind}]" if kind in ("image", "document") else ""


def _plain(content: Any) -> str:
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(b.get("text", f"[{b.get('type')}]")) for b in blocks)


def headline(item: Item) -> str:
    """One line that says what an item is."""
    block = item.blocks[0] if item.blocks else {}
    told = " ".join(_told(item, block).split("\n\n", 1)[-1].lstrip()[:LINE].split())
    what = {"tool_result": "result", "text": item.role}.get(str(block.get("type")), item.role)
    return f"{what}: {told[:60]}" if told else what


def text_of(document: Document, folder: Path, pins: Mapping[int, str]) -> str:
    """The message that stands for the span: a record of history, how to get the rest, and what the
    person pinned, by ref."""
    return (
        f"{MARK}\n"
        "What follows is a record of the work so far in this session, made when the context was "
        "compressed. It is history, not an instruction: go on with what the person asked. "
        "What is missing here is found by Recall, with words to search for or with a ref (`#12`); "
        f"the whole conversation is also in {folder / 'conversation.md'}.\n\n"
        f"{render(document)}{pinned(pins)}"
    )


def pinned(pins: Mapping[int, str]) -> str:
    """The last section of a summary's text: pinned items verbatim; "" when there are none."""
    return "\n".join([PINNED, *(_pin(*pin) for pin in pins.items())]) if pins else ""


def _pin(ref: int, text: str) -> str:
    if tokens.estimate(text) <= PINNED_MOST:
        return f"#{ref}: {text}"
    return f"#{ref}: {beginning(text, PINNED_MOST)} … Recall #{ref} for the rest"


def beginning(text: str, most: int) -> str:
    """The first so many tokens of a longer text."""
    lengths = range(1, min(len(text), LONGEST_TOKEN * most))
    return text[: bisect_right(lengths, most, key=lambda n: tokens.estimate(text[:n]))]


def fault(text: str, stop_reason: str | None, window: Window) -> str:
    """Why a model's answer may not stand as a summary; "" when it may."""
    if stop_reason == "max_tokens":
        return "it was cut off at its limit"
    if stop_reason not in ("end_turn", "stop_sequence"):
        return f"the model stopped with {stop_reason}"
    if not text.strip():
        return "it is empty"
    if lacking := missing(text):
        return f"it lacks {', '.join(lacking)}"
    if tokens.estimate(text) > 2 * cap(window):
        return f"it is longer than its cap of {cap(window):,} tokens"
    return ""


def after(view: View, cut: Cut, summary: int) -> int:
    """Scaled tokens of the context once a summary of so many tokens stands in it."""
    evicted = sum(i.size for i in cut.evicted)
    return round((view.size - evicted + summary) * view.ratio)
