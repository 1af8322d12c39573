"""The reader of Gemini CLI's chats: one JSON object with messages, or JSON lines since version
0.40, in which a later message replaces an earlier message with the same ID. A reply contains its
calls, and a call contains its result.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ....api.recordings import RecordedResult, TranscriptBuilder
from ....api.text import (
    JsonObject,
    as_arguments,
    as_count,
    as_list,
    as_object,
    as_seconds,
    as_text,
    plain_text,
)

_CLIENT_TEXT = "<session_context>"  # prefix of the message that Gemini CLI writes itself
_KINDS = ("user", "gemini", "info", "error", "warning")


def recognizes(row: JsonObject) -> bool:
    if "sessionId" in row and "projectHash" in row:
        return True
    kinds = [as_object(message).get("type") for message in as_list(row.get("messages"))]
    return any(kind in _KINDS for kind in kinds if isinstance(kind, str))


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript, messages = TranscriptBuilder(), dict[Any, JsonObject]()
    for row in rows:
        changed = as_object(row.get("$set"))
        if "messages" in row:
            messages = {object(): message for message in transcript.objects(row["messages"])}
        elif "messages" in changed:
            told = transcript.objects(changed["messages"])
            messages = {_id(message): message for message in told}
        elif "$rewindTo" in row:
            messages = _before(messages, row["$rewindTo"])
        elif row.get("type") in _KINDS:
            messages[_id(row)] = row
    for message in messages.values():
        if message.get("type") == "user":
            _add_user(transcript, message)
        elif message.get("type") == "gemini":
            _add_reply(transcript, message)
    return transcript


def _before(messages: dict[Any, JsonObject], id: Any) -> dict[Any, JsonObject]:
    """Return the messages before the message with this ID; none if there is no such message."""
    place = list(messages).index(id) if isinstance(id, str) and id in messages else 0
    return dict(islice(messages.items(), place))


def _id(message: JsonObject) -> Any:
    return as_text(message.get("id")) or object()


def _add_user(transcript: TranscriptBuilder, message: JsonObject) -> None:
    content = message.get("content")
    if isinstance(content, list):  # the calls contain their results too
        content = [part for part in content if "functionResponse" not in as_object(part)]
    text = plain_text(content)
    at, by_client = as_seconds(message.get("timestamp")), text.startswith(_CLIENT_TEXT)
    transcript.add_words(text, at, by_client=by_client)


def _add_reply(transcript: TranscriptBuilder, message: JsonObject) -> None:
    at, tokens = as_seconds(message.get("timestamp")), as_object(message.get("tokens"))
    draft = transcript.draft_reply(object(), at, message.get("model"))
    draft.prompt = as_count(tokens.get("input"))
    draft.output = as_count(tokens.get("output")) + as_count(tokens.get("thoughts"))
    draft.add_text(plain_text(message.get("content")))
    for call in transcript.objects(message.get("toolCalls")):
        given = as_arguments(call.get("args"))
        transcript.add_call(draft, call.get("id"), call.get("name"), given, _result(call, at))


def _result(call: JsonObject, at: float | None) -> RecordedResult | None:
    parts = call.get("result")
    if parts is None:
        return None
    texts = [_text(part) for part in (parts if isinstance(parts, list) else [parts])]
    return RecordedResult(
        "\n".join(texts), call.get("status") == "error", as_seconds(call.get("timestamp")) or at
    )


def _text(part: Any) -> str:
    response = as_object(as_object(as_object(part).get("functionResponse")).get("response"))
    output = response.get("output") or response.get("error")
    return plain_text(part if output is None else output)
