"""The parts of a project's git repository, for the sandbox: what a commit must write, and what
makes git run programs and must not be written.

A project says by a file, which it may have brought along, that its repository lies elsewhere. Such
a repository counts only when it says itself that this is its work tree.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...tools.system.git_links import linked_folders
from ..lazy import dataclass
from ..permissions.shell.git import submodules_in_place

# What need not be there, and would have git read its configuration, hooks or objects elsewhere.
_MAY_APPEAR = ("config.worktree", "hooks", "commondir", "objects/info/alternates")


@dataclass(frozen=True, slots=True)
class GitFolders:
    """The parts of a repository that matter to the sandbox."""

    # What a commit writes, and the folders between these: no command can rename what is mounted.
    folders: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()  # within `folders`, must stay as it is
    absent: tuple[str, ...] = ()  # must not appear: git would read its configuration from there


def find_repository(cwd: str) -> GitFolders:
    """Return the repository of the folder or of the nearest one above, as it is now."""
    for folder in (Path(cwd), *Path(cwd).parents):
        entry = folder / ".git"
        if entry.is_dir():
            inner = (os.path.realpath(each / ".git") for each in submodules_in_place(folder))
            return git_folders([os.path.realpath(entry), *filter(os.path.isdir, inner)])
        if entry.is_file():
            found = linked_folders(entry)
            place = git_folders(found)
            return GitFolders(place.folders, (str(entry), *place.closed), place.absent)
    return GitFolders()


def repository_root(cwd: str) -> str:
    """Return the top folder of the repository that the folder is in, "" if there is none."""
    above = (folder for folder in (Path(cwd), *Path(cwd).parents) if (folder / ".git").exists())
    return next(map(str, above), "")


def git_folders(folders: list[str]) -> GitFolders:
    """Return the parts of the repositories at these folders, with what is nested in them."""
    closed, absent = [], []
    between: list[str] = []
    for top in folders:
        for folder in (top, *_nested_folders(top)):
            between += _folders_between(top, folder)
            for name in (*_MAY_APPEAR, "config", "gitdir"):
                path = f"{folder}/{name}"
                if os.path.lexists(path):
                    closed.append(path)
                elif name in _MAY_APPEAR:
                    absent.append(path)
    return GitFolders(tuple(dict.fromkeys([*folders, *between])), tuple(closed), tuple(absent))


def _nested_folders(top: str) -> Iterator[str]:
    """Yield the repositories of submodules, and the folders of single work trees of all of them."""
    for folder in (top, *_submodule_folders(top)):
        if folder != top:
            yield folder
        with suppress(OSError), os.scandir(f"{folder}/worktrees") as entries:
            yield from (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def _folders_between(top: str, folder: str) -> Iterator[str]:
    """Yield the folder, and each that it lies in below the top."""
    while folder != top:
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def _submodule_folders(top: str) -> Iterator[str]:
    """Yield the repositories of submodules, which may be named by a path."""
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
