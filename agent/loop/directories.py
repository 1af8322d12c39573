"""Additional directories in which a session works. The entry that tells the model about one is
also its record: a session that is resumed has it again."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...tools.system.programs import distrust
from ..errors import UsageError
from ..permissions.paths import is_within
from ..permissions.work_folders import checked_directory

if TYPE_CHECKING:
    from ..permissions.approval import Approval
    from ..session.entries import User
    from .session_handle import SessionHandle


def open_directories(
    approval: "Approval", recorded: Mapping[str, str], chosen: Sequence[str]
) -> list[str]:
    """Let a session that opens work in the directories that its log has (paths as named, and with
    links followed) and in those of the settings; return warnings. Raises UsageError for one of the
    settings that cannot be added."""
    warnings = []
    for name, real in recorded.items():
        try:
            if os.path.realpath(checked_directory(name, "/", approval.own)) != real:
                raise UsageError(f"{name} led to {real} when it was added")
        except UsageError as error:
            warnings.append(
                f"the session goes on without {name}: {error.message}. /add-dir adds it"
            )
        else:
            add_folder(approval, name)
    for text in chosen:
        add_folder(approval, checked_directory(text, approval.folders.cwd, approval.own))
    return warnings


def untold_directories(handle: "SessionHandle") -> "list[User]":
    """Return the entry for directories that the log does not have yet, if there are any."""
    from ..session.entries import User

    folders = handle.approval.folders
    found = dict(zip(folders.names, folders.added, strict=True))
    new = {name: real for name, real in found.items() if handle.directories.get(name) != real}
    handle.directories |= new
    text = directories_line([*new])
    return [User(content=text, source="notice", details={"directories": new})] if new else []


def directories_line(names: Sequence[str]) -> str:
    return (
        "The user has added directories, in which you may read and change files as in the project "
        f"(give absolute paths): {', '.join(names)}"
    )


def add_folder(approval: "Approval", name: str) -> bool:
    """Let a session work in a directory that was checked; return whether it is a new one."""
    if is_within(os.path.realpath(name), approval.folders):
        return False
    approval.folders.add(name)
    distrust([name])
    return True
