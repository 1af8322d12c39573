"""Commands that the project, the user and plugins bring along: `commands/**/*.md`.

A file's name is the command's, its text is what the model is told. `$ARGUMENTS` stands for all that
was typed behind the name, `$1` to `$9` for single words of it, `@path` attaches a file.
``!`command` ``, and a block of commands that begins with ```` ```! ````, are replaced by what the
commands say. The format is that of https://code.claude.com/docs/en/slash-commands, so that files
for other agents work here.

A project's files are words like its AGENTS.md, and are offered without trust. What they do beyond
words (`!` commands, allowed-tools, model) counts only once the user has trusted their content.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from ..config.trust import folders_within_project, is_trusted, read_untrusted
from ..lazy import dataclass, regex
from ..prompts import PROMPTS_FOLDER
from .command_groups import OWN, CommandGroup, group_named
from .front_matter import list_value, split_front_matter, text_value
from .plugins import ROOT_VARIABLE, Plugin

COMMANDS_FOLDER = "commands"
PROJECT_FOLDERS = (".ctxagent", ".claude")  # which may have one, the first of a name counts
MAX_FILES = 500  # of one folder
MAX_DESCRIPTION_CHARS = 300
BUILT_IN = "ctxagent"  # in place of the path of a command that ctxagent brings along

_NAME = regex(r"[A-Za-z0-9][\w-]{0,63}", re.ASCII)
_PLACEHOLDER = regex(r"\$(ARGUMENTS\b|[1-9](?!\d))")
_SHELL_COMMAND = regex(
    r"!`([^`\n]+)`|^```![ \t]*\n(.+?)\n[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL
)
_PIECES = 3  # of the text for each match: what stands before it, and its two groups


@dataclass(frozen=True, slots=True)
class CommandFile:
    """A command that a file describes."""

    name: str
    body: str
    path: Path
    shown_path: str  # as people read it
    description: str = ""
    argument_hint: str = ""
    allowed_tools: tuple[str, ...] = ()  # permission rules for the turn that it begins
    model: str = ""  # of that turn, "" for the session's
    is_trusted: bool = True
    group: CommandGroup = OWN

    @property
    def is_built_in(self) -> bool:
        return self.shown_path == BUILT_IN

    def parts(self, arguments: str) -> list[tuple[str, bool]]:
        """Return the pieces of what the model is told, each with whether it is a shell command
        whose output stands there. Placeholders are replaced once, so that what stands in the
        arguments is taken as it is; in a shell command each is one word."""
        words, used = split_arguments(arguments), False

        def value(found: re.Match[str]) -> str:
            nonlocal used
            used = True
            if found[1] == "ARGUMENTS":
                return arguments
            place = int(found[1]) - 1
            return words[place] if place < len(words) else ""

        def quoted(found: re.Match[str]) -> str:
            if found[1] == "ARGUMENTS":
                value(found)
                return shlex.join(words)
            return shlex.quote(value(found))

        parts = list[tuple[str, bool]]()
        for place, piece in enumerate(_SHELL_COMMAND.split(self.body)):
            is_shell = place % _PIECES != 0
            if piece is not None:
                parts.append((_PLACEHOLDER.sub(quoted if is_shell else value, piece), is_shell))
        if arguments and not used:
            parts.append((f"\n\nArguments: {arguments}", False))
        return parts


def load_command_files(
    cwd: Path,
    *,
    config_home: Path,
    home: Path,
    trust_dir: Path,
    plugins: Sequence[Plugin] = (),
) -> tuple[dict[str, CommandFile], list[str]]:
    """Return the commands for work in `cwd` by name, and a warning for each file that was left out.
    Of two with one name the project's counts, then the user's, then that of a plugin."""
    found: dict[str, CommandFile] = {}
    warnings: list[str] = []
    own = [config_home / COMMANDS_FOLDER, home / ".claude" / COMMANDS_FOLDER]
    folders: list[tuple[Path, Path | None]] = [
        *((folder, trust_dir) for folder in project_command_folders(cwd, home)),
        *((folder, None) for folder in own),
    ]
    for folder, trust in folders:
        here, wrong = _commands_in(folder, cwd, home, trust)
        found, warnings = {**here, **found}, warnings + wrong
    for plugin in plugins:
        here, wrong = commands_of(plugin, cwd, home)
        found, warnings = {**here, **found}, warnings + wrong
    return found, warnings


@cache
def built_in_commands() -> Mapping[str, CommandFile]:
    """Return the commands that ctxagent brings along, by name."""
    folder = PROMPTS_FOLDER / COMMANDS_FOLDER
    found, _ = _commands_in(folder, folder, folder, None)
    return {name: replace(each, shown_path=BUILT_IN) for name, each in found.items()}


def commands_of(plugin: Plugin, cwd: Path, home: Path) -> tuple[dict[str, CommandFile], list[str]]:
    """Return the commands of a plugin by name, and a warning for each file that was left out."""
    found, warnings = _commands_in(plugin.folder / COMMANDS_FOLDER, cwd, home, None)

    def filled(text: str) -> str:
        return text.replace(f"${{{ROOT_VARIABLE}}}", str(plugin.folder))

    return {
        name: replace(
            each, body=filled(each.body), allowed_tools=tuple(map(filled, each.allowed_tools))
        )
        for name, each in found.items()
    }, warnings


def _commands_in(
    folder: Path, cwd: Path, home: Path, trust_dir: Path | None
) -> tuple[dict[str, CommandFile], list[str]]:
    """Return the commands of a folder by name, and a warning for each file that was left out;
    `trust_dir` is None for what is trusted."""
    here: dict[str, CommandFile] = {}
    warnings: list[str] = []
    for path in _files(folder):
        try:
            command = _read(path, folder, cwd, home, trust_dir)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            warnings.append(f"{path}: this command is left out: {why}")
            continue
        if command.name in here:  # in another folder below this one
            warnings.append(f"{path}: /{command.name} is {here[command.name].shown_path}")
        here.setdefault(command.name, command)
    return here, warnings


def project_command_folders(cwd: Path, home: Path) -> list[Path]:
    """Return the folders of the project's commands, the nearest and our own first."""
    way = folders_within_project(cwd.resolve(), home.resolve())
    if way[-1] == home.resolve() and len(way) > 1:
        way = way[:-1]  # the person's own are no project's
    named = (base / name / COMMANDS_FOLDER for base in way for name in PROJECT_FOLDERS)
    own = home.resolve() / ".claude" / COMMANDS_FOLDER
    return [folder for folder in named if folder.is_dir() and folder != own]


