"""The parts of a row, taken as they should be: texts, times, counts and arguments out of values
that another program wrote and that may be of any shape. What does not fit is empty or None."""

import json
import math
from datetime import UTC, datetime
from typing import Any

from ...context.wire import DEEPEST, is_deep, scrub

Row = dict[str, Any]  # a line, or the one object of a file

_MILLISECONDS = 1e11  # a number from here on counts them; as seconds it is 3,000 years away
_LATEST = 4e9  # seconds since 1970
_MOST = 2**53  # numbers from here on are no counts
_DECODER = json.JSONDecoder(parse_constant=lambda name: None)  # NaN and the like are no JSON


def parse(text: str) -> Any:
    """A JSON value without lone surrogates. Raises ValueError for what is none, or is so deep that
    no program takes it."""
    try:
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("it is too deep") from error
    if text.count("[") + text.count("{") > DEEPEST and is_deep(value):
        raise ValueError("it is too deep")
    return scrub(value) if "\\ud" in text or "\\uD" in text else value


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def words(value: Any) -> str:
    return value if isinstance(value, str) else ""


def plain(content: Any) -> str:
    """The text of a message or result: of a text, a block or a list of blocks. A picture stands as
    `[image]`, and what has no text as its JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(plain, content))
    if isinstance(content, dict):
        if isinstance(content.get("text"), str):
            return str(content["text"])
        if "image" in f"{content.get('type')} {content.get('mime')}":
            return "[image]"
    return json.dumps(content, ensure_ascii=False)


def arguments(value: Any) -> dict[str, Any]:
    """The input of a call: an object, or the JSON text of one. Anything else is its `input`."""
    if isinstance(value, str):
        try:
            given = parse(value)
        except ValueError:
            given = None
        return given if isinstance(given, dict) else {"input": value}
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"input": value}


def seconds(value: Any) -> float | None:
    """A time as seconds since 1970: of ISO 8601 (in UTC if it does not say), or of a number of
    seconds or milliseconds."""
    if isinstance(value, str):
        try:
            told = datetime.fromisoformat(value)
            at = (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST:
        at = value / 1000 if value >= _MILLISECONDS else float(value)
    else:
        return None
    return at if math.isfinite(at) and 0 < at < _LATEST else None


def count(value: Any) -> int:
    """A number of tokens; 0 where there is none."""
    return value if type(value) is int and 0 < value < _MOST else 0
