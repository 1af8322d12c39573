"""JSON schemas of other programs, for the arguments of a call."""

from typing import Any

from .given import Given
from .values import JsonObject, as_object

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
