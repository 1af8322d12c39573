"""Bodies of the Chat Completions API."""

import json
from collections.abc import Iterator, Sequence

from ....api.models import CHAT, ChatDraft, Draft, parse_arguments
from ....api.record import Block
from ..forward import OPENAI
from .base import (
    BodyPiece,
    BodyPlace,
    Edits,
    Json,
    Preamble,
    ServerReply,
    is_client_text,
    replaced_inputs,
    text_of,
    words,
)

SYSTEM_ROLES = ("system", "developer")
_REASONING = ("reasoning_content", "reasoning", "reasoning_text")


class ChatBody:
    """See `base.BodyFormat`."""

    name, upstream = CHAT, OPENAI
    paths = ("/chat/completions",)
    count_paths = ()
    other_roles = ("user", "tool", *SYSTEM_ROLES)

    def model(self, body: Json, url: str) -> str:
        return str(body.get("model", ""))

    def messages(self, body: Json) -> list[Json] | None:
        found = body.get("messages")
        return found if isinstance(found, list) else None

    def preamble(self, body: Json) -> Preamble:
        texts = []
        for message in body["messages"]:
            if message.get("role") not in SYSTEM_ROLES:
                break
            texts.append(text_of(message.get("content")))
        return Preamble("\n\n".join(texts), body.get("tools") or [], len(texts))

    def pieces(self, messages: Sequence[Json], start: int) -> Iterator[BodyPiece]:
        for index in range(start, len(messages)):
            message = messages[index]
            role, content = message["role"], message.get("content")
            places = (BodyPlace(index),)
            if role == "assistant":
                blocks = [*_reply_blocks(message)]
                yield BodyPiece("reply", [block for block, _ in blocks],
                            tuple(BodyPlace(index, n) for _, n in blocks) or places)  # fmt: skip
            elif role == "tool":
                call = str(message.get("tool_call_id"))
                yield BodyPiece("result", text_of(content), places, call=call)
            elif role == "user" or role in SYSTEM_ROLES:
                mine = role != "user" or is_client_text(text_of(content))
                yield words(content, index, by_client=mine)
            else:
                raise ValueError(f"a message with the role {role!r}")

    def edited(self, body: Json, edits: Edits, skip: int) -> Json:
        before, messages = body["messages"][:skip], [*body["messages"][skip:]]
        for place, text in edits.results.items():
            messages[place.message] = {**messages[place.message], "content": text}
        for place, texts in edits.inputs.items():
            message = messages[place.message]
            calls = [*message["tool_calls"]]
            number = place.block or 0
            function = calls[number]["function"]
            given = parse_arguments(function["arguments"])
            shorter = json.dumps(replaced_inputs(given, texts), ensure_ascii=False)
            calls[number] = {**calls[number], "function": {**function, "arguments": shorter}}
            messages[place.message] = {**message, "tool_calls": calls}
        if edits.head:
            text = "\n\n".join(map(_text_block, edits.head))
            messages = _with_head(text, messages[edits.start :])
        return {**body, "messages": [*before, *messages]}

    def with_question(self, body: Json, question: str) -> Json:
        *before, last = body["messages"]
        if last.get("role") == "user":
            return {**body, "messages": [*before, _joined(last, [], [question])]}
        return {**body, "messages": [*before, last, {"role": "user", "content": question}]}

    def with_only_texts(self, body: Json, texts: Sequence[str], max_tokens: int) -> Json:
        names = ("model", "stream", "stream_options")
        kept = {name: body[name] for name in names if name in body}
        limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        messages = [{"role": "user", "content": "\n\n".join(texts)}]
        return {**kept, limit: max_tokens, "messages": messages}

    def output_room(self, body: Json) -> int:
        for name in ("max_completion_tokens", "max_tokens"):
            if isinstance(given := body.get(name), int):
                return given
        return 0

    def is_cached(self, body: Json) -> bool:
        return True  # these servers cache automatically, if at all

    def draft(self, body: Json) -> Draft:
        return ChatDraft(str(body.get("model", "")))

    def reply(self, draft: Draft) -> ServerReply:
        found = draft.reply()
        return ServerReply(found.content, found.usage, found.stop_reason, found.message_id)


def _with_head(text: str, messages: list[Json]) -> list[Json]:
    """Return messages with a user text at the start. Merge it into a first user message, because
    many servers refuse two user messages in a row.
    """
    if not messages or messages[0].get("role") != "user":
        return [{"role": "user", "content": text}, *messages]
    return [_joined(messages[0], [text], []), *messages[1:]]


def _joined(message: Json, before: list[str], after: list[str]) -> Json:
    """Return a user message with more texts before and after its content."""
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": "\n\n".join([*before, text_of(content), *after])}
    parts = [[{"type": "text", "text": text} for text in texts] for texts in (before, after)]
    return {**message, "content": [*parts[0], *content, *parts[1]]}


def _reply_blocks(message: Json) -> Iterator[tuple[Block, int | None]]:
    """Yield the blocks of a reply, each with the index of its call (None if it is not a call)."""
    thought = next((v for n in _REASONING if isinstance(v := message.get(n), str) and v), "")
    if thought:
        yield {"type": "thinking", "thinking": thought, "signature": ""}, None
    if text := text_of(message.get("content")):
        yield {"type": "text", "text": text}, None
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        arguments = function.get("arguments")
        given = parse_arguments(arguments) if isinstance(arguments, str) else None
        yield (
            {
                "type": "tool_use",
                "id": str(call.get("id")),
                "name": str(function.get("name")),
                "input": given or {},
            },
            number,
        )


def _text_block(block: Block) -> str:
    return str(block.get("text", ""))
