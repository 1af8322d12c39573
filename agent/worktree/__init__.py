"""The work tree: what its files were like, what changed, and the way back. `snapshots` is the
entrance, `object_store` the private git store behind it, `staging` decides what goes in, `restore`
writes it back, `file_modes` are the permissions beside it, `borrowed_objects` makes sure that it
lasts, `garbage` clears it, `diff` and `signatures` compare."""

from .diff import TreeChange
from .snapshots import TreeState, WorkTree

__all__ = ["TreeChange", "TreeState", "WorkTree"]
