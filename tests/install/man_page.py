"""Writes the man page: the parts that a person wrote, and options and commands as they are.

`make manual` writes it to `share/man/man1`, where the wheel takes it from.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from ctxagent import __version__
from ctxagent.agent.cli.main import main

TEMPLATE = Path(__file__).with_name("ctxagent.1.in")
QUOTED = re.compile("`([^`]+)`")
MAX_LINE_CHARS = 80
NAMES = re.compile(r"-[\w-]+(?:, -[\w-]+)*")


def man_page() -> str:
    """Return the man page of the command line as it is now."""
    context = click.Context(main, info_name="ctxagent", **main.context_settings)
    parts = {
        "@version@": __version__,
        "@options@": "\n".join(options_of(context)),
        "@commands@": "\n".join(commands_of(context)),
    }
    page = TEMPLATE.read_text("utf-8")
    for mark, part in parts.items():
        page = page.replace(mark, part)
    return "".join(f"{line}\n" for long in page.splitlines() for line in wrapped(long))


def options_of(context: click.Context) -> Iterator[str]:
    """Yield the lines that tell of each option of a command."""
    for parameter in context.command.get_params(context):
        if not isinstance(parameter, click.Option) or (is_help(parameter) and context.parent):
            continue
        record = parameter.get_help_record(context)
        if record is None:  # hidden
            continue
        names = NAMES.match(record[0])
        assert names, record
        value = record[0][names.end() :].strip()
        yield ".TP"
        yield f"\\fB{escaped(names[0])}\\fR" + (f" \\fI{escaped(value)}\\fR" if value else "")
        yield from paragraphs(record[1])


def is_help(option: click.Option) -> bool:
    return "--help" in option.opts


def commands_of(parent: click.Context) -> Iterator[str]:
    """Yield the lines that tell of each command below one, and of those below these."""
    group = parent.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command
        context = click.Context(command, info_name=name, parent=parent)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            usage = " ".join(command.collect_usage_pieces(context)).strip()
            yield ".TP"
            yield f"\\fB{escaped(context.command_path)}\\fR \\fI{escaped(usage)}\\fR".rstrip()
            yield from paragraphs(command.help or "")
            if options := list(options_of(context)):
                yield from (".RS", *options, ".RE")
        if isinstance(command, click.Group):
            yield from commands_of(context)


def paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a help text, its paragraphs apart."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".IP"
        yield QUOTED.sub(r"\\fB\1\\fR", escaped(" ".join(paragraph.split())))


def wrapped(line: str) -> list[str]:
    """Return a line as lines that are short enough for every reader of sources; requests stay."""
    if line.startswith("."):
        return [line]
    short = textwrap.wrap(line, MAX_LINE_CHARS, break_long_words=False, break_on_hyphens=False)
    return [f"\\&{part}" if part.startswith((".", "'")) else part for part in short]


def escaped(text: str) -> str:
    """Return a text as roff prints it: no character of it commands anything."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub("[^ -~]", lambda found: f"\\[u{ord(found[0]):04X}]", text)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(man_page(), "utf-8")
