"""The disk space of the state directory: measure it, delete sessions, and keep it below its limits.

The limits are `state.max_gb` and `state.max_age_days`. The oldest sessions are removed first. A
session that was used in the last RECENT_DAYS days is only removed after a question.

A measurement visits every file, so it is only made on demand and in the background. `usage.json`
has the newest total. Sessions add what they write, so that it stays roughly right.

Deletion also frees the space in the project's store. Everything is decided by what exists now, so
that an interrupted deletion is completed by the next one. A running session may be adding objects
that no session names. While one runs, young objects stay until a later sweep.
"""

import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path

from ...tools.system.files import make_private_folder, open_kept, replace_file
from ...tools.system.phrasing import count_of, format_size
from ..config.compaction_settings import StateSettings
from ..errors import RecordError, SessionBusy
from ..lazy import dataclass
from ..worktree import RECORD_FOLDER, REPOSITORY_FOLDER, SAVED_FOLDER, STORE_FOLDER
from ..worktree.garbage import (
    MIN_AGE_S,
    drop_snapshots,
    remove_empty_folders,
    snapshot_bytes,
    sweep,
)
from ..worktree.object_store import GitFailed, ObjectStore
from ..worktree.repository_record import drop_records
from .listing import Catalogue
from .lock import LOCK_NAME, acquire_lock
from .log import LOG_NAME
from .search import SearchIndex

DELETED_FOLDER = "deleted"  # in the project's folder, while sessions are being deleted
LEFT_AFTER_S = 3_600  # age from which an incomplete copy is from a killed process
CLOCK_TICK_S = 0.02  # the clock of a file system may be behind the clock of the process

_MARKS = (b'"checkpoint"', b'"saved"')  # in the lines of a log that name objects
_NAME = re.compile(rb'"([0-9a-f]{40})"')
_BLOB_NAME = re.compile(r"[0-9a-f]{40}")


def reclaim_space(project: Path) -> None:
    """Free what no session needs. Failures are ignored: the next deletion tries again."""
    store, projects = project / STORE_FOLDER, project.parent
    started = time.time() - CLOCK_TICK_S
    running = any(
        is_running(log.with_name(LOCK_NAME)) for log in projects.glob(f"*/*/*/{LOG_NAME}")
    )
    before = started - (MIN_AGE_S if running else 0)
    shutil.rmtree(project / DELETED_FOLDER, ignore_errors=True)
    with suppress(OSError):
        _delete_saved_files(store / SAVED_FOLDER, projects)
        needed = _named_objects(_logs(project))
        _delete_pool(store / SAVED_FOLDER, needed, before)
        drop_records(store / REPOSITORY_FOLDER, needed, before)
        has_snapshots = True
        with suppress(GitFailed):
            has_snapshots = _sweep(store, projects, needed, before, alone=not running)
        if not (running or has_snapshots or any(_logs(project))):
            for folder in (store / REPOSITORY_FOLDER, project / RECORD_FOLDER):
                shutil.rmtree(folder, ignore_errors=True)


def is_running(lock: Path) -> bool:
    """Return True if a process, also this one, may have a session open."""
    try:
        file = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # locked, or a file system without locks
        return True
    finally:
        os.close(file)
    return False


def existing_sessions(projects: Path) -> set[str]:
    """Return the names of all sessions and subagents. A session may use another project's store."""
    folders = [*projects.glob("*/sessions/*"), *projects.glob("*/sessions/*/agents/*")]
    return {folder.name for folder in folders}


def _sweep(store: Path, projects: Path, needed: set[str], before: float, *, alone: bool) -> bool:
    """Delete the objects that no session needs. Return True if snapshots stay. Raises GitFailed
    and OSError.
    """
    if not (store / "objects").is_dir():
        return False
    git = ObjectStore(store, store / "index", str(store), os.environ)
    has_snapshots = drop_snapshots(git, lambda: existing_sessions(projects), needed)
    sweep(git, young=time.time() - before)
    if alone:
        remove_empty_folders(git)
    return has_snapshots


def _delete_saved_files(folder: Path, projects: Path) -> None:
    """Delete the saved files of missing sessions, and incomplete copies."""
    owners = [path for path in folder.glob("*") if path.is_dir()]
    existing = existing_sessions(projects)  # read after the folders, which are newer
    for owner in owners:
        if owner.name not in existing:
            shutil.rmtree(owner, ignore_errors=True)
            continue
        for path in owner.rglob("*"):
            if path.is_file() and not _BLOB_NAME.fullmatch(path.name):
                _delete_older(path, time.time() - LEFT_AFTER_S)


def _delete_pool(folder: Path, needed: set[str], before: float) -> None:
    """Delete unneeded contents that earlier versions of this program saved for all sessions."""
    for path in folder.glob("*"):
        if path.is_file() and path.name not in needed:
            _delete_older(path, before)


def _delete_older(path: Path, before: float) -> None:
    with suppress(FileNotFoundError):
        if path.stat().st_mtime < before:
            path.unlink()


def _logs(project: Path) -> Iterator[Path]:
    for pattern in (f"*/{LOG_NAME}", f"*/agents/*/{LOG_NAME}"):
        yield from (project / "sessions").glob(pattern)


