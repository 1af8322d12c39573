"""The reader of Gemini CLI's chats: one JSON object of messages. A reply holds its calls, and a
call holds its result.
"""

from collections.abc import Iterable
from typing import Any

from .builder import RecordedResult, TranscriptBuilder
from .fields import JsonObject, as_arguments, as_count, as_list, as_object, as_seconds, plain_text

_KINDS = ("user", "gemini", "info", "error", "warning")


def recognizes(row: JsonObject) -> bool:
    kinds = [as_object(message).get("type") for message in as_list(row.get("messages"))]
    return any(kind in _KINDS for kind in kinds if isinstance(kind, str))


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript = TranscriptBuilder()
    for row in rows:
        for message in transcript.objects(row.get("messages")):
            if message.get("type") == "user":
                transcript.add_words(
                    plain_text(message.get("content")), as_seconds(message.get("timestamp"))
                )
            elif message.get("type") == "gemini":
                _add_reply(transcript, message)
    return transcript


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
