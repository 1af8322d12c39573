"""Functions as tools: the model's view, refused functions, and calls."""

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from ctxagent.agent.errors import ToolError, UsageError
from ctxagent.tools.base import Context, Tool
from ctxagent.tools.function_tool import MAX_TITLE_CHARS, function_tool, function_tools

CONTEXT = Context(Path("/"))


def add(a: int, b: Annotated[int, Field(description="The other one")] = 2) -> int:
    """Add two numbers.

    And give the sum.
    """
    return a + b


async def later(words: list[str]) -> str:
    """Join words."""
    await asyncio.sleep(0)
    return " ".join(words)


@dataclass
class Point:
    x: int
    label: str = "ä"


def point(at: Point) -> Point:
    """Give a point back."""
    return at


def call(tool: Tool[Any], **given: Any) -> str:
    return asyncio.run(tool.run(tool.Params.model_validate(given), CONTEXT)).text


def test_the_model_is_told_name_docstring_and_parameters() -> None:
    assert function_tool(add).schema() == {
        "name": "add",
        "description": "Add two numbers.\n\nAnd give the sum.",
        "input_schema": {
            "additionalProperties": False,
            "properties": {
                "a": {"type": "integer"},
                "b": {"default": 2, "description": "The other one", "type": "integer"},
            },
            "required": ["a"],
            "type": "object",
        },
    }
    assert function_tool(add).effect == "run"
    assert function_tool(add, "read").effect == "read"


def test_text_goes_to_the_model_as_it_is_and_all_else_as_json() -> None:
    assert call(function_tool(add), a=3) == "5"
    assert call(function_tool(later), words=["a", "b"]) == "a b"
    assert call(function_tool(point), at={"x": 1}) == '{"x":1,"label":"ä"}'

    def odd() -> object:
        """Give what has no JSON."""
        return {"at": Path("/x"), "by": threading.Lock}

    assert '"at":"/x"' in call(function_tool(odd))


def test_a_method_is_a_tool_without_its_object() -> None:
    class Store:
        def __init__(self) -> None:
            self.kept = "kept"

        def get(self, name: str = "") -> str:
            """Get it."""
            return self.kept + name

    assert call(function_tool(Store().get), name="!") == "kept!"


def test_a_function_that_is_no_coroutine_runs_in_a_thread() -> None:
    def where() -> bool:
        """Tell where it runs."""
        return threading.current_thread() is threading.main_thread()

    async def here() -> bool:
        """Tell where it runs."""
        return threading.current_thread() is threading.main_thread()

    assert (call(function_tool(where)), call(function_tool(here))) == ("false", "true")


def test_an_exception_is_a_failed_call() -> None:
    def fail() -> str:
        """Fail."""
        raise KeyError("no such row")

    with pytest.raises(ToolError, match="KeyError: 'no such row'"):
        call(function_tool(fail))


def test_arguments_are_checked() -> None:
    for wrong in ({}, {"a": "x"}, {"a": 1, "c": 2}):
        with pytest.raises(ValidationError):
            call(function_tool(add), **wrong)


def test_the_title_names_the_arguments() -> None:
    tool = function_tool(later)
    assert tool.title(tool.Params.model_validate({"words": ["a"]})) == "words=['a']"
    tool = function_tool(add)
    assert tool.title(tool.Params.model_validate({"a": 1})) == "a=1, b=2"
    long = function_tool(later).title(function_tool(later).Params(words=["x" * 900]))  # type: ignore[call-arg]
    assert len(long) == MAX_TITLE_CHARS


def none(a: int) -> int:
    return a


def untyped(a):  # type: ignore[no-untyped-def]
    """Take anything."""


def hidden(_a: int) -> None:
    """Take one that is hidden."""


def many(*a: int) -> None:
    """Take many."""


def positional(a: int, /) -> None:
    """Take one by its place."""


def no_json(a: threading.Thread) -> None:
    """Take what JSON does not have."""


def unknown(a: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Take a type that is not known."""


class Caller:
    """An object that can be called."""

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (none, "the function none has no docstring"),
        (untyped, "the parameter a of untyped has no type hint"),
        (hidden, "the parameter _a of hidden begins with _"),
        (many, r"many takes \*a: int, which no tool can"),
        (positional, "positional takes a: int, which no tool can"),
        (no_json, "the parameters of no_json have no JSON schema: "),
        (unknown, "a type hint of unknown cannot be read: name 'Nowhere'"),
        (lambda: 1, "'<lambda>' cannot be the name of a tool"),
        (Caller(), "cannot be the name of a tool"),
    ],
)
def test_an_invalid_function_gives_an_error_with_a_hint(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as told:
        function_tool(function)
    assert told.value.hint


def test_a_name_has_the_form_that_the_api_takes() -> None:
    def made(name: str) -> Any:
        def one() -> None:
            """Do nothing."""

        one.__name__ = name
        return one

    for name in ("_a", "A9", "x" * 64):
        assert function_tool(made(name)).name == name
    for name in ("9a", "a-b", "é", "x" * 65, ""):
        with pytest.raises(UsageError, match="cannot be the name"):
            function_tool(made(name))


def test_no_two_tools_have_one_name() -> None:
    assert [tool.name for tool in function_tools([add, later], ["Read"])] == ["add", "later"]
    for functions, taken in (([add, add], []), ([later, add], ["add"])):
        with pytest.raises(UsageError, match="two tools with the name add"):
            function_tools(functions, taken)
