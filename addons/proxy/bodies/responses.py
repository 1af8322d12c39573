"""Bodies of the Responses API."""

import json
from collections.abc import Iterator, Sequence

from ....api.models import RESPONSES, Draft, ResponseDraft, parse_arguments
from ....api.record import Block
from ..forward import OPENAI
from .base import (
    OTHER_ITEM,
    BodyPiece,
    BodyPlace,
    Edits,
    Json,
    Preamble,
    ServerReply,
    is_client_text,
    replaced_inputs,
    text_blocks,
    text_of,
    words,
)
from .chat import SYSTEM_ROLES

_RESULT = "_output"  # suffix of the type of an item with a call's result
# Field with the arguments of a call, by type of item. A custom tool has a text argument.
_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
}
_STATE = ("previous_response_id", "conversation")  # the history is on the server


class ResponsesBody:
    """See `base.BodyFormat`."""

    name, upstream = RESPONSES, OPENAI
    paths = ("/responses",)
    count_paths = ("/responses/input_tokens",)
    other_roles = ("user", *SYSTEM_ROLES)

    def model(self, body: Json, url: str) -> str:
        return str(body.get("model", ""))

    def messages(self, body: Json) -> list[Json] | None:
        found = body.get("input")
        if any(body.get(name) for name in _STATE) or not isinstance(found, list):
            return None
        return found

    def preamble(self, body: Json) -> Preamble:
        texts = [text] if isinstance(text := body.get("instructions"), str) and text else []
        count = 0
        for item in body["input"]:
            if item.get("role") not in SYSTEM_ROLES:
                break
            texts.append(text_of(item.get("content")))
            count += 1
        return Preamble("\n\n".join(texts), body.get("tools") or [], count)

    def pieces(self, messages: Sequence[Json], start: int) -> Iterator[BodyPiece]:
        blocks: list[Block] = []
        places: list[BodyPlace] = []

        def reply() -> Iterator[BodyPiece]:
            if places:
                yield BodyPiece("reply", [*blocks], tuple(places))
                blocks.clear()
                places.clear()

        for index in range(start, len(messages)):
            item = messages[index]
            kind, role = item.get("type", "message"), item.get("role")
            if kind == "message" and role != "assistant":
                yield from reply()
                yield _words(item, index)
            elif kind.endswith(_RESULT):
                yield from reply()
                content = item.get("output", "")
                text = content if isinstance(content, str) else [*text_blocks(content)]
                call = str(item.get("call_id"))
                yield BodyPiece("result", text, (BodyPlace(index),), call=call)
            else:
                blocks.append(_reply_block(item, kind))
                places.append(BodyPlace(index))
        yield from reply()

    def edited(self, body: Json, edits: Edits, skip: int) -> Json:
        before, items = body["input"][:skip], [*body["input"][skip:]]
        for place, text in edits.results.items():
            items[place.message] = {**items[place.message], "output": text}
        for place, texts in edits.inputs.items():
            item = items[place.message]
            if item["type"] == "function_call":
                given = replaced_inputs(parse_arguments(item["arguments"]), texts)
                item = {**item, "arguments": json.dumps(given, ensure_ascii=False)}
            else:
                name = _CALLS[item["type"]]
                item = {**item, name: replaced_inputs({name: item[name]}, texts)[name]}
            items[place.message] = item
        if edits.head:
            parts = [{"type": "input_text", "text": block["text"]} for block in edits.head]
            head = {"type": "message", "role": "user", "content": parts}
            items = [head, *items[edits.start :]]
        return {**body, "input": [*before, *items]}

    def with_question(self, body: Json, question: str) -> Json:
        return {**body, "input": [*body["input"], _asked(question)]}

    def with_only_texts(self, body: Json, texts: Sequence[str], max_tokens: int) -> Json:
        kept = {n: value for n, value in body.items() if n in ("model", "stream", "store")}
        return {**kept, "max_output_tokens": max_tokens, "input": [_asked("\n\n".join(texts))]}

    def output_room(self, body: Json) -> int:
        given = body.get("max_output_tokens")
        return given if isinstance(given, int) else 0

    def is_cached(self, body: Json) -> bool:
        return True  # these servers cache automatically, if at all

    def draft(self, body: Json) -> Draft:
        return ResponseDraft(str(body.get("model", "")))

    def reply(self, draft: Draft) -> ServerReply:
        assert isinstance(draft, ResponseDraft)
        blocks = [_reply_block(item, str(item.get("type"))) for item in draft.items]
        is_call = any(block["type"] == "tool_use" for block in blocks)
        reason = "tool_use" if is_call else draft.stop_reason
        return ServerReply(blocks, draft.usage, reason, draft.message_id)


def _asked(text: str) -> Json:
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }


def _words(item: Json, index: int) -> BodyPiece:
    content = item.get("content", "")
    mine = item.get("role") in SYSTEM_ROLES or is_client_text(text_of(content))
    return words(content, index, by_client=mine)


def _reply_block(item: Json, kind: str) -> Block:
    """Return an item of a reply as a block of the log. Wrap an item of an unknown type in
    a block.
    """
    if kind == "message":
        return {"type": "text", "text": text_of(item.get("content"))}
    if kind == "reasoning":
        thought = "\n\n".join(text_of(item.get(name)) for name in ("summary", "content"))
        return {"type": "thinking", "thinking": thought.strip(), "signature": ""}
    if kind not in _CALLS:
        return {"type": OTHER_ITEM, "item": item}
    given = item.get(_CALLS[kind])
    if kind == "function_call":
        given = parse_arguments(given) if isinstance(given, str) else None
    elif isinstance(given, str):
        given = {_CALLS[kind]: given}
    name = item.get("name") or kind.removesuffix("_call")
    if space := item.get("namespace"):  # the server of an MCP tool
        name = f"{space}__{name}"
    return {
        "type": "tool_use",
        "id": str(item.get("call_id")),
        "name": str(name),
        "input": given if isinstance(given, dict) else {},
    }
