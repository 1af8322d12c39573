"""Trust in a project's files: which files need it, and how the user gives it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config.pinned_files import PinnedFiles
from ..config.places import config_home, home_folder
from ..config.trust import (
    MAX_TRUSTED_BYTES,
    accept,
    is_trusted,
    marked_files,
    read_untrusted,
    trust,
)
from ..errors import UsageError
from ..extensions import command_files, hook_files, python_extensions, skills
from ..extensions.mcp import config as mcp_config
from ..features import subagent_types
from ..features.instruction_places import InstructionPlaces
from ..features.instruction_reader import InstructionReader
from ..features.memory import FOLDER
from ..session.store import Project
from .options import cwd_of, load, say


def trust_project(options: dict[str, Any]) -> None:
    """Trust the current content of the project's files: settings, MCP servers, subagents, commands,
    hooks, skills, and doubtful instructions. Also accept the files that hooks and servers run.
    Raises UsageError if there are none.
    """
    loaded, cwd = load(options), cwd_of(options)
    files = dict.fromkeys(filter(None, [loaded.project]), MAX_TRUSTED_BYTES)
    files |= dict(_project_files(cwd, loaded.trust_dir))
    if not files and not accept_programs(options):
        raise UsageError(
            "nothing in this project needs trust: no .agentrc, .mcp.json, .ctxagent/agents, hooks "
            "file, folder of commands, extensions or skills, and no AGENTS.md that other users "
            "may write or that the agent wrote after it had read text from outside"
        )
    for path, bound in files.items():
        trust(path, loaded.trust_dir, bound)
        say(f"trusted with its current content: {path}", err=True)
    if files:
        accept_programs(options)


def accept_programs(options: dict[str, Any], only: str = "") -> list[str]:
    """Accept the current files that hooks, servers and other configured programs run, and print
    their paths. Return the paths of those that were new or changed. `only` is the description of
    one program. Raises ConfigError.
    """
    from ..features.started_programs import programs_of
    from ..security.program_starts import gate_of
    from .options import launch_of

    launch = launch_of(options)
    chosen = (each for each in programs_of(launch) if only in ("", each.what))
    found = gate_of(launch).accept(chosen)
    for path in found:
        say(f"accepted with its current content: {path}", err=True)
    return found


def trust_worktree(checkout: Path, worktree: Path, cwd: Path, trust_dir: Path) -> None:
    """Trust the files of a worktree, for work in its folder `cwd`, whose content is trusted in the
    checkout, and the pinned files of programs. Raises ConfigError.
    """
    for path, bound in _project_files(cwd, trust_dir):
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


def _project_files(cwd: Path, trust_dir: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files that need trust, except the settings, each with its size limit in bytes."""
    home = home_folder(os.environ)
    files = [
        *subagent_types.project_files(cwd, home),
        *command_files.project_files(cwd, home),
        *python_extensions.project_files(cwd, home),
        *hook_files.project_files(cwd, home),
        *filter(None, [mcp_config.project_file(cwd, home)]),
        *_doubtful_instructions(cwd, home, trust_dir),
    ]
    yield from ((path, MAX_TRUSTED_BYTES) for path in files)
    yield from ((path, skills.MAX_SKILL_BYTES) for path in skills.project_files(cwd, home))


def _doubtful_instructions(cwd: Path, home: Path, trust_dir: Path) -> list[Path]:
    """Return the instruction files, imports and kept facts that other users may write, or that the
    agent wrote after it had read text from outside.
    """
    places = InstructionPlaces(cwd, config_home(os.environ), home, trust_dir)
    reader = InstructionReader(places)
    reader.read(places.for_all_work())
    here = (places.root.resolve(), (Project(trust_dir, cwd).folder / FOLDER).resolve())
    own = [path.resolve() for path in places.own_files()]
    marked = (path for path in marked_files(trust_dir) if path.is_file())
    found = (path for path in marked if any(map(path.is_relative_to, here)) or path in own)
    return list(dict.fromkeys([*reader.doubtful, *found]))
