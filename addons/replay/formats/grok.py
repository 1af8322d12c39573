"""The reader of Grok Build's sessions: `chat_history.jsonl`, whose rows have a type, or a role in
older versions. `summary.json` names the working directory.
"""

from collections.abc import Iterable

from ....api.recordings import TranscriptBuilder
from ....api.text import JsonObject, as_object, as_text
from .chat import add_message

HEADER = "grok"  # the key of the row with `summary.json`
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool_result": "tool"}
_SAID_BY_USER = (None, "interjection")


def recognizes(row: JsonObject) -> bool:
    is_typed = as_text(row.get("type")) in _ROLES and "content" in row
    return HEADER in row or (is_typed and not {"message", "timestamp", "data"} & row.keys())


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript = TranscriptBuilder()
    for row in rows:
        if HEADER in row:
            transcript.set_cwd(as_object(as_object(row[HEADER]).get("info")).get("cwd"))
        elif role := _ROLES.get(as_text(row.get("type")), row.get("role")):
            by_client = row.get("synthetic_reason") not in _SAID_BY_USER
            add_message(transcript, {**row, "role": role}, by_client=by_client)
    return transcript
