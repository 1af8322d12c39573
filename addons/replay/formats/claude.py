"""The reader of Claude Code's transcripts: JSON lines, of which only the types user and assistant
are used.

A reply can span several lines with the same message ID. Lines are used in file order, because the
chain of parents does not always match the order of writing. Sidechains belong to subagents and are
skipped, unless the file begins with one and so is a subagent's own transcript. Messages that the
agent wrote as the user (`isMeta`, compaction summaries) did reach the model and are kept.
"""

from collections.abc import Iterable
from typing import Any

from ....api.recordings import RecordedReplyDraft, RecordedResult, TranscriptBuilder
from ....api.text import JsonObject, as_count, as_object, as_seconds, as_text, plain_text

_SYNTHETIC = "<synthetic>"  # `model` of replies written by the agent itself
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
    """Set the token counts from the newest line; only a reply's last line has the full output."""
    usage = as_object(message.get("usage"))
    draft.prompt = sum(as_count(usage.get(name)) for name in _PROMPT_COUNTS) or draft.prompt
    if message.get("stop_reason"):
        draft.output = as_count(usage.get("output_tokens"))


def _blocks(transcript: TranscriptBuilder, content: Any) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return transcript.objects(content)
