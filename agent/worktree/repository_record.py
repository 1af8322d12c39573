"""Records of the project's git repository, from which `/rewind` restores what a command removed.

A record contains every file of the repository except objects: refs, HEAD, reflogs (including the
stash), configuration and index, also of linked work trees and submodules. Each object file gets a
hard link in a pool, which garbage collection or deletion in the repository does not affect. Git
never changes an object file, so both names keep the same content.

Records and pool are in the folder `new`. After KEPT_S, or when objects that have left the
repository take too much space, `new` becomes `old` and the previous `old` is deleted.
"""

import errno
import fcntl
import json
import os
import shutil
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from pathlib import Path

from ...tools.system.files import (
    make_private_folder,
    open_kept,
    private_opener,
    replace_file,
    replacing,
)
from ..lazy import dataclass
from .object_store import GENERATIONS, GitFailed, Repository, find_repository, object_name

KEPT_S = 30 * 86_400  # minimum time that a record is kept
MAX_LEFT_BYTES = 1 << 30  # of deleted packs; or the size of the remaining packs, if larger
MAX_COPIED_BYTES = 1 << 30  # of objects, if the pool is on another file system
MIN_FREE_BYTES = 1 << 30  # free disk space that copying objects leaves
MAX_FILE_BYTES = 64 << 20  # a larger file is left out
MAX_INLINE_BYTES = 32 << 10  # a larger file is stored outside the record
_OTHER_PREFIXES = ("tmp_", "multi-pack-index", ".")  # prefixes of files that are not objects
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class RepositoryRecord:
    """The state of a repository at one moment. Names are paths below its common folder."""

    root: str  # the top folder of the work tree
    folder: str
    common: str
    pointer: str  # content of the file `.git`, "" if `.git` is a folder
    stores: tuple[str, ...]  # object folders
    files: Mapping[str, tuple[int, str, str]]  # mode, content in Latin-1, or name of a saved blob


@dataclass(slots=True)
class RepositoryRecorder:
    """Records the repository that contains `cwd`. All methods block."""

    cwd: Path
    folder: Path  # of records and pool
    env: Mapping[str, str]
    limits: str = ""  # the missing parts of the records, with the reason
    _repository: Repository | None = None
    _known: dict[str, tuple[object, tuple[int, str, str]]] = field(default_factory=dict)
    _folders: dict[str, tuple[int, list[str]]] = field(default_factory=dict)  # in object folders
    _last: tuple[str, RepositoryRecord | None] = ("", None)
    _pool: int = 0  # inode of `new`
    _room: int = -1  # bytes that may still be copied, -1 if unknown

    def take(self) -> str:
        """Record the repository and return the name of the record, or "" without a repository. If
        nothing has changed, start no process and write nothing. Never fails: `limits` says why
        there is no record, or what it lacks.
        """
        try:
            here = self._repository
            if here is None or not os.path.exists(f"{here.folder}/HEAD"):  # noqa: PTH110
                here = self._repository = find_repository(os.path.realpath(self.cwd), self.env)
            return self._take(here) if here else ""
        except GitFailed:  # no git is installed
            return ""
        except (OSError, ValueError) as error:
            self.limits = f"the git repository is not recorded: {error}"
            return ""

    def load(self, name: str) -> tuple[RepositoryRecord, Path]:
        """Return a record and the folder of its pool. Raises OSError and ValueError."""
        for pool in (self.folder / each for each in GENERATIONS):
            with suppress(FileNotFoundError):
                data = json.loads(zlib.decompress((pool / "records" / name).read_bytes()))
                return RepositoryRecord(**{**data, "stores": tuple(data["stores"])}), pool
        raise FileNotFoundError(errno.ENOENT, "the record of the git repository has expired")

    def _take(self, here: Repository) -> str:
        pool, name, files = self.folder / GENERATIONS[0], self._last[0], {}
        stores = list[str]()
        with self._locked():
            self._renew(here, pool)
            for path, entry in _files_of(here.common, "", stores):
                with suppress(FileNotFoundError):
                    if kept := self._file(pool, path, entry):
                        files[path] = kept
            pointer = Path(here.root, ".git")
            text = pointer.read_text("utf-8", "surrogateescape") if pointer.is_file() else ""
            record = RepositoryRecord(
                here.root, here.folder, here.common, text, tuple(stores), files
            )
            if record == self._last[1]:
                return name
            self.limits = ""
            for store in stores:
                self._keep_store(Path(here.common, store), pool / store, store)
            data = json.dumps(asdict(record)).encode()
            name = object_name(b"blob", data)
            _write_once(pool / "records" / name, data)
            self._last = (name, record)
        return name

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_private_folder(self.folder)
        with open(self.folder / "lock", "ab", opener=private_opener) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _renew(self, here: Repository, pool: Path) -> None:
        """Start a new pool if the current one is expired, too large or of another repository. Drop
        cached state of another pool.
        """
        of, old = pool / "common", self.folder / GENERATIONS[1]
        with suppress(FileNotFoundError):
            expired = abs(time.time() - of.stat().st_mtime) > KEPT_S
            if expired or of.read_text() != here.common or _is_too_large(pool, here):
                shutil.rmtree(old, ignore_errors=True)
                pool.rename(old)
        if not of.exists():
            for folder in (old / "objects", pool / "objects", pool / "records", pool / "blobs"):
                make_private_folder(folder)
            replace_file(of, os.fsencode(here.common), durable=False)
        if pool.stat().st_ino != self._pool:
            self._known, self._folders, self._last = {}, {}, ("", None)
            self._pool, self._room = pool.stat().st_ino, -1

    def _file(self, pool: Path, path: str, entry: os.DirEntry[str]) -> tuple[int, str, str] | None:
        """Return a file in the form of a record, or None if it is too large. Read it only if it has
        changed.
        """
        found = entry.stat(follow_symlinks=False)
        stamp = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        if self._known.get(path, (None,))[0] != stamp:
            if found.st_size > MAX_FILE_BYTES:
                return None
            with open_kept(Path(entry.path)) as file:
                data = file.read(MAX_FILE_BYTES)
            blob = object_name(b"blob", data) if len(data) > MAX_INLINE_BYTES else ""
            if blob:
                _write_once(pool / "blobs" / blob, data)
            text = "" if blob else data.decode("latin-1")
            self._known[path] = (stamp, (found.st_mode & 0o777, text, blob))
        return self._known[path][1]

    def _keep_store(self, source: Path, target: Path, name: str) -> None:
        """Add each file of an object folder to the pool. Skip the listing of unchanged folders."""
        try:
            changed = source.stat().st_mtime_ns
        except FileNotFoundError:
            return
        before, inside = self._folders.get(name, (0, []))
        if changed != before:
            make_private_folder(target)
            kept, inside = {path.name for path in target.iterdir()}, []
            with os.scandir(source) as found:
                entries = sorted(found, key=lambda entry: entry.name.endswith(".idx"))
            for entry in entries:
                if entry.name.startswith(_OTHER_PREFIXES) or entry.name.endswith(
                    (".lock", ".keep")
                ):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    inside.append(entry.name)
                elif entry.name not in kept and entry.is_file(follow_symlinks=False):
                    self._share(entry.path, target / entry.name)
            # Two changes within one clock tick of the file system have the same stamp.
            settled = time.time_ns() - changed > 1e9
            self._folders[name] = (changed if settled else 0, inside)
        for each in sorted(
            inside, key=lambda each: each == "pack"
        ):  # packs last: git moves loose objects to packs
            if each != "info":
                self._keep_store(source / each, target / each, f"{name}/{each}")

    def _share(self, source: str, target: Path) -> None:
        try:
            os.link(source, target, follow_symlinks=False)
        except (FileExistsError, FileNotFoundError):
            return
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            self._copy(Path(source), target)

    def _copy(self, source: Path, target: Path) -> None:
        """Copy an object file if there is enough space."""
        if self._room < 0:
            used = sum(p.stat().st_size for p in self.folder.rglob("*") if p.is_file())
            free = shutil.disk_usage(self.folder).free - MIN_FREE_BYTES
            self._room = max(0, min(free, MAX_COPIED_BYTES - used))
        with suppress(FileNotFoundError), open_kept(source) as old:
            self._room -= (size := os.fstat(old.fileno()).st_size)
            if self._room < 0:
                self._room = 0
                self.limits = (
                    f"git objects ({size:,} bytes and more) are on another file system and do not "
                    "fit: /rewind restores refs only while the repository has their commits"
                )
                return
            with replacing(target, durable=False) as file:
                shutil.copyfileobj(old, file, 1 << 20)


