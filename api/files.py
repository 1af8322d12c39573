"""Files: private and durable writes, text too large for memory, and repositories."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.worktree.git import GitRunner, worktrees_folder
    from ..tools.system.files import (
        copy_private,
        keeping_old,
        make_private_folder,
        open_kept,
        private_opener,
        replace_file,
        replacing,
        sync_file,
        write_private,
    )
    from ..tools.system.git_links import current_branch, linked_folders
    from ..tools.system.kept_text import KeptText
    from ..tools.system.safe_open import open_regular
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "GitRunner",
    "KeptText",
    "copy_private",
    "current_branch",
    "keeping_old",
    "linked_folders",
    "make_private_folder",
    "open_kept",
    "open_regular",
    "private_opener",
    "replace_file",
    "replacing",
    "sync_file",
    "worktrees_folder",
    "write_private",
]
