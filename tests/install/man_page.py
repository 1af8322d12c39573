"""Writes the man page: the parts that a person wrote, and options and commands as they are.

`make manual` writes it to `share/man/man1`, where the wheel takes it from.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ctxagent import __version__
from ctxagent.tests.install.command_help import CommandHelp, subcommands, whole_command

TEMPLATE = Path(__file__).with_name("ctxagent.1.in")
QUOTED = re.compile("`([^`]+)`")
MAX_LINE_CHARS = 80


def man_page() -> str:
    """Return the man page of the command line as it is now."""
    parts = {
        "@version@": __version__,
        "@options@": "\n".join(option_lines(whole_command())),
        "@commands@": "\n".join(line for each in subcommands() for line in command_lines(each)),
    }
    page = TEMPLATE.read_text("utf-8")
    for mark, part in parts.items():
        page = page.replace(mark, part)
    return "".join(f"{line}\n" for long in page.splitlines() for line in wrapped(long))


def option_lines(command: CommandHelp) -> Iterator[str]:
    """Yield the lines that describe each option of a command."""
    for option in command.options:
        value = f" \\fI{escaped(option.value)}\\fR" if option.value else ""
        yield ".TP"
        yield f"\\fB{escaped(option.names)}\\fR{value}"
        yield from paragraphs(option.text)


def command_lines(command: CommandHelp) -> Iterator[str]:
    """Yield the lines that describe a command and its options."""
    yield ".TP"
    yield f"\\fB{escaped(command.path)}\\fR \\fI{escaped(command.usage)}\\fR".rstrip()
    yield from paragraphs(command.text)
    if options := list(option_lines(command)):
        yield from (".RS", *options, ".RE")
    yield from (".IP", f"Example: \\fB{escaped(command.example)}\\fR")


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
