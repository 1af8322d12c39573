"""Decide whose a change is that was found after a command: the session's own, another session's,
or uncertain.

The only proof of a change is that the command visibly writes to the file (`> a.txt`, `sed -i … b`)
or that a session's record names it. A change without proof is listed as made while the command
ran: an editor or another program may have made it. If a command of another session ran at that
moment too, neither session lists the change as its own.
"""

import os
from collections.abc import Collection, Iterable
from dataclasses import field

from ..lazy import dataclass
from ..permissions.paths import is_within
from ..worktree import Touches, TreeChange, content_of


@dataclass(slots=True)
class SortedChanges:
    """Changes, sorted by how certain it is that this session made them. Changes by other sessions
    are left out."""

    own: list[TreeChange] = field(default_factory=list)
    uncertain: list[TreeChange] = field(default_factory=list)  # made while the command ran
    shared: list[TreeChange] = field(default_factory=list)  # and one of another session


def sort_changes(
    changes: Iterable[TreeChange], writes: Collection[str], others: Touches
) -> SortedChanges:
    """Sort the changes that were found after a command which visibly writes to the paths `writes`.
    `others` are the calls of other sessions at that time."""
    found = SortedChanges()
    for change in changes:
        if others.claims(change.path, content_of(change)):
            continue
        real = os.path.realpath(change.path)
        named = change.path in writes or real in writes
        overlapped = others.may_have_changed(change.path)
        named_by_other = overlapped and (others.writes(change.path) or others.writes(real))
        if named and not named_by_other:
            found.own.append(change)
        elif overlapped:
            if named or not named_by_other:
                found.shared.append(change)
        elif is_within(real, writes):
            found.own.append(change)
        else:
            found.uncertain.append(change)
    return found
