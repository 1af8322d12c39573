"""Read JSON values and files of any shape from other programs, part by part.

A value of the wrong type becomes an empty value or None. A `Given` also says which part of which
file was left out, and why. Schemas of tools are checked and reduced to what they need.
"""

import codecs
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ...tools.system.phrasing import count_of, one_line
from ..lazy import dataclass, regex

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


MAX_PLACES = 5  # named per reason
MAX_PLACE_CHARS = 80


class Drops:
    """What was left out of a value or replaced, by reason. Each reason is said once."""

    def __init__(self) -> None:
        self._places = dict[str, list[str]]()

    def add(self, place: str, why: str) -> None:
        self._places.setdefault(why, []).append(one_line(place, MAX_PLACE_CHARS))

    def extend(self, other: "Drops") -> None:
        for why, places in other._places.items():
            self._places.setdefault(why, []).extend(places)

    def lines(self) -> list[str]:
        """Return one line per reason, with the places that it applies to."""
        return [f"{_listed(places)}: {why}" for why, places in self._places.items()]


def _listed(places: list[str]) -> str:
    shown = ", ".join(places[:MAX_PLACES])
    more = len(places) - MAX_PLACES
    return f"{shown} and {count_of(more, 'other')}" if more > 0 else shown


@dataclass(frozen=True, slots=True)
class Given:
    """A value and its place, such as `tools[3].name`. Parts of a wrong type are dropped."""

    value: Any
    place: str
    drops: Drops

    @property
    def object(self) -> JsonObject:
        """The value, {} if it is not an object."""
        return self.value if isinstance(self.value, dict) else {}

    def drop(self, why: str) -> None:
        """Name this value as left out or replaced."""
        self.drops.add(self.place, why)

    def at(self, key: str) -> "Given":
        """Return the part with this key; its value is None if it is missing."""
        return Given(self.object.get(key), f"{self.place}.{key}" if self.place else key, self.drops)

    def section(self, key: str) -> "Given":
        """Return the part with this key. Drop it if it is not an object."""
        part = self.at(key)
        if part.value is not None and not isinstance(part.value, dict):
            part.drop("it is not an object")
        return part

    def called(self, place: str) -> "Given":
        """Return the same value under another name for its place."""
        return Given(self.value, place, self.drops)

    def text(self, key: str, default: str = "") -> str:
        """Return a text, or the digits of a number. Drop any other value."""
        part = self.at(key)
        if isinstance(part.value, str):
            return part.value
        if isinstance(part.value, int | float) and not isinstance(part.value, bool):
            return str(part.value)
        if part.value is not None:
            part.drop("it is not a text")
        return default

    def flag(self, key: str) -> bool:
        """Return a flag, also given as "true" or 1. Drop any other value."""
        part = self.at(key)
        if isinstance(part.value, str) and part.value.lower() in ("true", "false"):
            return part.value.lower() == "true"
        if isinstance(part.value, bool | int):
            return bool(part.value)
        if part.value is not None:
            part.drop("it is not true or false")
        return False

    def items(self, key: str) -> Iterator["Given"]:
        """Yield the items of a list. A single object is a list of one. Drop any other value."""
        part = self.at(key)
        values = [part.value] if isinstance(part.value, dict) else part.value
        if isinstance(values, list):
            for number, value in enumerate(values):
                yield Given(value, f"{part.place}[{number}]", self.drops)
        elif values is not None:
            part.drop("it is not a list")


def as_json(value: Any) -> str:
    """Return a value as JSON, for a model or a person."""
    return json.dumps(value, ensure_ascii=False)


_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}
# Keys of a schema whose values are a schema, a list of schemas, and schemas by name.
_SCHEMA_KEYS = (
    "items",
    "additionalProperties",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
_LIST_KEYS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAP_KEYS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NOT_AT_TOP = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const")


def usable_schema(given: Given) -> JsonObject:
    """Return a schema of an object. An unusable schema becomes one that allows everything; a wrong
    part is left out. Both are named.
    """
    schema = given.value
    if not isinstance(schema, dict):
        given.drop("it has no usable schema, so any arguments are accepted")
        return {"type": "object"}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        given.drop("its schema is not one of an object, so any arguments are accepted")
        return {"type": "object"}
    usable = {**schema, "type": "object"}
    if "properties" in schema:
        usable["properties"] = _properties(given.at("properties"))
    if "required" in schema:
        names = schema["required"]
        usable["required"] = [n for n in names if isinstance(n, str)] if _is_list(names) else []
        if usable["required"] != names:
            given.at("required").drop("it is not a list of names")
    if not isinstance(schema.get("$schema", ""), str):
        del usable["$schema"]
    return usable


def _properties(given: Given) -> JsonObject:
    if not isinstance(given.value, dict):
        if given.value is not None:
            given.drop("it is not an object, so any arguments are accepted")
        return {}
    for name, value in given.value.items():
        if not isinstance(value, dict | bool):
            given.at(name).drop("it is not a schema, so any value is accepted")
    return {k: v if isinstance(v, dict | bool) else {} for k, v in given.value.items()}


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def sendable_schema(schema: JsonObject) -> JsonObject:
    """Return a schema for the list of tools in a request, whose API refuses the whole request for
    one invalid schema: without combinations at the top and without unknown types.
    """
    return as_object(_with_known_types({k: v for k, v in schema.items() if k not in _NOT_AT_TOP}))


def _with_known_types(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    kinds = schema.get("type", "object")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
        del found["type"]
    for key in _SCHEMA_KEYS:
        if key in found:
            found[key] = _with_known_types(found[key])
    for key in _LIST_KEYS:
        if isinstance(found.get(key), list):
            found[key] = [_with_known_types(each) for each in found[key]]
    for key in _MAP_KEYS:
        if isinstance(found.get(key), dict):
            found[key] = {name: _with_known_types(each) for name, each in found[key].items()}
    return found
