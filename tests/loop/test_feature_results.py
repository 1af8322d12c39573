"""Checks of the return values of features' methods."""

from typing import Any

import pytest

from ctxagent.agent.events import StatusPart
from ctxagent.agent.extensions.command import Command
from ctxagent.agent.loop.dispatch import check_result
from ctxagent.agent.loop.interface import Ruling
from ctxagent.agent.session.entries import Note, User
from ctxagent.tools.base import Effect, Output
from ctxagent.tools.function_tool import function_tool


async def run(argument: str) -> str:
    return argument


def named(name: Any = "fine", effect: Effect = "read") -> Any:
    def fine() -> str:
        """Fine."""
        return ""

    tool: Any = function_tool(fine, effect)
    tool.name = name
    return tool


BLOCKS = [{"type": "text", "text": "x"}]
COMMAND = Command("c", "help", run)
RIGHT: list[tuple[str, Any]] = [
    ("status", "x"),
    ("status", StatusPart("x", rank=0.5)),
    ("message_received", None),
    ("message_received", "x"),
    ("message_received", BLOCKS),
    ("reply_received", ""),
    ("step_finished", "x"),
    ("before_tool", {"a": [1]}),
    ("before_tool", Ruling("ask", "why", {"a": [1]})),
    ("before_question", Ruling("allow")),
    ("after_tool", Output("x")),
    ("turn_ended", 5),  # nobody uses it
    ("tools", [named()]),
    ("commands", [COMMAND]),
    ("first_entries", [Note(topic="t", text="x"), User(content=BLOCKS)]),
]
WRONG: list[tuple[str, Any, str]] = [
    ("status", None, "status must give str or StatusPart, not NoneType"),
    ("status", StatusPart(5), "a text of status must give str"),  # type: ignore[arg-type]
    ("status", StatusPart("x", rank=float("inf")), "a finite rank"),
    ("status", StatusPart("x", style="of no kind"), "a style like class:NAME"),
    ("message_received", 5, "str or list or None, not int"),
    ("message_received", [5], "blocks with a type, not 5"),
    ("message_received", [{"type": 5}], "blocks with a type"),
    ("reply_received", 5, "str or None"),
    ("step_finished", b"", "str or None"),
    ("before_tool", [], "Mapping or Ruling or None"),
    ("before_tool", Ruling("ask", arguments=[]), "Mapping or None"),
    ("before_question", {}, "Ruling or None"),
    ("before_tool", {(): 1}, "keys must be str"),
    ("after_tool", "x", "Output or None, not str"),
    ("after_tool", Output(5), "the text of after_tool must give str"),  # type: ignore[arg-type]
    ("after_tool", Output("x", {(): 1}), "keys must be str"),
    ("tools", 5, "not iterable"),
    ("tools", [5], "tools must give Tool, not int"),
    ("tools", [named("a b")], "cannot be the name of a tool"),
    ("tools", [named(effect="fly")], "the effect of fine is one of none, read, edit, run"),  # type: ignore[arg-type]
    ("commands", ["x"], "Command"),
    ("commands", [Command("c", 5, run)], "a text of commands"),  # type: ignore[arg-type]
    ("first_entries", [None], "Entry"),
    ("reinserted", [User(content=5)], "str or list"),  # type: ignore[arg-type]
    ("reinserted", [User(content=[{}])], "blocks with a type"),
    ("reinserted", [Note(topic="t", text="x", data={(): 1})], "keys must be str"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("event", "found"), RIGHT)
def test_valid_results(event: str, found: Any) -> None:
    assert check_result(event, found) == found


@pytest.mark.parametrize(("event", "found", "why"), WRONG)
def test_invalid_results(event: str, found: Any, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        check_result(event, found)


def test_nothing_is_an_empty_list() -> None:
    assert check_result("tools", None) == []
    assert check_result("commands", iter([COMMAND])) == [COMMAND]


def test_a_method_that_must_not_be_async() -> None:
    with pytest.raises(TypeError, match="commands must not be async"):
        check_result("commands", run("x"))
