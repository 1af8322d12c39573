"""The work tree: snapshots of its files, their changes, and restoring them.

`snapshots` is the entry point and `object_store` the private git store behind it. `staging` decides
which files a snapshot contains, `watch` finds unchanged folders, and `restore` writes files back.
`garbage` deletes objects that nothing needs, and `diff` compares states. `saved_files` saves single
files and their permissions without a scan, and `touch_record` lists the files that other sessions
touch. `repository_record` records the project's repository, and `repository_restore` restores it.
"""

from typing import TYPE_CHECKING

from ..lazy import names_on_demand

if TYPE_CHECKING:
    from .diff import TreeChange, blob_digest
    from .object_store import REPOSITORY_FOLDER, STORE_FOLDER
    from .repository_record import RepositoryRecorder
    from .saved_files import SAVED_FOLDER, DiskRoom, SavedFile, SavedFiles, first_saved
    from .snapshots import TreeState, WorkTree
    from .touch_record import DELETED, RECORD_FOLDER, UNKNOWN, Touches, TouchRecord, content_of
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "DELETED",
    "RECORD_FOLDER",
    "REPOSITORY_FOLDER",
    "SAVED_FOLDER",
    "STORE_FOLDER",
    "UNKNOWN",
    "DiskRoom",
    "RepositoryRecorder",
    "SavedFile",
    "SavedFiles",
    "TouchRecord",
    "Touches",
    "TreeChange",
    "TreeState",
    "WorkTree",
    "blob_digest",
    "content_of",
    "first_saved",
]
