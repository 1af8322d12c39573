"""Additional working directories of a session.

The entry that announces a directory to the model is also its record, so resumed sessions have it
again.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...tools.search.installed import keep_ripgrep
from ...tools.system.programs import distrust
from ..errors import UsageError
from ..permissions.paths import checked_directory, is_within

if TYPE_CHECKING:
    from ..permissions.approval import Approval
    from ..session.entries import User
    from .live_session import LiveSession


def open_directories(
    approval: "Approval", recorded: Mapping[str, str], chosen: Sequence[str], state: Path
) -> list[str]:
    """Add the directories of the log and of the settings to a session that is opened, and return
    warnings. `recorded` maps names to real paths. Raises UsageError if a directory of the settings
    cannot be added.
    """
    warnings = []
    for name, real in recorded.items():
        try:
            if os.path.realpath(checked_directory(name, "/", approval.own)) != real:
                what = f"{name} pointed to {real} when it was added"
                raise UsageError(what, hint=f"Use /add-dir {name}.")
        except UsageError as error:
            warnings.append(
                f"the session continues without {name}: {error.message}. Use /add-dir to add it"
            )
        else:
            add_folder(approval, name, state)
    for text in chosen:
        name = checked_directory(text, approval.folders.cwd, approval.own)
        add_folder(approval, name, state)
    return warnings


def new_directory_entries(session: "LiveSession") -> "list[User]":
    """Return the entry for directories that are not in the log yet, if there are any."""
    from ..session.entries import User

    folders = session.approval.folders
    found = dict(zip(folders.names, folders.added, strict=True))
    new = {name: real for name, real in found.items() if session.directories.get(name) != real}
    session.directories |= new
    text = directories_line([*new])
    return [User(content=text, source="notice", details={"directories": new})] if new else []


def directories_line(names: Sequence[str]) -> str:
    return (
        "The user has added directories, in which you may read and change files as in the project "
        f"(give absolute paths): {', '.join(names)}"
    )


def add_folder(approval: "Approval", name: str, state: Path) -> bool:
    """Add a checked directory to a session. Return True if it is new. `state` is the state folder,
    for a copy of a program that commands could change from now on.
    """
    if is_within(os.path.realpath(name), approval.folders):
        return False
    approval.folders.add(name)
    distrust([name])
    keep_ripgrep(state)
    return True
