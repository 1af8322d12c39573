"""Delete sessions from disk, with everything that only they used."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...tools.system.files import make_private_folder
from ..errors import RecordError, SessionBusy
from .listing import Catalogue
from .lock import acquire_lock
from .reclaim import DELETED_FOLDER
from .search import SearchIndex


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
