"""Messages in the format of OpenAI's chat API, including variants of some agents: calls as blocks
in a reply's content, and results as blocks in a message's content.
"""

from typing import Any

from ....api.recordings import RecordedResult, TranscriptBuilder
from ....api.text import JsonObject, as_arguments, as_list, as_object, as_text, plain_text

_CALLS = ("tool_call", "tool-call", "tool_use")
_RESULTS = ("tool-result", "tool_result")


def is_message(row: JsonObject) -> bool:
    """Return True if the row itself is a message, without an envelope."""
    return row.get("role") in ("system", "user", "assistant", "tool") and (
        "content" in row or "tool_calls" in row
    )


def add_message(
    transcript: TranscriptBuilder,
    message: JsonObject,
    at: float | None = None,
    *,
    by_client: bool = False,
    is_summary: bool = False,
) -> None:
    """Add a message of any role."""
    role, content = message.get("role"), message.get("content")
    blocks = [block for block in as_list(content) if isinstance(block, dict)]
    for block in blocks if role in ("user", "tool") else ():
        if block.get("type") in _RESULTS:
            id = block.get("toolCallId") or block.get("tool_use_id")
            transcript.add_result(id, _block_result(block, at))
    said = [block for block in blocks if block.get("type") not in (*_CALLS, *_RESULTS)]
    if role == "system":
        transcript.set_system(plain_text(content))
    elif role == "user":
        text = plain_text(said if blocks else content)
        transcript.add_words(text, at, by_client=by_client, is_summary=is_summary)
    elif role == "assistant":
        _add_reply(transcript, message, at)
    elif role == "tool" and "tool_call_id" in message:
        is_error = message.get("outcome") == "failure"
        result = RecordedResult(plain_text(content), is_error, at)
        transcript.add_result(message.get("tool_call_id"), result)


def _add_reply(transcript: TranscriptBuilder, message: JsonObject, at: float | None) -> None:
    content = message.get("content")
    model = message.get("model") or message.get("model_id")
    draft = transcript.draft_reply(object(), at, model)
    if isinstance(content, str):
        draft.add_text(content)
    for block in as_list(content):
        kind = as_object(block).get("type")
        if kind == "text":
            draft.add_text(as_text(block.get("text")))
        elif kind in _CALLS:
            id, name = (
                block.get("id") or block.get("toolCallId"),
                block.get("name") or block.get("toolName"),
            )
            transcript.add_call(draft, id, name, _arguments(block))
    for call in transcript.objects(message.get("tool_calls")):
        told = as_object(call.get("function")) or call
        transcript.add_call(draft, call.get("id"), told.get("name"), _arguments(told))


def _arguments(call: JsonObject) -> JsonObject:
    given: Any = next((call[n] for n in ("arguments", "args", "input") if n in call), None)
    if isinstance(given, dict) and given.get("type") == "json" and "value" in given:
        given = given["value"]
    return as_arguments(given)


def _block_result(block: JsonObject, at: float | None) -> RecordedResult:
    given = next((block[n] for n in ("result", "output", "content") if n in block), None)
    if isinstance(given, dict) and {"type", "value"} <= given.keys():
        given = given["value"]
    is_error = bool(block.get("isError") or block.get("is_error"))
    return RecordedResult(plain_text(given), is_error, at)
