"""Move the sessions of a renamed folder to its new project, with snapshots, facts and saved files.

If the new project has no folder yet, the folder of the old one is renamed in one step. Otherwise
its files are moved one by one, and a file that exists in both stays where it is. An interrupted
move is completed by the next one. A note in each log has both paths, because logs have absolute
paths.
"""

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from ...tools.system.files import make_private_folder, replace_file
from ..errors import LogDamaged, RecordError, SessionBusy
from ..worktree import RECORD_FOLDER, REPOSITORY_FOLDER, STORE_FOLDER
from .disk_budget import is_running
from .listing import CATALOGUE_NAME
from .lock import LOCK_NAME, acquire_lock
from .log import Log
from .project_record import (
    RECORD_NAME,
    ProjectRecord,
    describe_folder,
    load_record,
    project_folder,
    project_logs,
    save_record,
)
from .search.index import INDEX_NAME
from .titles import moved_path, rename_note

_SESSIONS = "sessions"
_NOT_MOVED = (_SESSIONS, RECORD_NAME, CATALOGUE_NAME, INDEX_NAME)  # when two projects are merged


def adopt_sessions(source: Path, old: str, cwd: Path) -> tuple[list[str], list[str]]:
    """Move the sessions in the project folder `source`, of the path `old`, to the project of `cwd`.
    Return their IDs and the paths of files that stay because the project has others of these names.

    Raises SessionBusy if a session of either project is open, and RecordError. Then no session was
    moved, unless the disk failed during the move.
    """
    now, logs = describe_folder(cwd), project_logs(source)
    target = project_folder(source.parent, now.path)
    taken = [log.parent.name for log in logs if (target / _SESSIONS / log.parent.name).exists()]
    if taken:
        raise RecordError(
            f"both folders have a session {', '.join(taken[:5])}",
            hint="Nothing was moved. Delete one of them: ctxagent sessions delete ID",
        )
    for log in project_logs(target):
        if is_running(log.with_name(LOCK_NAME)):
            raise _with_hint(SessionBusy(log.parent.name, "unknown"))
    with ExitStack() as stack:
        opened = [_lock(stack, log) for log in logs]
        for each in filter(None, opened):
            before = each.path.stat()
            each.append(rename_note(old, now.path))
            os.utime(each.path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the order stays
        try:
            _correct_paths(source, target, (old, now.path))
            left = _move(source, target)
        except OSError as error:
            raise RecordError(f"cannot move the sessions of {old}: {error}") from error
    _save_identity(target, now, old)
    return [log.parent.name for log in logs], left


def _with_hint(error: SessionBusy) -> SessionBusy:
    error.hint = "End that process first. Nothing was moved."
    return error


def _lock(stack: ExitStack, log: Path) -> Log | None:
    """Lock a session. Return its log, or None if the log is damaged: it is moved as it is."""
    try:
        opened = Log.open(log)
        stack.callback(opened.close)
        return opened
    except LogDamaged:
        stack.callback(os.close, acquire_lock(log, []))
        return None
    except SessionBusy as error:
        raise _with_hint(error) from None


def _move(source: Path, target: Path) -> list[str]:
    """Move a project's folder. Return the files that stay. Raises OSError."""
    if not target.exists():
        source.rename(target)
        return []
    left = list[str]()
    for name in sorted(os.listdir(source)):  # noqa: PTH208
        if name not in _NOT_MOVED:
            left += _merge(source / name, target / name)
    make_private_folder(target / _SESSIONS)
    for log in project_logs(source):
        log.parent.rename(target / _SESSIONS / log.parent.name)
    for name in (RECORD_NAME, CATALOGUE_NAME, INDEX_NAME):
        for part in source.glob(f"{name}*"):
            part.unlink()
    if not left:
        shutil.rmtree(source)
    return left


def _merge(source: Path, target: Path) -> Iterator[str]:
    """Move the files that the target lacks. Yield those that stay and differ. Raises OSError."""
    if not os.path.lexists(target):
        source.rename(target)
    elif source.is_dir() and target.is_dir() and not source.is_symlink():
        # In reverse order, because the refs of the store must not be later than its objects.
        for name in sorted(os.listdir(source), reverse=True):  # noqa: PTH208
            yield from _merge(source / name, target / name)
    elif STORE_FOLDER not in source.parts and source.read_bytes() != target.read_bytes():
        yield str(source)


def _save_identity(target: Path, now: ProjectRecord, old: str) -> None:
    """Write the new record of the project. The commit is read at the end of the next session."""
    known = load_record(target)
    declined = known.declined if known and known.path == now.path else ()
    kept = tuple(path for path in declined if path != old)
    save_record(target, ProjectRecord(now.path, now.device, now.inode, None, kept))


def _correct_paths(source: Path, target: Path, paths: tuple[str, str]) -> None:
    """Replace the old path in the files of a project that name files by absolute paths: calls of
    other sessions, records of the git repository, and the sources of borrowed objects.
    """
    pool = source / STORE_FOLDER / REPOSITORY_FOLDER
    for path in (source / RECORD_FOLDER).glob("*.jsonl"):
        _rewrite(path, _with_paths(path.read_bytes(), paths))
    for path in pool.glob("*/records/*"):
        with suppress(zlib.error):  # a damaged record stays as it is
            _rewrite(path, zlib.compress(_with_paths(zlib.decompress(path.read_bytes()), paths)))
    lines = [*pool.glob("*/common"), source / STORE_FOLDER / "objects/info/alternates"]
    for path in filter(Path.is_file, lines):
        text = os.fsdecode(path.read_bytes())
        for before, after in (paths, (str(source), str(target))):
            moved = (moved_path(line, before, after) for line in text.split("\n"))
            text = "\n".join(moved)
        _rewrite(path, os.fsencode(text))


def _rewrite(path: Path, data: bytes) -> None:
    """Replace the content of a file, and keep its time."""
    before = path.stat()
    replace_file(path, data, durable=False)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _with_paths(data: bytes, paths: tuple[str, str]) -> bytes:
    """Replace the old path at the start of JSON texts."""
    old, new = (json.dumps(path)[:-1].encode() for path in paths)
    for end in (b'"', b"/"):
        data = data.replace(old + end, new + end)
    return data
