"""The reader of Hermes's sessions: messages of one session in `state.db`, extracted by `stores`, or
the JSON lines of older versions.
"""

from collections.abc import Iterable
from contextlib import suppress

from ....api.recordings import TranscriptBuilder
from ....api.text import JsonObject, as_object, as_seconds, as_text, parse_json
from .chat import add_message

HEADER = "hermes"  # the key of the row with the session
_META = "session_meta"  # the role of a row about the session


def recognizes(row: JsonObject) -> bool:
    return HEADER in row or row.get("role") == _META


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript, model = TranscriptBuilder(), ""
    for row in rows:
        about = as_object(row.get(HEADER)) if HEADER in row else row
        if about is not row or row.get("role") == _META:
            model = as_text(about.get("model"))
            transcript.set_system(as_text(about.get("system_prompt")))
            transcript.set_cwd(about.get("cwd"))
            continue
        message = {**row, "model": model}
        with suppress(ValueError):
            message["tool_calls"] = parse_json(as_text(row.get("tool_calls")))
        add_message(transcript, message, as_seconds(row.get("timestamp")))
    return transcript