def project_files(cwd: Path, home: Path) -> list[Path]:
    """Return the project's files of commands, without links out of it."""
    return [path for folder in project_command_folders(cwd, home) for path in _files(folder)]


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of commands below a folder that do not lie elsewhere, sorted by depth."""
    if not folder.is_dir():
        return
    found = sorted(folder.rglob("*.md"), key=lambda path: (len(path.parts), path))
    root = os.path.realpath(folder)
    for path in found[:MAX_FILES]:
        if path.is_file() and Path(os.path.realpath(path)).is_relative_to(root):
            yield path


def _read(path: Path, folder: Path, cwd: Path, home: Path, trust_dir: Path | None) -> CommandFile:
    """Read a file; `trust_dir` is None for one that is trusted. Raises OSError and ValueError."""
    if not _NAME.fullmatch(path.stem):
        raise ValueError("its name is not made of up to 64 letters, digits, - and _")
    data = read_untrusted(path)
    values, body = split_front_matter(data.decode("utf-8", "replace"))
    if not body:
        raise ValueError("it says nothing")
    below = path.parent.relative_to(folder)
    described = text_value(values, "description") or body.lstrip("# ").partition("\n")[0]
    where = f" ({below})" if below.parts else ""
    return CommandFile(
        name=path.stem,
        body=body,
        path=path,
        shown_path=_shown(path, cwd, home),
        description=described[:MAX_DESCRIPTION_CHARS] + where,
        argument_hint=text_value(values, "argument-hint"),
        allowed_tools=list_value(values, "allowed-tools"),
        model=text_value(values, "model"),
        is_trusted=trust_dir is None or is_trusted(path, data, trust_dir),
        group=group_named(text_value(values, "group")),
    )


def _shown(path: Path, cwd: Path, home: Path) -> str:
    for base, mark in ((cwd, ""), (home, "~/")):
        if path.is_relative_to(base):
            return f"{mark}{path.relative_to(base)}"
    return str(path)


def split_arguments(arguments: str) -> list[str]:
    """Return the words of the arguments, quoted ones as one; where quotes do not match, by
    blanks."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()
