"""The replies of the scripted model: commands with output of one size, or the calls of a recorded
session.

Recorded calls are played with three tools that every agent has: read a file, write a file, and run
a command. So each agent can recognize what was read, changed and printed. Results of all other
recorded tools are printed by a program named `run`, which returns the recorded exit code.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ctxagent.agent.compaction.layers.later_calls import kind_of
from ctxagent.agent.context.items import Call as ViewCall
from ctxagent.agent.recordings.recording import RecordedCall, RecordedReply, Recording
from ctxagent.agent.recordings.tool_names import TranslatedCall, translate

LINE = "{0:05d} of command {1}: the quick brown fox jumps over the lazy dog\n"
COMMAND = "seq -f '%05g of command {0}: the quick brown fox jumps over the lazy dog' {1}"
PRINT = '#!/bin/sh\ncat "${0%/*}/$1"\nexit "${2:-0}"\n'
LINE_NUMBER = re.compile(r"^ *(\d+)(?:→|\t|\| ?|: )", re.MULTILINE)  # formats of agents
END = "END_OF_RECORDED_ARGUMENTS"
MAX_NAME_CHARS = 120  # of a file name


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command and its complete output."""

    command: str
    output: str

    @property
    def asked(self) -> str:
        """The arguments, as the model writes them."""
        return self.command


@dataclass(frozen=True, slots=True)
class Page:
    """Lines to read from a file, starting at line `first`."""

    file: Path
    output: str
    first: int

    @property
    def asked(self) -> str:
        """The empty string, because the path differs from the recorded one."""
        return ""

    def prepare(self) -> None:
        self.file.write_text("\n" * (self.first - 1) + self.output)


@dataclass(frozen=True, slots=True)
class NewContent:
    """Content to write to a file."""

    file: Path
    content: str

    @property
    def asked(self) -> str:
        return self.content

    def prepare(self) -> None:
        """Delete the file, because some agents only overwrite files that they have read."""
        self.file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Subagent:
    """A task for a subagent, and its report."""

    asked: str
    output: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the report of subagents that run in the background."""

    output: str
    asked: str = ""


Call = Command | Page | NewContent | Subagent | Wait


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of the script."""

    text: str
    calls: Sequence[Call]
    needs: Sequence[int] = ()  # numbers of older results that the request must contain


def of_command(number: int, calls: int, size: int) -> Reply:
    """Return a reply with one command of about `size` bytes of output. As with a model, no two
    replies have the same sentence.
    """
    lines = size // len(LINE.format(0, number))
    output = "".join(LINE.format(line, number) for line in range(1, lines + 1))
    text = f"Command {number} of {calls} comes from a script, not from a model."
    return Reply(text, [Command(COMMAND.format(number, lines), output)])


def of_commands(calls: int, size: int) -> Iterator[Reply]:
    """Yield replies with one command each, of about `size` bytes of output."""
    return (of_command(number, calls, size) for number in range(1, calls + 1))


def of_recording(recording: Recording, folder: Path) -> Iterator[Reply]:
    """Yield the replies of a recorded session that have tool calls. Texts of replies without calls
    are prepended to the next reply.
    """
    played = _Played(folder)
    texts: list[str] = []
    for step in recording.steps:
        if not isinstance(step, RecordedReply):
            continue
        texts.append(step.text)
        if step.calls:
            yield Reply("\n\n".join(filter(None, texts)) or "Next:", played.calls(step.calls))
            texts = []


@dataclass(slots=True)
class _Played:
    """Converter of recorded calls to calls of the three tools, with their files in a folder."""

    folder: Path
    number: int = 0  # number of the newest call
    _taken: set[Path] = field(default_factory=set)  # files used by calls of the current reply

    def __post_init__(self) -> None:
        program = self.folder / "run"
        program.write_text(PRINT)
        program.chmod(0o755)

    def calls(self, recorded: Sequence[RecordedCall]) -> list[Call]:
        self._taken.clear()
        return [self._call(call, translate(call)) for call in recorded]

    def _call(self, recorded: RecordedCall, ours: TranslatedCall) -> Call:
        self.number += 1
        text = recorded.text.encode("utf-8", "replace").decode()
        if ours.is_error:
            return self._command(text, ours, shows=False)
        if ours.name == "Read":
            return _page(self._file(str(ours.input["path"])), text, ours)
        if ours.name in ("Write", "Edit") and ours.changes:
            return NewContent(self._file(ours.changes[0]), _arguments(ours))
        shows = kind_of(ViewCall(recorded.id, 0, ours.name, ours.input), 0) == "shown"
        return self._command(text, ours, shows=shows)

    def _command(self, text: str, ours: TranslatedCall, *, shows: bool) -> Command:
        """Return a command that prints a text. Commands that show a file are kept as `cat`, because
        ctxagent clears their output later than that of other commands.
        """
        file = self.folder / str(self.number)
        file.write_text(text)
        command = f"cat {file}" if shows else f"{self.folder}/run {self.number}"
        if ours.is_error:
            command += " 1"
        return Command(f"{command} <<'{END}'\n{_arguments(ours)}\n{END}", text)

    def _file(self, path: str) -> Path:
        """Return the file for a recorded path. If a reply has several calls for a path, each call
        gets a separate file, because they may run concurrently.
        """
        name = re.sub(r"[^A-Za-z0-9.]+", "_", path)[-MAX_NAME_CHARS:]
        file = self.folder / f"file_{name}"
        if file in self._taken:
            file = self.folder / f"file_{self.number}_{name}"
        self._taken.add(file)
        return file


def _page(file: Path, text: str, ours: TranslatedCall) -> Page:
    """Return the page of a file, without the line numbers added by the recorded tool."""
    given = ours.input.get("offset")
    first = given if isinstance(given, int) and given > 0 else 1
    numbers = LINE_NUMBER.findall(text)
    if 2 * len(numbers) > text.count("\n"):
        text, first = LINE_NUMBER.sub("", text), max(1, int(numbers[0]))
    return Page(file, text, first)


def _arguments(ours: TranslatedCall) -> str:
    """Return the arguments except the path, joined by newlines. They belong to the context too: as
    written content, or as standard input that the command ignores.
    """
    values = [value for name, value in ours.input.items() if name != "path"]
    return "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values)
