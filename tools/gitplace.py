"""Where the repository of a project keeps what is its own, for the sandbox: what a commit must
write, and what makes git run programs and must not be written.

A project says by a file, which it may have brought along, that its repository lies elsewhere. Such
a place counts only when it says itself that this is its work tree.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LARGEST = 4_096  # bytes of a file that names a folder


@dataclass(frozen=True, slots=True)
class GitPlace:
    """`folders` are written by a commit, `closed` in them must stay as it is; what lies between
    is among `folders` too, as no command can rename what is mounted. `absent` is what must not
    appear: with it git would read its configuration from elsewhere."""

    folders: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def find(cwd: str) -> GitPlace:
    """The repository of the folder or of the nearest one above, as it is now."""
    for folder in (Path(cwd), *Path(cwd).parents):
        entry = folder / ".git"
        if entry.is_dir():
            return _place([os.path.realpath(entry)])
        if entry.is_file():
            found = list(_elsewhere(entry))
            place = _place(found)
            return GitPlace(place.folders, (str(entry), *place.closed), place.absent)
    return GitPlace()


def root(cwd: str) -> str:
    """The folder of the repository that the folder is in, "" where there is none."""
    above = (folder for folder in (Path(cwd), *Path(cwd).parents) if (folder / ".git").exists())
    return next(map(str, above), "")


def _place(folders: list[str]) -> GitPlace:
    closed, absent = [], []
    between: list[str] = []
    for top in folders:
        for folder in (top, *_inside(top)):
            between += _between(top, folder)
            for name in ("config", "config.worktree", "hooks", "commondir", "gitdir"):
                path = f"{folder}/{name}"
                if os.path.lexists(path):
                    closed.append(path)
                elif name in ("config.worktree", "hooks", "commondir"):
                    absent.append(path)
    return GitPlace(tuple(dict.fromkeys([*folders, *between])), tuple(closed), tuple(absent))


def _inside(top: str) -> Iterator[str]:
    """The repositories of submodules, and what belongs to single work trees, of all of them."""
    for folder in (top, *_modules(top)):
        if folder != top:
            yield folder
        with suppress(OSError), os.scandir(f"{folder}/worktrees") as entries:
            yield from (entry.path for entry in entries if _is_folder(entry))


def _between(top: str, folder: str) -> Iterator[str]:
    """The folder, and each that it lies in up to the top."""
    while folder != top:
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def _modules(top: str) -> Iterator[str]:
    """The repositories of submodules, which may be named by a path."""
    pending = [f"{top}/modules"]
    while pending:
        try:
            found = [entry.path for entry in os.scandir(pending.pop()) if _is_folder(entry)]
        except OSError:
            continue
        for path in found:
            if os.path.isfile(f"{path}/HEAD"):  # noqa: PTH113
                yield path
                pending.append(f"{path}/modules")
            else:
                pending.append(path)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir(follow_symlinks=False)


def _elsewhere(entry: Path) -> Iterator[str]:
    """The folders of a repository that the file `entry` names: that of a linked work tree with
    the common one, or that of a submodule. None when they do not name `entry` in turn."""
    named = _text(entry).removeprefix("gitdir:").strip()
    if not named:
        return
    own = Path(os.path.realpath(entry.parent / named))
    back = _text(own / "gitdir")
    if back:
        if os.path.realpath(own / back) == os.path.realpath(entry):
            yield str(own)
            if own.parent.name == "worktrees":
                yield str(own.parent.parent)
    elif os.path.realpath(own / _worktree(own / "config")) == os.path.realpath(entry.parent):
        yield str(own)


def _worktree(config: Path) -> str:
    """What a configuration says that its work tree is."""
    for line in _text(config).splitlines():
        name, sign, value = line.partition("=")
        if sign and name.strip().lower() == "worktree":
            return value.strip().strip('"')
    return "."


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(_LARGEST)).strip()
    except OSError:
        return ""
