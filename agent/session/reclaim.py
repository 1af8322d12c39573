"""Free the disk space that deleted sessions leave in the store of their project.

Everything is decided by what exists now, so that an interrupted deletion is completed by the next
one. A running session may be adding objects that no session names. While one runs, young objects
stay until a later sweep.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...tools.system.files import open_kept
from ..worktree import RECORD_FOLDER, REPOSITORY_FOLDER, SAVED_FOLDER, STORE_FOLDER
from ..worktree.garbage import MIN_AGE_S, drop_snapshots, remove_empty_folders, sweep
from ..worktree.object_store import GitFailed, ObjectStore
from ..worktree.repository_record import drop_records
from .lock import LOCK_NAME
from .log import LOG_NAME

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
