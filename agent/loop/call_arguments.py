"""Check the arguments of a tool call by the model."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from ...tools.base import Context, Output, Params, Tool
from ...tools.system.project_files import spelled_on_disk
from ...tools.system.take_turn import in_thread
from ..errors import ToolError
from ..lazy import dataclass
from ..session.entries import Block
from .repairs import FENCE, FILE_NAME, named_repair, read_arguments, unwrapped_arguments

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
