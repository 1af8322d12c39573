"""Staging: update the index of a store from the files of a work tree, or a few files of a git tree.

Git lists the files that differ from the index. This module selects the files to stage: those not
ignored, and ignored ones that the project's repository tracks. Large files, unreadable files and
names that git refuses are only watched by signature. Other repositories inside are skipped.

Replacing a few files gives the same tree as `git write-tree` on a whole index, but only the folders
of these files are rewritten. Git is started only to read folders that are not cached.
"""

import os
import shutil
import stat
import time
from collections.abc import Collection, Container, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import field
from math import inf
from typing import NamedTuple

from ..lazy import dataclass, regex
from .diff import MAX_CONTENT_BYTES, FileSignature, read_signature
from .garbage import PUBLISHED, protect_trees
from .left_out import LeftOut
from .object_store import EMPTY_TREE, GIT_TIMEOUT_S, GitFailed, ObjectStore, Repository, object_name

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


MAX_FILES = 200_000  # new files copied by one scan; in the first scan, untracked files
MAX_BYTES = 1 << 30
MAX_FOLDER_FILES = 200_000  # the same for a folder without a repository
MAX_FOLDER_BYTES = 1 << 30
MAX_WATCHED_FILES = 20_000  # files watched only by signature
MIN_FREE_BYTES = 1 << 30  # disk space that the store leaves free
BATCH_FILES = 10_000  # staged by one command
# The first staging of a work tree stops after this time, and the next scan continues it.
FIRST_STAGING_S = 20.0

_LISTING_TIMEOUT_S = 5  # for a folder that may be anything
_UNREADABLE_RULES = "warning: unable to access "
_UNREADABLE = regex(r"warning: could not open directory '(.+)': [^']+")


