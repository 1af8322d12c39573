"""The reader of Vibe's sessions: `messages.jsonl` and `meta.json` of older versions, or the folder
of newer versions, whose messages `stores` collects.
"""

from collections.abc import Iterable
from typing import Any

from ....api.recordings import TranscriptBuilder
from ....api.text import JsonObject, as_object, as_seconds
from .chat import add_message, is_message

HEADER = "vibe"  # the key of the row with `meta.json`


def recognizes(row: JsonObject) -> bool:
    return HEADER in row or ("message_id" in row and is_message(row))


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript, start = TranscriptBuilder(), None
    model: Any = None
    for row in rows:
        if HEADER in row:
            meta = as_object(row[HEADER])
            model = meta.get("model") or as_object(meta.get("config")).get("active_model")
            start = as_seconds(meta.get("start_time"))
            transcript.set_cwd(as_object(meta.get("environment")).get("working_directory"))
        else:
            message = as_object(row.get("message")) or row
            by_client = row.get("source", "history") != "history" or bool(row.get("injected"))
            add_message(transcript, {"model": model, **message}, start, by_client=by_client)
    return transcript
