"""Replace a few files in a git tree. The result is the same as `git write-tree` on a whole index,
but only the folders of these files are rewritten. Git is started only to read folders that are not
cached.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from .borrowed_objects import EMPTY_TREE
from .object_store import GitFailed, ObjectStore, object_name
from .signatures import MAX_CONTENT_BYTES

MAX_KNOWN = 20_000  # cached entries of all folders
_FOLDER = "40000"
_LINK, _FILE, _PROGRAM = "120000", "100644", "100755"
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TreeEntry(NamedTuple):
    """The entry of a name in a tree."""

    mode: str  # as git writes it
    object: str

    @property
    def is_file(self) -> bool:
        """Whether the entry is a file or a link."""
        return self.mode in (_LINK, _FILE, _PROGRAM)


TreeListing = Mapping[str, TreeEntry]  # entries of one folder, by name


class TreeEditor:
    """Reads and creates trees in a store. Every method raises GitFailed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[str, TreeListing] = {EMPTY_TREE: {}}  # listings by tree name

    def listings(self, tree: str, folders: Iterable[str]) -> dict[str, TreeListing]:
        """Return a tree's listings of these folders and of its top folder "". `folders` must
        include all parent folders. A folder missing in the tree has an empty listing.
        """
        wanted = sorted({"", *folders})  # the outer ones first
        with suppress(KeyError):
            return self._found(tree, wanted)
        if sum(map(len, self._known.values())) > MAX_KNOWN:
            self._known = {EMPTY_TREE: {}}
        asked = [f"{tree}:{folder}" for folder in wanted if "\n" not in folder]
        for name, kind, data in self._store.read_objects(asked):
            if kind == b"tree":
                self._known[name] = _parse(data)
        try:
            return self._found(tree, wanted)
        except KeyError as error:
            raise GitFailed(f"the tree {error.args[0]} cannot be read") from error

    def replace_files(self, tree: str, files: Mapping[str, TreeEntry | None]) -> str:
        """Store a copy of a tree with these files replaced (None removes a file), and return its
        name.
        """
        folders = {folder for name in files for folder in folders_above(name)}
        listings = {path: dict(found) for path, found in self.listings(tree, folders).items()}
        before = {path: dict(found) for path, found in listings.items()}
        for name, entry in files.items():
            _put(listings, name, entry)
        if listings == before:
            return tree
        for folder in sorted(listings, reverse=True):  # the inner ones first
            if folder:
                inner = listings[folder]
                _put(listings, folder, TreeEntry(_FOLDER, self._write(inner)) if inner else None)
        return self._write(listings[""])

    def store_file(self, path: str, known: TreeEntry | None) -> TreeEntry:
        """Store the current content of a file or link unless it is the same as `known`, and return
        its entry. Also raises OSError.
        """
        with suppress(OSError):  # not a link
            return self._entry(_LINK, os.fsencode(os.readlink(path)), known)  # noqa: PTH115
        with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise GitFailed(f"{path} is no file any more")
            data = file.read(MAX_CONTENT_BYTES + 1)
            if len(data) > MAX_CONTENT_BYTES:
                raise GitFailed(f"{path} grows")
            return self._entry(_PROGRAM if mode & stat.S_IXUSR else _FILE, data, known)

    def _entry(self, mode: str, data: bytes, known: TreeEntry | None) -> TreeEntry:
        entry = TreeEntry(mode, object_name(b"blob", data))
        if known is None or known.object != entry.object:
            self._store.write_object(b"blob", data)
        return entry

    def _found(self, tree: str, folders: Iterable[str]) -> dict[str, TreeListing]:
        """Return the cached listings. Raises KeyError for a folder that is not cached."""
        found: dict[str, TreeListing] = {}
        for folder in folders:
            if not folder:
                found[""] = self._known[tree]
                continue
            above, _, name = folder.rpartition("/")
            entry = found[above].get(name, TreeEntry(_FOLDER, EMPTY_TREE))
            if entry.mode != _FOLDER:
                raise GitFailed(f"{folder} is no folder in {tree}")
            found[folder] = self._known[entry.object]
        return found

    def _write(self, listing: TreeListing) -> str:
        name = self._store.write_object(b"tree", _serialized(listing))
        self._known[name] = dict(listing)
        return name


def folders_above(name: str) -> list[str]:
    """Return the folders below the root that contain a path, outermost first."""
    return [name[:at] for at, character in enumerate(name) if character == "/"]


def _put(listings: Mapping[str, dict[str, TreeEntry]], path: str, entry: TreeEntry | None) -> None:
    folder, _, name = path.rpartition("/")
    if entry:
        listings[folder][name] = entry
    else:
        listings[folder].pop(name, None)


def _serialized(listing: TreeListing) -> bytes:
    """Return the content of a tree object. Git sorts folders as if their names ended with a
    slash.
    """
    rows = sorted(
        (os.fsencode(name) + (b"/" if entry.mode == _FOLDER else b""), name, entry)
        for name, entry in listing.items()
    )
    return b"".join(
        b"%b %b\0%b" % (entry.mode.encode(), os.fsencode(name), bytes.fromhex(entry.object))
        for _, name, entry in rows
    )


def _parse(data: bytes) -> dict[str, TreeEntry]:
    found, at = {}, 0
    while at < len(data):
        end = data.index(b"\0", at)
        mode, _, name = data[at:end].partition(b" ")
        found[os.fsdecode(name)] = TreeEntry(mode.decode(), data[end + 1 : end + 21].hex())
        at = end + 21
    return found
