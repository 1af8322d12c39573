"""The disk space of the state directory, by project and session.

A measurement visits every file, so it is only made on demand and in the background. `usage.json`
has the newest total. Sessions add what they write, so that it stays roughly right.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from ...tools.system.files import open_kept, replace_file
from ..lazy import dataclass
from ..worktree import REPOSITORY_FOLDER, SAVED_FOLDER, STORE_FOLDER
from ..worktree.garbage import snapshot_bytes
from ..worktree.object_store import GitFailed, ObjectStore
from .log import LOG_NAME

USAGE_NAME = "usage.json"
BLOCK_BYTES = 4_096  # a file takes whole blocks
_OFFLOADED = "offloaded"


@dataclass(slots=True)
class SessionUsage:
    """The bytes of one session."""

    log: Path
    changed: float = 0.0  # seconds since the epoch
    logs: int = 0  # the log and everything else in the session's folder
    offloaded: int = 0  # results in files
    saved: int = 0  # saved files
    snapshots: int = 0  # objects that only this session needs

    @property
    def id(self) -> str:
        """The session's ID."""
        return self.log.parent.name

    @property
    def total(self) -> int:
        """The bytes that a deletion of this session frees."""
        return self.logs + self.offloaded + self.saved + self.snapshots


@dataclass(slots=True)
class ProjectUsage:
    """The bytes of one project."""

    folder: Path
    sessions: dict[str, SessionUsage] = field(default_factory=dict)  # by ID
    store: int = 0  # snapshots, also those that are in the number of a session
    other: int = 0  # index and other files

    @property
    def total(self) -> int:
        """The bytes of all sessions and of what they share."""
        sessions = self.sessions.values()
        return self.store + self.other + sum(s.logs + s.offloaded + s.saved for s in sessions)


@dataclass(slots=True)
class StateUsage:
    """The bytes of the state directory."""

    projects: list[ProjectUsage] = field(default_factory=list)
    other: int = 0  # outside of projects

    @property
    def total(self) -> int:
        """The bytes of the whole directory."""
        return self.other + sum(project.total for project in self.projects)


def measure_state(state: Path, *, snapshots: bool = False) -> StateUsage:
    """Measure the state directory. With `snapshots`, also find the objects that only one session
    needs, with a git process for each session.
    """
    seen, usage = set[tuple[int, int]](), StateUsage()
    with suppress(OSError), os.scandir(state) as entries:
        for entry in entries:
            if entry.name != "projects":
                usage.other += _size(entry, seen)
    with suppress(OSError):
        for folder in sorted((state / "projects").iterdir()):
            usage.projects.append(_measure_project(folder, seen))
            if snapshots:
                _add_snapshots(usage.projects[-1])
    return usage


def stored_total(state: Path) -> tuple[int, float]:
    """Return the stored total in bytes, and the time of its measurement; 0 for a missing one."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        with open_kept(state / USAGE_NAME) as file:
            kept = json.load(file)
        return int(kept["bytes"]), float(kept["measured"])
    return 0, 0.0


def store_total(state: Path, total: int, measured: float | None = None) -> None:
    """Store the total, by default as measured now. Ignore write errors."""
    at = time.time() if measured is None else measured
    with suppress(OSError):
        text = json.dumps({"v": 1, "bytes": max(0, total), "measured": at})
        replace_file(state / USAGE_NAME, text.encode(), durable=False)


def add_to_total(state: Path, size: int) -> None:
    """Add what a session has written to the stored total, if there is one."""
    total, measured = stored_total(state)
    if measured and size:
        store_total(state, total + size, measured)


def _measure_project(folder: Path, seen: set[tuple[int, int]]) -> ProjectUsage:
    project = ProjectUsage(folder)
    with suppress(OSError):
        for session in sorted((folder / "sessions").iterdir()):
            log = session / LOG_NAME
            with suppress(OSError):
                found = SessionUsage(log, log.stat().st_mtime)
                found.offloaded = sum(_size(each, seen) for each in _offloaded(session))
                found.logs = _size(session, seen)
                project.sessions[session.name] = found
    for path in _inside(folder / STORE_FOLDER / SAVED_FOLDER):
        if path.name in project.sessions:
            project.sessions[path.name].saved = _size(path, seen)
    for path in _inside(folder / STORE_FOLDER):
        # Object files of the repository take no space while it has them.
        project.store += _size(path, seen, shared=path.name != REPOSITORY_FOLDER)
    project.other = _size(folder, seen)
    return project


def _add_snapshots(project: ProjectUsage) -> None:
    store = project.folder / STORE_FOLDER
    with suppress(GitFailed, OSError):
        if (store / "objects").is_dir():
            git = ObjectStore(store, store / "index", str(store), os.environ)
            for id, size in snapshot_bytes(git).items():
                if id in project.sessions:
                    project.sessions[id].snapshots = size


def _offloaded(session: Path) -> Iterator[Path]:
    yield session / _OFFLOADED
    yield from session.glob(f"agents/*/{_OFFLOADED}")


def _inside(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _size(
    path: "Path | os.DirEntry[str]", seen: set[tuple[int, int]], *, shared: bool = True
) -> int:
    """Return the bytes of the files at a path that are not counted yet. Without `shared`, files
    with several names are not counted.
    """
    waiting, total = [os.fspath(path)], 0
    while waiting:
        here = waiting.pop()
        with suppress(OSError):
            found = os.lstat(here)
            if (key := (found.st_dev, found.st_ino)) in seen:
                continue
            if stat.S_ISDIR(found.st_mode):
                waiting += [entry.path for entry in os.scandir(here)]
                continue
            seen.add(key)
            if shared or found.st_nlink == 1:
                total += -(-found.st_size // BLOCK_BYTES) * BLOCK_BYTES
    return total
