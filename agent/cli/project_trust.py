"""`ctxagent config --trust`: show what a project's files would start, then accept the files.

The user decides about each file by the programs that it would start, and by its changes since it
was accepted.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...tools.system.environment import child_environment
from ...tools.system.phrasing import count_of
from ...tools.system.unicode import clean
from ..config.keys import value_text
from ..config.load import values_needing_trust
from ..config.places import config_home, home_folder
from ..config.start_gate import ProgramRights, ProgramStart, StartGate
from ..config.trust import (
    MAX_TRUSTED_BYTES,
    FileChange,
    PinnedFiles,
    accept,
    accepted_content,
    doubt_about,
    is_trusted,
    marked_files,
    read_untrusted,
)
from ..errors import ConfigError, UsageError
from ..extensions import command_files, hook_files, python_extensions, skills
from ..extensions.mcp import config as mcp_config
from ..features import subagent_types
from ..features.instruction_places import InstructionPlaces, InstructionReader
from ..features.memory import FOLDER
from ..features.started_programs import programs_of
from ..lazy import dataclass
from ..permissions.paths import is_instruction
from ..security.program_starts import gate_of
from ..session.store import Project
from .options import can_ask, cwd_of, launch_of, load, say

if TYPE_CHECKING:
    from ..config.load import LoadedSettings
    from ..launch import LaunchOptions

RIGHTS_SECTION = "programs."
MAX_TEXT_LINES = 40  # shown of instructions
COMMAND_SECTIONS = ("hooks.", "statusline.command", "ui.notify_command")
KINDS: Mapping[str, str] = {
    "settings": "settings",
    "hooks": "hooks",
    "servers": "MCP servers",
    "extension": "extension: its code runs in the agent's process, outside the sandbox",
    "subagent": "subagent: instructions for the model",
    "command": "slash command: instructions for the model, and commands under your rules",
    "skill": "skill: instructions for the model",
    "instructions": "instructions for the model",
}
ACCEPTED, CHANGED, NEW = "accepted", "changed since you accepted it", "never accepted"


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A program that a file starts, and the changes of the files that it runs."""

    start: ProgramStart
    changes: Sequence[FileChange]


@dataclass(frozen=True, slots=True)
class TrustItem:
    """A file of the project as it was read, or the user's own programs."""

    path: Path | None  # None for the user's own programs
    kind: str  # one of KINDS, "" for own programs
    data: bytes = b""
    state: str = ACCEPTED
    before: bytes | None = None  # the content that was accepted last, if it is kept
    effects: Sequence[str] = ()  # other effects than programs, one line each
    starts: Sequence[PlannedStart] = field(default_factory=tuple)

    @property
    def is_open(self) -> bool:
        """Whether the user has something to decide."""
        return self.state != ACCEPTED or any(each.changes for each in self.starts)


