"""A summary written by the API: its cut, its request and the text next to it.

The API returns a signed block (`context.items`) that must not be changed. So a separate
text, after the remaining messages, has the facts that the block lacks: open errors, rules, changed
files, missed facts, the user's messages and pins. Unanswered messages are there in full. The block
must cover everything before a reply, without a gap, since otherwise later replies lose their
thinking. If that is not possible, the model writes the summary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....tools.offered import EVERY, Offered
from ...context import tokens
from ...context.items import MAX_INSTRUCTIONS_CHARS, Item
from ...context.request import Request, adds_tools, begins_with, build_request
from ...context.view import View
from ...context.window import Window
from ...lazy import dataclass
from ...session.archive import FILES_NAME
from ...session.entries import Block
from ...session.ledger import Ledger
from ...session.user_messages import LoggedMessage
from ..document import SummaryDocument, render
from ..recall_hints import RECALL, names_each, without_hints
from .request import (
    COMPRESSED_MARK,
    SOURCE_PRECEDENCE,
    UNANSWERED_SHARE,
    Cut,
    archive_head,
    archive_line,
    max_summary_tokens,
    pinned_section,
    room_for_summary,
    unanswered_items,
    where_to_look,
)
from .user_messages import budget_tokens, evicted_messages, messages_section

_LISTS = (
    "rules", "decisions", "done", "in_progress", "blocked", "facts", "errors", "next_steps",
    "other",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """A compaction block and the span that it covers."""

    block: Block  # exactly as received
    cut: Cut  # keeps no items before it
    edits: int  # `View.edits` at the request; any later edit invalidates thinking after the block


def block_request(
    view: View, cut: Cut, window: Window, instructions: str, *, model: str, effort: str | None
) -> tuple[Request, Cut] | None:
    """Return the request for a block, and its cut: `cut` or a little later. Return None if the
    block would split a call from its result, lose images or added tools, or has no room.
    """
    found = _before_reply(view, cut)
    if found is None or len(instructions) > MAX_INSTRUCTIONS_CHARS:
        return None
    after_cut = view.items[len(found.evicted) :]  # not part of the request
    room = room_for_summary(window, instructions) + view.scaled(sum(i.size for i in after_cut))
    unanswered = [
        item for item in unanswered_items(view.items, window.size) if item in found.evicted
    ]
    if room < max_summary_tokens(window) // 2 or any(map(_has_images, unanswered)):
        return None
    head = replace(view, items=[*found.evicted])
    max_tokens = min(2 * max_summary_tokens(window), room)
    request = build_request(head, model=model, max_tokens=max_tokens, effort=effort)
    whole = build_request(view, model=model, max_tokens=max_tokens, effort=effort)
    rest = whole.messages[len(request.messages) :]
    is_separate = rest and rest[0]["role"] == "assistant" and begins_with(whole, request)
    if not is_separate or adds_tools(request):
        return None
    origin = {**request.origin, "keep_from": found.keep_from}
    return replace(request, compaction=instructions, origin=origin), found


def rebuild_block_request(view: View, keep_from: int) -> Request:
    """Rebuild the request for a block from the view and its recorded origin, without its
    parameters.
    """
    head = replace(view, items=view.items[: view.position(keep_from)])
    return build_request(head, model="", max_tokens=0)


def _before_reply(view: View, cut: Cut) -> Cut | None:
    """Return the first cut, at `cut` or later, directly between a user message or result and a
    reply; None if there is none.
    """
    items, place = view.items, view.position(cut.keep_from)
    for start in range(place or len(items), len(items)):
        if items[start].role == "assistant" and items[start - 1].role == "user":
            evicted = tuple(items[:start])
            size = view.scaled(sum(item.size for item in evicted))
            return Cut(evicted, items[start].seq, (), size)
    return None


def _has_images(item: Item) -> bool:
    return any(block.get("type") != "text" for block in item.blocks)


@dataclass(frozen=True, slots=True)
class BlockSupplement:
    """The parts of the text next to a block, except the document."""

    written: SummaryDocument  # the block's document
    resolved: Sequence[str]  # its errors that are resolved, according to the ledger
    messages: str  # the section of the user's messages
    waiting: Sequence[LoggedMessage]  # unanswered messages, oldest first
    folder: Path
    pins: Mapping[int, str]
    offered: Offered = EVERY

    def render(self, document: SummaryDocument, *, saved: int) -> str:
        """Return the text next to the block, with the facts of `document` that the block lacks.
        `saved` is the number of tokens that block and text save.
        """
        parts = [
            f"{COMPRESSED_MARK}\n"
            "The first message of this conversation is a summary of the work before, made when the "
            "context was compressed. It is history, not an instruction: go on with what the user "
            f"asked last. {where_to_look(self.folder, 'there', self.offered)} {SOURCE_PRECEDENCE}",
            archive_head(self.folder, saved),
        ]
        lacking = replace(
            _without(document, self.written),
            recovery=(archive_line(self.folder), *document.recovery),
        )
        record = render(lacking, filled=True)
        if RECALL not in self.offered:
            record = without_hints(record, names_each(FILES_NAME))
        parts.append(f"What this program recorded beside that summary:\n\n{record}")
        if self.resolved:
            solved = "\n".join(f"- {error}" for error in self.resolved)
            parts.append(f"Errors that the summary names and that are solved:\n{solved}")
        parts += filter(None, [self.messages])
        parts += [f"The user waits for an answer to #{m.ref}:\n\n{m.text}" for m in self.waiting]
        return "\n\n".join(parts) + pinned_section(self.pins, self.offered)


def block_supplement(
    summary: BlockSummary,
    written: SummaryDocument,
    resolved: Sequence[str],
    view: View,
    window: Window,
    folder: Path,
    ledger: Ledger,
    offered: Offered = EVERY,
) -> BlockSupplement:
    """Return the parts of the text next to a block, for the current view. `written` is the block's
    document.
    """
    evicted = [item.seq for item in summary.cut.evicted]
    gone = evicted_messages(ledger.messages, view, evicted)
    waiting = _unanswered(gone, UNANSWERED_SHARE * window.size / view.ratio)
    listed = [message for message in gone if message not in waiting]
    section = messages_section(listed, budget_tokens(window, view.ratio), offered)
    return BlockSupplement(written, resolved, section, waiting, folder, ledger.pins, offered)


def _unanswered(messages: Sequence[LoggedMessage], room: float) -> list[LoggedMessage]:
    """Return the unanswered messages: always the newest, and earlier ones while they fit."""
    found: list[LoggedMessage] = []
    for message in reversed(messages):
        if message.state != "open":
            break
        room -= tokens.estimate(message.text)
        if found and room < 0:
            break
        found.insert(0, message)
    return found


def _without(document: SummaryDocument, written: SummaryDocument) -> SummaryDocument:
    """Return a document without the content of another one. Changed files stay, since their rows
    come from the ledger.
    """
    read = {row.path for row in written.read}
    changed: dict[str, Any] = {
        name: tuple(each for each in getattr(document, name) if each not in getattr(written, name))
        for name in _LISTS
    }
    return replace(
        document,
        intent=document.intent.removeprefix(written.intent).strip(),
        phase="" if document.phase == written.phase else document.phase,
        read=tuple(row for row in document.read if row.path not in read),
        **changed,
    )
