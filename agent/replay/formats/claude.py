"""The reader of Claude Code's transcripts: JSON lines, of which the types user and assistant count.

A reply is spread over several lines of one message id. Lines are taken in the order of the file, as
the chain of parents does not always give the order in which they were written. Side chains belong
to subagents and are left out; a file that begins with one is that subagent's own. Words of the
agent in the user's place (`isMeta`, summaries of compactions) did reach the model and are kept.
"""

from collections.abc import Iterable
from typing import Any

from .builder import RecordedReplyDraft, RecordedResult, TranscriptBuilder
from .fields import JsonObject, as_count, as_object, as_seconds, as_text, plain_text

_SYNTHETIC = "<synthetic>"  # the model of replies that the agent wrote itself
_PROMPT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def recognizes(row: JsonObject) -> bool:
    message = row.get("message")
    return (
        row.get("type") in ("user", "assistant")
        and isinstance(message, dict)
        and "parts" not in message  # as Qwen Code has them
    )


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript, seen = TranscriptBuilder(), set[str]()
    is_side: bool | None = None
    for row in rows:
        boundary = row.get("type") == "system" and row.get("subtype") == "compact_boundary"
        if not boundary and row.get("type") not in ("user", "assistant"):
            continue
        is_side = bool(row.get("isSidechain")) if is_side is None else is_side
        uuid = as_text(row.get("uuid"))
        if bool(row.get("isSidechain")) != is_side or (uuid and uuid in seen):
            continue
        seen.add(uuid)
        transcript.set_cwd(row.get("cwd"))
        if boundary:
            transcript.add_compaction(as_seconds(row.get("timestamp")))
        elif not isinstance(row.get("message"), dict):
            transcript.skipped += 1
        elif row["type"] == "user":
            _add_user(transcript, row)
        elif row["message"].get("model") != _SYNTHETIC:
            _add_reply(transcript, row)
    return transcript


def _add_user(transcript: TranscriptBuilder, row: JsonObject) -> None:
    at, told = as_seconds(row.get("timestamp")), []
    for block in _blocks(transcript, row["message"].get("content")):
        if block.get("type") == "tool_result":
            result = RecordedResult(
                plain_text(block.get("content")), bool(block.get("is_error")), at
            )
            transcript.add_result(block.get("tool_use_id"), result)
        else:
            told.append(plain_text(block))
    transcript.add_words(
        "\n".join(told),
        at,
        by_client=bool(row.get("isMeta")),
        is_summary=bool(row.get("isCompactSummary")),
    )


def _add_reply(transcript: TranscriptBuilder, row: JsonObject) -> None:
    message = row["message"]
    key = as_text(message.get("id")) or as_text(row.get("uuid")) or object()
    draft = transcript.draft_reply(key, as_seconds(row.get("timestamp")), message.get("model"))
    _count(draft, message)
    for block in _blocks(transcript, message.get("content")):
        transcript.add_block(draft, block)


def _count(draft: RecordedReplyDraft, message: JsonObject) -> None:
    """Take the tokens from the newest line; the output is complete only in the last one."""
    usage = as_object(message.get("usage"))
    draft.prompt = sum(as_count(usage.get(name)) for name in _PROMPT_COUNTS) or draft.prompt
    if message.get("stop_reason"):
        draft.output = as_count(usage.get("output_tokens"))


def _blocks(transcript: TranscriptBuilder, content: Any) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return transcript.objects(content)
