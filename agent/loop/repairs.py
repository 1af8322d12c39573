"""Repair calls that a tool rejects, if they allow only one interpretation.

`REPAIRS` lists every repair. A result's `details["repairs"]` names the repairs of its call, and an
assistant entry's `dialect` the form of a call that was read from text. So `ctxagent doctor` can
count which repair helps which model. No repair depends on the model: a call with one interpretation
means the same from every model.

pydantic itself reads numbers and booleans that come as text.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from ...tools.base import Params, Tool, input_schema
from ..lazy import regex
from ..models.transport import parse_arguments

TOOL_NAME, FENCE, NAME, VALUE, ENCODED, NULL, FILE_NAME, TEXT = REPAIRS = (
    "tool name",  # `bash`, `web_fetch` and `functions.Bash` are Bash, WebFetch and Bash
    "fenced arguments",  # JSON in a code fence, or encoded twice
    "argument name",  # `file_path` for `path`: a row of `_NAMES`, or the only similar name
    "argument value",  # `files_with_matches` for `files`: a row of `_VALUES`
    "encoded value",  # a JSON text for an object or a list
    "null value",  # null for a parameter that has a default
    "file name",  # a missing file, if one file looks the same: é in another form, or no UTF-8
    "call as text",  # see `written_calls`; recorded in the reply
)
# Names and values that other agents' tools have, by our tool. "" drops an argument.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "Grep": {
        "-i": "ignore_case", "-A": "after", "-B": "before", "-C": "context", "-n": "",
        "head_limit": "limit", "include": "glob",
    },
}  # fmt: skip
_VALUES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "Grep": {
        "output_mode": {"files_with_matches": "files"},
        "limit": {"0": ""},  # no limit; results are still cut to a page
    },
}
MAX_DETAIL_CHARS = 40  # of a model's text, in the name of a repair
MIN_SIMILAR_CHARS = 4  # of a name that is contained in another
_FENCE = regex(r"\s*```\w*\s*(.*?)\s*```\s*", re.DOTALL)
_TYPES: dict[str, type] = {"string": str, "array": list, "object": dict}


class ReadArguments(NamedTuple):
    """The parameters of a call, the arguments that they come from, and the repairs."""

    params: Params
    arguments: Mapping[str, Any]
    repairs: tuple[str, ...] = ()


def read_arguments(tool: Tool[Any], given: Mapping[str, Any]) -> ReadArguments:
    """Return the parameters of a call, repaired if the tool rejects the given arguments. Raises
    ValidationError about the given ones.
    """
    try:
        return ReadArguments(tool.Params.model_validate(given), given)
    except ValidationError as error:
        if not isinstance(given, dict):
            raise
        repairs = dict[str, None]()
        repaired = _repaired(tool, given, error, repairs)
        try:
            return ReadArguments(tool.Params.model_validate(repaired), repaired, tuple(repairs))
        except ValidationError:
            raise error from None


def tool_name(known: Iterable[str], name: str) -> str:
    """Return the known name with the letters of this name, if there is exactly one. Otherwise
    return the name itself.
    """
    letters = _letters(name.rpartition(".")[2])
    similar = [each for each in known if _letters(each) == letters] if letters else []
    return name if name in similar or len(similar) != 1 else similar[0]


def unwrapped_arguments(raw: str) -> dict[str, Any] | None:
    """Return the object in raw arguments that are fenced or JSON-encoded twice, else None."""
    text = _unfenced(raw)
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parse_arguments(_unfenced(inner) if isinstance(inner, str) else text)


def named_repair(repair: str, detail: str) -> str:
    """Return the name of a use of a repair, for the log."""
    return f"{repair}: {' '.join(detail.split())[:MAX_DETAIL_CHARS]}"


def _repaired(
    tool: Tool[Any], given: Mapping[str, Any], error: ValidationError, repairs: dict[str, None]
) -> dict[str, Any]:
    """Return the repaired arguments. Adds the name of each repair to `repairs`."""
    schema = input_schema(tool.Params)
    properties: Mapping[str, Any] = schema.get("properties", {})
    refused = {e["loc"][0]: e["type"] for e in error.errors(include_url=False) if e["loc"]}
    repaired = dict[str, Any]()
    for name, value in given.items():
        meant = name
        if refused.get(name) == "extra_forbidden":
            meant = _meant(tool.name, name, value, given, properties)
            if meant in repaired:
                meant = name
        elif value is None and name in refused and name not in schema.get("required", ()):
            repairs[named_repair(NULL, name)] = None
            continue
        if meant != name:
            repairs[named_repair(NAME, name)] = None
        listed = _VALUES.get(tool.name, {}).get(meant, {}).get(str(value))
        read = _decoded(value, properties.get(meant, {})) if listed is None else listed
        if read is not value:
            kind, detail = (ENCODED, meant) if listed is None else (VALUE, str(value))
            repairs[named_repair(kind, detail)] = None
        if meant and listed != "":
            repaired[meant] = read
    return repaired


def _meant(
    tool: str, name: str, value: Any, given: Mapping[str, Any], properties: Mapping[str, Any]
) -> str:
    """Return the parameter that an unknown name means, "" for an argument to drop, or the name
    itself.
    """
    listed = _NAMES.get(tool, {}).get(name)
    if listed is not None and listed not in given:
        return listed
    similar = [p for p in properties if p not in given and _is_meant(p, properties, name, value)]
    return similar[0] if len(similar) == 1 else name


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
