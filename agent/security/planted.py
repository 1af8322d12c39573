"""Find files that commands leave for other programs to run later: repositories with a configuration
that names programs (the user's next `git status` runs them), and files of editors, hooks, direnv
and other agents.

The project is scanned before and after each command. A folder with unchanged times is not read
again, since the kernel updates the change time and users cannot set it. A scan costs one lstat per
folder and per watched file.
"""

import os
import secrets
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...tools.system.git_links import read_text, settings_in
from ...tools.system.unicode import reveal_invisible
from ..lazy import dataclass
from ..permissions.paths import protected_names
from ..worktree.diff import file_sha256
from .sandbox_paths import git_folders, repository_root

MAX_FOLDERS = 50_000  # scanned folders, the outer ones first
TOO_MANY = (
    f"the project has more than {MAX_FOLDERS:,} folders: only the outermost are checked for files "
    "that commands create for other programs to run"
)
MAX_NAMED = 8  # paths in a notice
MAX_FILE_BYTES = 1 << 20  # larger files are compared by their times, not their content
_MAX_DEPTH = 3  # levels below a protected folder in which every file is watched
# A folder changed less than this before it was read may change again in the same tick of the file
# system's clock.
_CLOCK_TICK_NS = 2_000_000_000
_OUTSIDE = -1  # the depth outside protected folders
# Packages ship their own development settings, which no program reads there.
_PACKAGE_FOLDERS = frozenset(("node_modules", "site-packages"))
RUNS = "runs"  # the kind of protected names that are watched
_BARE_REPOSITORY = frozenset(("HEAD", "objects", "refs"))

Stamp = tuple[int, ...]


class _Folder(NamedTuple):
    """The watched entries of a folder at one time."""

    stamp: Stamp
    read_at: int  # in ns of Unix time
    folders: Sequence[tuple[str, int]]  # paths and depths of subfolders to scan
    marks: Sequence[str]  # paths of watched entries
    repositories: Sequence[str]  # paths of `.git` files and folders, and of bare repositories


@dataclass(frozen=True, slots=True)
class Found:
    """Planted files, and the new names of those that were set aside."""

    paths: str
    aside: str

    @property
    def notice(self) -> str:
        """The notice for the user."""
        if not self.paths:
            return TOO_MANY
        if self.aside:
            return (
                f"a command created {self.paths}, which other programs run; renamed to {self.aside}"
            )
        return (
            f"a command created or changed {self.paths}, which git, editors and other programs "
            "run. Check these files before you use the programs; /set-aside renames them"
        )

    @property
    def note(self) -> str:
        """The note for the model, "" if nothing was planted."""
        if not self.paths:
            return ""
        done = f"set aside as {self.aside}" if self.aside else "the user is told"
        return f"[it made or changed what other programs run by themselves: {self.paths}; {done}]"


