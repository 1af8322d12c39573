"""The folders of a session: the project and directories that the user added.

Rules, permission checks, the sandbox and the watch for planted files share one list, so an added
directory applies to all of them at once.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import UsageError
from .paths import home_folders, is_within, protected_name


class WorkFolders:
    """The folders of a session. Iterating yields each path as given and resolved, the project
    first.
    """

    def __init__(self, cwd: Path | str) -> None:
        self.cwd = os.path.abspath(cwd)  # noqa: PTH100 - links must stay as they are
        self.project = (self.cwd, os.path.realpath(cwd))
        self.added: list[str] = []  # links resolved; the sandbox shares this list
        self.names: list[str] = []  # the same, as the user named them
        self.pinned: Sequence[str] = ()  # files that hooks and servers run, which no mode edits

    def __iter__(self) -> Iterator[str]:
        yield from (*self.project, *self.names, *self.added)

    @property
    def real(self) -> list[str]:
        """All folders with links resolved, the project first."""
        return [self.project[1], *self.added]

    def add(self, name: str) -> None:
        """Add a directory returned by `checked_directory`."""
        self.names.append(name)
        self.added.append(os.path.realpath(name))


def checked_directory(text: str | Path, base: str | Path, own: Sequence[str]) -> str:
    """Return the absolute path of a directory that may be added to a session. A relative path
    starts at `base`; `own` are the agent's own files and folders. Raises UsageError.
    """
    name = os.path.abspath(os.path.join(base, os.path.expanduser(text)))  # noqa: PTH100, PTH111, PTH118
    if "\0" in name or not os.path.lexists(name):
        raise _refusal(text, "it does not exist", "Create it first, or correct the path.")
    real = os.path.realpath(name)
    if not Path(real).is_dir():
        raise _refusal(text, "it is not a directory", "Name its parent directory.")
    if real == "/":
        raise _refusal(text, "it is the root of the file system")
    if any(is_within(home, (real,)) for home in home_folders()):
        raise _refusal(text, "it is your home folder, or contains it")
    if found := [place for place in own if is_within(place, (real,))]:
        raise _refusal(text, f"it contains {found[0]}, where the agent keeps its own files")
    if protected := protected_name(real, (), own=own):
        raise _refusal(text, f"{protected} is protected")
    return name


def _refusal(text: str | Path, why: str, hint: str = "Name a project's directory.") -> UsageError:
    return UsageError(f"the directory {str(text)!r} cannot be added: {why}", hint=hint)
