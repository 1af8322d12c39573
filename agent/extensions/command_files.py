"""Slash commands from files: `commands/**/*.md` of the project, the user, plugins and ctxagent.

The file's name is the name of the command; its text becomes the prompt. In the text, `$ARGUMENTS`
is all text typed after the name, `$1` to `$9` are its single words, and `@path` attaches a file.
The output of ``!`command` ``, and of a code block that begins with ```` ```! ````, replaces the
command in the text. The format is https://code.claude.com/docs/en/slash-commands, so command files
for other agents work here.

Command files of a project are offered without trust, like its AGENTS.md. Their shell commands,
`allowed-tools` and `model` apply only after the user has trusted the content of the file.
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
from .command import OWN, CommandGroup, group_named
from .front_matter import list_value, split_front_matter, text_value
from .plugins import ROOT_VARIABLE, Plugin, free_name, places_of

COMMANDS_FOLDER = "commands"
PROJECT_FOLDERS = (".ctxagent", ".claude")  # for equal names the first wins
MAX_FILES = 500  # command files per folder
MAX_DESCRIPTION_CHARS = 300
BUILT_IN = "ctxagent"  # shown as the path of built-in commands

_NAME = regex(r"[A-Za-z0-9][\w-]{0,79}", re.ASCII)
_PLACEHOLDER = regex(r"\$(ARGUMENTS\b|[1-9](?!\d))")
_SHELL_COMMAND = regex(
    r"!`([^`\n]+)`|^```![ \t]*\n(.+?)\n[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL
)
_PIECES = 3  # that re.split returns per match: the text before it and its two groups


@dataclass(frozen=True, slots=True)
class CommandFile:
    """A slash command that is defined in a file."""

    name: str
    body: str
    path: Path
    shown_path: str  # relative to the working directory or home
    description: str = ""
    argument_hint: str = ""
    allowed_tools: tuple[str, ...] = ()  # permission rules for the command's turn
    model: str = ""  # for the command's turn, "" for the session's model
    is_trusted: bool = True
    group: CommandGroup = OWN
    plugin: str = ""  # that defines the command

    @property
    def is_built_in(self) -> bool:
        return self.shown_path == BUILT_IN

    def parts(self, arguments: str) -> list[tuple[str, bool]]:
        """Return the parts of the prompt, each with True if it is a shell command to replace by its
        output. Replace placeholders once: placeholders inside the arguments are kept as text. Quote
        arguments inside shell commands.
        """
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
    """Return the commands for `cwd` by name, and a warning for each skipped file. For equal names
    the project's command wins over the user's. A plugin's command is called PLUGIN:NAME if its name
    is already used.
    """
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
        for command in here.values():
            name = free_name(command.name, plugin.name, found)
            found[name] = replace(command, name=name)
        warnings += wrong
    return found, warnings


@cache
def built_in_commands() -> Mapping[str, CommandFile]:
    """Return the commands that are part of ctxagent, by name."""
    folder = PROMPTS_FOLDER / COMMANDS_FOLDER
    found, _ = _commands_in(folder, folder, folder, None)
    return {name: replace(each, shown_path=BUILT_IN) for name, each in found.items()}


def commands_of(plugin: Plugin, cwd: Path, home: Path) -> tuple[dict[str, CommandFile], list[str]]:
    """Return the commands of a plugin by name, and a warning for each skipped file."""
    found, warnings = dict[str, CommandFile](), list[str]()
    for place in places_of(plugin.folder, "commands"):
        here, wrong = _commands_in(place, cwd, home, None)
        found, warnings = {**here, **found}, warnings + wrong

    def filled(text: str) -> str:
        return text.replace(f"${{{ROOT_VARIABLE}}}", str(plugin.folder))

    return {
        name: replace(
            each,
            body=filled(each.body),
            allowed_tools=tuple(map(filled, each.allowed_tools)),
            plugin=plugin.name,
        )
        for name, each in found.items()
    }, warnings


def _commands_in(
    folder: Path, cwd: Path, home: Path, trust_dir: Path | None
) -> tuple[dict[str, CommandFile], list[str]]:
    """Return the commands of a folder by name, and a warning for each skipped file. `trust_dir` is
    None for a trusted folder.
    """
    here: dict[str, CommandFile] = {}
    warnings: list[str] = []
    for path in _files(folder):
        try:
            command = _read(path, folder, cwd, home, trust_dir)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            warnings.append(f"{path}: this command is left out: {why}")
            continue
        if command.name in here:  # in another subfolder
            warnings.append(f"{path}: left out: {here[command.name].shown_path} is /{command.name}")
        here.setdefault(command.name, command)
    return here, warnings


def project_command_folders(cwd: Path, home: Path) -> list[Path]:
    """Return the folders with commands of the project: the nearest first, `.ctxagent` before
    `.claude`.
    """
    way = folders_within_project(cwd.resolve(), home.resolve())
    if way[-1] == home.resolve() and len(way) > 1:
        way = way[:-1]  # the home folder is not part of the project
    named = (base / name / COMMANDS_FOLDER for base in way for name in PROJECT_FOLDERS)
    own = home.resolve() / ".claude" / COMMANDS_FOLDER
    return [folder for folder in named if folder.is_dir() and folder != own]


def project_files(cwd: Path, home: Path) -> list[Path]:
    """Return the command files of the project, without links that leave the project."""
    return [path for folder in project_command_folders(cwd, home) for path in _files(folder)]


def _files(folder: Path) -> Iterator[Path]:
    """Yield the command files below a folder, sorted by depth, without links that leave the folder.
    If `folder` is a file, yield only this file.
    """
    if folder.is_file():
        yield folder
    if not folder.is_dir():
        return
    found = sorted(folder.rglob("*.md"), key=lambda path: (len(path.parts), path))
    root = os.path.realpath(folder)
    for path in found[:MAX_FILES]:
        if path.is_file() and Path(os.path.realpath(path)).is_relative_to(root):
            yield path


def _read(path: Path, folder: Path, cwd: Path, home: Path, trust_dir: Path | None) -> CommandFile:
    """Read a command file; `trust_dir` is None for a trusted file. Raises OSError and
    ValueError.
    """
    if not _NAME.fullmatch(path.stem):
        raise ValueError("its name must be up to 80 letters, digits, - and _")
    data = read_untrusted(path)
    values, body = split_front_matter(data.decode("utf-8", "replace"), lenient=True)
    if not body:
        raise ValueError("the file has no text")
    below = path.parent.relative_to(folder) if folder.is_dir() else Path()
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
    """Split the arguments into words as a shell does. Split at blanks if the quotes do not
    match.
    """
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()
