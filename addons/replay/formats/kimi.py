"""The reader of Kimi's sessions: `wire.jsonl`, which has all events, and `context.jsonl`, which has
the messages since the newest compaction. Kimi Code writes `wire.jsonl` in a different format.
"""

from collections.abc import Iterable

from ....api.recordings import RecordedReplyDraft, RecordedResult, TranscriptBuilder
from ....api.text import (
    JsonObject,
    as_arguments,
    as_count,
    as_object,
    as_seconds,
    as_text,
    plain_text,
)
from .chat import add_message

_CONTEXT_ROLES = ("_system_prompt", "_checkpoint", "_usage")
_CODE_EVENTS = ("turn.prompt", "turn.steer", "context.append_loop_event", "config.update")
_COMPACTED = "<system>Previous context has been compacted."  # prefix of the summary


def recognizes(row: JsonObject) -> bool:
    kind = row.get("type")
    return (
        row.get("role") in _CONTEXT_ROLES
        or (kind == "metadata" and "protocol_version" in row)
        or kind in _CODE_EVENTS
        or ("timestamp" in row and isinstance(as_object(row.get("message")).get("payload"), dict))
    )


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    wire = _Wire()
    for row in rows:
        if "role" in row:
            _add_context(wire.transcript, row)
        elif row.get("type") in _CODE_EVENTS:
            wire.add_code(row)
        elif payload := as_object(as_object(row.get("message")).get("payload")):
            wire.add(str(row["message"].get("type")), payload, as_seconds(row.get("timestamp")))
        elif as_object(row.get("message")).get("type") == "CompactionEnd":
            wire.transcript.add_compaction(as_seconds(row.get("timestamp")))
    return wire.transcript


def _add_context(transcript: TranscriptBuilder, row: JsonObject) -> None:
    if row.get("role") == "_system_prompt":
        transcript.set_system(as_text(row.get("content")))
    else:
        is_summary = plain_text(row.get("content")).startswith(_COMPACTED)
        add_message(transcript, row, is_summary=is_summary)


class _Wire:
    """The events read so far. Each step of a turn is a reply."""

    def __init__(self) -> None:
        self.transcript = TranscriptBuilder()
        self._step = 0

    def add(self, kind: str, payload: JsonObject, at: float | None) -> None:
        """Add an event of the older agent, Kimi CLI."""
        if kind in ("TurnBegin", "SteerInput"):
            self.transcript.add_words(plain_text(payload.get("user_input")), at)
        elif kind == "StepBegin":
            self._step += 1
        elif kind == "ContentPart" and payload.get("type") == "text":
            self._reply(at).add_text(as_text(payload.get("text")))
        elif kind == "ToolCall":
            told = as_object(payload.get("function"))
            given = as_arguments(told.get("arguments"))
            self.transcript.add_call(self._reply(at), payload.get("id"), told.get("name"), given)
        elif kind == "ToolResult":
            value = as_object(payload.get("return_value"))
            text = plain_text(value.get("output")) or as_text(value.get("message"))
            result = RecordedResult(text, bool(value.get("is_error")), at)
            self.transcript.add_result(payload.get("tool_call_id"), result)
        elif kind == "StatusUpdate":
            used = as_object(payload.get("token_usage"))
            names = ("input_other", "input_cache_read", "input_cache_creation")
            draft = self._reply(None)
            draft.prompt = sum(as_count(used.get(name)) for name in names)
            draft.output = as_count(used.get("output"))

    def add_code(self, row: JsonObject) -> None:
        """Add an event of Kimi Code."""
        kind = row.get("type")
        at = as_seconds(row.get("time")) or as_seconds(row.get("timestamp"))
        event = as_object(row.get("event"))
        if kind == "config.update":
            self.transcript.set_cwd(row.get("cwd"))
        elif kind in ("turn.prompt", "turn.steer"):
            self.transcript.add_words(plain_text(row.get("input")), at)
        elif event.get("type") == "step.begin":
            self._step += 1
        elif event.get("type") == "content.part":
            part = as_object(event.get("part"))
            if part.get("type") == "text":
                self._reply(at).add_text(as_text(part.get("text")))
        elif event.get("type") == "tool.call":
            given = as_arguments(event.get("args"))
            self.transcript.add_call(
                self._reply(at), event.get("toolCallId"), event.get("name"), given
            )
        elif event.get("type") == "tool.result":
            value = as_object(event.get("result"))
            text = plain_text(value.get("output")) or as_text(value.get("message"))
            result = RecordedResult(text, bool(value.get("isError")), at)
            self.transcript.add_result(event.get("toolCallId"), result)

    def _reply(self, at: float | None) -> RecordedReplyDraft:
        return self.transcript.draft_reply(self._step, at)
