"""The message of a command from a file, with its shell commands and rules."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ctxagent.agent.events import Notice, ToolOutput
from ctxagent.agent.extensions.command import is_command_message
from ctxagent.agent.extensions.command_files import CommandFile
from ctxagent.agent.extensions.mcp.servers import McpServers
from ctxagent.agent.loop.user_commands import (
    command_message,
    model_of_turn,
    prompt_message,
)
from ctxagent.agent.session.entries import Note, ToolResult
from ctxagent.tools.base import Output
from ctxagent.tools.bash import BashParams, BashTool

from ..support.sessions.conversation import Conversation

HEAD = "[/count, a command from commands/count.md:]\n\n"


def command(body: str, **fields: Any) -> CommandFile:
    return CommandFile("count", body, Path("count.md"), "commands/count.md", **fields)


def words(talk: Conversation, given: CommandFile, arguments: str = "") -> str:
    return asyncio.run(command_message(talk.agent, given, arguments))


def test_the_message_has_the_arguments_and_the_outputs(project: Path) -> None:
    talk = Conversation(project)
    given = command("Count $1.\nFound: !`echo four; echo $1`, now.")
    assert words(talk, given, "walruses ") == (
        "[/count walruses, a command from commands/count.md:]\n\n"
        "Count walruses.\nFound: four\nwalruses, now."
    )
    assert talk.kinds() == ["session"]  # the caller sends the message
    assert talk.seen(Notice) == []


def test_a_shell_command_that_may_not_run_gives_the_reason(project: Path) -> None:
    talk = Conversation(project, deny=["Bash(touch:*)"])
    assert words(talk, command("!`touch a`")).startswith(f"{HEAD}Not allowed: ")
    assert list(project.iterdir()) == []
    assert [note.text for note in talk.of(Note)] == ["not authorised: Bash touch a"]
    assert talk.of(ToolResult) == []


def test_an_interrupt_ends_the_command_and_no_message_is_made(project: Path) -> None:
    talk = Conversation(project)

    async def interrupted() -> None:
        making = asyncio.ensure_future(
            command_message(talk.agent, command("!`echo begun; exec sleep 300`"), "")
        )
        talk.agent.emit = lambda event: (
            making.cancel() and None if isinstance(event, ToolOutput) else None
        )
        with pytest.raises(asyncio.CancelledError):
            await making

    asyncio.run(interrupted())


def test_a_large_output_goes_to_a_file(project: Path) -> None:
    talk = Conversation(project)
    said = words(talk, command("!`seq 1 40000`"))
    (file,) = (talk.agent.folder / "offloaded").iterdir()
    assert str(file) in said
    assert len(said) < 10_000
    assert file.name.endswith(f"_Bash_{talk.agent.log.last_seq + 1}.md")


def test_secrets_in_an_output_are_removed(project: Path) -> None:
    talk = Conversation(project)
    talk.agent.context.redact = lambda output: replace(
        output, text=output.text.replace("key-1234", "[key]")
    )
    assert words(talk, command("!`echo key-1234`")) == f"{HEAD}[key]"


def test_the_rules_of_a_command_count_for_its_turn(project: Path) -> None:
    talk = Conversation(project, mode="ask")
    rules = ("Bash(touch:*)", "Bsh")
    assert words(talk, command("!`touch a`", allowed_tools=rules)).startswith(HEAD)
    assert [path.name for path in project.iterdir()] == ["a"]
    (notice,) = talk.seen(Notice)
    assert notice.text.startswith("/count: allowed-tools: ")
    talk.agent.turn_rules.end()
    touch = (BashTool(), BashParams(command="touch a"))
    assert talk.agent.approval.judge(*touch).action == "ask"


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({}, "`!` commands"),
        ({"model": "opus"}, "`!` commands and model"),
        ({"allowed_tools": ("Bash",), "model": "x"}, "`!` commands and allowed-tools and model"),
    ],
)
def test_a_command_that_is_not_trusted_is_text_alone(
    project: Path, fields: dict[str, Any], ignored: str
) -> None:
    talk = Conversation(project, mode="ask")
    given = command("Look: !`touch a`", is_trusted=False, **fields)
    assert words(talk, given) == f"{HEAD}Look: !`touch a`"
    assert talk.seen(Notice) == [
        Notice(
            "warning",
            f"/count: commands/count.md is not trusted; ignored: {ignored}. Review the file, then "
            "trust it with `ctxagent config --trust`",
        )
    ]
    assert list(project.iterdir()) == []
    assert talk.agent.approval.judge(BashTool(), BashParams(command="touch a")).action == "ask"
    assert model_of_turn(given, "own") == ""


def test_plain_text_needs_no_trust(project: Path) -> None:
    talk = Conversation(project)
    assert words(talk, command("Count.", is_trusted=False)) == f"{HEAD}Count."
    assert talk.seen(Notice) == []


@pytest.mark.parametrize(
    ("model", "of_turn"),
    [("", ""), ("inherit", ""), ("haiku", "ollama/q"), ("claude-haiku-4-5", "claude-haiku-4-5")],
)
def test_the_model_of_a_commands_turn(model: str, of_turn: str) -> None:
    assert model_of_turn(command("Count.", model=model), "ollama/q") == of_turn


class Servers:
    """MCP servers with one prompt each, which repeats its arguments."""

    async def prompt(self, name: str, arguments: list[str]) -> str:
        return f"{name} with {arguments}, key-1234"


@pytest.mark.parametrize(
    ("arguments", "head", "given"),
    [
        ("", "[/sea:count, a", []),
        ("'two words' three", "[/sea:count 'two words' three, a", ["two words", "three"]),
    ],
)
def test_the_prompt_of_a_server(project: Path, arguments: str, head: str, given: list[str]) -> None:
    talk = Conversation(project)
    talk.agent.context.redact = lambda output: Output(output.text.replace("key-1234", "[key]"))
    found = asyncio.run(
        prompt_message(talk.agent, cast(McpServers, Servers()), "sea:count", arguments)
    )
    assert found == f"{head} command from the MCP server sea:]\n\nsea:count with {given}, [key]"
    assert is_command_message(found)
