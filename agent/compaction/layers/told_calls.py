"""The words that tell what a call did: the file of an edit, the programs and targets of a command.

The set-up of a command is left out: `cd`, variables, and wrappers such as `timeout` or `sh -c`. So
`cd app && CI=1 timeout 60 npm run check | tail -20` is told as `npm run check | tail -20`, and in
short as `npm run check`. The command is parsed, so texts in quotes and here-documents cannot pass
for programs. Paths are never cut.
"""

from collections.abc import Iterator
from functools import lru_cache

from ....tools.system.shorten import shorten
from ...context.items import ViewResult
from ...lazy import regex
from ...permissions.shell.parser import Script, SimpleCommand, parse
from ...session.change_rows import change_rows
from ...session.command_work import DISPLAY_PROGRAMS, SETUP_PROGRAMS

_KNOWN_COMMANDS = 4_096  # results that are cached
_DEVICES = "/dev/"
_FILE_TOOLS = ("Read", "Write", "Edit")
_WORD = regex(r"(?:\"[^\"]*\"|'[^']*'|\\.|\S)+")  # a blank in quotes or after a backslash is in it


def told_call(result: ViewResult, limit: int, *, short: bool = False) -> str:
    """Return the main argument of a call in `limit` characters; paths are whole, however long.

    `short` tells only the programs of a command, without pipes and texts.
    """
    call = result.call
    if call.name in _FILE_TOOLS:
        path = call.input.get("path")
        changed = dict.fromkeys(row["path"] for row in change_rows(result.details))
        return path if isinstance(path, str) else "; ".join(changed)
    command = call.input.get("command")
    if call.name == "Bash" and isinstance(command, str):
        told = "; ".join(told_programs(command)) if short else without_setup(command)
        return cut_between_words(told, limit)
    return shorten(call.argument, limit)


@lru_cache(maxsize=_KNOWN_COMMANDS)
def without_setup(command: str) -> str:
    """Return a command from its first program on that is not set-up, on one line."""
    first = next(_programs(parse(command)), None)
    place = command.find(first.source) if first else 0
    return " ".join(command[max(0, place) :].split())


@lru_cache(maxsize=_KNOWN_COMMANDS)
def told_programs(command: str) -> tuple[str, ...]:
    """Return the programs of a command with their arguments, and the files that it writes. Return
    the command itself if it is only set-up.
    """
    script = parse(command)
    programs = [*_programs(script)]
    written = dict.fromkeys(f"> {w.text}" for w in script.writes if w.text[:5] != _DEVICES)
    shown = [part for part in programs if not _only_displays(part)]
    texts = dict.fromkeys(map(_text_of, shown or ([] if written else programs)))
    return (*texts, *written) or (" ".join(command.split()),)


def _programs(script: Script) -> Iterator[SimpleCommand]:
    """Yield the parts of a command that are no set-up, without wrappers and without substitutions,
    which their command shows.
    """
    parts = script.parts
    for place, part in enumerate(parts):
        is_wrapper = any(_starts(part, inner) for inner in parts[place + 1 : place + 2])
        is_shown = any(f"$({part.source})" in outer.source for outer in parts[:place])
        name = part.name.rpartition("/")[2]
        if not (is_wrapper or is_shown or name in SETUP_PROGRAMS):
            yield part


def _starts(outer: SimpleCommand, inner: SimpleCommand) -> bool:
    """Return True if a command only starts another one: with its last words, or as a script in one
    of its words.
    """
    ends = outer.words[-len(inner.words) :] == inner.words and len(outer.words) > len(inner.words)
    return ends or any(word.text.lstrip().startswith(inner.source) for word in outer.words[1:])


def _only_displays(part: SimpleCommand) -> bool:
    """Return True if a program only shows a part of another one's output."""
    operands = (w.text for w in part.words[1:] if w.text[:1] != "-" and not w.text.isdigit())
    return part.name in DISPLAY_PROGRAMS and not any(operands)


def _text_of(part: SimpleCommand) -> str:
    """Return a program with its arguments as written, or with the values of a loop."""
    texts = [word.text for word in part.words]
    is_looped = "$" in part.source and not all(text in part.source for text in texts)
    return " ".join((" ".join(texts) if is_looped else part.source).split())


def cut_between_words(text: str, limit: int) -> str:
    """Cut a text to `limit` characters, between words of the shell: a quoted path stays whole. The
    first word always stays.
    """
    if len(text) <= limit:
        return text
    ends = [word.end() for word in _WORD.finditer(text)]
    end = max([end for end in ends if end < limit], default=ends[0] if ends else 0)
    return f"{text[:end]} …" if end < len(text) else text
