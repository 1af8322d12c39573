"""Decide which session made a change that was found after a command: this one, another one, or
uncertain.

A change is only proved if the command visibly writes to the file (`> a.txt`, `sed -i … b`) or a
session's record names it. A change without proof is listed as made while the command ran, since an
editor or another program may have made it. If a command of another session ran at the same time,
neither session lists the change as its own.
"""

import os
from collections.abc import Collection, Iterable
from dataclasses import field

from ..lazy import dataclass
from ..permissions.paths import is_within
from ..worktree import Touches, TreeChange, content_of


@dataclass(slots=True)
class SortedChanges:
    """Changes, grouped by how certain it is that this session made them. Changes by other sessions
    are left out.
    """

    own: list[TreeChange] = field(default_factory=list)
    uncertain: list[TreeChange] = field(default_factory=list)  # made while the command ran
    shared: list[TreeChange] = field(default_factory=list)  # another session's command ran too


def sort_changes(
    changes: Iterable[TreeChange], writes: Collection[str], others: Touches
) -> SortedChanges:
    """Sort the changes found after a command. `writes` are the paths that the command visibly
    writes to. `others` are the calls of other sessions at that time.
    """
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
