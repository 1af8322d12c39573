"""The work tree: what its files were like, what changed, and the way back. `snapshots` is the
entrance, `object_store` the private git store behind it, `staging` decides what goes in, `watch`
says where that need not look, `tree_edit` stages a few files, `restore` writes back, `file_modes`
are the permissions beside it, `borrowed_objects` makes sure that it lasts, `garbage` clears it,
`diff`, `running_git` and `signatures` compare."""

from .diff import TreeChange
from .snapshots import TreeState, WorkTree

__all__ = ["TreeChange", "TreeState", "WorkTree"]
