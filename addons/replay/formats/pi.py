"""The reader of pi's sessions: JSON lines, which form a tree since format version 2. The branch
that ends with the last line is read, because the model saw it last.
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
from .reader import newest_branch

_EXTENSION_ROLES = ("custom", "hookMessage")  # messages from extensions to the model
_PROMPT_COUNTS = ("input", "cacheRead", "cacheWrite")


def recognizes(row: JsonObject) -> bool:
    message = row.get("message")
    return row.get("type") == "message" and isinstance(message, dict) and "role" in message


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript = TranscriptBuilder()
    known = [row for row in rows if isinstance(row.get("type"), str)]
    branch = newest_branch(known, "id", "parentId")
    if left := len(known) - len(branch):
        transcript.notes.append(f"skipped {left} entries on other branches")
    places = dict[str, int]()  # number of steps before each row, by its ID
    transcript.set_cwd(next((row["cwd"] for row in known if "cwd" in row), ""))
    for row in branch:
        at = as_seconds(row.get("timestamp"))
        if isinstance(row.get("id"), str):
            places[row["id"]] = len(transcript.steps)
        if row["type"] == "compaction":
            now = len(transcript.steps)
            kept = now - places.get(as_text(row.get("firstKeptEntryId")), now)
            transcript.add_compaction(at, as_text(row.get("summary")), kept=kept)
        elif row["type"] == "branch_summary":
            transcript.add_words(as_text(row.get("summary")), at)
        elif row["type"] == "custom_message":
            transcript.add_words(plain_text(row.get("content")), at)
        elif row["type"] == "message" and isinstance(row.get("message"), dict):
            _add(transcript, row["message"], at or as_seconds(row["message"].get("timestamp")))
        elif row["type"] == "message":
            transcript.skipped += 1
    return transcript


def _add(transcript: TranscriptBuilder, message: JsonObject, at: float | None) -> None:
    role, content = message.get("role"), message.get("content")
    if role == "user" or role in _EXTENSION_ROLES:
        transcript.add_words(plain_text(content), at)
    elif role == "bashExecution" and not message.get("excludeFromContext"):
        transcript.add_words(
            f"$ {as_text(message.get('command'))}\n{as_text(message.get('output'))}", at
        )
    elif role == "toolResult":
        result = RecordedResult(plain_text(content), bool(message.get("isError")), at)
        transcript.add_result(message.get("toolCallId"), result)
    elif role == "assistant":
        _add_reply(transcript, message, at)


def _add_reply(transcript: TranscriptBuilder, message: JsonObject, at: float | None) -> None:
    draft = transcript.draft_reply(object(), at, message.get("model"))
    usage = as_object(message.get("usage"))
    draft.prompt = sum(as_count(usage.get(name)) for name in _PROMPT_COUNTS)
    draft.output = as_count(usage.get("output"))
    for block in transcript.objects(message.get("content")):
        if block.get("type") == "text":
            draft.add_text(as_text(block.get("text")))
        elif block.get("type") == "toolCall":
            given = as_arguments(block.get("arguments"))
            transcript.add_call(draft, block.get("id"), block.get("name"), given)
