"""The work tree: what its files were like, what changed, and the way back. `tree` is the contract;
`store` is the private git store behind it, `intake` decides what goes in, `restore` writes it back,
`modes` are the permissions beside it, `borrowed` makes sure that it lasts, `sweep` clears it,
`difference` and `signatures` tell what has changed."""

from .difference import Change
from .tree import Look, WorkTree

__all__ = ["Change", "Look", "WorkTree"]
