"""The help of each command has one example, which the command accepts."""

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from ctxagent.agent.cli.main import main

MARK = "Example: "


def commands(path: tuple[str, ...] = (), found: click.Command = main) -> Iterator[tuple[str, ...]]:
    """Yield the path of each command, of groups too."""
    yield path
    if isinstance(found, click.Group):
        context = click.Context(found)
        for name in found.list_commands(context):
            below = found.get_command(context, name)
            assert below
            if not below.hidden:
                yield from commands((*path, name), below)


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_the_help_has_one_example_that_the_command_accepts(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*path, "--help"], terminal_width=100)
    assert done.output.count(MARK) == 1, done.output
    shown, *words = shlex.split(done.output.partition(MARK)[2].partition(" > ")[0])
    assert (shown, *words[: len(path)]) == ("ctxagent", *path)
    command: click.Command | None = main
    while isinstance(command, click.Group) and command.get_command(
        click.Context(command), words[0]
    ):
        command = command.get_command(click.Context(command), words.pop(0))
    assert command
    command.make_context(command.name, words)  # raises for a word that it does not know
