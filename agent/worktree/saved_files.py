"""Saved files: copies of single files, made before a call changes them, and permissions of files.

A snapshot needs a scan of the whole work tree, which can be too large or impossible. Saved files
need no scan, no git and no repository. They cover ignored files, large files and files outside the
project. The contents are in the store of the project's snapshots, in a folder of the session, each
under its git blob name. A copy of the session has hard links to them.

Every small content is kept as long as the session. Of a large file, which has no diff, only the
newest versions are kept.

A git tree records only whether the owner can execute a file. So the permissions are stored in the
message of a commit of the tree. One name then identifies both, and git accepts it in place of a
tree. The commit's parent, if any, records the files that were left out (see `left_out`). File
owners and access control lists are not saved.
"""

import difflib
import hashlib
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from math import inf
from pathlib import Path
from typing import Any

from ...tools.project_encodings import text_of
from ...tools.system.files import (
    edit_file,
    make_private_folder,
    open_kept,
    replace_file,
    replacing,
)
from ...tools.text import NotText
from ..errors import RecordError
from ..lazy import dataclass, regex
from .diff import TreeChange, blob_digest
from .left_out import LeftOut
from .object_store import GitFailed, ObjectStore

_COMMIT = (
    "tree {}\n{}author ctxagent <ctxagent> 0 +0000\ncommitter ctxagent <ctxagent> 0 +0000\n\n{}\n"
)
_EXECUTABLE = "100755"
_LINK = "120000"
_KINDS = ("100644", _EXECUTABLE, _LINK)


@dataclass(frozen=True, slots=True)
class FileModes:
    """Permission bits: the usual ones, and the exceptions by path below the root."""

    file: int = 0o644  # usual bits of a file that is not executable
    program: int = 0o755  # usual bits of an executable file
    folder: int = 0o755
    files: Mapping[str, int] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)

    def of(self, path: str, kind: str) -> int:
        """Return the permissions of a file; `kind` is its mode in git."""
        return self.files.get(path, self.program if kind == _EXECUTABLE else self.file)

    def of_folder(self, path: str) -> int:
        return self.folders.get(path, self.folder)


def file_kinds(store: ObjectStore, tree: str = "", names: Sequence[str] = ()) -> dict[str, str]:
    """Return the files of a tree (default: the index) with their modes in git. With `names`, return
    only these files. Raises GitFailed.
    """
    asked = ("ls-tree", *(() if names else ("-r",)), "-z", tree, *(("--", *names) if names else ()))
    rows = store.names(*asked) if tree else store.names("ls-files", "-sz")
    parts = (row.partition("\t") for row in rows)
    return {path: said[:6] for said, _, path in parts if said.startswith(_KINDS)}


def read_modes(root: str, kinds: Mapping[str, str]) -> FileModes:
    """Return the permissions on disk of files and of the folders above them."""
    files = {path: mode for path in kinds if (mode := _mode(f"{root}/{path}", stat.S_ISREG)) >= 0}
    above = folders_of(kinds)
    folders = {path: mode for path in above if (mode := _mode(f"{root}/{path}", stat.S_ISDIR)) >= 0}
    file = _most((m for p, m in files.items() if kinds[p] != _EXECUTABLE), 0o644)
    program = _most((m for p, m in files.items() if kinds[p] == _EXECUTABLE), 0o755)
    folder = _most(folders.values(), 0o755)
    usual = FileModes(file, program, folder)
    return replace(
        usual,
        files={path: mode for path, mode in files.items() if mode != usual.of(path, kinds[path])},
        folders={path: mode for path, mode in folders.items() if mode != folder},
    )


def keep_modes(found: FileModes, old: Mapping[str, str], new: Mapping[str, str]) -> FileModes:
    """Return permissions for `new`, the files of a tree without recorded permissions. Existing
    files (`old`, with permissions `found`) keep their read and write bits, and git decides the
    execute bits. Other files get the usual permissions.
    """
    files = {}
    for path in new.keys() & old.keys():
        mode = found.of(path, old[path])
        if old[path] != new[path]:
            mode = (mode & ~0o111) | ((mode & 0o444) >> 2 if new[path] == _EXECUTABLE else 0)
        files[path] = mode
    folders = {path: found.of_folder(path) for path in folders_of(old)}
    return replace(found, files=files, folders=folders)


def apply_modes(root: str, kinds: Mapping[str, str], modes: FileModes) -> None:
    """Set the permissions of files and of the folders above them. Ignore those that cannot be
    set.
    """
    for path, kind in kinds.items():
        _set(f"{root}/{path}", modes.of(path, kind), stat.S_ISREG)
    for path in sorted(folders_of(kinds), reverse=True):  # the inner ones first
        _set(f"{root}/{path}", modes.of_folder(path), stat.S_ISDIR)


