"""Objects that the store borrows from the project's repository, made its own. What is reachable
from the repository's HEAD may stay borrowed; anything else (staged, stashed, of a commit thrown
away) may be gone at its next clean-up, and a snapshot must not go with it."""

import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from .store import GitFailed, Store

NOTHING = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the tree without a file, known to every git
AT_ONCE = 32 << 20  # bytes of objects in memory


def own(store: Store, tree: str, commit: str) -> None:
    """Copy what `tree` holds and the tree of `commit` ("" for none) does not, as far as it is still
    there. Raises GitFailed."""
    try:
        names = _new(store, tree, commit or NOTHING)
    except GitFailed:  # a commit that cannot be read lends nothing that is sure to stay
        names = _new(store, tree, NOTHING)
    _copy(store, sorted(name for name in names if not _place(store, name).exists()))


def _new(store: Store, tree: str, base: str) -> set[str]:
    """The objects of a tree, itself among them, that are not at the same place in `base`."""
    words = store.names("diff-tree", "-r", "-t", "-z", "--raw", "--no-renames", base, tree)
    rows = (word.split()[3] for word in words[::2])
    return {tree, *(name for name in rows if name.strip("0"))}


def _copy(store: Store, names: Iterable[str]) -> None:
    for some in _portions(store, list(names)):
        said = store.run("cat-file", "--batch", given=_lines(some))
        at = 0
        while at < len(said):
            end = said.index(b"\n", at)
            name, kind, *size = said[at:end].split()
            at = end + 1
            if size:
                _write(store, name.decode(), kind, said[at : at + int(size[0])])
                at += int(size[0]) + 1


def _portions(store: Store, names: list[str]) -> Iterator[list[str]]:
    """The objects that are there, so many at a time that memory holds them."""
    some: list[str] = []
    total = 0
    said = store.run("cat-file", "--batch-check", given=_lines(names)) if names else b""
    for line in said.decode().splitlines():
        name, _, *size = line.split()
        if not size:
            continue
        if some and total + int(size[0]) > AT_ONCE:
            yield some
            some, total = [], 0
        some.append(name)
        total += int(size[0])
    if some:
        yield some


def _write(store: Store, name: str, kind: bytes, data: bytes) -> None:
    """Put an object into the store, as git does it, unless it is not what its name says."""
    whole = b"%b %d\0%b" % (kind, len(data), data)
    if hashlib.sha1(whole, usedforsecurity=False).hexdigest() != name:
        return
    place = _place(store, name)
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=place.parent, prefix="tmp_obj_")
        with os.fdopen(descriptor, "wb") as file:
            file.write(zlib.compress(whole, 1))
        Path(part).replace(place)
    except OSError as error:
        raise GitFailed(f"{place}: {error.strerror}") from error


def _place(store: Store, name: str) -> Path:
    return store.folder / "objects" / name[:2] / name[2:]


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
