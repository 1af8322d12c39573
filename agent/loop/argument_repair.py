"""Repair arguments that a tool rejects, if its schema allows only one interpretation.

- An unknown name becomes the name of a missing parameter (`file_path` for `path`), if only one is
  similar and takes a value of that type.
- A JSON text becomes the object or the list that the parameter takes.
- null is dropped for a parameter that has a default.

pydantic itself reads numbers and booleans that come as text.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ...tools.base import Params, Tool, input_schema
from ..models.sse import parse_arguments

MIN_SIMILAR_CHARS = 4  # of a name that is contained in another
_FENCE = re.compile(r"\s*```\w*\s*(.*?)\s*```\s*", re.DOTALL)
_TYPES: dict[str, type] = {"string": str, "array": list, "object": dict}


def read_arguments(tool: Tool[Any], given: Mapping[str, Any]) -> tuple[Params, Mapping[str, Any]]:
    """Return the parameters of a call and the arguments they come from, repaired if the tool
    rejects the given ones. Raises ValidationError about the given ones."""
    try:
        return tool.Params.model_validate(given), given
    except ValidationError as error:
        if not isinstance(given, dict):
            raise
        repaired = _repaired(input_schema(tool.Params), given, error)
        try:
            return tool.Params.model_validate(repaired), repaired
        except ValidationError:
            raise error from None


def unwrapped_arguments(raw: str) -> dict[str, Any] | None:
    """Return the object in raw arguments that are fenced or JSON-encoded twice, else None."""
    text = _unfenced(raw)
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parse_arguments(_unfenced(inner) if isinstance(inner, str) else text)


def _repaired(
    schema: Mapping[str, Any], given: Mapping[str, Any], error: ValidationError
) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    refused = {e["loc"][0]: e["type"] for e in error.errors(include_url=False) if e["loc"]}
    repaired = dict[str, Any]()
    for name, value in given.items():
        meant = name
        if refused.get(name) == "extra_forbidden":
            similar = [
                p for p in properties if p not in given and _is_meant(p, properties, name, value)
            ]
            meant = similar[0] if len(similar) == 1 and similar[0] not in repaired else name
        elif value is None and name in refused and name not in schema.get("required", ()):
            continue
        repaired[meant] = _decoded(value, properties.get(meant, {}))
    return repaired


def _is_meant(known: str, properties: Mapping[str, Any], name: str, value: Any) -> bool:
    """Return True if an unknown name has the letters of a known one, or one name contains the
    other. Containing does not count for numbers: `timeout_ms` is not `timeout`."""
    one, other = sorted((_letters(known), _letters(name)), key=len)
    if one == other:
        return True
    takes = _TYPES.get(properties[known].get("type"))
    fits = takes is not None and isinstance(value, (takes, str))
    return fits and len(one) >= MIN_SIMILAR_CHARS and one in other


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _decoded(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return the object or list in a text if the parameter takes one, else the value itself."""
    takes = _TYPES.get(schema.get("type", ""))
    if takes not in (list, dict) or not isinstance(value, str):
        return value
    try:
        found = json.loads(_unfenced(value))
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, takes) else value


def _unfenced(text: str) -> str:
    fenced = _FENCE.fullmatch(text)
    return fenced[1] if fenced else text
