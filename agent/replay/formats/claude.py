"""Claude Code's transcripts: JSON lines, of which those of the types user and assistant count.

A reply is spread over several lines of one message id, and lines stand in the order they were
written, which the chain of parents does not always give. Side chains are subagents' and left out;
a file that begins with one is that subagent's own. What the agent said in the person's place
(`isMeta`, summaries of compactions) did reach the model and stays.
"""

from collections.abc import Iterable
from typing import Any

from .parts import Row, count, mapping, plain, seconds, words
from .transcript import Draft, Result, Transcript

_SYNTHETIC = "<synthetic>"  # the model of replies that the agent wrote itself
_USED = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def recognises(row: Row) -> bool:
    return row.get("type") in ("user", "assistant") and isinstance(row.get("message"), dict)


def read(rows: Iterable[Row]) -> Transcript:
    transcript, seen = Transcript(), set[str]()
    side: bool | None = None
    for row in rows:
        boundary = row.get("type") == "system" and row.get("subtype") == "compact_boundary"
        if not boundary and row.get("type") not in ("user", "assistant"):
            continue
        side = bool(row.get("isSidechain")) if side is None else side
        uuid = words(row.get("uuid"))
        if bool(row.get("isSidechain")) != side or (uuid and uuid in seen):
            continue
        seen.add(uuid)
        if boundary:
            transcript.compact(seconds(row.get("timestamp")))
        elif not isinstance(row.get("message"), dict):
            transcript.skipped += 1
        elif row["type"] == "user":
            _said(transcript, row)
        elif row["message"].get("model") != _SYNTHETIC:
            _replied(transcript, row)
    return transcript


def _said(transcript: Transcript, row: Row) -> None:
    at, told = seconds(row.get("timestamp")), []
    for block in _blocks(transcript, row["message"].get("content")):
        if block.get("type") == "tool_result":
            result = Result(plain(block.get("content")), bool(block.get("is_error")), at)
            transcript.answer(block.get("tool_use_id"), result)
        else:
            told.append(plain(block))
    transcript.say("\n".join(told), at)


def _replied(transcript: Transcript, row: Row) -> None:
    message = row["message"]
    key = words(message.get("id")) or words(row.get("uuid")) or object()
    draft = transcript.reply(key, seconds(row.get("timestamp")), message.get("model"))
    _count(draft, message)
    for block in _blocks(transcript, message.get("content")):
        if block.get("type") == "text":
            draft.say(words(block.get("text")))
        elif block.get("type") == "tool_use":
            given = mapping(block.get("input"))
            transcript.ask(draft, block.get("id"), block.get("name"), given)


def _count(draft: Draft, message: dict[str, Any]) -> None:
    """The newest line's usage is the truest; what was written by then is all only at the end."""
    usage = mapping(message.get("usage"))
    draft.prompt = sum(count(usage.get(name)) for name in _USED) or draft.prompt
    if message.get("stop_reason"):
        draft.output = count(usage.get("output_tokens"))


def _blocks(transcript: Transcript, content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return transcript.objects(content)
