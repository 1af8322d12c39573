"""Limits on a session's folders: parts that no command may change, and files a search may read.

Guarded parts are those of a repository that make git run programs, settings files, and programs
that the agent would run.

A search may read the approved folder, ignore files, and ripgrep's own files. ripgrep opens files by
path: if a folder is replaced by a link during the search, ripgrep would leave the approved folder.
Landlock prevents that. A search also writes nothing and opens no socket.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from threading import Lock

from ...tools.search.installed import find_ripgrep
from ...tools.system.programs import within
from ..lazy import dataclass
from . import landlock
from .sandbox_paths import find_repository

_SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/nix/store")
_MUSL_PATHS = "ld-musl-*.path"  # in /etc: musl's loader needs it to find libraries
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude")
_OWN_IGNORE_FILES = (
    ".gitconfig", ".config/git/config", ".config/git/ignore", ".gitignore", ".gitignore_global",
)  # fmt: skip


def search_bounds(environ: Mapping[str, str], folder: Path) -> Callable[[], None] | None:
    """Return a function that restricts a thread before it starts a search in a folder; None if the
    kernel has no Landlock. `folder` is an absolute real path.
    """
    if not landlock.version():
        return None
    ripgrep = find_ripgrep(environ.get("PATH"))
    musl = map(str, Path("/etc").glob(_MUSL_PATHS))
    named = [*_SYSTEM, *musl, *(ripgrep.files if ripgrep else ()), *_ignore_files(environ, folder)]
    there = (os.path.realpath(path) for path in named if os.path.exists(path))  # noqa: PTH110
    return landlock.read_only_restriction([str(folder), *dict.fromkeys(there)])


def _ignore_files(environ: Mapping[str, str], folder: Path) -> Iterator[str]:
    for above in folder.parents:
        yield from (str(above / name) for name in _IGNORE_FILES)
    if home := environ.get("HOME"):
        yield from (f"{home}/{name}" for name in _OWN_IGNORE_FILES)


_PROGRAMS = ("git", "rg", "bash", "sh", "bwrap")
_READ_ONLY = (".agentrc", ".ctxagent")


@dataclass(slots=True)
class GuardedParts:
    """The guarded parts of the project at `cwd` and of the `added` directories. The parts of a
    folder are listed when it joins the session, before any command can write there. The sandboxes
    of all commands share them.
    """

    cwd: str
    added: Sequence[str]
    path: str  # the PATH
    repositories: list[str] = field(default_factory=list)  # the folders that a commit writes to
    read_only: list[str] = field(default_factory=list)
    must_not_appear: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)  # threads prepare the sandboxes of commands

    @property
    def folders(self) -> list[str]:
        """The folders of the session with links resolved, the project first."""
        return [self.cwd, *self.added]

    def look(self) -> None:
        """Find the guarded parts of folders that were added since the last call."""
        with self._lock:
            for folder in self.folders:
                if folder not in self._known:
                    self._known.add(folder)
                    self._add_folder(folder)

    def _add_folder(self, folder: str) -> None:
        git = find_repository(folder)
        programs = list(_project_programs(self.path, folder))
        present = list(filter(os.path.lexists, programs))
        self.repositories += git.folders
        self.read_only += [*git.read_only, *present, *(f"{folder}/{each}" for each in _READ_ONLY)]
        missing = (each for each in programs if each not in present)
        self.must_not_appear += [*git.must_not_exist, *missing]

    def accept_present(self) -> None:
        """Keep files read-only from now on that other programs created while no command ran.
        Commands then see them instead of being kept from creating them.
        """
        with self._lock:
            made = list(filter(os.path.lexists, self.must_not_appear))
            self.read_only += made
            self.must_not_appear[:] = [each for each in self.must_not_appear if each not in made]

    def set_aside(self) -> list[str]:
        """Rename new files that git would read as configuration or the agent would run as a
        program. Return the new names.
        """
        renamed = []
        for path in self.must_not_appear:
            if os.path.lexists(path):
                name = f"{path}.set-aside-{secrets.token_hex(3)}"
                with suppress(OSError):
                    Path(path).rename(name)
                    renamed.append(name)
        return renamed


def _project_programs(path: str, cwd: str) -> Iterator[str]:
    """Yield the paths in the project where the agent would search for the programs that it runs."""
    for folder in dict.fromkeys(path.split(":")):
        place = os.path.realpath(os.path.join(cwd, folder))  # noqa: PTH118 - may be relative
        if folder and within(place, [cwd]):
            yield from (f"{place}/{name}" for name in _PROGRAMS)
