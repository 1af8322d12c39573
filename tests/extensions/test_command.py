"""The slash command: how a function becomes one, and to what it is bound."""

import asyncio
from typing import Any

import pytest

from ctxagent.agent.extensions.command import (
    OWN,
    Command,
    command,
    commands_in,
    is_command_message,
)


class Desk:
    """What a command belongs to."""

    lines = 3

    async def numbers(self) -> list[tuple[str, str]]:
        return [(str(self.lines), "its lines")]

    @command("count lines", argument="[N]", group="context", anytime=True, complete=numbers)
    def count_lines(self, argument: str) -> str:
        return f"{self.lines} of {argument}"

    @command("greet", name="hello", group="unheard of")
    async def _greet(self, argument: str) -> str:
        return argument


@command("clear the desk")
async def _clear_desk(desk: Desk, argument: str) -> None:
    desk.lines = 0


def test_marked_methods_are_commands_bound_to_their_object() -> None:
    lines, hello = commands_in(vars(Desk))
    assert (lines.name, lines.argument, lines.group, lines.anytime) == (
        "count-lines", "[N]", "context", True,
    )  # fmt: skip
    assert (hello.name, hello.argument, hello.group, hello.anytime) == ("hello", "", OWN, False)
    bound = lines.bound(Desk())
    assert bound.run
    assert bound.complete
    assert bound.run("9") == "3 of 9"
    assert asyncio.run(bound.complete()) == [("3", "its lines")]
    assert hello.bound(Desk()).complete is None


def test_functions_of_a_module_are_bound_to_their_first_argument() -> None:
    desk, found = Desk(), {each.name: each for each in commands_in(globals())}
    assert list(found) == ["clear-desk"]
    bound = found["clear-desk"].bound(desk)
    assert bound.run
    asyncio.run(bound.run(""))
    assert desk.lines == 0


def test_a_command_without_a_function_stays_without_one() -> None:
    assert Command("skill", "Help.", None).bound(Desk()).run is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[/count a, a command from count.md:]\n\nCount.", True),
        ("Count [/count, a command from count.md:]\n", False),
        ([{"type": "text", "text": "[/count, a command from count.md:]\n"}], False),
    ],
)
def test_the_message_of_a_command_is_known_by_its_head(content: Any, expected: bool) -> None:
    assert is_command_message(content) is expected
