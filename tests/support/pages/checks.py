"""Check that what a command of a page names is there, without running it."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ctxagent.agent.cli.main import main
from ctxagent.agent.cli.options import message_of
from ctxagent.agent.errors import UsageError
from ctxagent.agent.permissions.shell.parser import parse

from .commands import ROOT

OPTIONAL = re.compile(r"( ?)\[((?:--|:?[A-Z])[^\[\]]*)\]")
MORE = re.compile(r"(?<=[A-Z])(?:\.\.\.|…)| …(?= |$)")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8").replace("$(VENV)", ".venv")
OF_CHECKOUT = re.compile(r"(?:tests|benchmarks)/\S+")
TOOLS = ".venv/bin/"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of ctxagent, as its command line reads it."""

    path: tuple[str, ...]  # the names of the command, such as ("sessions", "list")
    complete: bool = True  # False if an argument is missing: the text only names the command
    in_terminal: bool = False  # it opens the terminal
    has_message: bool = False


def forms(text: str) -> list[str]:
    """Return a command without its optional parts and with all of them."""
    text = MORE.sub("", text)
    return list(dict.fromkeys((OPTIONAL.sub("", text), OPTIONAL.sub(r"\1\2", text))))


def problems(text: str, page: str) -> list[str]:
    """Return what is wrong with one form of a command of `page`, a text."""
    return list(dict.fromkeys(_problems(text, page)))


def _problems(text: str, page: str) -> Iterator[str]:
    for words in simple_commands(text):
        program, *arguments = words
        try:
            call_of(words)
        except (click.UsageError, UsageError) as error:
            yield str(getattr(error, "message", error))
        if program == "make":
            yield from _unknown_in_makefile(arguments)
        if (
            program.startswith(TOOLS)
            and not (Path(sys.executable).parent / Path(program).name).exists()
        ):
            yield f"{program} is not installed for development"
        if program.startswith(TOOLS) and "make .venv" not in page:
            yield "the page does not say that `make .venv` comes first"
        for name in filter(OF_CHECKOUT.fullmatch, arguments):
            yield from _wrong_script(program, name, arguments)


def simple_commands(text: str) -> list[list[str]]:
    """Return the words of each command that a shell would run for a text."""
    return [[word.text for word in part.words] for part in parse(text).parts if part.words]


def call_of(words: Sequence[str]) -> Call | None:
    """Return the call of ctxagent in a command, or None. Raises click's UsageError or our own for a
    command or an option that does not exist.
    """
    behind = list(words[words.index("--") + 1 :]) if "--" in words else []
    called = next((each for each in (list(words), behind) if each[:1] == ["ctxagent"]), None)
    if called is None:
        return None
    rest = called[1:]
    command: click.Command = main
    context = click.Context(main, info_name="ctxagent", **main.context_settings)
    path: list[str] = []
    main_values: dict[str, Any] = {}
    while True:
        given = rest
        values, rest, _ = command.make_parser(context).parse_args(list(given))
        is_message = given[: len(given) - len(rest)][-1:] == ["--"]
        if command is main:
            main_values = values
        if not isinstance(command, click.Group) or not rest or is_message:
            break
        found = command.get_command(context, rest[0])
        if found is None and command is main and (rest[1:] or " " in rest[0]):
            context.args = rest
            message_of(context)  # refuses a mistyped command
            break
        if found is None:
            raise click.UsageError(f"No such command {rest[0]!r}.", context)
        context = click.Context(found, info_name=rest[0], parent=context)
        command, rest = found, rest[1:]
        path.append(context.info_name or "")
    is_group = isinstance(command, click.Group) and not command.invoke_without_command
    is_asked = isinstance(main_values.get("task", ""), str) or "input_format" in main_values
    complete = (
        not is_group
        and is_asked
        and all(
            isinstance(given := values.get(each.name), str | tuple) and given
            for each in command.params
            if each.required
        )
    )
    in_terminal = not path and "task" not in main_values
    return Call(tuple(path), bool(complete), in_terminal, in_terminal and bool(rest))


def _unknown_in_makefile(arguments: Sequence[str]) -> Iterator[str]:
    for each in arguments:
        name, is_variable, _ = each.partition("=")
        if (f"$({name})" if is_variable else f"\n{name}:") not in MAKEFILE:
            yield f"the Makefile has no {name}"


def _wrong_script(program: str, name: str, arguments: Sequence[str]) -> Iterator[str]:
    path = ROOT / name
    if not program.startswith(TOOLS):
        yield f"{name} needs the development tools: {TOOLS}{Path(program).name}"
    if not path.is_file():
        yield f"there is no {name}"
    elif name.startswith("benchmarks/"):
        source = path.read_text("utf-8") + (ROOT / "benchmarks" / "measure.py").read_text("utf-8")
        for option in {*arguments} - {"--help"}:
            if option.startswith("--") and f'"{option.partition("=")[0]}"' not in source:
                yield f"{name} has no {option}"