def project_files(cwd: Path, trust_dir: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield the files that need trust, except the settings, each with its size limit in bytes and
    its kind.
    """
    home = home_folder(os.environ)
    found = {
        "subagent": subagent_types.project_files(cwd, home),
        "command": command_files.project_files(cwd, home),
        "extension": python_extensions.project_files(cwd, home),
        "hooks": hook_files.project_files(cwd, home),
        "servers": list(filter(None, [mcp_config.project_file(cwd, home)])),
        "instructions": _doubtful_instructions(cwd, home, trust_dir),
    }
    for kind, paths in found.items():
        yield from ((path, MAX_TRUSTED_BYTES, kind) for path in paths)
    for path in skills.project_files(cwd, home):
        yield path, skills.MAX_SKILL_BYTES, "skill"


def trust_items(loaded: "LoadedSettings", launch: "LaunchOptions") -> list[TrustItem]:
    """Return the files of a project that need trust, and the user's own programs if the project's
    files that they run have changed. Raises ConfigError for a file that cannot be read.
    """
    files = [(loaded.project, MAX_TRUSTED_BYTES, "settings")] if loaded.project else []
    reader = _ItemReader(launch, gate_of(launch), loaded.trust_dir)
    items = [
        reader.item(*row) for row in (*files, *project_files(launch.places.cwd, loaded.trust_dir))
    ]
    own = [each for each in programs_of(launch) if not each.of_project]
    planned = tuple(each for each in map(reader.planned, own) if each.changes)
    return [*items, *([TrustItem(None, "", starts=planned)] if planned else [])]


@dataclass
class _ItemReader:
    """Reads the items of a project."""

    launch: "LaunchOptions"
    gate: StartGate
    trust_dir: Path

    def item(self, path: Path, max_bytes: int, kind: str) -> TrustItem:
        """Return the item of a file. Raises ConfigError."""
        try:
            data = read_untrusted(path, max_bytes)
        except OSError as error:
            raise ConfigError(
                f"not trusted: {error.strerror}",
                where=str(path),
                hint="Check the permissions of the file.",
            ) from None
        before, state = accepted_content(path, self.trust_dir), CHANGED
        if is_trusted(path, data, self.trust_dir):
            state = ACCEPTED
        elif before is None:
            state = NEW
        effects, starts = self._content(path, data, kind)
        return TrustItem(path, kind, data, state, before, effects, tuple(map(self.planned, starts)))

    def planned(self, start: ProgramStart) -> PlannedStart:
        return PlannedStart(start, self.gate.changes(start))

    def _content(self, path: Path, data: bytes, kind: str) -> tuple[list[str], list[ProgramStart]]:
        """Return what a file does besides starting programs, and the programs."""
        cwd, environ = self.launch.places.cwd, self.launch.places.environ
        env = child_environment(environ, self.launch.settings.bash.keep_env)
        if kind == "settings":
            return self._settings(path, data, env)
        if kind == "hooks":
            own = hook_files.project_environ(path)
            hooks, _ = hook_files.read_hooks(path, f"file {path.name}", own)
            commands = [replace(hook, of_project=True) for hook in hooks if hook.kind == "command"]
            posts = [f"{hook.event}: posts to {hook.run}" for hook in hooks if hook.kind == "http"]
            return posts, [each.program(cwd, each.environment(env, cwd)) for each in commands]
        if kind == "instructions":
            text = data.decode("utf-8", "replace").strip().splitlines()
            lines = [f"| {line}" for line in text[:MAX_TEXT_LINES]]
            if (more := len(text) - MAX_TEXT_LINES) > 0:
                lines.append(f"| … {count_of(more, 'more line')}")
            return [doubt_about(path, self.trust_dir), *lines], []
        if kind == "servers":
            try:
                servers = mcp_config.servers_in_file(path, environ)
            except (OSError, ValueError) as error:
                return [f"not valid: {error}"], []
            urls = [each for each in servers if each.url]
            connects = [f"the MCP server {each.name}: connects to {each.where}" for each in urls]
            return connects, [each.program(env, cwd) for each in servers if each.command]
        return [], []

    def _settings(
        self, path: Path, data: bytes, env: Mapping[str, str]
    ) -> tuple[list[str], list[ProgramStart]]:
        given = values_needing_trust(path, data)
        values = {key.name: value for key, value in given}
        known = self.launch.settings.programs
        rights = ProgramRights(
            values.get("programs.network", known.network),
            tuple(map(str, values.get("programs.write", known.write))),
            values.get("programs.outside", known.outside),
        )
        effects, starts = list[str](), list[ProgramStart]()
        for key, value in given:
            name = key.name
            if name.startswith(RIGHTS_SECTION):
                continue  # shown with the programs
            if not name.startswith(COMMAND_SECTIONS):
                effects.append(f"sets {name} = {value_text(key, value)}")
                continue
            what = f"the hook {name[6:]}" if name.startswith("hooks.") else name
            commands: Any = [value] if isinstance(value, str) else value
            starts += [
                ProgramStart(what, command, self.launch.places.cwd, env, True, rights)
                for command in commands
            ]
        return effects, starts


def _doubtful_instructions(cwd: Path, home: Path, trust_dir: Path) -> list[Path]:
    """Return the instruction files, imports and kept facts that other users may write, or that the
    agent wrote after it had read text from outside.
    """
    places = InstructionPlaces(cwd, config_home(os.environ), home, trust_dir)
    reader = InstructionReader(places)
    reader.read(places.for_all_work())
    project, facts = places.root.resolve(), (Project(trust_dir, cwd).folder / FOLDER).resolve()
    own = [path.resolve() for path in places.own_files()]
    marked = [path for path in marked_files(trust_dir) if path.is_file()]
    found = (path for path in marked if path.is_relative_to(project) and is_instruction(str(path)))
    kept = (path for path in marked if path.is_relative_to(facts) or path in own)
    return list(dict.fromkeys([*reader.doubtful, *found, *kept]))


OWN_PROGRAMS = "your own hooks and servers"
ALL, SOME, NONE = "a", "o", "n"
QUESTION = "Accept [a]ll, [o]ne by one, or [n]othing?"


def trust_project(
    options: dict[str, Any], files: Sequence[str] = (), *, preview: bool = False
) -> None:
    """Show the project's files that need trust, with the programs that they would start. Then
    accept the shown content of the chosen `files`, of those that the user chooses at a terminal, or
    of all files. With `preview`, accept nothing. Raises UsageError if there are no files.
    """
    loaded, launch = load(options), launch_of(options)
    items, gate = _chosen(trust_items(loaded, launch), files, cwd_of(options)), gate_of(launch)
    if not items:
        raise UsageError(
            "nothing in this project needs trust: no .agentrc, .mcp.json, .ctxagent/agents, hooks "
            "file, folder of commands, extensions or skills, and no AGENTS.md that other users "
            "may write or that the agent wrote after it had read text from outside",
            hint="Start `ctxagent` here: it asks for no trust.",
        )
    shown = [item for item in items if item.is_open]
    for line in screen(shown, gate, cwd_of(options)):
        say(clean(line), err=not preview)
    if preview:
        return
    for item in _accepted(shown, items, cwd_of(options)):
        _accept(item, gate, loaded.trust_dir)


def screen(items: Sequence[TrustItem], gate: StartGate, cwd: Path) -> Iterator[str]:
    """Yield the lines that show these items."""
    if not items:
        yield "every file is accepted with its current content"
    for item in items:
        yield f"{_name(item, cwd)}: {item.state if item.path else 'changed files'}"
        yield f"  {KINDS.get(item.kind, 'programs outside the sandbox, with your rights')}"
        yield from (f"  {effect}" for effect in item.effects)
        for each in item.starts:
            yield f"  {each.start.what}: {each.start.shown}"
            yield f"    {_place(each.start, gate)}"
            if each.changes:
                files = (f"{_shown(c.path, cwd)} ({_state(c)})" for c in each.changes)
                yield f"    runs {', '.join(files)}"
        if item.state == CHANGED and item.path:
            whole = FileChange(_shown(item.path, cwd), "", item.data, item.before)
            yield from _indented(whole.diff())
        changed = {c.path: c for each in item.starts for c in each.changes if not c.is_new}
        for change in changed.values():
            yield from _indented(change.diff())


def _place(start: ProgramStart, gate: StartGate) -> str:
    """Return where a program runs, and its rights."""
    rights = start.rights
    if not start.of_project or rights.outside:
        return "outside the sandbox, with your rights"
    if gate.confine(start) is None:
        return "with your rights: there is no sandbox here"
    network = "with" if rights.network else "without"
    more = f", writes to {', '.join(rights.write)}" if rights.write else ""
    return f"inside the sandbox, {network} network{more}"


def _state(change: FileChange) -> str:
    return "new" if change.is_new else "changed"


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}" for line in text.splitlines())


def _name(item: TrustItem, cwd: Path) -> str:
    return _shown(item.path, cwd) if item.path else OWN_PROGRAMS


def _shown(path: Path | str, cwd: Path) -> str:
    return str(path).removeprefix(f"{cwd}/")


def _chosen(items: list[TrustItem], files: Sequence[str], cwd: Path) -> list[TrustItem]:
    """Return the items of these files, or all without files. A file that programs run stands for
    the items that start them. Raises UsageError for other files.
    """
    chosen = list[TrustItem]()
    for name in files:
        path = str(cwd / name)
        found = [item for item in items if str(item.path) == path or path in _programs(item)]
        if not found:
            hint = "`ctxagent config --trust --preview` lists the files."
            raise UsageError(f"{name} does not need trust", hint=hint)
        chosen += [item for item in found if item not in chosen]
    return chosen if files else items


def _programs(item: TrustItem) -> set[str]:
    return {change.path for each in item.starts for change in each.changes}


def _accepted(shown: Sequence[TrustItem], items: Sequence[TrustItem], cwd: Path) -> list[TrustItem]:
    """Return the items to accept. Ask the user if there is one at a terminal."""
    if not shown or not can_ask():
        return [*items]
    answer = _answer(QUESTION, (ALL, SOME, NONE))
    if answer == SOME:
        return [
            item
            for item in shown
            if _answer(f"Accept {_name(item, cwd)}? [y]es [n]o", ("y", "n")) == "y"
        ]
    return [*shown] if answer == ALL else []


def _answer(question: str, keys: Sequence[str]) -> str:
    """Return the user's answer, the last key without one."""
    choice = click.Choice(keys, case_sensitive=False)
    try:
        return str(click.prompt(clean(question), type=choice, show_choices=False, err=True))
    except click.Abort:
        return keys[-1]


def _accept(item: TrustItem, gate: StartGate, trust_dir: Path) -> None:
    """Accept an item with the shown content, and print it. Raises ConfigError."""
    if item.path:
        accept(item.path, item.data, trust_dir)
        say(f"trusted with its current content: {item.path}", err=True)
    for each in item.starts:
        gate.pins.accept(each.start.key, each.changes)
    for path in sorted(_programs(item)):
        say(f"accepted with its current content: {path}", err=True)


def accept_server(options: dict[str, Any], name: str) -> None:
    """Accept the current files that an MCP server of the project runs. Raises ConfigError."""
    from ..features.started_programs import programs_of

    launch = launch_of(options)
    chosen = (each for each in programs_of(launch) if each.what == f"the MCP server {name}")
    gate_of(launch).accept(chosen)


def trust_worktree(checkout: Path, worktree: Path, cwd: Path, trust_dir: Path) -> None:
    """Trust the files of a worktree, for work in its folder `cwd`, whose content is trusted in the
    checkout, and the pinned files of programs. Raises ConfigError.
    """
    for path, bound, _ in project_files(cwd, trust_dir):
        if not path.is_relative_to(worktree):
            continue
        try:
            data = read_untrusted(path, bound)
        except OSError:
            continue
        accepted = is_trusted(checkout / path.relative_to(worktree), data, trust_dir)
        if accepted and not is_trusted(path, data, trust_dir):
            accept(path, data, trust_dir)
    PinnedFiles(trust_dir).copy_pins(checkout, worktree)
