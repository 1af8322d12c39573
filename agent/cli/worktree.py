"""`--worktree NAME`: work in a separate git worktree."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SessionBusy, UsageError
from .options import cwd_of, say

if TYPE_CHECKING:
    from ..config.load import LoadedSettings
    from ..worktree.git import LinkedWorktree


def enter_worktree(options: dict[str, Any], loaded: "LoadedSettings") -> "LinkedWorktree | None":
    """Make the worktree in the options the working directory and print its path. Return None
    without the option. Files trusted in the checkout are trusted there too if their content is the
    same. Raises UsageError, for example if another process works in it.
    """
    if options["worktree"] is None:
        return None
    from ...tools.system.environment import child_environment
    from ..config.places import state_dir
    from ..security.sandbox_paths import distrust_writable_folders
    from ..session.lock import acquire_lock
    from ..session.store import Project
    from ..worktree.git import open_worktree
    from .project_trust import trust_worktree

    cwd, name = cwd_of(options), options["worktree"]
    settings, warnings = loaded.settings, list[str]()
    state = state_dir(settings, os.environ)
    distrust_writable_folders(settings.sandbox, cwd, os.environ, state)  # before git runs

    def lock(path: Path) -> None:
        place = Project(state, path).folder / "worktree" / "log"
        try:
            acquire_lock(place, warnings)  # held until the process ends
        except SessionBusy as busy:
            hint = "Wait for it, or choose another name."
            why = f"--worktree {name}: another process uses it (pid {busy.holder})"
            raise UsageError(why, hint=hint) from None

    found = open_worktree(cwd, name, child_environment(os.environ), lock)
    trust_worktree(found.checkout, found.path, found.folder, loaded.trust_dir)
    options["cwd"] = found.folder
    again = "a new worktree" if found.is_new else "existing worktree"
    for line in [f"{again}: {found.path} (branch {found.branch})", *warnings]:
        say(f"note: {line}", err=True)
    return found


def worktree_summary(found: "LinkedWorktree") -> str:
    """Return where the work is, and how to merge or remove it."""
    return (
        f"the work is in {found.path} (branch {found.branch})\n"
        f"  merge it: git merge {found.branch}\n"
        f"  remove it: git worktree remove {found.path} && git branch -d {found.branch}"
    )
