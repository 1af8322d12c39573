"""Read texts, times, counts and arguments from JSON values of any shape. A value of the wrong type
becomes an empty value or None.
"""

import json
import math
from datetime import UTC, datetime
from typing import Any

from ..lazy import regex

JsonObject = dict[str, Any]

MAX_JSON_DEPTH = 100  # of a call's arguments; some servers refuse deeper values

_MILLISECONDS = 1e11  # larger numbers are milliseconds: as seconds, this is 3,000 years away
_MAX_TIME_S = 4e9  # since 1970
_MAX_NUMBER = 2**53  # larger numbers are neither counts nor times
_SURROGATE = regex(r"[\ud800-\udfff]")
_DECODER = json.JSONDecoder(parse_constant=lambda name: None)  # NaN and Infinity are not JSON


def parse_json(text: str) -> Any:
    """Return a JSON value without lone surrogates. Raises ValueError if the text is not JSON or is
    nested too deeply.
    """
    try:
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("it is too deep") from error
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH and is_too_deep(value):
        raise ValueError("it is too deep")
    return without_surrogates(value) if "\\ud" in text or "\\uD" in text else value


def as_object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def plain_text(content: Any) -> str:
    """Return the text of a message or result, given as a string, a block or a list of blocks. An
    image becomes `[image]`; a value without text becomes its JSON.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(plain_text, content))
    if isinstance(content, dict):
        if isinstance(content.get("text"), str):
            return str(content["text"])
        if "image" in f"{content.get('type')} {content.get('mime')}":
            return "[image]"
    return json.dumps(content, ensure_ascii=False)


def as_arguments(value: Any) -> JsonObject:
    """Return the input of a call, given as an object or as JSON; any other value becomes `{"input":
    value}`.
    """
    if isinstance(value, str):
        try:
            given = parse_json(value)
        except ValueError:
            given = None
        return given if isinstance(given, dict) else {"input": value}
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"input": value}


def as_seconds(value: Any) -> float | None:
    """Return a time in seconds since 1970, from ISO 8601 (UTC without a time zone) or a number of
    seconds or milliseconds; None for other values.
    """
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value)
            at = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    elif (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER
    ):
        at = value / 1000 if value >= _MILLISECONDS else float(value)
    else:
        return None
    return at if math.isfinite(at) and 0 < at < _MAX_TIME_S else None


def as_count(value: Any) -> int:
    """Return a number of tokens, or 0 if the value is not a positive integer."""
    return value if type(value) is int and 0 < value < _MAX_NUMBER else 0


def is_too_deep(value: Any, max_depth: int = MAX_JSON_DEPTH) -> bool:
    """Return True if a JSON value has more than `max_depth` levels."""
    level = [value]
    for _ in range(max_depth + 1):
        nodes = [node for node in level if isinstance(node, dict | list)]
        if not nodes:
            return False
        level = [v for n in nodes for v in (n.values() if isinstance(n, dict) else n)]
    return True


def clean_text(value: Any) -> str:
    """Return a text without lone surrogates, "" for a value that is no text."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else _SURROGATE.sub("\ufffd", value)


def without_surrogates(value: Any) -> Any:
    """Return a JSON value without lone surrogates, including its keys. Call `is_too_deep` first:
    deep values overflow the stack.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(k): without_surrogates(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_surrogates(v) for v in value]
    return value
