"""The table of names from other agents refers only to commands and options that exist."""

import re

import click
import pytest

from ctxagent.agent.cli.main import main
from ctxagent.agent.config.settings import KEYS
from ctxagent.agent.ui.commands import COMMANDS
from ctxagent.agent.ui.foreign_names import foreign_names

OPTIONS = {name for param in main.params for name in param.opts}
CONTEXT = click.Context(main)
HINTS = [
    (kind, name, text)
    for kind in ("commands", "words", "options")
    for name, text in foreign_names(kind).items()  # type: ignore[arg-type]
]


def test_foreign_names_do_not_shadow_own_names() -> None:
    assert not set(foreign_names("aliases")) & set(foreign_names("commands"))
    assert not {*foreign_names("aliases"), *foreign_names("commands")} & set(COMMANDS)
    assert not set(foreign_names("words")) & set(main.list_commands(CONTEXT))
    assert set(foreign_names("options")) & OPTIONS == {"-c"}  # which means something else here


@pytest.mark.parametrize(("name", "meant"), foreign_names("aliases").items())
def test_an_alias_stands_for_a_command(name: str, meant: str) -> None:
    assert meant.split()[0].removeprefix("/") in COMMANDS


@pytest.mark.parametrize(("kind", "name", "text"), HINTS)
def test_a_hint_names_what_exists(kind: str, name: str, text: str) -> None:
    for quoted in re.findall(r"`([^`]+)`", text):
        first, *more = quoted.split()
        options = OPTIONS
        if first == "ctxagent" and more and re.fullmatch(r"[a-z-]+", more[0]) and more[0][0] != "-":
            command = main.get_command(CONTEXT, more[0])
            if isinstance(command, click.Group) and len(more) > 1:
                assert command.get_command(click.Context(command), more[1]), quoted
            elif command:
                options = OPTIONS | {name for param in command.params for name in param.opts}
        elif first.startswith("/") and first != "/":
            assert first.removeprefix("/") in COMMANDS, quoted
        for option in re.findall(r"(?<!\S)--?[a-zA-Z][\w-]*", quoted):
            assert option in options or option == "--format", quoted
        for key in re.findall(r"(?:-c |^)([a-z]+\.[a-z_]+)\b", quoted):
            assert key in KEYS, quoted
