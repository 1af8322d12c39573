"""A line for the user about the files in a project's `.claude` folder that ctxagent uses."""

from collections.abc import Iterator
from pathlib import Path

from ...tools.system.files import make_private_folder, write_private
from ...tools.system.plural import count_of
from ..config.trust import folders_within_project, is_file_trusted
from ..launch import LaunchOptions
from ..session.store import Project

FOLDER = ".claude"
SHOWN_FILE = "told-of-other-agents"  # in the folder of sessions, once the line was shown
# Patterns of the files that are used, by display name.
_PARTS = {
    "instruction file": ("CLAUDE.md", "rules/**/*.md"),
    "command": ("commands/**/*.md",),
    "subagent": ("agents/**/*.md",),
    "skill": ("skills/*/SKILL.md",),
}
_NEED_TRUST = ("subagent", "skill")
_WRITTEN_BY_OTHER_AGENT = (
    "worktrees",
    "plans",
    "todos",
    "agent-memory",
)  # written by the other agent


def used_files_line(launch: LaunchOptions) -> str:
    """Return a line on what is used of the `.claude` folder, or "" if there is no folder or the
    user has seen the line. Blocks.
    """
    home = launch.home.resolve()
    way = (each for each in folders_within_project(launch.cwd.resolve(), home) if each != home)
    folder = next((each / FOLDER for each in way if (each / FOLDER).is_dir()), None)
    if folder is None or launch.safe:
        return ""
    shown = Project(launch.state, launch.cwd).folder / SHOWN_FILE
    known = {pattern.partition("/")[0] for patterns in _PARTS.values() for pattern in patterns}
    try:
        if shown.exists():
            return ""
        taken = ", ".join(_used_files(folder, launch.trust or launch.state)) or "nothing"
        left = [
            each.name
            for each in folder.iterdir()
            if each.name not in {*known, *_WRITTEN_BY_OTHER_AGENT}
        ]
        make_private_folder(shown.parent)  # a session without messages has no folder yet
        write_private(shown, b"")
    except OSError:
        return ""  # without a readable folder or a writable state, never print the line
    rest = f" · not taken: {', '.join(sorted(left))} (`ctxagent import-settings`)" if left else ""
    return f"from {FOLDER} in this project: {taken}{rest}"


def _used_files(folder: Path, trust_dir: Path) -> Iterator[str]:
    """Yield the number of used files of each kind, and whether they still need trust."""
    for name, patterns in _PARTS.items():
        files = [path for pattern in patterns for path in folder.glob(pattern)]
        if files:
            needed = files if name in _NEED_TRUST else ()
            is_open = all(is_file_trusted(each, trust_dir) for each in needed)
            yield count_of(len(files), name) + ("" if is_open else " (not trusted)")
