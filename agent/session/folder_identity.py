"""The identity of a project's folder, so that its sessions can follow a renamed folder.

`folder.json`, among a project's sessions, has the folder's path, device and inode, and the oldest
commit of its repository. Two folders are the same one if both have an oldest commit and it is
equal, or if one of them has none and device and inode are equal.
"""

import json
import os
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...tools.system.files import make_private_folder, open_kept, replace_file
from ...tools.system.plural import count_of
from ...tools.system.programs import program
from ..errors import NoSuchSession, SessionBusy, SessionError, UsageError
from ..lazy import dataclass
from .lock import LOCK_NAME
from .log import LOG_NAME
from .reclaim import is_running
from .store import Project

IDENTITY_NAME = "folder.json"
ADOPT = "ctxagent sessions adopt"
GIT_TIMEOUT_S = 10.0
_OLDEST_COMMIT = ("rev-list", "--max-parents=0", "--first-parent", "HEAD")


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """A folder as it was when a session was opened in it."""

    path: str
    device: int
    inode: int
    commit: str = ""  # the oldest of its repository; "" if it has none
    refused: tuple[str, ...] = ()  # paths whose sessions the user did not want here

    def is_same(self, other: "FolderIdentity") -> bool:
        """Return True if both describe one folder, perhaps under two names."""
        if self.commit and other.commit:
            return self.commit == other.commit
        return (self.device, self.inode) == (other.device, other.inode)


def identity_of(cwd: Path) -> FolderIdentity:
    """Return the identity of an existing folder. Starts git. Raises OSError."""
    here = _without_commit(cwd)
    return replace(here, commit=_oldest_commit(here.path))


def record_identity(project: Project) -> None:
    """Record the identity of a project's folder, if it is not recorded. The oldest commit follows
    in a thread.
    """
    known = read_identity(project.folder)
    with suppress(OSError):
        here = _without_commit(project.cwd)
        if known is None or not known.is_same(here):
            _write(project.folder, here, known.refused if known else ())
        elif known.commit:
            return
        if os.path.lexists(f"{here.path}/.git"):
            # A daemon: a session does not wait for it, and the next one tries again.
            threading.Thread(target=_record, args=(project,), daemon=True).start()


def read_identity(folder: Path) -> FolderIdentity | None:
    """Return the identity recorded in a project's folder of sessions, None if there is none."""
    with suppress(OSError, ValueError, TypeError, LookupError, RecursionError):
        with open_kept(folder / IDENTITY_NAME) as file:
            data = json.load(file)
        path, commit = str(data["path"]), str(data["commit"])
        refused = tuple(map(str, data["refused"]))
        return FolderIdentity(path, int(data["device"]), int(data["inode"]), commit, refused)
    return None


def former_project(project: Project) -> Project | None:
    """Return the project that this folder was before it was renamed: the newest one with sessions
    whose folder is gone and was the same. None if there is none, or if this folder has sessions.
    """
    if project.logs():
        return None
    with suppress(OSError):
        here = identity_of(project.cwd)
        known = read_identity(project.folder)
        refused = known.refused if known else ()
        found = [
            other
            for other, identity in _gone(project.state)
            if identity.is_same(here) and identity.path not in refused
        ]
        return max(found, key=lambda other: other.logs()[0].stat().st_mtime, default=None)
    return None


def newest_log(project: Project) -> Path:
    """Return the log modified last. Raises NoSuchSession, which names the sessions of a folder that
    was this one.
    """
    try:
        return project.newest_log()
    except NoSuchSession as error:
        if (former := former_project(project)) is None:
            raise
        has = f"{former.cwd}, which is gone, has {count_of(len(former.logs()), 'session')}"
        hint = f"{has}: `{ADOPT} {shlex.quote(str(former.cwd))}` moves them here."
        raise NoSuchSession(error.message, hint=hint) from None


def refuse(project: Project, former: Project) -> None:
    """Remember that the sessions of `former` do not belong to this project."""
    with suppress(OSError):
        here, known = identity_of(project.cwd), read_identity(project.folder)
        refused = (*(known.refused if known else ()), os.path.realpath(former.cwd))
        _write(project.folder, here, refused)


def adopt(project: Project, former: Project) -> int:
    """Move the sessions of a folder that is gone to this project, and return their number. Nothing
    is overwritten. Raises UsageError and SessionError.
    """
    logs = former.logs()
    if os.path.lexists(former.cwd):
        hint = "Only sessions of a folder that is gone can be moved. --resume ID opens one here."
        raise UsageError(f"{former.cwd} exists", hint=hint)
    if not logs:
        hint = "`ctxagent sessions list --all` shows all sessions."
        raise UsageError(f"there are no sessions of {former.cwd}", hint=hint)
    if project.logs():
        hint = "`ctxagent --resume ID` opens a session of another folder here."
        raise UsageError(f"{project.cwd} has sessions of its own", hint=hint)
    for lock in former.folder.glob(f"sessions/*/{LOCK_NAME}"):
        if is_running(lock):
            raise SessionBusy(lock.parent.name, "another process")
    try:
        make_private_folder(project.folder.parent)
        _set_aside(project.folder)
        former.folder.rename(project.folder)
        _record(project)
    except OSError as error:
        raise SessionError(f"the sessions cannot be moved: {error.strerror}") from error
    return len(logs)


def _without_commit(cwd: Path) -> FolderIdentity:
    path = os.path.realpath(cwd)
    found = Path(path).stat()
    return FolderIdentity(path, found.st_dev, found.st_ino)


def _set_aside(folder: Path) -> None:
    """Rename a project's folder that has no sessions. Raises OSError."""
    number = 0
    while os.path.lexists(folder):
        number += 1
        place = folder.with_name(f"{folder.name}.empty-{number}")
        if not os.path.lexists(place):
            folder.rename(place)


def _gone(state: Path) -> Iterator[tuple[Project, FolderIdentity]]:
    """Yield the projects with sessions whose folder is gone."""
    for place in state.glob(f"projects/*/{IDENTITY_NAME}"):
        identity = read_identity(place.parent)
        if identity is None or os.path.lexists(identity.path):
            continue
        other = Project(state, Path(identity.path))
        if other.folder == place.parent and any(other.folder.glob(f"sessions/*/{LOG_NAME}")):
            yield other, identity


def _record(project: Project) -> None:
    with suppress(OSError):
        known = read_identity(project.folder)
        _write(project.folder, identity_of(project.cwd), known.refused if known else ())


def _write(folder: Path, here: FolderIdentity, refused: tuple[str, ...]) -> None:
    data = {
        "path": here.path, "device": here.device, "inode": here.inode, "commit": here.commit,
        "refused": [*dict.fromkeys(refused)],
    }  # fmt: skip
    make_private_folder(folder)
    replace_file(folder / IDENTITY_NAME, json.dumps(data).encode(errors="surrogateescape"))


def _oldest_commit(path: str) -> str:
    """Return the oldest commit of the repository at `path`, "" if there is none."""
    git = program("git", os.environ.get("PATH"))
    if not git or not os.path.lexists(f"{path}/.git"):
        return ""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [git, *_OLDEST_COMMIT],
            cwd=path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=GIT_TIMEOUT_S,
        )  # fmt: skip
        return "" if done.returncode else done.stdout.strip()
    return ""
