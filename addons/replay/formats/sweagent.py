"""The reader of SWE-agent's trajectories: one JSON object whose `history` is the conversation; its
`trajectory` repeats the whole prompt at every step. Demonstrations are part of the prompt and are
added as messages. An action without a tool call becomes a shell call with the next observation as
its result.
"""

from collections.abc import Iterable

from ....api.recordings import RecordedResult, TranscriptBuilder
from ....api.text import (
    JsonObject,
    as_arguments,
    as_list,
    as_object,
    as_text,
    parse_json,
    plain_text,
)


def recognizes(row: JsonObject) -> bool:
    history = as_list(row.get("history"))
    return "trajectory" in row and any("role" in as_object(message) for message in history)


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    transcript = TranscriptBuilder()
    for row in rows:
        model, action_id = _model(row), ""
        for number, message in enumerate(transcript.objects(row.get("history"))):
            role = message.get("role")
            if message.get("is_demo"):
                transcript.add_words(f"{role}: {plain_text(message.get('content'))}")
            elif role == "system":
                transcript.set_system(plain_text(message.get("content")))
            elif role == "assistant":
                action_id = _add_reply(transcript, message, f"action-{number}", model)
            elif role == "tool" or (action_id and message.get("message_type") == "observation"):
                id = next(iter(as_list(message.get("tool_call_ids"))), action_id)
                transcript.add_result(id, RecordedResult(plain_text(message.get("content"))))
                action_id = ""
            elif role == "user":
                transcript.add_words(plain_text(message.get("content")))
            else:
                transcript.skipped += 1
    return transcript


def _add_reply(transcript: TranscriptBuilder, message: JsonObject, id: str, model: str) -> str:
    """Add a reply; return the ID of its action, or "" if it has tool calls or no action."""
    draft = transcript.draft_reply(object(), None, model)
    calls = transcript.objects(message.get("tool_calls"))
    action = as_text(message.get("action")).strip()
    draft.add_text(
        as_text(message.get("thought")) or ("" if action else plain_text(message.get("content")))
    )
    for call in calls:
        function = as_object(call.get("function"))
        given = as_arguments(function.get("arguments"))
        transcript.add_call(draft, call.get("id"), function.get("name"), given)
    if calls or not action:
        return ""
    transcript.add_call(draft, id, "shell", {"command": action})
    return id


def _model(row: JsonObject) -> str:
    """Return the model's name from the JSON configuration, "" if it is missing."""
    try:
        config = parse_json(as_text(row.get("replay_config")))
    except ValueError:
        return ""
    agent = as_object(as_object(config).get("agent"))
    return as_text(as_object(agent.get("model")).get("name"))
