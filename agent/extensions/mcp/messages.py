"""Messages of a server, read part by part and given to the SDK in a form that it accepts.

A message is JSON-RPC. A wrong part of its frame is corrected, because the rest may be an answer to
a call that has acted: `"result": null` is an answer, and so is an error without a message.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from ....tools.system.phrasing import shorten
from ...border.values import JsonObject, without_surrogates
from ...lazy import regex

MAX_DEPTH = 200  # levels of one message
TOO_DEEP = "[left out: nested too deeply]"
MAX_SHOWN_CHARS = 200
# Key of a value as the server sent it, where the SDK accepts only an object or loses the origin.
AS_SENT = "ctxagent/as-sent"
UNREADABLE = "its answer cannot be read"

_DECODER = json.JSONDecoder()
_BROKEN_ANSWER = regex(r'\s*\{[^{}\[\]]*?"id"\s*:\s*("(?:[^"\\]|\\.)*"|\d+)')


def read_messages(data: bytes) -> list[JsonObject]:
    """Return the messages in a line or a body: one, several in a row, or a batch. Raises ValueError
    if there is none.
    """
    found = [message for value in _values(data) for message in _messages(value)]
    if not found:
        raise ValueError("it is not a message of JSON-RPC")
    return found


def broken_answer_id(data: bytes) -> int | str | None:
    """Return the request ID in the beginning of an answer that is not valid JSON, None if there is
    none.
    """
    found = _BROKEN_ANSWER.match(data[:MAX_SHOWN_CHARS].decode("utf-8", "replace"))
    if not found or b'"method"' in data:
        return None
    id: int | str = json.loads(found[1], strict=False)
    return id


def error_message(id: int | str | None, why: str) -> JsonObject:
    """Return an error that stands for an answer that did not come."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": 0, "message": why}}


def answer_in_body(body: bytes, id: int | str, failure: str = "") -> JsonObject:
    """Return the answer to a request in the body of an HTTP response. `failure` is the status of
    a response that failed, such as "HTTP 500".
    """
    text = shorten(" ".join(body[: 4 * MAX_SHOWN_CHARS].decode("utf-8", "replace").split()),
                   MAX_SHOWN_CHARS)  # fmt: skip
    said = f": {text}" if text else ""
    try:
        messages = read_messages(body)
    except ValueError:
        return error_message(id, f"{failure or UNREADABLE}{said}")
    answers = [each for each in messages if "method" not in each]
    if not answers or (failure and "error" not in answers[0]):
        return error_message(id, f"{failure or 'it sent no answer'}{said}")
    return {**next((each for each in answers if each["id"] == id), answers[0]), "id": id}


def _values(data: bytes) -> Iterator[Any]:
    """Yield the JSON values in a line or a body. Text after the first value is left out. Raises
    ValueError.
    """
    text = data.decode("utf-8", "replace").lstrip("\ufeff").strip()
    at = 0
    try:
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            if text.count("[") + text.count("{") > MAX_DEPTH:
                _cut_deep_parts(value)
            yield without_surrogates(value) if "\\ud" in text or "\\uD" in text else value
            while at < len(text) and text[at].isspace():
                at += 1
    except RecursionError:
        raise ValueError("it is too deep") from None
    except ValueError:
        if at == 0:
            raise


def _cut_deep_parts(value: Any) -> None:
    """Replace all parts below MAX_DEPTH levels."""
    level = [value] if isinstance(value, dict | list) else []
    for depth in range(MAX_DEPTH):
        below = list[Any]()
        for node in level:
            places = node.items() if isinstance(node, dict) else enumerate(node)
            for place, part in [*places]:
                if isinstance(part, dict | list):
                    if depth + 1 == MAX_DEPTH:
                        node[place] = TOO_DEEP
                    below.append(part)
        level = below


def _messages(value: Any) -> Iterator[JsonObject]:
    for given in value if isinstance(value, list) else [value]:
        message = _message(given) if isinstance(given, dict) else None
        if message is not None:
            yield message


def _message(given: JsonObject) -> JsonObject | None:
    """Return a message with a correct frame, None for a value that is no message."""
    id, method, error = given.get("id"), given.get("method"), given.get("error")
    if isinstance(id, float) and id.is_integer():
        id = int(id)
    has_id = isinstance(id, int | str) and not isinstance(id, bool)
    head: JsonObject = {"jsonrpc": "2.0", **({"id": id} if has_id else {})}
    if isinstance(method, str):
        params = given.get("params")
        return {
            **head,
            "method": method,
            **({"params": params} if isinstance(params, dict) else {}),
        }
    if "error" in given and (error is not None or "result" not in given):
        return {"id": None, **head, "error": _error(error)}
    if "result" not in given or not has_id:
        return None
    result = given["result"]
    return {**head, "result": result if isinstance(result, dict) else {AS_SENT: result}}


def _error(given: Any) -> JsonObject:
    """Return an error in the form of the protocol. Its data is kept as AS_SENT, which also shows
    that the server sent it.
    """
    parts = given if isinstance(given, dict) else {"message": given}
    code, message = parts.get("code"), parts.get("message")
    if isinstance(code, str) and re.fullmatch(r"-?\d{1,9}", code):
        code = int(code)
    if not isinstance(message, str) or not message.strip():
        left = {key: value for key, value in parts.items() if value is not None}
        message = json.dumps(left, ensure_ascii=False) if left else "an error without a message"
    known = code if isinstance(code, int) and not isinstance(code, bool) else 0
    return {"code": known, "message": message, "data": {AS_SENT: parts.get("data")}}
