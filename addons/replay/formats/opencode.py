"""The reader of OpenCode's exports: one JSON object with messages made of parts. A call and its
result are one part; each `step-start` part begins a new reply.
"""

from collections.abc import Iterable
from typing import Any

from ....api.recordings import RecordedReplyDraft, RecordedResult, TranscriptBuilder
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

_OUTCOMES = ("output", "error")


def recognizes(row: JsonObject) -> bool:
    messages = as_list(row.get("messages"))
    return isinstance(row.get("info"), dict) and any("parts" in as_object(m) for m in messages)


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript = TranscriptBuilder()
    for row in rows:
        transcript.set_cwd(as_object(row.get("info")).get("directory"))
        for message in transcript.objects(row.get("messages")):
            info = as_object(message.get("info"))
            parts = [p for p in transcript.objects(message.get("parts")) if not p.get("ignored")]
            if info.get("role") == "assistant" and info.get("summary") is True:
                transcript.add_words(_text(parts), _end(info), is_summary=True)
            elif info.get("role") == "assistant":
                _add_reply(transcript, info, parts)
            elif info.get("role") == "user":
                _add_user(transcript, info, parts)
            else:
                transcript.skipped += 1
    return transcript


def _text(parts: list[JsonObject]) -> str:
    """Return the texts and images in the parts. Other files are skipped, because a separate part
    has their text.
    """
    return "\n".join(
        plain_text(part)
        for part in parts
        if part.get("type") == "text" or "image" in as_text(part.get("mime"))
    )


def _add_user(transcript: TranscriptBuilder, info: JsonObject, parts: list[JsonObject]) -> None:
    at = _end(info)
    if any(part.get("type") == "compaction" for part in parts):
        transcript.add_compaction(at)
    transcript.add_words(_text(parts), at)


def _add_reply(transcript: TranscriptBuilder, info: JsonObject, parts: list[JsonObject]) -> None:
    draft = _new_draft(transcript, info)
    _count(draft, info.get("tokens"))
    for number, part in enumerate(parts):
        kind = part.get("type")
        if kind == "step-start" and number:
            draft = _new_draft(transcript, info)
        elif kind == "text":
            draft.add_text(as_text(part.get("text")))
        elif kind == "tool":
            state = as_object(part.get("state"))
            given = as_arguments(state.get("input"))
            transcript.add_call(draft, part.get("callID"), part.get("tool"), given, _result(state))
        elif kind == "step-finish":
            _count(draft, part.get("tokens"))


def _new_draft(transcript: TranscriptBuilder, info: JsonObject) -> RecordedReplyDraft:
    return transcript.draft_reply(object(), _end(info), info.get("modelID"))


def _end(info: JsonObject) -> float | None:
    time = as_object(info.get("time"))
    return as_seconds(time.get("completed")) or as_seconds(time.get("created"))


def _count(draft: RecordedReplyDraft, tokens: Any) -> None:
    """Set the token counts of a reply. OpenCode counts thinking apart from output, and cached
    tokens apart from input.
    """
    used, cache = as_object(tokens), as_object(as_object(tokens).get("cache"))
    parts = used.get("input"), cache.get("read"), cache.get("write")
    draft.prompt = sum(map(as_count, parts)) or draft.prompt
    draft.output = as_count(used.get("output")) + as_count(used.get("reasoning")) or draft.output


def _result(state: JsonObject) -> RecordedResult | None:
    outcome = next((state[name] for name in _OUTCOMES if state.get(name) is not None), None)
    if outcome is None:
        return None
    end = as_seconds(as_object(state.get("time")).get("end"))
    failed = state.get("status") == "error" or bool(as_object(state.get("metadata")).get("exit"))
    return RecordedResult(plain_text(outcome), failed, end)
