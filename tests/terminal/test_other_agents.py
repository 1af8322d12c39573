"""All names that other agents document, with the real command: each works here or has one answer,
and none begins a turn. `make habits` writes the names into `other_agents.toml`.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ctxagent.agent.cli.main import main
from ctxagent.agent.ui.commands import COMMANDS
from ctxagent.agent.ui.foreign_names import foreign_names

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

AGENTS = tomllib.loads(Path(__file__).with_name("other_agents.toml").read_text(encoding="utf-8"))
OWN_WORDS = {*main.list_commands(click.Context(main))}
OWN_OPTIONS = {"-h", "--help", *(name for param in main.params for name in param.opts)}
FROM_FILES = {"review", "commit"}  # commands that come with the program as files
# Names that ask for less protection; no other name is told how to lower it.
DARING = re.compile(r"yolo|danger|bypass|trust|auto-approve|allow-all|^-?-?y(es.*)?$|approve$")
LOWERS = re.compile(r"bypass|sandbox\.mode=off|--trust|accept-edits")
# Unquoted words of other agents, with what follows them.
LINES = [
    "pr 12",
    "install npm:foo",
    "github install",
    "sandbox ls",
    "completion bash",
    "auth:login",
    "install@latest",
    "nosuch.py",
    "hello",
    "erkläre",
    "fix it",
]


def names(kind: str) -> list[str]:
    return sorted({name for agent in AGENTS.values() for name in agent[kind]})


def works(words: list[str]) -> bool:
    """Return True if we have this command, or the beginning of the words is one of our commands."""
    command: click.Command | None = main
    for word in words:
        if command is None or not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
    return command is not None


def lines() -> Iterator[list[str]]:
    """Yield the command lines to refuse."""
    for line in [*names("subcommands"), *LINES]:
        if not works(line.split()):
            yield line.split()
    for option in names("options"):
        if option not in OWN_OPTIONS - {"-c"}:
            yield [option]


def test_the_table_is_whole() -> None:
    assert {"claude-code", "codex", "opencode", "pi", "gemini-cli"} == AGENTS.keys()
    for agent in AGENTS.values():
        assert all((agent["version"], agent["date"]))
        assert len(agent["subcommands"]) > 10
        assert min(len(agent["options"]), len(agent["slash"])) > 20
        assert len(agent["keys"]) > 10


def test_each_name_works_or_has_one_answer() -> None:
    words, aliases, hints = (foreign_names(kind) for kind in ("words", "aliases", "commands"))
    for line in names("subcommands"):
        first = line.split()[0]
        assert works(line.split()) + (first in words or line in words) == 1, line
    for option in names("options"):
        assert (option in OWN_OPTIONS) or option in foreign_names("options"), option
    for name in names("slash"):
        own = name in COMMANDS or name in FROM_FILES
        assert own or (name in aliases) + (name in hints) == 1, name


@pytest.mark.parametrize("kind", ["commands", "words", "options", "aliases"])
def test_only_names_that_ask_for_it_are_told_how_to_lower_protection(kind: str) -> None:
    for name, text in foreign_names(kind).items():  # type: ignore[arg-type]
        assert not LOWERS.search(text) or DARING.search(name), f"{name}: {text}"


@pytest.mark.slow
def test_no_command_line_begins_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    monkeypatch.chdir(place.project)
    answers = {**foreign_names("words"), **foreign_names("options")}
    with Server([]) as server:
        for line in lines():
            done = CliRunner().invoke(main, line, env=place.server(server.url))
            assert done.exit_code == 2, (line, done.output)
            answer = answers.get(" ".join(line), answers.get(line[0], "lists the commands"))
            assert answer in done.output, (line, done.output)
            suggested = re.findall(r"`ctxagent ([a-z][\w-]*)", done.output)
            assert {*suggested} <= OWN_WORDS, (line, done.output)
        assert not server.requests


@pytest.mark.full
@pytest.mark.parametrize("line", [*lines()], ids=" ".join)
def test_the_real_command_begins_no_turn(place: Place, line: list[str]) -> None:
    with Server([]) as server:
        done = place.run(*line, env=place.server(server.url))
        assert (done.returncode, done.stdout) == (2, "")
        assert not server.requests
    assert place.logs() == []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.slow
def test_no_slash_command_and_no_key_begins_a_turn(place: Place) -> None:
    hints, keys = foreign_names("commands"), {**BYTES}
    with Server([Say("Yes.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        for name in names("slash"):
            if name in hints:
                terminal.type(f"/{name}\r")
                terminal.see(lambda text, name=name: f"there is no command /{name}" in text)
                terminal.type("\x0c")
        for key in names("keys"):
            terminal.type(keys.get(key, ""))
        terminal.type("\x03hello\r")
        terminal.see("Yes.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert len(server.requests) == 1


def _bytes() -> Iterator[tuple[str, str]]:
    """Yield keys with the bytes that terminals send, without keys that leave or open programs."""
    for code in range(1, 27):
        letter = chr(96 + code)
        if letter not in "cdgzmi":
            yield f"ctrl-{letter}", chr(code)
        yield f"alt-{letter}", f"\x1b{letter}"
    yield from {"up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D"}.items()
    yield from {"home": "\x1b[H", "end": "\x1b[F", "tab": "\t", "shift-tab": "\x1b[Z"}.items()
    yield from {"pageup": "\x1b[5~", "pagedown": "\x1b[6~", "delete": "\x1b[3~"}.items()


BYTES = dict(_bytes())
