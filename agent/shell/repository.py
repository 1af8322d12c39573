"""What git would run, or read elsewhere, because a repository's own files say so. A command that
only looks (`git status`) is no more than that where they name nothing: a configuration comes with
a folder that somebody packed, and names filters, differs and hooks."""

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from .syntax import Part, Script

LARGEST = 64 << 20  # bytes of an index
_DEEPEST = 3  # repositories in repositories
_GITLINK = b"\0\0\xe0\0"  # the mode of a repository inside, in an index
_UNREADABLE = (OSError, ValueError, IndexError, struct.error)
_SPARSE = b"sdir\0\0\0\0"  # some entries are whole folders, with what is inside of them
_KEY = re.compile(
    r"^\s*(?:\[.*\]\s*)?(external|command|textconv|clean|smudge|process|program|promisor"
    r"|partialclone|path|hookspath|worktree|alternaterefscommand|driver|submodule|objectformat"
    r")\s*=\s*(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_HEAD = re.compile(r"ref: refs/|[0-9a-f]{40}")
_LARGE_FILES = re.compile(r'"?git-lfs (?:clean|smudge|filter-process)[\w %.-]*"?\s*')


def runs(folder: str) -> str:
    """What the repository that a folder is in has git run, in a few words; "" for nothing."""
    return next((named for root in _roots(folder) for named in _named(root, 0)), "")


def stays(part: Part, script: Script) -> bool:
    """Whether it is known where the part runs. git also runs what the configuration of the folder
    it is in tells it to, so it must be the project's."""
    if part.name == "cd":
        return opens(part, script)
    return part.name != "git" or not any(each.name == "cd" for each in script.parts)


def opens(part: Part, script: Script) -> bool:
    """Whether the part is a `cd` that the whole command starts with."""
    return part.name == "cd" and part is script.parts[0] and script.text.lstrip().startswith("cd ")


def tracked(folder: str) -> list[str] | None:
    """The absolute paths that the repository which a folder is in has in its index; None when they
    cannot be told."""
    try:
        return [f"{root}/{path}" for root in _roots(folder) for path in _listed(root)]
    except _UNREADABLE:
        return None


def top(folder: str) -> str:
    """The folder that the paths in commits count from; the given one outside of a repository."""
    return str(next(iter(_roots(folder)), folder))


def _roots(folder: str) -> list[Path]:
    """The folders of the repository that a folder is in: as the path is written, and where it
    really is when links lead into another one."""
    found = [root for root in (_root(folder), _root(os.path.realpath(folder))) if root]
    same = len({os.path.realpath(root) for root in found}) == 1
    return found[:1] if same else found


def _root(folder: str) -> Path | None:
    ways = (place / ".git" for place in (Path(folder), *Path(folder).parents))
    return next((git.parent for git in ways if _counts(git)), None)


def _counts(git: Path) -> bool:
    """Whether git stops at it. From a folder without HEAD it goes on upward."""
    return os.path.lexists(git / "HEAD" if git.is_dir() else git)


def _listed(root: Path) -> Iterator[str]:
    """The paths in a repository's index."""
    own = _folder(root)
    if any(key == "objectformat" for _, key, _ in _settings(root)):
        raise ValueError("its index is of another kind")
    for index in (own / "index", *own.glob("sharedindex.*")):
        yield from (path for _, path in _entries(_bytes(index)))


def _named(root: Path, depth: int) -> Iterator[str]:
    try:
        yield from _named_in(root, depth)
    except _UNREADABLE:
        yield f"{root}/.git, which cannot be read"


def _named_in(root: Path, depth: int) -> Iterator[str]:
    folder, common = _folder(root), _common(root)
    hooks, hashes = [common / "hooks"], "sha1"
    for file, key, value in _settings(root):
        if key == "hookspath":
            hooks.append(root / os.path.expanduser(value.strip('"')))  # noqa: PTH111
        elif key == "worktree":
            if os.path.realpath(folder / value.strip('"')) != os.path.realpath(root):
                yield f"the work tree {value}"
        elif key == "objectformat":
            hashes = value
        elif not _LARGE_FILES.fullmatch(value):
            yield f"`{key} = {value[:60]}` in {file}"
    for each in hooks:
        if os.access(each / "post-index-change", os.X_OK):
            yield "the hook post-index-change"
    # A split index has its entries in a second file.
    indexes = (folder / "index", *folder.glob("sharedindex.*"))
    for path in (path for index in indexes for path in _inside(index, hashes)):
        if os.path.lexists(root / path / ".git"):
            if depth == _DEEPEST:
                raise ValueError(path)
            yield from _named(root / path, depth + 1)


def _settings(root: Path) -> Iterator[tuple[str, str, str]]:
    """The file, the key and the value of each setting that matters."""
    for file in (_common(root) / "config", _folder(root) / "config.worktree"):
        for key, value in _KEY.findall(_read(file).removeprefix("\ufeff")):
            yield file.name, key.lower(), value.strip()


def _common(root: Path) -> Path:
    """What the repository shares with its other work trees."""
    return _shared(_folder(root))


def _folder(root: Path) -> Path:
    """The folder that `.git` is, or that it names."""
    git = root / ".git"
    if not git.is_dir():
        named = _line(git)
        if not named.startswith("gitdir: "):
            raise ValueError("it names no folder")
        git = root / named.removeprefix("gitdir: ")
    head, shared = git / "HEAD", _shared(git)
    whole = all(os.access(shared / name, os.X_OK) for name in ("objects", "refs"))
    # Nor does git stop at one that is not whole: it goes on to another.
    if not whole or head.is_symlink() or not _HEAD.match(_read(head)):
        raise ValueError("it is no repository")
    return git


def _shared(folder: Path) -> Path:
    return folder / _line(folder / "commondir")


def _line(path: Path) -> str:
    """The one line of a file, which git takes with every space in it."""
    text = _read(path).rstrip("\r\n")
    if "\0" in text:
        raise ValueError("it names no folder")
    return text


def _read(path: Path) -> str:
    """A regular file's text; "" where there is none."""
    if not path.is_file():
        return ""
    if path.stat().st_size > LARGEST:
        raise ValueError("it is too large")
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _inside(index: Path, hashes: str) -> Iterator[str]:
    """The paths of the repositories that an index has inside of this one."""
    data = _bytes(index)
    if _GITLINK not in data and _SPARSE not in data:
        return
    if hashes != "sha1":
        raise ValueError("its index is of another kind")
    for mode, path in _entries(data):
        if mode == _GITLINK:
            if not path:
                raise ValueError("its index names them elsewhere")
            yield path


def _bytes(index: Path) -> bytes:
    """What is in an index; nothing where there is none."""
    if not index.is_file():
        return b""
    if index.stat().st_size > LARGEST:
        raise ValueError("it is too large")
    return index.read_bytes()


def _entries(data: bytes) -> Iterator[tuple[bytes, str]]:
    """The mode and the path of each entry of an index, as SHA-1 repositories have it."""
    if not data:
        return
    version, count = struct.unpack(">II", data[4:12])
    if version not in (2, 3) or _SPARSE in data:
        raise ValueError("its index is of another kind")
    place = 12
    for _ in range(count):
        extended = version == 3 and data[place + 60] & 0x40
        name = place + (64 if extended else 62)
        end = data.index(b"\0", name)
        yield data[place + 24 : place + 28], os.fsdecode(data[name:end])
        place += (end - place + 8) & ~7
