"""Check the arguments of a tool call by the model, and repair what can mean only one thing."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from ...tools.base import Context, Output, Params, Tool, input_schema
from ...tools.system.project_files import spelled_on_disk
from ...tools.system.take_turn import in_thread
from ..errors import ToolError
from ..lazy import dataclass, regex
from ..models.transport import parse_arguments
from ..session.entries import Block

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


CUT_OFF = "The arguments of this call are not valid JSON, so nothing was run: {error}. Write the \
call again{hint}."


class CallRefused(Exception):
    """Raised if a call must not run. The output has the reason."""

    def __init__(self, text: str, **details: Any) -> None:
        super().__init__(text)
        self.output = Output(text, details, is_error=True)


def title_of(tools: Mapping[str, Tool[Any]], call: Block) -> str:
    """Return a one-line title of a call, for display: from its tool or, for invalid arguments, the
    texts among them.
    """
    tool, given = tools.get(call["name"]), call["input"]
    try:
        if tool is not None:
            return tool.title(read_arguments(tool, given).params)
    except ValidationError:
        pass
    texts = given.values() if isinstance(given, dict) else ()
    return " ".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call with valid arguments."""

    tool: Tool[Any]
    params: Params
    arguments: Mapping[str, Any]
    is_repaired: bool  # the arguments differ from those that the model sent
    repairs: tuple[str, ...] = ()  # names of the repairs, see `repairs.REPAIRS`


def checked_call(
    tools: Mapping[str, Tool[Any]], call: Block, raw: str | None, *, cut: bool
) -> CheckedCall:
    """Return a call with its tool, parameters and arguments, repaired if that is safe.

    `raw` has the arguments if they are not valid JSON. `cut` is True if the reply was cut off at
    the output limit. Raises CallRefused.
    """
    tool = tools.get(call["name"])
    if tool is None:
        raise CallRefused(f"There is no tool {call['name']!r}. The tools: {', '.join(tools)}.")
    given, repairs = call["input"], list[str]()
    if raw is not None:
        unwrapped = None if cut else unwrapped_arguments(raw)
        if unwrapped is None:
            error = "the output limit cut them off" if cut else _json_error(raw)
            hint = ", in smaller pieces" if cut else ""
            raise CallRefused(CUT_OFF.format(error=error, hint=hint))
        given = unwrapped
        repairs.append(FENCE)
    try:
        params, arguments, found = read_arguments(tool, given)
        asked, resolved = tool.resolve(params)
    except ValidationError as error:
        raise CallRefused(argument_error(tool, error)) from None
    except ToolError as error:
        raise CallRefused(str(error), **error.details) from None
    is_repaired = arguments != call["input"]
    given = arguments if asked is tool else resolved.model_dump()
    return CheckedCall(asked, resolved, given, is_repaired, (*repairs, *found))


async def with_known_path(checked: CheckedCall, context: Context) -> CheckedCall:
    """Return a call with the path of the file that looks like the given path, if that is missing.
    The permission check must see this path.
    """
    path = getattr(checked.params, "path", None)
    if not isinstance(path, str) or path.isascii():
        return checked
    try:
        given = str(context.resolve(path))
    except (ValueError, RuntimeError):  # the tool says what is wrong
        return checked
    if (found := await in_thread(spelled_on_disk, given)) == given:
        return checked
    return replace(
        checked,
        params=checked.params.model_copy(update={"path": found}),
        arguments={**checked.arguments, "path": found},
        is_repaired=True,
        repairs=(*checked.repairs, named_repair(FILE_NAME, path)),
    )


def _json_error(raw: str) -> str:
    try:
        json.loads(raw)
    except (ValueError, RecursionError) as error:
        return str(error)
    return "they are not a JSON object, or one that is nested too deep"


def argument_error(tool: Tool[Any], error: ValidationError) -> str:
    """Return pydantic's errors as short lines for the model."""
    lines = [f"{tool.name} was not run, its arguments are wrong:"]
    for found in error.errors(include_url=False)[:8]:
        where = ".".join(map(str, found["loc"])) or "arguments"
        lines.append(f"- {where}: {found['msg']}")
    lines.append(f"It takes: {', '.join(tool.Params.model_fields)}.")
    return "\n".join(lines)