def store_with_modes(
    store: ObjectStore, tree: str, modes: FileModes, left_out: LeftOut | None = None
) -> str:
    """Store a tree with its permissions and, if given, the record of files left out. Return the
    name of the commit. Raises GitFailed.
    """
    said = asdict(modes)
    for name in ("files", "folders"):
        said[name] = dict(sorted(said[name].items()))
    parent = f"parent {left_out.store(store)}\n" if left_out is not None else ""
    given = _COMMIT.format(tree, parent, json.dumps(said)).encode("ascii")
    return store.run("hash-object", "-t", "commit", "-w", "--stdin", given=given).decode().strip()


def load_with_modes(store: ObjectStore, name: str) -> tuple[str, FileModes | None]:
    """Return the tree that a name refers to, and its permissions or None. Raises GitFailed."""
    found = next(store.read_objects([name]), None)
    if found is None or found[1] not in (b"tree", b"commit"):
        raise GitFailed(f"there is no tree {name}")
    object_name, kind, body = found
    if kind == b"tree":
        return object_name, None
    lines, _, message = body.partition(b"\n\n")
    tree = lines.split()[1].decode()
    try:
        data = json.loads(message)
        files, folders = (
            {path: int(mode) for path, mode in data[name].items()} for name in ("files", "folders")
        )
        file, program, folder = (int(data[name]) for name in ("file", "program", "folder"))
        return tree, FileModes(file, program, folder, files, folders)
    except (ValueError, KeyError, TypeError, AttributeError):
        return tree, None


def changed_modes(store: ObjectStore, old: str, new: str) -> list[str]:
    """Return the files whose permissions differ between two trees and whose git mode is the same.
    Return [] if a tree has no recorded permissions. Raises GitFailed.
    """
    if old == new:
        return []
    before, after = load_with_modes(store, old)[1], load_with_modes(store, new)[1]
    if before is None or after is None or before == after:
        return []
    were, are = file_kinds(store, old), file_kinds(store, new)
    return [
        path
        for path, kind in are.items()
        if were.get(path) == kind != _LINK and before.of(path, kind) != after.of(path, kind)
    ]


def folders_of(paths: Iterable[str]) -> set[str]:
    """Return all folders above these files."""
    found: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in found:
            found.add(path)
    return found


def _most(modes: Iterable[int], usual: int) -> int:
    common = Counter(modes).most_common(1)
    return common[0][0] if common else usual


def _mode(path: str, kind: Any) -> int:
    """Return the permissions of a path of this kind, or -1."""
    with suppress(OSError, ValueError):
        found = os.lstat(path).st_mode
        if kind(found):
            return stat.S_IMODE(found)
    return -1


def _set(path: str, mode: int, kind: Any) -> None:
    if _mode(path, kind) not in (-1, mode):
        with suppress(OSError):
            os.chmod(path, mode)  # noqa: PTH101 - no link, as `_mode` says


