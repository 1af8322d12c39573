"""SWE-agent's trajectories: one JSON object whose history is the conversation. `trajectory` repeats
the whole prompt at every step. A demonstration is part of the prompt, so it is words here, and an
action without a tool call is a call of the shell, answered by the observation after it.
"""

from collections.abc import Iterable
from typing import Any

from .parts import Row, arguments, items, mapping, parse, plain, words
from .transcript import Result, Transcript


def recognises(row: Row) -> bool:
    history = items(row.get("history"))
    return "trajectory" in row and any("role" in mapping(message) for message in history)


def read(rows: Iterable[Row]) -> Transcript:
    transcript = Transcript()
    for row in rows:
        model, acted = _model(row), ""
        for number, message in enumerate(transcript.objects(row.get("history"))):
            role = message.get("role")
            if message.get("is_demo"):
                transcript.say(f"{role}: {plain(message.get('content'))}")
            elif role == "system":
                transcript.instruct(plain(message.get("content")))
            elif role == "assistant":
                acted = _replied(transcript, message, f"action-{number}", model)
            elif role == "tool" or (acted and message.get("message_type") == "observation"):
                id = next(iter(items(message.get("tool_call_ids"))), acted)
                transcript.answer(id, Result(plain(message.get("content"))))
                acted = ""
            elif role == "user":
                transcript.say(plain(message.get("content")))
            else:
                transcript.skipped += 1
    return transcript


def _replied(transcript: Transcript, message: dict[str, Any], id: str, model: str) -> str:
    """Adds the reply; the id of its action, "" where that is a tool call or there is none."""
    draft = transcript.reply(object(), None, model)
    calls = transcript.objects(message.get("tool_calls"))
    action = words(message.get("action")).strip()
    draft.say(words(message.get("thought")) or ("" if action else plain(message.get("content"))))
    for call in calls:
        function = mapping(call.get("function"))
        given = arguments(function.get("arguments"))
        transcript.ask(draft, call.get("id"), function.get("name"), given)
    if calls or not action:
        return ""
    transcript.ask(draft, id, "shell", {"command": action})
    return id


def _model(row: Row) -> str:
    """The model's name, which stands in the text of the configuration, if anywhere."""
    try:
        config = parse(words(row.get("replay_config")))
    except ValueError:
        return ""
    agent = mapping(mapping(config).get("agent"))
    return words(mapping(agent.get("model")).get("name"))
