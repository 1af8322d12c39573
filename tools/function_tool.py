"""Turn functions into tools. The model gets the name, the docstring and the type hints."""

import asyncio
import inspect
import typing
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from pydantic import PydanticUserError, create_model
from pydantic_core import to_json

from ..agent.errors import ToolError, UsageError
from ..agent.lazy import regex
from . import base
from .base import Context, Effect, Output, Tool
from .system.foreign_code import foreign_code
from .system.phrasing import shorten

MAX_TITLE_CHARS = 200

_NAME = regex(r"[A-Za-z_][A-Za-z0-9_]{0,63}")  # the Messages API's rule


def function_tools(
    functions: Sequence[Callable[..., Any]], taken: Collection[str]
) -> list[Tool[Any]]:
    """Return the functions as tools. Names in `taken`, such as those of built-in tools, are not
    allowed. Raises UsageError for a function that cannot be a tool.
    """
    tools = [function_tool(each) for each in functions]
    names = [*taken, *(tool.name for tool in tools)]
    if twice := [tool.name for tool in tools if names.count(tool.name) > 1]:
        raise UsageError(f"there are two tools with the name {twice[0]}", hint="Rename one.")
    return tools


def function_tool(function: Callable[..., Any], effect: Effect = "run") -> Tool[Any]:
    """Return a function, method or coroutine function as a tool.

    It needs a docstring and a type hint for each parameter. `Annotated[str, Field(description=…)]`
    describes a parameter. The model gets a returned text as it is, and other values as JSON. An
    exception becomes a failed call. A plain function runs in its own thread; an interrupted call
    does not wait for the thread to end.
    """
    shown = getattr(function, "__name__", "")
    if not _NAME.fullmatch(shown):
        hint = "Give a function with def, with letters, digits and _ in its name."
        raise UsageError(f"{shown or function!r} cannot be the name of a tool", hint=hint)
    described = (inspect.getdoc(function) or "") if inspect.isroutine(function) else ""
    if not described:
        hint = "Say in it what the tool does: the model knows it by that alone."
        raise UsageError(f"the function {shown} has no docstring", hint=hint)
    fields = _fields(function, shown)
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            made = create_model(f"{shown}_params", __base__=base.Params, **cast(Any, fields))
            made.model_json_schema()
    except (PydanticUserError, NameError, TypeError, ValueError) as error:
        why = str(error).splitlines()[0]
        hint = "Take types that JSON has: str, int, lists, dataclasses, pydantic's models."
        raise UsageError(
            f"the parameters of {shown} have no JSON schema: {why}", hint=hint
        ) from None

    does = effect

    class FunctionTool(Tool[base.Params]):
        name = shown
        description = described
        effect = does
        Params = made

        def schema(self) -> dict[str, Any]:
            """Return the tool with its complete, unshortened parameter schema."""
            given = base.without_titles(made.model_json_schema())
            given.pop("description", None)
            return {"name": shown, "description": described, "input_schema": given}

        def title(self, params: base.Params) -> str:
            given = (f"{name}={getattr(params, name)!r}" for name in fields)
            return shorten(", ".join(given), MAX_TITLE_CHARS)

        async def run(self, params: base.Params, context: Context) -> Output:
            return await _called(function, {name: getattr(params, name) for name in fields})

    return FunctionTool()


def _fields(function: Callable[..., Any], shown: str) -> dict[str, tuple[Any, Any]]:
    """Return the type and default of each parameter by name. `...` means no default."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        hint = "Name types that the function's module knows."
        raise UsageError(f"a type hint of {shown} cannot be read: {error}", hint=hint) from None
    found: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            hint = "The model gives every argument by its name."
            raise UsageError(f"{shown} takes {parameter}, which no tool can", hint=hint)
        if name not in hints or name.startswith("_"):
            why = "begins with _" if name.startswith("_") else "has no type hint"
            hint = "The schema that the model gets is made of names and type hints."
            raise UsageError(f"the parameter {name} of {shown} {why}", hint=hint)
        is_needed = parameter.default is parameter.empty
        found[name] = (hints[name], ... if is_needed else parameter.default)
    return found


async def _called(function: Callable[..., Any], arguments: dict[str, Any]) -> Output:
    """Return the output of a call. Raises ToolError for an exception of the function."""
    is_coroutine = inspect.iscoroutinefunction(function)
    with foreign_code(ToolError) as problems:
        value: Any = await (
            function(**arguments) if is_coroutine else asyncio.to_thread(function, **arguments)
        )
        return Output(value if isinstance(value, str) else to_json(value, fallback=str).decode())
    raise ToolError(problems[0])
