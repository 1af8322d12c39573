"""The record of a project's folder, from which its sessions are found after the folder was renamed.

`project.json` has the folder's path, device and inode, and the root commit of its git repository.
A copy or a clone of a folder does not get the sessions of the folder: only the sessions of a folder
that no longer exists are found.
"""

import json
import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from ...tools.system.files import make_private_folder, open_kept, replace_file
from ..lazy import dataclass
from ..worktree.git import GitRunner
from .log import LOG_NAME

RECORD_NAME = "project.json"
GIT_TIMEOUT_S = 2.0  # at the end of a session


@dataclass(frozen=True, slots=True)
class ProjectRecord:
    """The identity of a folder, and the answers of the user about other folders."""

    path: str  # with links followed
    device: int = 0
    inode: int = 0
    root_commit: str | None = None  # None if it was not read yet, "" without a commit
    declined: tuple[str, ...] = ()  # folders whose sessions the user does not want here

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the folder."""
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class FormerProject:
    """A project whose folder no longer exists and seems to be renamed."""

    folder: Path  # of its sessions
    path: str  # of the project
    sessions: int

    @property
    def line(self) -> str:
        """A line about its sessions for the user."""
        what = "The session" if self.sessions == 1 else f"The {self.sessions} sessions"
        seem = "seems" if self.sessions == 1 else "seem"
        return f"{what} of {self.path} {seem} to belong to this folder (renamed?)."

    @property
    def hint(self) -> str:
        """The command that moves its sessions here."""
        return f"Use them here: ctxagent sessions adopt {shlex.quote(self.path)}"


def project_folder(projects: Path, real: str) -> Path:
    """Return the folder with the sessions of a project at a real path."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(real).name)[:40].strip("-.") or "root"
    digest = sha256(real.encode(errors="surrogateescape")).hexdigest()[:10]
    return projects / f"{name}-{digest}"


def project_logs(folder: Path) -> list[Path]:
    """Return the logs of a project's sessions."""
    return sorted((folder / "sessions").glob(f"*/{LOG_NAME}"))


def load_record(folder: Path) -> ProjectRecord | None:
    """Return the record of the project with this folder, or None if it is missing or damaged."""
    try:
        with open_kept(folder / RECORD_NAME) as file:
            row = json.load(file)
        commit = row["root_commit"]
        return ProjectRecord(
            str(row["path"]),
            int(row["device"]),
            int(row["inode"]),
            None if commit is None else str(commit),
            tuple(map(str, row["declined"])),
        )
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def save_record(folder: Path, record: ProjectRecord) -> None:
    """Write the record. Ignore write errors: the next session tries again."""
    with suppress(OSError):
        make_private_folder(folder)
        data = json.dumps({"v": 1, **asdict(record)}).encode()
        replace_file(folder / RECORD_NAME, data, durable=False)


def describe_folder(cwd: Path) -> ProjectRecord:
    """Return the record of a folder as it is now, without its root commit. Raises OSError."""
    found = cwd.stat()
    return ProjectRecord(os.path.realpath(cwd), found.st_dev, found.st_ino)


def update_record(log: Path, cwd: Path, *, with_commit: bool = False) -> None:
    """Write the record of the project `cwd` if it is missing or outdated. With `with_commit`, also
    read a missing root commit. Does nothing if the session of this log belongs to another project.
    """
    folder = log.parents[2]
    if folder != project_folder(folder.parent, os.path.realpath(cwd)):
        return
    with suppress(OSError):
        now, known = describe_folder(cwd), load_record(folder)
        if known is not None:
            is_same = known.identity == now.identity
            commit = known.root_commit if is_same else None
            now = replace(now, root_commit=commit, declined=known.declined)
        if with_commit and now.root_commit is None and _is_repository(cwd):
            now = replace(now, root_commit=root_commit(cwd))
        if now != known:
            save_record(folder, now)


def root_commit(cwd: Path) -> str:
    """Return the first commit of the branch checked out at `cwd`, or "". Starts git."""
    if not _is_repository(cwd):
        return ""
    asked = ("rev-list", "--first-parent", "--max-parents=0", "HEAD")
    with suppress(OSError):
        return GitRunner(cwd, os.environ, seconds=GIT_TIMEOUT_S).find(*asked) or ""
    return ""


def _is_repository(cwd: Path) -> bool:
    """Return True for the top folder of a repository. A linked work tree shares the root commit
    with other folders, and so does a folder below the top.
    """
    return (cwd / ".git").is_dir()


def is_gone(path: str, cwd: Path) -> bool:
    """Return True if there is no folder at a path, except a link to `cwd`. A folder that cannot be
    checked, for example because of its permissions, is not gone.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - may follow links
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    is_link_here = os.path.realpath(path) == os.path.realpath(cwd) != path
    return is_link_here or not stat.S_ISDIR(found.st_mode)


def is_same_folder(record: ProjectRecord, cwd: Path) -> bool:
    """Return True if a record is about the folder `cwd`, possibly at another path. Raises
    OSError.
    """
    return next(_same_folder([record], cwd), None) is not None


def _same_folder(records: list[ProjectRecord], cwd: Path) -> Iterator[ProjectRecord]:
    now = describe_folder(cwd).identity
    commit = cache(root_commit)
    for record in records:
        if record.root_commit and commit(cwd):
            if record.root_commit == commit(cwd):
                yield record
        elif record.identity == now:
            yield record


def find_former(folder: Path, cwd: Path) -> FormerProject | None:
    """Return the project that `cwd` was before it was renamed, or None. `folder` has the sessions
    of `cwd`. The user was not asked about the result yet.
    """
    own, known = load_record(folder), dict[ProjectRecord, Path]()
    for path in folder.parent.glob(f"*/{RECORD_NAME}"):
        record = load_record(path.parent)
        if record and path.parent != folder and is_gone(record.path, cwd):
            known[record] = path.parent
    declined = own.declined if own else ()
    asked = [each for each in known if each.path not in declined and project_logs(known[each])]
    with suppress(OSError):
        now = describe_folder(cwd).identity
        found = sorted(
            _same_folder(asked, cwd),
            key=lambda each: (each.identity == now, _last_used(known[each])),
        )
        if found:
            where = known[found[-1]]
            return FormerProject(where, found[-1].path, len(project_logs(where)))
    return None


def decline(folder: Path, cwd: Path) -> None:
    """Record that the user does not want the sessions that `find_former` finds."""
    with suppress(OSError):
        record = load_record(folder) or describe_folder(cwd)
        while (former := find_former(folder, cwd)) and former.path not in record.declined:
            record = replace(record, declined=(*record.declined, former.path))
            save_record(folder, record)


def _last_used(folder: Path) -> float:
    times = [0.0]
    for log in project_logs(folder):
        with suppress(OSError):
            times.append(log.stat().st_mtime)
    return max(times)
