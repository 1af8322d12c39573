"""The reader of Qwen Code's chats: JSON lines like Claude Code's, with messages made of Gemini API
parts.
"""

from collections.abc import Iterable
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
from .reader import newest_branch

_KINDS = ("user", "assistant", "tool_result")
_COMPRESSION, _MID_TURN = "chat_compression", "mid_turn_user_message"  # subtypes


def recognizes(row: JsonObject) -> bool:
    message = row.get("message")
    is_message = isinstance(message, dict) and isinstance(message.get("parts"), list)
    return is_message and row.get("type") in _KINDS


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript = TranscriptBuilder()
    known = [row for row in rows if isinstance(row.get("type"), str)]
    branch = newest_branch(known, "uuid", "parentUuid")
    if left := len(known) - len(branch):
        transcript.notes.append(f"skipped {left} entries on other branches")
    for row in branch:
        at = as_seconds(row.get("timestamp"))
        transcript.set_cwd(row.get("cwd"))
        if row.get("subtype") == _COMPRESSION:
            _add_compression(transcript, as_object(row.get("systemPayload")), at)
        elif row["type"] not in _KINDS and row.get("subtype") != _MID_TURN:
            continue
        elif isinstance(row.get("message"), dict):
            _add(transcript, row, transcript.objects(row["message"].get("parts")), at)
        else:
            transcript.skipped += 1
    return transcript


def _add_compression(transcript: TranscriptBuilder, payload: JsonObject, at: float | None) -> None:
    """Add a compaction. Its history is the summary, a reply to it, and the kept messages."""
    history = transcript.objects(payload.get("compressedHistory"))
    summary = "\n".join(as_text(part.get("text")) for part in _parts(history[:1]))
    kept = sum(
        content.get("role") == "model" or any("text" in part for part in _parts([content]))
        for content in history[2:]
    )
    transcript.add_compaction(at, summary, kept=kept)


def _parts(contents: list[JsonObject]) -> list[JsonObject]:
    return [as_object(part) for content in contents for part in as_list(content.get("parts"))]


def _add(
    transcript: TranscriptBuilder, row: JsonObject, parts: list[JsonObject], at: float | None
) -> None:
    said = [as_text(part.get("text")) for part in parts if not part.get("thought")]
    if row["type"] == "assistant":
        draft = transcript.draft_reply(object(), at, row.get("model"))
        used = as_object(row.get("usageMetadata"))
        draft.prompt = as_count(used.get("promptTokenCount"))
        names = ("candidatesTokenCount", "thoughtsTokenCount")
        draft.output = sum(as_count(used.get(name)) for name in names)
        draft.add_text("".join(said))
        for call in (as_object(part.get("functionCall")) for part in parts):
            if call:
                given = as_arguments(call.get("args"))
                transcript.add_call(draft, call.get("id"), call.get("name"), given)
        return
    for answer in (as_object(part.get("functionResponse")) for part in parts):
        if answer:
            transcript.add_result(answer.get("id"), _result(answer.get("response"), at))
    is_mid_turn = row.get("subtype") == _MID_TURN
    transcript.add_words("\n".join(filter(None, said)), at, mid_turn=is_mid_turn)


def _result(response: Any, at: float | None) -> RecordedResult:
    told = as_object(response)
    error = told.get("error")
    output = told.get("output") if error is None else error
    return RecordedResult(plain_text(response if output is None else output), error is not None, at)
