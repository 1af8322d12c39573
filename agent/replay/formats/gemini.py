"""Gemini CLI's chats: one JSON object of messages. A reply holds its calls, and a call its
result.
"""

from collections.abc import Iterable
from typing import Any

from .parts import Row, arguments, count, items, mapping, plain, seconds
from .transcript import Result, Transcript

_KINDS = ("user", "gemini", "info", "error", "warning")


def recognises(row: Row) -> bool:
    kinds = [mapping(message).get("type") for message in items(row.get("messages"))]
    return any(kind in _KINDS for kind in kinds if isinstance(kind, str))


def read(rows: Iterable[Row]) -> Transcript:
    transcript = Transcript()
    for row in rows:
        for message in transcript.objects(row.get("messages")):
            if message.get("type") == "user":
                transcript.say(plain(message.get("content")), seconds(message.get("timestamp")))
            elif message.get("type") == "gemini":
                _replied(transcript, message)
    return transcript


def _replied(transcript: Transcript, message: dict[str, Any]) -> None:
    at, tokens = seconds(message.get("timestamp")), mapping(message.get("tokens"))
    draft = transcript.reply(object(), at, message.get("model"))
    draft.prompt = count(tokens.get("input"))
    draft.output = count(tokens.get("output")) + count(tokens.get("thoughts"))
    draft.say(plain(message.get("content")))
    for call in transcript.objects(message.get("toolCalls")):
        given = arguments(call.get("args"))
        transcript.ask(draft, call.get("id"), call.get("name"), given, _result(call, at))


def _result(call: dict[str, Any], at: float | None) -> Result | None:
    parts = call.get("result")
    if parts is None:
        return None
    texts = [_text(part) for part in (parts if isinstance(parts, list) else [parts])]
    return Result(
        "\n".join(texts), call.get("status") == "error", seconds(call.get("timestamp")) or at
    )


def _text(part: Any) -> str:
    response = mapping(mapping(mapping(part).get("functionResponse")).get("response"))
    told = response.get("output") or response.get("error")
    return plain(part if told is None else told)
