"""pi's sessions: JSON lines, a tree by their parents since its second version. What is played is
the branch that ends with the file: what the model was shown last.
"""

from collections.abc import Iterable
from typing import Any

from .parts import Row, arguments, count, mapping, plain, seconds, words
from .transcript import Result, Transcript

_CUSTOM = ("custom", "hookMessage")  # roles of what extensions say to the model
_USED = ("input", "cacheRead", "cacheWrite")


def recognises(row: Row) -> bool:
    message = row.get("message")
    return row.get("type") == "message" and isinstance(message, dict) and "role" in message


def read(rows: Iterable[Row]) -> Transcript:
    transcript = Transcript()
    known = [row for row in rows if isinstance(row.get("type"), str)]
    branch = _branch(known)
    if left := len(known) - len(branch):
        transcript.notes.append(f"{left} entries on other branches of it are left out")
    for row in branch:
        at = seconds(row.get("timestamp"))
        if row["type"] == "compaction":
            transcript.compact(at, words(row.get("summary")))
        elif row["type"] == "branch_summary":
            transcript.say(words(row.get("summary")), at)
        elif row["type"] == "custom_message":
            transcript.say(plain(row.get("content")), at)
        elif row["type"] == "message" and isinstance(row.get("message"), dict):
            _add(transcript, row["message"], at or seconds(row["message"].get("timestamp")))
        elif row["type"] == "message":
            transcript.skipped += 1
    return transcript


def _branch(rows: list[Row]) -> list[Row]:
    """The rows from the root to the last one. A parent stands before its children; where it is not
    named, or not in the file, it is the row before."""
    place = {row["id"]: at for at, row in enumerate(rows) if isinstance(row.get("id"), str)}
    at, branch = len(rows) - 1, []
    while at >= 0:
        branch.append(rows[at])
        parent = rows[at].get("parentId", "")
        if parent is None:
            break
        before = place.get(parent, at - 1) if isinstance(parent, str) else at - 1
        at = before if before < at else at - 1
    return branch[::-1]


def _add(transcript: Transcript, message: dict[str, Any], at: float | None) -> None:
    role, content = message.get("role"), message.get("content")
    if role == "user" or role in _CUSTOM:
        transcript.say(plain(content), at)
    elif role == "bashExecution" and not message.get("excludeFromContext"):
        transcript.say(f"$ {words(message.get('command'))}\n{words(message.get('output'))}", at)
    elif role == "toolResult":
        result = Result(plain(content), bool(message.get("isError")), at)
        transcript.answer(message.get("toolCallId"), result)
    elif role == "assistant":
        _replied(transcript, message, at)


def _replied(transcript: Transcript, message: dict[str, Any], at: float | None) -> None:
    draft = transcript.reply(object(), at, message.get("model"))
    usage = mapping(message.get("usage"))
    draft.prompt = sum(count(usage.get(name)) for name in _USED)
    draft.output = count(usage.get("output"))
    for block in transcript.objects(message.get("content")):
        if block.get("type") == "text":
            draft.say(words(block.get("text")))
        elif block.get("type") == "toolCall":
            given = arguments(block.get("arguments"))
            transcript.ask(draft, block.get("id"), block.get("name"), given)
