"""The programs that a shell runs for the names in a command.

A name is taken for what it is known as only where the shell runs it from a place that nobody but
the user writes to: `ls` may as well be a file that a project has brought along, in a folder that
stands first on the PATH. The search is that of bash (bash(1), "COMMAND EXECUTION").
"""

import os
from collections.abc import Iterable, Iterator, Sequence

from ....tools.system.programs import is_within_reach, links_of, within
from ...lazy import dataclass
from .parser import Script, SimpleCommand
from .wrappers import name_set

# What bash runs itself, without a search.
_BUILTINS = name_set(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare "
    "dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill "
    "let local logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt "
    "source suspend test times trap true type typeset ulimit umask unalias unset wait"
)

_TEMPORARY = ("/tmp", "/var/tmp")


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs on a PATH, for commands that start in a project. Programs in the
    `folders` of the session and among temporary files are not taken for what they are called."""

    path: str
    folders: Iterable[str]

    def all_known(self, script: Script, bases: Sequence[str]) -> bool:
        """Return True if each command of a script runs what its name says."""
        return all(self.is_known(part, script, bases) for part in script.parts)

    def is_known(self, part: SimpleCommand, script: Script, bases: Sequence[str]) -> bool:
        """Return True if a command runs what its name says, or nothing: a builtin of bash, or a
        program as `find` returns it. `bases` are the folders that the command may start from."""
        return part.name in _BUILTINS or self.find(part, script, bases) is not None

    def find(self, part: SimpleCommand, script: Script, bases: Sequence[str]) -> str | None:
        """Return the program that the PATH finds first for a command; "" if there is none. None if
        neither is certain: the program, its folder, or what links lead to may be the project's, or
        what a command has put there."""
        name = part.name
        if not part.words[0].fixed or part.words[0].glob or "\0" in name:
            return None
        if "/" in name:
            return name if name.startswith("/") and self._is_out_of_reach(name) else None
        for folder in self.path.split(":"):
            file = f"{folder}/{name}"
            if not folder.startswith("/"):
                if script.moves or _is_in(bases, folder, name):
                    return None
            elif os.access(file, os.X_OK) and not os.path.isdir(file):  # noqa: PTH112
                return file if self._is_out_of_reach(file) else None
        safe = all(f.startswith("/") and self._is_out_of_reach(f) for f in self.path.split(":"))
        return "" if safe else None

    def folder_of(self, path: str, bases: Sequence[str]) -> str:
        """Return the folder of the PATH, as it stands there, that an absolute path lies in, as it
        is named or with links followed; "" for none."""
        parent = os.path.dirname(path)  # noqa: PTH120
        for folder, place in self._folders(bases):
            if parent in (place, folder):
                return folder or "."
        return ""

    def _folders(self, bases: Sequence[str]) -> Iterator[tuple[str, str]]:
        for folder in self.path.split(":"):
            for base in bases if not folder.startswith("/") else bases[:1]:
                yield folder, os.path.realpath(os.path.join(base, folder))  # noqa: PTH118

    def _is_out_of_reach(self, file: str) -> bool:
        named = (os.path.normpath(each) for each in links_of(file))
        real = os.path.realpath(file)
        untrusted = (*self.folders, *_TEMPORARY)
        return not any(is_within_reach(p) or within(p, untrusted) for p in (*named, real))


def _is_in(bases: Sequence[str], folder: str, name: str) -> bool:
    """Return True if there is something of this name in a folder below one of the bases."""
    return any(os.path.lexists(os.path.join(base, folder, name)) for base in bases)  # noqa: PTH118
