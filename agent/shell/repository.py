"""What git would run, or read elsewhere, because a repository's own files say so. A command that
only looks (`git status`) is no more than that where they name nothing: a configuration comes with
a folder that somebody packed, and names filters, differs and hooks."""

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

LARGEST = 64 << 20  # bytes of an index
_DEEPEST = 3  # repositories in repositories
_GITLINK = b"\0\0\xe0\0"  # the mode of a repository inside, in an index
_KEY = re.compile(
    r"^\s*(?:\[.*\]\s*)?(external|command|textconv|clean|smudge|process|program|promisor"
    r"|partialclone|path|hookspath|worktree|alternaterefscommand)\s*=\s*(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_LARGE_FILES = re.compile(r'"?git-lfs (?:clean|smudge|filter-process)[\w %.-]*"?\s*')


def runs(folder: str) -> str:
    """What the repository that a folder is in has git run, in a few words; "" for nothing."""
    for place in (Path(folder), *Path(folder).parents):
        if os.path.lexists(place / ".git"):
            return next(_named(place, 0), "")
    return ""


def _named(root: Path, depth: int) -> Iterator[str]:
    try:
        yield from _named_in(root, depth)
    except (OSError, ValueError, struct.error):
        yield f"{root}/.git, which cannot be read"


def _named_in(root: Path, depth: int) -> Iterator[str]:
    folder = _folder(root)
    shared = _read(folder / "commondir").strip()
    common = folder / shared if shared else folder
    hooks = [common / "hooks"]
    for file in (common / "config", folder / "config.worktree"):
        for key, value in _KEY.findall(_read(file)):
            if key.lower() == "hookspath":
                hooks.append(root / os.path.expanduser(value.strip().strip('"')))  # noqa: PTH111
            elif key.lower() == "worktree":
                if os.path.realpath(folder / value.strip().strip('"')) != os.path.realpath(root):
                    yield f"the work tree {value.strip()}"
            elif not _LARGE_FILES.fullmatch(value):
                yield f"`{key} = {value.strip()[:60]}` in {file.name}"
    for each in hooks:
        if os.access(each / "post-index-change", os.X_OK):
            yield "the hook post-index-change"
    for path in _inside(folder / "index"):
        if os.path.lexists(root / path / ".git"):
            if depth == _DEEPEST:
                raise ValueError(path)
            yield from _named(root / path, depth + 1)


def _folder(root: Path) -> Path:
    """The folder that `.git` is, or that it names."""
    git = root / ".git"
    if git.is_dir():
        return git
    named = _read(git).partition("gitdir:")[2].strip()
    if not named:
        raise ValueError("it names no folder")
    return root / named


def _read(path: Path) -> str:
    """A regular file's text; "" where there is none."""
    if not path.is_file():
        return ""
    if path.stat().st_size > LARGEST:
        raise ValueError("it is too large")
    return path.read_bytes().decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def _inside(index: Path) -> Iterator[str]:
    """The paths of the repositories that an index has inside of this one."""
    if not index.is_file():
        return
    if index.stat().st_size > LARGEST:
        raise ValueError("it is too large")
    data = index.read_bytes()
    if _GITLINK not in data:
        return
    version, count = struct.unpack(">II", data[4:12])
    if version not in (2, 3):
        raise ValueError("its index is of another kind")
    place = 12
    for _ in range(count):
        extended = version == 3 and data[place + 60] & 0x40
        name = place + (64 if extended else 62)
        end = data.index(b"\0", name)
        if data[place + 24 : place + 28] == _GITLINK:
            yield os.fsdecode(data[name:end])
        place += (end - place + 8) & ~7
