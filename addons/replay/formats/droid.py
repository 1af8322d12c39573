"""The reader of Droid's sessions: JSON lines with a `session_start` and messages of Messages API
blocks.
"""

from collections.abc import Iterable

from ....api.recordings import TranscriptBuilder
from ....api.text import JsonObject, as_object, as_seconds, as_text
from .chat import add_message

_REMINDER = "<system-reminder>"  # prefix of text that Droid writes as the user


def recognizes(row: JsonObject) -> bool:
    return row.get("type") == "session_start" and "message" not in row


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript = TranscriptBuilder()
    places = dict[str, int]()  # number of steps up to and including each message, by its ID
    for row in rows:
        at = as_seconds(row.get("timestamp"))
        if row.get("type") == "session_start":
            transcript.set_cwd(row.get("cwd"))
        elif row.get("type") == "compaction_state":
            now, anchor = len(transcript.steps), as_object(row.get("anchorMessage")).get("id")
            kept = now - places.get(as_text(anchor), now)
            transcript.add_compaction(at, as_text(row.get("summaryText")), kept=kept)
        elif row.get("type") != "message":
            continue
        elif not isinstance(row.get("message"), dict):
            transcript.skipped += 1
        else:
            _add(transcript, row["message"], at)
            places[as_text(row.get("id"))] = len(transcript.steps)
    return transcript


def _add(transcript: TranscriptBuilder, message: JsonObject, at: float | None) -> None:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    reminders = [
        block
        for block in transcript.objects(blocks)
        if message.get("role") == "user" and as_text(block.get("text")).startswith(_REMINDER)
    ]
    if reminders:
        add_message(transcript, {"role": "user", "content": reminders}, at, by_client=True)
    rest = [block for block in blocks if block not in reminders]
    add_message(transcript, {**message, "content": rest}, at)
