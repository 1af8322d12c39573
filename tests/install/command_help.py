"""The help of the command line as data, for the man page and the documentation site."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from ctxagent.agent.cli.main import main

NAMES = re.compile(r"-[\w-]+(?:, -[\w-]+)*")


@dataclass(frozen=True, slots=True)
class OptionHelp:
    names: str  # such as "-m, --model"
    value: str  # such as "ID"; "" for a flag
    text: str


@dataclass(frozen=True, slots=True)
class CommandHelp:
    path: str  # such as "ctxagent sessions list"
    usage: str  # such as "[OPTIONS] ID"
    text: str
    options: tuple[OptionHelp, ...]
    example: str  # such as "ctxagent sessions list --all"


def whole_command() -> CommandHelp:
    """Return the help of `ctxagent` itself."""
    return _help_of(_context())


def subcommands() -> Iterator[CommandHelp]:
    """Yield the help of each command that does something by itself, in the order of `--help`."""
    yield from _below(_context())


def _context() -> click.Context:
    return click.Context(main, info_name="ctxagent", **main.context_settings)


def _below(parent: click.Context) -> Iterator[CommandHelp]:
    group = parent.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command
        context = click.Context(command, info_name=name, parent=parent)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield _help_of(context)
        if isinstance(command, click.Group):
            yield from _below(context)


def _help_of(context: click.Context) -> CommandHelp:
    usage = " ".join(context.command.collect_usage_pieces(context)).strip()
    text = context.command.help or ""
    _, _, example = (context.command.epilog or "").partition("Example: ")
    return CommandHelp(context.command_path, usage, text, tuple(_options(context)), example)


def _options(context: click.Context) -> Iterator[OptionHelp]:
    """Yield the options that `--help` shows, without the `--help` of subcommands."""
    for parameter in context.command.get_params(context):
        if not isinstance(parameter, click.Option):
            continue
        record = parameter.get_help_record(context)
        if record is None or ("--help" in parameter.opts and context.parent):  # None: hidden
            continue
        names = NAMES.match(record[0])
        assert names, record
        yield OptionHelp(names[0], record[0][names.end() :].strip(), record[1])
