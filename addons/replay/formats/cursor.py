"""The reader of Cursor's sessions: the messages in an agent's `store.db`, extracted by `stores`, or
the JSON lines of a transcript.
"""

from collections.abc import Iterable

from ....api.recordings import TranscriptBuilder
from ....api.text import JsonObject, as_object
from .chat import add_message, is_message

HEADER = "cursor"  # the key of the header row


def recognizes(row: JsonObject) -> bool:
    is_transcript = "type" not in row and row.get("role") in ("user", "assistant")
    return HEADER in row or (is_transcript and isinstance(row.get("message"), dict))


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript, model = TranscriptBuilder(), ""
    for row in rows:
        if HEADER in row:
            model = as_object(row[HEADER]).get("lastUsedModel") or ""
        elif isinstance(row.get("message"), dict):
            add_message(transcript, {**row["message"], "role": row.get("role")})
        elif is_message(row):
            add_message(transcript, {"model": model, **row})
    return transcript
