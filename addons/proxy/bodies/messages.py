"""Bodies of the Messages API."""

from collections.abc import Iterator, Sequence
from typing import Any

from ....api.context import THINKING
from ....api.models import MESSAGES, Draft, ReplyDraft
from ....api.record import Block
from .base import (
    BodyPiece,
    BodyPlace,
    Edits,
    Json,
    Preamble,
    ServerReply,
    is_client_text,
    replaced_inputs,
    unmarked,
)

MAX_MARKS = 4  # the API's limit per request
MARK = "cache_control"


class MessagesBody:
    """See `base.BodyFormat`."""

    name = upstream = MESSAGES
    paths = ("/messages",)
    count_paths = ("/messages/count_tokens",)
    other_roles = ("user", "system")

    def model(self, body: Json, url: str) -> str:
        return str(body.get("model", ""))

    def messages(self, body: Json) -> list[Json] | None:
        found = body.get("messages")
        return found if isinstance(found, list) else None

    def preamble(self, body: Json) -> Preamble:
        system = body.get("system") or ""
        if isinstance(system, list):
            system = "\n\n".join(str(block.get("text", "")) for block in system)
        return Preamble(system, unmarked(body.get("tools") or []))

    def pieces(self, messages: Sequence[Json], start: int) -> Iterator[BodyPiece]:
        for index in range(start, len(messages)):
            role, content = messages[index]["role"], messages[index]["content"]
            whole = isinstance(content, str)
            blocks = _blocks(unmarked(content))
            places = [BodyPlace(index, None if whole else n) for n in range(len(blocks))]
            if role == "assistant":
                yield BodyPiece("reply", blocks, tuple(places))
            elif role in ("user", "system"):
                yield from _user_pieces(blocks, places, by_client=role == "system")
            else:
                raise ValueError(f"a message with the role {role!r}")

    def edited(self, body: Json, edits: Edits, skip: int) -> Json:
        messages = [*body["messages"]]
        for index in {place.message for place in (*edits.results, *edits.inputs, *edits.dropped)}:
            messages[index] = _edited_message(messages[index], index, edits)
        if edits.mark is not None and edits.mark >= edits.start:
            messages[edits.mark] = _marked(messages[edits.mark], body)
        kept = [message for message in messages[edits.start :] if message["content"]]
        if edits.head:
            first = kept.pop(0) if kept and kept[0]["role"] == "user" else {"role": "user"}
            kept.insert(0, {**first, "content": [*edits.head, *_blocks(first.get("content", []))]})
        return {**body, "messages": kept}

    def with_question(self, body: Json, question: str) -> Json:
        *before, last = body["messages"]
        asked = {"type": "text", "text": question}
        if last["role"] != "user":
            return {**body, "messages": [*before, last, {"role": "user", "content": [asked]}]}
        return {
            **body,
            "messages": [*before, {**last, "content": [*_blocks(last["content"]), asked]}],
        }

    def with_only_texts(self, body: Json, texts: Sequence[str], max_tokens: int) -> Json:
        content = [{"type": "text", "text": text} for text in texts]
        kept = {name: value for name, value in body.items() if name in ("model", "stream")}
        return {
            **kept,
            "max_tokens": max_tokens,
            "messages": [{"role": "user", "content": content}],
        }

    def output_room(self, body: Json) -> int:
        given = body.get("max_tokens")
        return given if isinstance(given, int) else 0

    def is_cached(self, body: Json) -> bool:
        return MARK in body or any(_marks(body))

    def draft(self, body: Json) -> Draft:
        return ReplyDraft(str(body.get("model", "")))

    def reply(self, draft: Draft) -> ServerReply:
        found = draft.reply()
        return ServerReply(found.content, found.usage, found.stop_reason, found.message_id)


def _blocks(content: Any) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _marks(body: Json) -> Iterator[Json]:
    """Yield the cache marks in the blocks of a body."""
    contents = [message.get("content") for message in body["messages"]]
    for part in (body.get("tools"), body.get("system"), *contents):
        for block in part if isinstance(part, list) else ():
            if isinstance(block, dict) and isinstance(mark := block.get(MARK), dict):
                yield mark


def _marked(message: Json, body: Json) -> Json:
    """Return a message with a cache mark at its end, equal to the body's last mark. Return it
    unchanged if the body has no mark or MAX_MARKS marks, or if its last block cannot have one.
    """
    marks, content = [*_marks(body)], message["content"]
    if not marks or len(marks) >= MAX_MARKS or isinstance(content, str) or not content:
        return message
    *before, last = content
    if last.get("type") in THINKING or MARK in last:
        return message
    return {**message, "content": [*before, {**last, MARK: marks[-1]}]}


def _user_pieces(
    blocks: list[Block], places: list[BodyPlace], *, by_client: bool
) -> Iterator[BodyPiece]:
    """Yield the pieces of a user message: each result, and the text between results."""
    words: list[tuple[Block, BodyPlace]] = []
    mine = False

    def said() -> Iterator[BodyPiece]:
        if words:
            content = [block for block, _ in words]
            yield BodyPiece("words", content, tuple(p for _, p in words), by_client=mine)
            words.clear()

    for block, place in zip(blocks, places, strict=True):
        if block.get("type") == "tool_result":
            yield from said()
            content = block.get("content", "")
            yield BodyPiece(
                "result",
                content if isinstance(content, str | list) else "",
                (place,),
                call=str(block.get("tool_use_id")),
                is_error=block.get("is_error") is True,
            )
            continue
        is_mine = by_client or is_client_text(str(block.get("text", "")))
        if is_mine is not mine:
            yield from said()
        mine = is_mine
        words.append((block, place))
    yield from said()


def _edited_message(message: Json, index: int, edits: Edits) -> Json:
    content: list[Any] = []
    given = message["content"]
    if isinstance(given, str):
        return message
    for number, block in enumerate(given):
        place = BodyPlace(index, number)
        if place in edits.dropped:
            continue
        if place in edits.results:
            block = {**block, "content": edits.results[place]}
        elif place in edits.inputs:
            block = {**block, "input": replaced_inputs(block["input"], edits.inputs[place])}
        content.append(block)
    while content and content[-1].get("type") in THINKING:
        content.pop()  # the API refuses a message that ends with thinking
    return {**message, "content": content}
