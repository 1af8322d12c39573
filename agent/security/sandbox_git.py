"""The parts of a project's git repository for the sandbox: folders that a commit writes to, and
files that make git run programs and must stay read-only.

A `.git` file, which a project may ship, can name a repository elsewhere. That repository counts
only if it names the project as its work tree.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...tools.system.git_links import linked_folders
from ..lazy import dataclass
from ..permissions.shell.git import checked_out_submodules

# Optional files that point git to other configuration, hooks or objects.
_MAY_APPEAR = ("config.worktree", "hooks", "commondir", "objects/info/alternates")


@dataclass(frozen=True, slots=True)
class GitFolders:
    """The parts of a repository that the sandbox treats differently."""

    # Folders that a commit writes to, and the folders between them, so that no command can rename
    # one: a mount point cannot be renamed.
    folders: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()  # within `folders`
    must_not_exist: tuple[str, ...] = ()  # git would read configuration there


def find_repository(cwd: str) -> GitFolders:
    """Return the parts of the repository that contains `cwd`; no parts if there is none."""
    for folder in (Path(cwd), *Path(cwd).parents):
        entry = folder / ".git"
        if entry.is_dir():
            inner = (os.path.realpath(each / ".git") for each in checked_out_submodules(folder))
            return git_folders([os.path.realpath(entry), *filter(os.path.isdir, inner)])
        if entry.is_file():
            found = linked_folders(entry)
            place = git_folders(found)
            return GitFolders(place.folders, (str(entry), *place.read_only), place.must_not_exist)
    return GitFolders()


def repository_root(cwd: str) -> str:
    """Return the top folder of the folder's repository, "" if there is none."""
    above = (folder for folder in (Path(cwd), *Path(cwd).parents) if (folder / ".git").exists())
    return next(map(str, above), "")


def git_folders(folders: list[str]) -> GitFolders:
    """Return the parts of the repositories at these folders, including nested repositories."""
    read_only, must_not_exist = [], []
    between: list[str] = []
    for top in folders:
        for folder in (top, *_nested_folders(top)):
            between += _folders_between(top, folder)
            for name in (*_MAY_APPEAR, "config", "gitdir"):
                path = f"{folder}/{name}"
                if os.path.lexists(path):
                    read_only.append(path)
                elif name in _MAY_APPEAR:
                    must_not_exist.append(path)
    return GitFolders(
        tuple(dict.fromkeys([*folders, *between])), tuple(read_only), tuple(must_not_exist)
    )


def _nested_folders(top: str) -> Iterator[str]:
    """Yield the repositories of submodules, and the git folders of all additional work trees."""
    for folder in (top, *_submodule_folders(top)):
        if folder != top:
            yield folder
        with suppress(OSError), os.scandir(f"{folder}/worktrees") as entries:
            yield from (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def _folders_between(top: str, folder: str) -> Iterator[str]:
    """Yield the folder and its parents below `top`."""
    while folder != top:
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def _submodule_folders(top: str) -> Iterator[str]:
    """Yield the repositories of submodules, whose names may contain slashes."""
    pending = [f"{top}/modules"]
    while pending:
        try:
            found = [
                entry.path
                for entry in os.scandir(pending.pop())
                if entry.is_dir(follow_symlinks=False)
            ]
        except OSError:
            continue
        for path in found:
            if os.path.isfile(f"{path}/HEAD"):  # noqa: PTH113
                yield path
                pending.append(f"{path}/modules")
            else:
                pending.append(path)