def _named_objects(logs: Iterable[Path]) -> set[str]:
    """Return the names of all objects in these logs. Damaged lines count too. Raises OSError."""
    found = set[str]()
    for log in logs:
        with open_kept(log) as file:
            for line in file:
                if any(mark in line for mark in _MARKS):
                    found.update(name.decode() for name in _NAME.findall(line))
    return found


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


@contextmanager
def locked_sessions(logs: Sequence[Path]) -> Iterator[list[str]]:
    """Lock sessions, so that no other process opens them, and yield warnings. Raises SessionBusy if
    another process has one open, and RecordError.
    """
    warnings: list[str] = []
    with ExitStack() as stack:
        for log in logs:
            try:
                stack.callback(os.close, acquire_lock(log, warnings))
            except SessionBusy as error:
                error.hint = "End that process first. Nothing was deleted."
                raise
        yield warnings


def delete_session(log: Path) -> None:
    """Delete the folder of a locked session, and its text in the project's index and list. Then
    `reclaim_space` frees its snapshots and saved files. Raises RecordError.
    """
    folder, project = log.parent, log.parents[2]
    deleted = project / DELETED_FOLDER / folder.name
    try:
        make_private_folder(deleted.parent)
        shutil.rmtree(deleted, ignore_errors=True)  # left by a killed process
        folder.rename(deleted)  # a killed process leaves no half of a session
        SearchIndex(project).clear()
        Catalogue(project).save()
        shutil.rmtree(deleted, ignore_errors=True)  # another deletion may be removing it too
    except OSError as error:
        raise RecordError(f"cannot delete {folder}: {error.strerror}") from error


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


RECENT_DAYS = 30
DAY_S = 86_400
WARNING_SHARE = 0.8  # of the limit
GB = 1_000_000_000
PRUNE = "ctxagent sessions prune"


@dataclass(frozen=True, slots=True)
class Removal:
    """Sessions to remove, oldest first, to meet the limits."""

    free: tuple[SessionUsage, ...] = ()  # unused for RECENT_DAYS days
    recent: tuple[SessionUsage, ...] = ()  # only after a question


def limit_bytes(settings: StateSettings) -> int | None:
    """Return `state.max_gb` in bytes, None for no limit."""
    return None if settings.max_gb is None else round(settings.max_gb * GB)


def plan_removal(usage: StateUsage, settings: StateSettings, now: float) -> Removal:
    """Return the sessions that are too old, and the oldest ones until the rest is below the limit.
    Open sessions stay.
    """
    limit, age = limit_bytes(settings), settings.max_age_days
    sessions = [each for project in usage.projects for each in project.sessions.values()]
    left, chosen = usage.total, list[SessionUsage]()
    for session in sorted(sessions, key=lambda each: each.changed):
        is_old = age is not None and now - session.changed > age * DAY_S
        is_too_much = limit is not None and left > limit
        if (is_old or is_too_much) and not is_running(session.log.with_name(LOCK_NAME)):
            chosen.append(session)
            left -= session.total
    recent = [each for each in chosen if now - each.changed <= RECENT_DAYS * DAY_S]
    return Removal(tuple(each for each in chosen if each not in recent), tuple(recent))


def remove_sessions(sessions: Iterable[SessionUsage]) -> list[SessionUsage]:
    """Delete sessions and free their space. Return those deleted: a session that is open or was
    used meanwhile stays.
    """
    done, projects = list[SessionUsage](), set[Path]()
    for session in sessions:
        with suppress(RecordError, SessionBusy, OSError), locked_sessions([session.log]):
            if session.log.stat().st_mtime == session.changed:
                delete_session(session.log)
                done.append(session)
                projects.add(session.log.parents[2])
    for project in projects:
        reclaim_space(project)
    return done


def enforce_limits(state: Path, settings: StateSettings) -> tuple[int, str]:
    """Remove what needs no question, and return the bytes of the state directory and a notice, ""
    for none.
    """
    usage = measure_state(state)
    limit, said = limit_bytes(settings), list[str]()
    planned = plan_removal(usage, settings, time.time())
    if limit is not None and usage.total > limit:
        for project in usage.projects:
            reclaim_space(project.folder)
        usage = measure_state(state, snapshots=True)
        planned = plan_removal(usage, settings, time.time())
    if done := remove_sessions(planned.free):
        before = usage.total
        usage = measure_state(state)
        said.append(
            f"removed {count_of(len(done), 'session')} that no one used for {RECENT_DAYS} days "
            f"({format_size(before - usage.total)}), to keep the limits of [state]"
        )
    if limit is not None and usage.total > limit:
        said.append(
            f"the state directory has {format_size(usage.total)}, and state.max_gb allows "
            f"{format_size(limit)}: `{PRUNE}` shows what can be removed"
        )
    elif planned.recent:
        said.append(
            f"{count_of(len(planned.recent), 'session')} older than state.max_age_days: `{PRUNE}` "
            "removes them"
        )
    store_total(state, usage.total)
    return usage.total, "; ".join(said)
