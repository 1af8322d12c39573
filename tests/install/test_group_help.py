"""The help of commands with subcommands describes each of them in full."""

import click
import pytest
from click.testing import CliRunner

from ctxagent.agent.cli.main import main

GROUPS = ["", "extensions", "fleet", "mcp", "memory", "plugin", "plugin marketplace", "sessions"]


@pytest.mark.parametrize("words", GROUPS)
def test_no_description_of_a_subcommand_is_cut(words: str) -> None:
    done = CliRunner().invoke(main, [*words.split(), "--help"], terminal_width=80)
    assert done.exit_code == 0
    _, _, commands = done.output.partition("\nCommands:\n")
    rows = commands.partition("\n\n")[0].splitlines()
    assert rows
    assert max(map(len, rows)) <= 80
    assert "..." not in " ".join(rows)


def test_a_description_is_its_first_sentence() -> None:
    done = CliRunner().invoke(main, ["fleet", "--help"], terminal_width=80)
    fleet = main.get_command(click.Context(main), "fleet")
    assert isinstance(fleet, click.Group)
    for name, command in fleet.commands.items():
        first = (command.help or "").split("\n\n")[0].partition(". ")[0].rstrip(".")
        assert " ".join(f"{name} {first}".split()) in " ".join(done.output.split())
