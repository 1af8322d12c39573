"""The reader of Copilot CLI's events: JSON lines with a type and data. Subagent events have an
agent ID or the ID of the call that started the subagent, and are skipped.
"""

from collections.abc import Iterable

from ....api.recordings import RecordedResult, TranscriptBuilder
from ....api.text import (
    JsonObject,
    as_arguments,
    as_count,
    as_object,
    as_seconds,
    as_text,
    plain_text,
)

_ORIGINS = ("session", "system", "user", "assistant", "tool", "hook", "permission")


def recognizes(row: JsonObject) -> bool:
    origin, dot, _ = as_text(row.get("type")).partition(".")
    return bool(dot) and origin in _ORIGINS and isinstance(row.get("data"), dict)


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript = TranscriptBuilder()
    for row in rows:
        data = row.get("data")
        if not isinstance(data, dict):
            transcript.skipped += 1
        elif not row.get("agentId") and not data.get("parentToolCallId"):
            _add(transcript, as_text(row.get("type")), data, as_seconds(row.get("timestamp")))
    return transcript


def _add(transcript: TranscriptBuilder, kind: str, data: JsonObject, at: float | None) -> None:
    if kind == "system.message" and data.get("role") == "system":
        transcript.set_system(plain_text(data.get("content")))
    elif kind in ("system.message", "system.notification"):
        transcript.add_words(plain_text(data.get("content")), at)
    elif kind == "user.message":
        transcript.add_words(plain_text(data.get("transformedContent") or data.get("content")), at)
    elif kind == "assistant.message":
        _add_reply(transcript, data, at)
    elif kind == "tool.execution_complete":
        outcome = data.get("result") or data.get("error")
        parts = as_object(outcome)
        text = plain_text(parts.get("content", parts.get("message", "")) if parts else outcome)
        result = RecordedResult(text, data.get("success") is False, at)
        transcript.add_result(data.get("toolCallId"), result)
    elif kind == "session.compaction_complete" and data.get("success") is not False:
        transcript.add_compaction(at, as_text(data.get("summaryContent")))


def _add_reply(transcript: TranscriptBuilder, data: JsonObject, at: float | None) -> None:
    draft = transcript.draft_reply(
        as_text(data.get("messageId")) or object(), at, data.get("model")
    )
    draft.output = as_count(data.get("outputTokens"))
    draft.add_text(plain_text(data.get("content")))
    for call in transcript.objects(data.get("toolRequests")):
        given = as_arguments(call.get("arguments"))
        transcript.add_call(draft, call.get("toolCallId"), call.get("name"), given)