SAVED_FOLDER = "saved"
MAX_SAVED_BYTES = 256 << 20  # of one file; a larger file is reported as not saved
MAX_DIFF_BYTES = 100_000  # of a file in a diff
MAX_SMALL_BYTES = 1 << 20  # every version of a file up to this size is kept
KEPT_VERSIONS = 2  # of a larger file
_COPY_BYTES = 1 << 20
_BLOB = regex(r"[0-9a-f]{40}")
_ABSENT = ""
_DIGEST_CHARS = 16  # in the name of a folder of versions; a blob name is longer
_NO_ROOM = "the state directory has reached its limit, state.max_gb"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """The state of a file at one moment."""

    path: str  # absolute, with links followed up to the last component
    blob: str = _ABSENT  # git's blob name of the content, "" if there was no file
    mode: int = 0  # type and permissions as in lstat, 0 if there was no file
    above: str = ""  # for a missing file: the nearest existing folder above
    why: str = ""  # reason why the content was not saved, "" if it was

    @property
    def inferred(self) -> bool:
        """Whether the absence of the file was inferred later from its creation and not checked at
        the time.
        """
        return not (self.blob or self.mode or self.above or self.why)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON, without empty optional ones."""
        said = {"path": self.path, "blob": self.blob, "mode": self.mode}
        return {**said, **{k: v for k in ("above", "why") if (v := getattr(self, k))}}

    @classmethod
    def from_json(cls, row: Any) -> "SavedFile | None":
        """Parse a row of a log. Return None for a damaged row."""
        if not isinstance(row, dict):
            return None
        texts = {k: row.get(k, "") for k in ("path", "blob", "above", "why")}
        mode, sound = row.get("mode", 0), all(isinstance(text, str) for text in texts.values())
        if not (sound and isinstance(mode, int) and os.path.isabs(str(texts["path"]))):  # noqa: PTH117
            return None
        if texts["blob"] and not _BLOB.fullmatch(texts["blob"]):
            return None
        return cls(mode=mode, **texts)


@dataclass(slots=True)
class DiskRoom:
    """The bytes that a session may still add to the state directory, and those that it added."""

    left: float = inf
    added: int = 0

    def add(self, size: int) -> None:
        """Count added bytes, negative for removed ones."""
        self.left -= size
        self.added += size


@dataclass(slots=True)
class SavedFiles:
    """The contents saved by a session, in `folder`. All methods block."""

    folder: Path
    room: DiskRoom = field(default_factory=DiskRoom)

    def save(self, paths: Iterable[str], *, drop: bool = True) -> list[SavedFile]:
        """Save the current files at these paths. Never fails: a file that cannot be saved has the
        reason in `why`. Folders and special files are skipped. With `drop`, older versions of large
        files are dropped, and a large file without room is not saved.
        """
        return [found for path in paths if (found := self._save_one(path, drop=drop))]

    def has(self, file: SavedFile) -> bool:
        """Return True if the saved content is still there, or if there was no file."""
        return not file.blob or self._find(file) is not None

    def changes(self, files: Iterable[SavedFile]) -> list[TreeChange]:
        """Return the changes that restoring these files would make."""
        found = []
        for file in files:
            there, now = os.path.lexists(file.path), _state(file.path)
            if file.why or (now is None and not file.blob):  # a new folder stays
                continue
            if now != (file.blob, file.mode):
                action = "created" if not there else "modified" if file.blob else "deleted"
                found.append(TreeChange(file.path, action, blob=file.blob))  # type: ignore[arg-type]
        return found

    def diff(self, files: Iterable[SavedFile]) -> str:
        """Return a unified diff from the current files to the saved ones."""
        wanted = list(files)
        changed = {change.path for change in self.changes(wanted)}
        return "".join(self._one_diff(file) for file in wanted if file.path in changed)

    def check(self, files: Iterable[SavedFile]) -> None:
        """Raise RecordError if a file cannot be restored. Changes nothing."""
        for file in files:
            folder = os.path.dirname(file.path)  # noqa: PTH120
            if os.path.realpath(folder) != folder:
                raise RecordError(f"{file.path} is behind a symbolic link now: nothing was changed")
            if file.blob and _state(file.path) is None:
                raise RecordError(
                    f"{file.path} is not a file any more: nothing was changed",
                    hint="Move it elsewhere, then try again.",
                )
            if not file.why and not self.has(file):
                raise RecordError(f"the saved content of {file.path} is gone")

    def restore(self, files: Sequence[SavedFile]) -> list[TreeChange]:
        """Restore the files and return the changes. Raises RecordError if `check` fails, before any
        change, or if a file cannot be written.
        """
        self.check(files)
        changes = {change.path: change for change in self.changes(files)}
        for file in files:
            if file.path in changes:
                try:
                    self._put_back(file)
                except OSError as error:
                    raise RecordError(
                        f"{file.path} could not be restored: {error.strerror}"
                    ) from error
        return list(changes.values())

    def _save_one(self, path: str, *, drop: bool) -> SavedFile | None:
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return SavedFile(path, above=_nearest_folder(path))
        except (OSError, ValueError) as error:
            return SavedFile(path, why=str(getattr(error, "strerror", None) or error))
        try:
            if stat.S_ISLNK(found.st_mode):
                blob = self._keep_bytes(os.fsencode(os.readlink(path)), path)  # noqa: PTH115
            elif not stat.S_ISREG(found.st_mode):
                return None
            elif found.st_size > MAX_SAVED_BYTES:
                why = f"it has {found.st_size >> 20:,} MB, at most {MAX_SAVED_BYTES >> 20:,} MB"
                return SavedFile(path, mode=found.st_mode, why=f"{why} are saved")
            elif found.st_size <= MAX_SMALL_BYTES:
                blob = self._keep_file(path, self.folder)
            elif not (blob := self._keep_version(path, found.st_size, drop=drop)):
                return SavedFile(path, mode=found.st_mode, why=_NO_ROOM)
        except OSError as error:
            return SavedFile(path, mode=found.st_mode, why=str(error.strerror))
        return SavedFile(path, blob, found.st_mode)

    def _keep_version(self, path: str, size: int, *, drop: bool) -> str:
        """Keep the content of a large file. With `drop`, then drop old versions. Return its blob
        name, or "" if there is no room.
        """
        folder = self._versions(path)
        before = sorted(_files_in(folder), key=lambda each: each[1].st_mtime_ns, reverse=True)
        kept = KEPT_VERSIONS - 1 if drop else len(before)
        if drop:
            sizes, left = [found.st_size for _, found in before], max(0, self.room.left)
            while kept and size - sum(sizes[kept:]) > left:
                kept -= 1
            if size - sum(sizes[kept:]) > left:
                return ""
        blob = self._keep_file(path, folder)
        others = [(old, found.st_size) for old, found in before if old.name != blob]
        for old, freed in others[kept:]:
            old.unlink(missing_ok=True)
            self.room.add(-freed)
        return blob

    def _keep_file(self, path: str, folder: Path) -> str:
        """Copy a file into a folder unless its content is already there. Return its blob name."""
        known = blob_digest(path)
        if known and (folder / known).is_file():
            os.utime(folder / known, ns=(now := time.time_ns(), now))  # the newest version
            return known
        make_private_folder(folder)
        part = folder / f"{os.getpid()}.{os.urandom(4).hex()}.part"
        try:
            with open_kept(Path(path)) as file, replacing(part, durable=False) as copy:
                while data := file.read(_COPY_BYTES):
                    copy.write(data)
            blob = blob_digest(str(part))  # of the copy: the file may have changed meanwhile
            self.room.add(part.stat().st_size)
            part.replace(folder / blob)
        finally:
            part.unlink(missing_ok=True)
        return blob

    def _versions(self, path: str) -> Path:
        """Return the folder for the versions of a large file."""
        return self.folder / hashlib.sha256(os.fsencode(path)).hexdigest()[:_DIGEST_CHARS]

    def _find(self, file: SavedFile) -> Path | None:
        """Return the place of a saved content. The last one is the place of earlier versions of
        this program.
        """
        folders = (self.folder, self._versions(file.path), self.folder.parent)
        places = (folder / file.blob for folder in folders)
        return next((place for place in places if place.is_file()), None)

    def _keep_bytes(self, data: bytes, link: str) -> str:
        blob = blob_digest(link)
        make_private_folder(self.folder)
        replace_file(self.folder / blob, data, durable=False)
        return blob

    def _one_diff(self, file: SavedFile) -> str:
        saved = self._find(file) if file.blob else None
        old = _text(file.path, Path(file.path))
        new = _text(file.path, saved) if saved else ""
        if old is None or new is None:
            return f"Binary or large file {file.path} differs\n"
        names = (file.path if old else "/dev/null", file.path if new else "/dev/null")
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="")
        return "".join(f"{line}\n" for line in lines)

    def _put_back(self, file: SavedFile) -> None:
        path = Path(file.path)
        if not file.blob:
            path.unlink(missing_ok=True)
            _remove_empty(path.parent, file.above)
            return
        saved = self._find(file)
        if saved is None:
            raise RecordError(f"the saved content of {file.path} is gone")
        data = saved.read_bytes()
        if stat.S_ISLNK(file.mode):
            if not path.parent.exists():
                edit_file(path, b"")  # creates the folders
            part = path.with_name(f".ctxagent-{os.urandom(8).hex()}")
            part.symlink_to(os.fsdecode(data))
            part.replace(path)
            return
        if path.is_symlink():
            path.unlink()
        if blob_digest(file.path) != file.blob or not path.exists():
            edit_file(path, data)
        path.chmod(stat.S_IMODE(file.mode))


def first_saved(rows: Iterable[SavedFile]) -> dict[str, SavedFile]:
    """Return the first state of each path. `rows` are in the order of saving."""
    found: dict[str, SavedFile] = {}
    for row in rows:
        found.setdefault(row.path, row)
    return found


def _state(path: str) -> tuple[str, int] | None:
    """Return the content and mode of a file or link, ("", 0) for a missing path, or None for
    anything else.
    """
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return _ABSENT, 0
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        return None
    return blob_digest(path), found.st_mode


def _text(path: str, content: Path) -> str | None:
    """Return the content of a file as text, "" if it is missing, None if it is large or binary."""
    try:
        with open_kept(content) as file:
            data = file.read(MAX_DIFF_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    if len(data) > MAX_DIFF_BYTES:
        return None
    try:
        return text_of(Path(path), data)
    except NotText:
        return None


def _files_in(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the saved contents in a folder."""
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if _BLOB.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    yield Path(entry), entry.stat(follow_symlinks=False)


def _nearest_folder(path: str) -> str:
    folder = Path(path).parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return str(folder)


def _remove_empty(folder: Path, stop: str) -> None:
    """Remove empty folders, from the innermost one up to `stop`, which stays."""
    with suppress(OSError):
        while str(folder) != stop and Path(stop) in folder.parents:
            folder.rmdir()
            folder = folder.parent