def drop_records(folder: Path, needed: Collection[str], before: float) -> None:
    """Delete the records that were written before a time and are not needed. Raises OSError."""
    for pool in (folder / each for each in GENERATIONS):
        for record in (pool / "records").glob("*"):
            with suppress(FileNotFoundError):
                if record.name not in needed and record.stat().st_mtime < before:
                    record.unlink()


def _files_of(
    folder: str, name: str, stores: list[str], *, plain: bool = False
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the files of a repository sorted by name. Add object folders to `stores` instead of
    yielding their files. In `plain` folders, a ref may have any name.
    """
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    is_git = not plain and {"HEAD", "objects"} <= {entry.name for entry in entries}
    for entry in entries:
        path = name + entry.name
        if not entry.is_dir(follow_symlinks=False):
            if entry.is_file(follow_symlinks=False) and not entry.name.endswith(".lock"):
                yield path, entry
        elif entry.name == "objects" and not plain and not Path(entry, "HEAD").exists():
            stores.append(path)
            with suppress(FileNotFoundError), os.scandir(Path(entry, "info")) as found:
                yield from ((f"{path}/info/{e.name}", e) for e in found if e.name == "alternates")
        elif not (name.endswith("lfs/") and entry.name in ("tmp", "cache", "incomplete")):
            is_refs = plain or (is_git and entry.name in ("refs", "logs"))
            with suppress(FileNotFoundError):
                yield from _files_of(entry.path, f"{path}/", stores, plain=is_refs)


def _is_too_large(pool: Path, here: Repository) -> bool:
    """Return True if packs that have left the repository take too much space."""
    kept, there = (
        {path.name: path.stat().st_size for path in folder.glob("*.pack")}
        for folder in (pool / "objects/pack", Path(here.common, "objects/pack"))
    )
    left = sum(size for name, size in kept.items() if name not in there)
    return left > max(MAX_LEFT_BYTES, sum(there.values()))


def _write_once(path: Path, data: bytes) -> None:
    if not path.exists():
        replace_file(path, zlib.compress(data, 1), durable=False)
