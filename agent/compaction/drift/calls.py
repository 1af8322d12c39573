"""Read a tool call's subject, commands and written files from its arguments."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...lazy import regex
from ...session.entries import Block
from ..language.words import MAX_LINE_CHARS, fit_line

CHANGING = ("Edit", "Write")
MAX_ARGUMENT_CHARS = 300  # read from one argument
MAX_WRITTEN_CHARS = 20_000  # read from a command or a written text

_BODIES = ("content", "old_string", "new_string", "todos")
_QUOTED = regex(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_HEREDOC = regex(r"((?<!<)<<-?\s*['\"\\]?\w[^\n]*)\n.*", re.DOTALL)
_REDIRECTED = regex(r"(?<![-=])>{1,2}\|?\s*([^\s;&|<>()]+)")
_PREFIXES = {"sudo", "time", "nohup", "command", "then", "do", "else", "!", "env", "exec"}
_WRITERS = {"rm", "mv", "cp", "tee", "truncate", "touch", "chmod", "ln", "patch", "sed", "perl"}
_GIT_WRITERS = {"rm", "mv", "checkout", "restore"}
_BARE_WORD = regex(r"[a-z]+")


def arguments_of(call: Block) -> Mapping[str, Any]:
    arguments = call.get("input")
    return arguments if isinstance(arguments, Mapping) else {}


def path_argument(call: Block) -> str:
    arguments = arguments_of(call)
    return str(arguments.get("path") or arguments.get("file_path") or "")


def command_of(call: Block) -> str:
    """Return the shell command of a Bash call, "" for other tools."""
    return str(arguments_of(call).get("command", "")) if call.get("name") == "Bash" else ""


def call_line(call: Block) -> str:
    """Return a call in one line: the tool and its command, path or subject."""
    what = arguments_of(call).get("command") or path_argument(call) or call_subject(call)
    return fit_line(f"{call.get('name')} {what}", MAX_LINE_CHARS)


def call_subject(call: Block) -> str:
    """Return the subject of a call: all its arguments except the texts that it writes. For a
    command, leave out the names of programs, subcommands and flags.
    """
    if command := command_of(call):
        pieces = map(_operands, simple_commands(command[:MAX_ARGUMENT_CHARS]))
        return "\n".join(" ".join(piece) for piece in pieces)
    arguments = arguments_of(call).items()
    return "\n".join(
        str(value)[:MAX_ARGUMENT_CHARS] for name, value in arguments if name not in _BODIES
    )


def _operands(words: Sequence[str]) -> list[str]:
    first = 2 if len(words) > 1 and _BARE_WORD.fullmatch(words[1]) else 1
    return [word for word in words[first:] if not word.startswith("-")]


def written_text(call: Block) -> str:
    """Return the text that a call writes to a file."""
    arguments = arguments_of(call)
    text = arguments.get("content") or arguments.get("new_string") or ""
    return str(text)[:MAX_WRITTEN_CHARS]


def simple_commands(command: str) -> list[list[str]]:
    """Split a shell command into simple commands, each a list of words. Approximate."""
    found = []
    for piece in re.split(r"[;&|\n()]+", _bare(command)):
        words = piece.split()
        while words and (words[0] in _PREFIXES or re.match(r"\w+=", words[0])):
            del words[0]
        if words:
            found.append(words)
    return found


def _bare(command: str) -> str:
    """Return a command without the bodies of here-documents. A quoted text with spaces becomes one
    placeholder word.
    """
    head = _HEREDOC.sub(r"\1", command[:MAX_WRITTEN_CHARS])
    return _QUOTED.sub(lambda q: "_" if re.search(r"\s", q[0]) else q[0][1:-1], head)


def written_paths(call: Block) -> list[str]:
    """Return the paths that a call writes to, as far as its arguments name them."""
    if call.get("name") in CHANGING:
        return [path] if (path := path_argument(call)) else []
    command = command_of(call)
    redirected = _REDIRECTED.findall(_bare(command))
    found = [path for path in redirected if not path.startswith(("&", "/dev/"))]
    for words in simple_commands(command):
        program, rest = words[0].rpartition("/")[2], words[1:]
        if program == "git" and rest and rest[0] in _GIT_WRITERS:
            found += rest[1:]
        elif program in ("sed", "perl") and not any(w.startswith(("-i", "-pi")) for w in rest):
            continue
        elif program in _WRITERS:
            found += rest[-1:] if program in ("cp", "ln") else rest
    return [path for path in found if not path.startswith("-")]