class PlantedWatch:
    """A watch for planted files in the project at `cwd` and the `added` directories. A session and
    its subagents share one. All methods block and are thread-safe.
    """

    def __init__(self, cwd: Path, added: Sequence[str] = ()) -> None:
        self.planted_paths: list[str] = []  # planted paths that are not set aside
        self._root, self._added = os.path.realpath(cwd), added
        self._folders: dict[str, _Folder] = {}
        self._digests: dict[str, tuple[Stamp, int, str]] = {}
        self._signs: dict[str, str] = {}
        self._watched: list[str] = []
        self._running = 0  # commands in the foreground
        self._jobs_ran = False  # jobs were running at the last scan
        self._unasked = False  # a running command was not approved by the user
        self._jobs: dict[int, Mapping[str, Any]] = {}
        self._is_cut = self._cut_reported = False  # the project has more than MAX_FOLDERS folders
        self._lock = threading.Lock()

    def begin(self, jobs: Mapping[str, Any], *, unasked: bool) -> None:
        """Scan before a command runs or before background `jobs` are checked. While another command
        or job runs, keep the older scan. `unasked` means that the command runs without approval, so
        its planted files are set aside.
        """
        with self._lock:
            self._jobs[id(jobs)] = jobs
            busy = self._running > 0 or self._jobs_ran
            self._unasked = unasked or (busy and self._unasked)
            self._running += 1
            if not busy:
                self._signs = self._scan()

    def end(self) -> "Found | None":
        """Scan after a command. Return what is new or changed since the scan before it."""
        with self._lock:
            self._running -= 1
            return self._found()

    def last(self) -> "Found | None":
        """Return files that jobs have planted since the last scan."""
        with self._lock:
            return self._found() if self._jobs_ran else None

    def watched_paths(self) -> list[str]:
        """Return the watched paths of the last scan, which a sandbox must keep read-only."""
        with self._lock:
            return [*self._watched]

    def set_aside(self, paths: Sequence[str]) -> list[str]:
        """Rename planted files so that no program reads them. Return the new names."""
        with self._lock:
            return self._set_aside(paths)

    def _set_aside(self, paths: Sequence[str]) -> list[str]:
        renamed = []
        for path in paths:
            name = f"{path}.set-aside-{secrets.token_hex(3)}"
            with suppress(OSError):
                Path(path).rename(name)
                renamed.append(name)
        self.planted_paths = [path for path in self.planted_paths if path not in paths]
        self._signs = self._scan()
        return renamed

    def _found(self) -> "Found | None":
        self._jobs_ran = any(
            job.process.running for jobs in self._jobs.values() for job in jobs.values()
        )
        before, self._signs = self._signs, self._scan()
        changed = [path for path in sorted(self._signs) if self._signs[path] != before.get(path)]
        found: list[str] = []
        for path in changed:
            above = found[-1] if found else ""
            if not (above and above not in before and path.startswith(f"{above}/")):
                found.append(path)
        if not found and (self._cut_reported or not self._is_cut):
            return None
        self._cut_reported |= self._is_cut
        self.planted_paths = list(dict.fromkeys([*self.planted_paths, *found]))
        aside = self._set_aside(found) if self._unasked else []
        return Found(self._shown(found), self._shown(aside))

    def _shown(self, paths: Sequence[str]) -> str:
        """Return paths for display on one line, relative to the project."""
        named = [path.removeprefix(f"{self._root}/") for path in paths[:MAX_NAMED]]
        more = [f"and {len(paths) - MAX_NAMED} more"] if len(paths) > MAX_NAMED else []
        return reveal_invisible(", ".join([*named, *more])).replace("\n", "\\n")

    def _scan(self) -> dict[str, str]:
        """Scan the folders. Return a signature for each watched path."""
        self._watched, self._is_cut = [], False
        roots, signs = [self._root, *self._added], dict[str, str]()
        for root in roots:
            if (top := repository_root(root)) not in ("", root):
                signs |= self._sign_repository(f"{top}/.git")
        known: dict[str, _Folder] = {}
        pending = deque((root, _OUTSIDE) for root in roots if root != "/")
        while pending:
            path, depth = pending.popleft()
            folder = None if path in known else self._folder(path, depth)
            if folder is None:
                continue
            if len(known) == MAX_FOLDERS:
                self._is_cut = True
                break
            known[path] = folder
            pending.extend(folder.folders)
            if depth == _OUTSIDE:
                self._watched += folder.marks
            signs |= self._sign(folder.marks)
            for repository in folder.repositories:
                signs |= self._sign_repository(repository)
        self._folders = known
        self._digests = {path: kept for path, kept in self._digests.items() if path in signs}
        return signs

    def _folder(self, path: str, depth: int) -> _Folder | None:
        try:
            found = os.lstat(path)
            stamp = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
            before = self._folders.get(path)
            if before and before.stamp == stamp and stamp[2] + _CLOCK_TICK_NS < before.read_at:
                return before
            if not stat.S_ISDIR(found.st_mode):
                return None
            read_at = time.time_ns()
            with os.scandir(path) as entries:
                rows = [(e.name, e.path, e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError:
            return None
        return _Folder(stamp, read_at, *_sort(path, depth, rows))

    def _sign(self, paths: Iterable[str]) -> dict[str, str]:
        """Return a signature for each of the paths that exists."""
        signs = {}
        for path in paths:
            with suppress(OSError):
                signs[path] = self._signature(path)
        return signs

    def _sign_repository(self, path: str) -> dict[str, str]:
        """Return signatures of the files that make git run programs in a repository. `path` is its
        git folder or a file that names it.
        """
        top, own = os.path.dirname(path), path  # noqa: PTH120
        if not os.path.isdir(path):  # noqa: PTH112
            own = os.path.join(top, read_text(path).removeprefix("gitdir:").strip())  # noqa: PTH118
        parts = list(git_folders([os.path.realpath(own)]).read_only)
        self._watched += parts
        for folder in [part for part in parts if part.endswith("/hooks")]:
            parts += _entries(folder)
        for config in [part for part in parts if part.endswith("/config")]:
            for key, named in settings_in(read_text(config)):
                if key == "hookspath":
                    place = os.path.expanduser(named.strip('"'))  # noqa: PTH111
                    parts += _entries(os.path.join(top, place))  # noqa: PTH118
        return self._sign([path, *parts])

    def _signature(self, path: str) -> str:
        """Return a file's type, mode and content digest. Raises OSError."""
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            return "folder"
        if stat.S_ISLNK(found.st_mode):
            return f"link {os.readlink(path)}"  # noqa: PTH115
        stamp = (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if found.st_size > MAX_FILE_BYTES or not stat.S_ISREG(found.st_mode):
            return str(stamp)
        read_at = time.time_ns()
        before = self._digests.get(path)
        if before is None or before[0] != stamp or found.st_ctime_ns + _CLOCK_TICK_NS > before[1]:
            before = self._digests[path] = (stamp, read_at, file_sha256(path))
        return f"{found.st_mode:o} {before[2]}"


def _sort(
    path: str, depth: int, rows: Sequence[tuple[str, str, bool]]
) -> tuple[list[tuple[str, int]], list[str], list[str]]:
    """Sort entries (name, path, is folder) into folders to scan, watched paths and repositories."""
    folders, marks, repositories = [], [], []
    in_packages = not _PACKAGE_FOLDERS.isdisjoint(path.split("/"))
    kinds, inside = protected_names(), path.rpartition("/")[2].casefold()
    for name, entry, is_folder in rows:
        alone = name.casefold()
        protected = RUNS in (kinds.get(alone), kinds.get(f"{inside}/{alone}"))
        if name.casefold() == ".git":
            repositories.append(entry)
        elif protected and depth == _OUTSIDE and not in_packages:
            marks.append(entry)
            folders += [(entry, 0)] if is_folder else []
        elif is_folder and depth < _MAX_DEPTH:
            folders.append((entry, depth if depth == _OUTSIDE else depth + 1))
        elif depth != _OUTSIDE and not is_folder:
            marks.append(entry)
    if {name for name, _, _ in rows} >= _BARE_REPOSITORY:
        repositories.append(path)
    return folders, marks, repositories


def _entries(folder: str) -> list[str]:
    """Return the paths in a hooks folder, without git's samples."""
    with suppress(OSError):
        return sorted(
            entry.path for entry in os.scandir(folder) if not entry.name.endswith(".sample")
        )
    return []
