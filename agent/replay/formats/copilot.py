"""Copilot CLI's events: JSON lines of a type and its data. Those of subagents carry the agent's id,
or that of the call that started it, and are left out.
"""

from collections.abc import Iterable
from typing import Any

from .parts import Row, arguments, count, mapping, plain, seconds, words
from .transcript import Result, Transcript

_ORIGINS = ("session", "system", "user", "assistant", "tool", "hook", "permission")


def recognises(row: Row) -> bool:
    origin, dot, _ = words(row.get("type")).partition(".")
    return bool(dot) and origin in _ORIGINS and isinstance(row.get("data"), dict)


def read(rows: Iterable[Row]) -> Transcript:
    transcript = Transcript()
    for row in rows:
        data = row.get("data")
        if not isinstance(data, dict):
            transcript.skipped += 1
        elif not row.get("agentId") and not data.get("parentToolCallId"):
            _add(transcript, words(row.get("type")), data, seconds(row.get("timestamp")))
    return transcript


def _add(transcript: Transcript, kind: str, data: dict[str, Any], at: float | None) -> None:
    if kind == "system.message" and data.get("role") == "system":
        transcript.instruct(plain(data.get("content")))
    elif kind in ("system.message", "system.notification"):
        transcript.say(plain(data.get("content")), at)
    elif kind == "user.message":
        transcript.say(plain(data.get("transformedContent") or data.get("content")), at)
    elif kind == "assistant.message":
        _replied(transcript, data, at)
    elif kind == "tool.execution_complete":
        told = data.get("result") or data.get("error")
        parts = mapping(told)
        text = plain(parts.get("content", parts.get("message", "")) if parts else told)
        result = Result(text, data.get("success") is False, at)
        transcript.answer(data.get("toolCallId"), result)
    elif kind == "session.compaction_complete" and data.get("success") is not False:
        transcript.compact(at, words(data.get("summaryContent")))


def _replied(transcript: Transcript, data: dict[str, Any], at: float | None) -> None:
    draft = transcript.reply(words(data.get("messageId")) or object(), at, data.get("model"))
    draft.output = count(data.get("outputTokens"))
    draft.say(plain(data.get("content")))
    for asked in transcript.objects(data.get("toolRequests")):
        given = arguments(asked.get("arguments"))
        transcript.ask(draft, asked.get("toolCallId"), asked.get("name"), given)