@dataclass(slots=True)
class StagingArea:
    """The files in the index of a store, and the tree made from them."""

    store: ObjectStore
    repository: Repository | None
    tree: str = ""  # the newest tree, "" before the first
    limits: str = ""  # the files that are not kept, with the reason
    whole: bool = True  # False permanently once nothing can be kept
    pending: int = 0  # files left by the first staging; there is no tree until it is 0
    taken: int = 0  # bytes staged since the last reset
    _not_taken: frozenset[str] = frozenset()  # existing files that the newest `update` left out
    _listed: tuple[int, int] | None = None  # stamp of the project's index when it was last read
    _behind: bool = False  # `tree` was made by `update_few`, and the index is older
    _trees: TreeEditor = field(init=False)

    def __post_init__(self) -> None:
        self._trees = TreeEditor(self.store)

    def update(self) -> dict[str, FileSignature]:
        """Update `tree` from the files, and return the signatures of files that are only watched.
        Raises GitFailed.
        """
        first = not self.tree
        asked = ("ls-files", "-tzomd", "--exclude-standard", *self._excludes())
        seconds = GIT_TIMEOUT_S if self.repository else _LISTING_TIMEOUT_S
        rows = self.store.names(*asked, seconds=seconds)
        kept = {row[2:] for row in rows if row[:1] != "?"}
        fresh = {row[2:] for row in rows if row[:1] == "?" and not row.endswith("/")}
        fresh |= self._unlisted()
        found = _sort(self.store.root, kept, fresh)
        self.limits = self._too_much(found, self.listed() if first else set())
        if self.limits and first:
            self.whole = False
            return {}
        if self.limits:
            found.leave_out(self.store.root, fresh)
        self.limits = "; ".join(filter(None, (self.limits, found.complaint())))
        repositories = {row[2:] for row in rows if row[:1] == "?" and row.endswith("/")}
        self._not_taken = frozenset(found.not_taken | repositories)
        if found.gone:
            given = _nul(found.gone)
            self.store.run("update-index", "-z", "--force-remove", "--stdin", given=given)
        self.pending = self._stage(sorted(found.taken), FIRST_STAGING_S if first else inf)
        self.taken += found.size
        if self.pending:
            self.limits = (
                f"the first scan below {self.store.root} has {self.pending:,} files left "
                "and continues with the next command"
            )
        elif first or self._behind or found.gone or found.taken:
            self.tree, self._behind = self._write_tree(), False
        if first:  # let later sessions start from this index
            self.store.publish()
            tree = self.tree or self._write_tree()
            protect_trees(self.store, PUBLISHED, [tree], by=self.store.session)
        return found.stats

    def _stage(self, names: Sequence[str], seconds: float) -> int:
        """Stage files until the time is over, and return the number of files left."""
        until = time.monotonic() + seconds
        for start in range(0, len(names), BATCH_FILES):
            if start and time.monotonic() >= until:
                return len(names) - start
            stage_files(self.store, names[start : start + BATCH_FILES])
        return 0

    def _write_tree(self) -> str:
        return self.store.run("write-tree").decode().strip()

    def update_few(self, names: Set[str], watched: Container[str]) -> bool:
        """Update `tree` from these files alone. The index stays unchanged until the next `update`.

        Return False and do nothing if a full `update` is needed, i.e. for any change other than a
        plain file that was created, deleted or edited. `watched` are the paths of watch-only files.
        Raises GitFailed.
        """
        folders = {folder for name in names for folder in folders_above(name)}
        listings = self._trees.listings(self.tree, folders)
        known = {name: _listed_in(listings, name) for name in names}
        sizes = _plain_sizes(self.store.root, known, watched)
        if sizes is None or sum(sizes.values()) > MAX_CONTENT_BYTES:
            return False
        taken = {name for name in sizes if known[name]}
        taken |= self._not_ignored(sizes.keys() - taken)
        files: dict[str, TreeEntry | None] = dict.fromkeys(names - sizes.keys())
        try:
            for name in taken:
                files[name] = self._trees.store_file(f"{self.store.root}/{name}", known[name])
        except OSError:  # deleted meanwhile
            return False
        self.tree, self._behind = self._trees.replace_files(self.tree, files), True
        self.taken += sum(sizes.values())
        return True

    def files_in(self, tree: str, names: Set[str]) -> set[str]:
        """Return the names at which a tree has a file. Raises GitFailed."""
        folders = {folder for name in names for folder in folders_above(name)}
        listings = self._trees.listings(tree, folders)
        return {name for name in names if (found := _listed_in(listings, name)) and found.is_file}

    def _not_ignored(self, names: Set[str]) -> Set[str]:
        """Return the files that are not ignored or are in the index anyway."""
        if not names:
            return names
        asked = ("ls-files", "-zco", "--exclude-standard", *self._excludes(), "--", *names)
        return names & set(self.store.names(*asked))

    def forget(self) -> None:
        """Start again from an empty index, because its objects may be missing."""
        self.tree, self._listed, self.pending = "", None, 0
        self.store.forget()

    def listed(self) -> set[str]:
        """Return the files in the index of the project's repository."""
        if self.repository is None or file_stamp(self.repository.index) is None:
            return set()
        try:
            rows = self.store.names("ls-files", "-sz", index=self.repository.index)
        except GitFailed:  # the index needs its repository's settings, e.g. a split index
            return set()
        return {row.partition("\t")[2] for row in rows if not row.startswith("160000")}

    def ignored(self) -> set[str]:
        """Return the files in the tree that are ignored and not tracked by the project."""
        more = self._excludes()
        rows = self.store.names("ls-files", "-zci", "--exclude-standard", *more)
        return set(rows) - self.listed()

    def left_out(self) -> LeftOut:
        """Return the existing files that are not in the tree, which must be up to date. Raises
        GitFailed.
        """
        asked = ("ls-files", "-zoi", "--exclude-standard", "--directory", *self._excludes())
        said, complaints = self.store.run_with_warnings(*asked)
        unreadable = _unreadable_folders(complaints)
        names = _whole_folders(sorted(os.fsdecode(name) for name in said.split(b"\0") if name))
        return LeftOut.of({*names, *unreadable, *self._not_taken})

    def ignored_names(self, names: Collection[str]) -> set[str]:
        """Return the names that are ignored, whether or not the files exist."""
        if not names:
            return set()
        found: list[bytes] = []
        with suppress(GitFailed):  # git fails if nothing is ignored
            asked = ("check-ignore", "-z", "--no-index", "--stdin")
            given = _nul(f"./{name}" for name in names)
            found = self.store.run(*asked, given=given, literal=False).split(b"\0")
        return {os.fsdecode(name).removeprefix("./") for name in found if name}

    def ignored_folders(self) -> list[str]:
        """Return the ignored folders that contain no file of the tree."""
        more = self._excludes()
        asked = ("ls-files", "-zoi", "--exclude-standard", "--directory", *more)
        found: list[str] = []
        with suppress(GitFailed):
            found = sorted(self.store.names(*asked))
        return [name for name in _whole_folders(found) if name.endswith("/")]

    def _excludes(self) -> list[str]:
        path = self.repository.excludes if self.repository else ""
        return [f"--exclude-from={path}"] if path and os.access(path, os.R_OK) else []

    def _unlisted(self) -> set[str]:
        """Return ignored files that the project's repository tracks and the store does not
        contain.
        """
        stamp = file_stamp(self.repository.index) if self.repository else None
        if stamp == self._listed:
            return set()
        self._listed = stamp
        return self.listed() - set(self.store.names("ls-files", "-z"))

    def _too_much(self, found: "_SortedFiles", tracked: Set[str]) -> str:
        """Return the reason why there is too much to copy, or "". Tracked files do not count,
        because git has their content.
        """
        files, size = MAX_FILES, MAX_BYTES
        if self.repository is None:
            files, size = MAX_FOLDER_FILES, MAX_FOLDER_BYTES
        sizes = [found.sizes[name] for name in found.taken - tracked]
        what = f"{len(sizes):,} files with {sum(sizes) >> 20:,} MB are new"
        if len(sizes) > files or sum(sizes) > size:
            most = f"at most {files:,} with {size >> 20:,} MB are kept"
            return f"there is too much below {self.store.root}: {what}, {most}"
        free = shutil.disk_usage(self.store.folder).free
        if sum(sizes) > MAX_CONTENT_BYTES and free - sum(sizes) < MIN_FREE_BYTES:
            return f"the disk is too full: {what}, {free >> 20:,} MB are free"
        return ""


