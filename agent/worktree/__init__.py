"""The work tree: what its files were like, what changed, and the way back. `snapshots` is the
entrance, `object_store` the private git store behind it. `staging` decides what goes in, `watch`
says where that need not look, `tree_edit` stages a few files, `restore` writes back. `file_modes`
are the permissions next to it, `borrowed_objects` makes sure that it lasts, `garbage` clears it.
`diff`, `running_git` and `signatures` compare. `saved_files` keeps single files by path, without a
scan, and `touch_record` tells which files other sessions touch. `repository_record` keeps what the
project's repository may lose, and `repository_restore` brings it back."""

from .diff import TreeChange
from .object_store import REPOSITORY_FOLDER
from .repository_record import RepositoryKeeper
from .saved_files import SAVED_FOLDER, SavedFile, SavedFiles, first_saved
from .signatures import blob_digest
from .snapshots import TreeState, WorkTree
from .touch_record import DELETED, RECORD_FOLDER, UNKNOWN, Touches, TouchRecord, content_of

__all__ = [
    "DELETED",
    "RECORD_FOLDER",
    "REPOSITORY_FOLDER",
    "SAVED_FOLDER",
    "UNKNOWN",
    "RepositoryKeeper",
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
