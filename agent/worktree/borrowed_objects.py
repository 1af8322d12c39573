"""Copy objects that the store borrows from the project's repository into the store.

Objects reachable from the repository's HEAD may stay borrowed. Others (staged, stashed, or of a
deleted commit) may disappear at the repository's next garbage collection, and snapshots need them.
"""

from collections.abc import Iterable, Iterator

from .object_store import GitFailed, ObjectStore

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the empty tree, built into git
MAX_BATCH_BYTES = 32 << 20  # of objects in memory


def copy_borrowed_objects(store: ObjectStore, tree: str, commit: str) -> None:
    """Copy the existing objects of `tree` that are not in the tree of `commit` ("" for no commit).
    Raises GitFailed.
    """
    try:
        names = _missing_from(store, tree, commit or EMPTY_TREE)
    except GitFailed:  # an unreadable commit may lack any object, so copy all
        names = _missing_from(store, tree, EMPTY_TREE)
    _copy(store, sorted(name for name in names if not store.place(name).exists()))


def _missing_from(store: ObjectStore, tree: str, base: str) -> set[str]:
    """Return the objects of a tree, including the tree itself, that differ from those at the same
    paths in `base`.
    """
    words = store.names("diff-tree", "-r", "-t", "-z", "--raw", "--no-renames", base, tree)
    rows = (word.split()[3] for word in words[::2])
    return {tree, *(name for name in rows if name.strip("0"))}


def _copy(store: ObjectStore, names: Iterable[str]) -> None:
    for some in _portions(store, list(names)):
        for _, kind, data in store.read_objects(some):
            store.write_object(kind, data)


def _portions(store: ObjectStore, names: list[str]) -> Iterator[list[str]]:
    """Yield the names of existing objects in lists of at most MAX_BATCH_BYTES, or a single larger
    object.
    """
    some: list[str] = []
    total = 0
    said = store.run("cat-file", "--batch-check", given=_lines(names)) if names else b""
    for line in said.decode().splitlines():
        name, _, *size = line.split()
        if not size:
            continue
        if some and total + int(size[0]) > MAX_BATCH_BYTES:
            yield some
            some, total = [], 0
        some.append(name)
        total += int(size[0])
    if some:
        yield some


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