def _whole_folders(found: Sequence[str]) -> list[str]:
    """Remove folders that are only partly ignored from sorted names of ignored files and folders.
    For these, git lists both the folder and its ignored files.
    """
    return [
        name
        for place, name in enumerate(found, 1)
        if not (name.endswith("/") and "".join(found[place : place + 1]).startswith(name))
    ]


def _unreadable_folders(complaints: bytes) -> list[str]:
    """Return the folders that git could not read. Raises GitFailed for any other warning."""
    found = []
    for line in os.fsdecode(complaints).split("\n"):
        match = _UNREADABLE.fullmatch(line)
        if not line or line.startswith(_UNREADABLE_RULES):
            continue
        if match is None:
            raise GitFailed(line[:300])
        found.append(match[1].rstrip("/") + "/")
    return found


def _listed_in(listings: Mapping[str, TreeListing], name: str) -> TreeEntry | None:
    folder, _, last = name.rpartition("/")
    return listings[folder].get(last)


def _plain_sizes(
    root: str, known: Mapping[str, TreeEntry | None], watched: Container[str]
) -> dict[str, int] | None:
    """Return the sizes of the existing files. Return None if any is not a plain file or link, has
    several names, or is or was of a kind that is not staged.
    """
    sizes, real = {}, {"": True}
    for name, entry in known.items():
        path = f"{root}/{name}"
        if path in watched or (entry and not entry.is_file):
            return None
        try:
            found = os.lstat(path)
        except (OSError, ValueError):
            continue
        link = stat.S_ISLNK(found.st_mode)
        plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and os.access(path, os.R_OK)
        if not (link or plain) or _is_refused(name, link=link):
            return None
        if not is_real(root, name.rpartition("/")[0], real):
            return None
        sizes[name] = found.st_size
    return sizes


