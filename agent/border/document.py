"""JSON files that people and other programs write: with comments, commas too many, or a BOM."""

import codecs
import json
from contextlib import suppress
from typing import Any

from ..lazy import regex
from .values import JsonObject, as_object, without_surrogates

# A string, which is kept; or a comment, or a comma before a closing bracket, which are removed.
_NOT_JSON = regex(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*[\s\S]*?\*/')
_LAST_COMMA = regex(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_object(data: bytes, name: str = "it") -> JsonObject:
    """Return the object in a JSON file. Raises ValueError, with the name of the file."""
    try:
        value = _value(data.decode("utf-16" if data.startswith(_UTF16) else "utf-8-sig"))
    except RecursionError:
        raise ValueError(f"{name} is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    return as_object(without_surrogates(value))


def _value(text: str) -> Any:
    """Return a value. An error is that of the text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        plain = _NOT_JSON.sub(lambda found: found[1] or " ", text)
        with suppress(ValueError):
            return json.loads(_LAST_COMMA.sub(lambda found: found[1] or "", plain))
        raise