def stage_files(store: ObjectStore, names: Iterable[str]) -> None:
    """Add files to the index in their current state. Raises GitFailed, and then adds none."""
    given = _nul(names)
    store.run("update-index", "-z", "--add", "--remove", "--replace", "--stdin", given=given)


@dataclass(slots=True)
class _SortedFiles:
    """Changed files, sorted by what to do with them."""

    taken: set[str] = field(default_factory=set)  # files to stage
    gone: set[str] = field(default_factory=set)  # files to remove from the tree
    stats: dict[str, FileSignature] = field(default_factory=dict)  # of files only watched
    refused: list[str] = field(default_factory=list)  # files whose names git refuses
    not_taken: set[str] = field(default_factory=set)  # existing files that are left out
    sizes: dict[str, int] = field(default_factory=dict)  # in bytes, of the files to stage

    @property
    def size(self) -> int:
        """Total bytes of the files to stage."""
        return sum(self.sizes[name] for name in self.taken)

    def complaint(self) -> str:
        """Return a warning about names that git refuses, or ""."""
        if not self.refused:
            return ""
        more = f" and {len(self.refused) - 1:,} more" if len(self.refused) > 1 else ""
        return f"git refuses the name of {min(self.refused)}{more}"

    def watch(self, root: str, name: str) -> None:
        path = f"{root}/{name}"
        if len(self.stats) < MAX_WATCHED_FILES and (found := read_signature(path)):
            self.stats[path] = found

    def leave_out(self, root: str, names: Iterable[str]) -> None:
        """Watch these files and do not stage them."""
        for name in sorted(self.taken & set(names)):
            self.taken.discard(name)
            self.not_taken.add(name)
            self.watch(root, name)


def _sort(root: str, kept: set[str], fresh: set[str]) -> _SortedFiles:
    """Sort the files that differ from the index (`kept`) or are not in it (`fresh`)."""
    out, real = _SortedFiles(), {"": True}
    for name in kept | fresh:
        path = f"{root}/{name}"
        mode, size, absent = 0, 0, False
        try:
            found = os.lstat(path)
            mode, size = found.st_mode, found.st_size
        except (FileNotFoundError, NotADirectoryError):
            absent = True
        except (OSError, ValueError):  # the file may exist
            pass
        regular = stat.S_ISREG(mode)
        there = regular or stat.S_ISLNK(mode)
        too_much = regular and (size > MAX_CONTENT_BYTES or not os.access(path, os.R_OK))
        refused = there and _is_refused(name, link=not regular)
        if there and not (too_much or refused) and is_real(root, name.rpartition("/")[0], real):
            out.taken.add(name)
            out.sizes[name] = size
            continue
        if not (absent or stat.S_ISDIR(mode)):
            out.not_taken.add(name)
        if name in kept:
            out.gone.add(name)
        if refused:
            out.refused.append(name)
        if there and (too_much or refused):
            out.watch(root, name)
    return out


def _is_refused(name: str, *, link: bool) -> bool:
    """Return True if git refuses the name because some systems would confuse it with git's own
    files.
    """
    pieces = name.lower().split("/")
    return ".git" in pieces or (link and ".gitmodules" in pieces)


def is_real(root: str, folder: str, known: dict[str, bool]) -> bool:
    """Return True if the path to a folder below the root contains no link; `known` is a cache."""
    if folder not in known:
        above = is_real(root, folder.rpartition("/")[0], known)
        known[folder] = above and not os.path.islink(f"{root}/{folder}")  # noqa: PTH114
    return known[folder]


def is_in_repository(root: str, name: str) -> bool:
    """Return True if a path below the root is in `.git` or in another repository."""
    if ".git" in name.split("/"):
        return True
    return any(os.path.lexists(f"{root}/{folder}/.git") for folder in folders_above(name))


def file_stamp(path: str) -> tuple[int, int] | None:
    """Return (mtime in ns, size), which changes when a file is rewritten, or None for a missing
    file.
    """
    with suppress(OSError):
        found = os.lstat(path)
        return found.st_mtime_ns, found.st_size
    return None


def _nul(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)
