"""Find the programs that a shell runs for the names in a command.

A name such as `ls` is trusted only if the shell finds the program in a place that only the user can
write to. Otherwise a project could bring its own `ls` in a folder that comes first on the PATH. The
search follows bash (bash(1), "COMMAND EXECUTION").
"""

import os
from collections.abc import Iterable, Iterator, Sequence

from ....tools.system.programs import is_writable_by_commands, links_of, within
from ...lazy import dataclass
from .parser import Script, SimpleCommand
from .wrappers import name_set

# Bash builtins, which need no PATH search.
_BUILTINS = name_set(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare "
    "dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill "
    "let local logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt "
    "source suspend test times trap true type typeset ulimit umask unalias unset wait"
)

_TEMPORARY = ("/tmp", "/var/tmp")


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs on a PATH, for commands that start in a project. Programs in the session's
    `folders` and in temporary folders are not trusted.
    """

    path: str
    folders: Iterable[str]

    def all_known(self, script: Script, bases: Sequence[str]) -> bool:
        """Return True if each command of a script runs the program that its name suggests."""
        return all(self.is_known(part, script, bases) for part in script.parts)

    def is_known(self, part: SimpleCommand, script: Script, bases: Sequence[str]) -> bool:
        """Return True if a command is a bash builtin, a trusted program (see `find`), or not found
        at all. `bases` are the folders that the command may start from.
        """
        return part.name in _BUILTINS or self.find(part, script, bases) is not None

    def find(self, part: SimpleCommand, script: Script, bases: Sequence[str]) -> str | None:
        """Return the first program on the PATH for a command; "" if there is none. Return None if
        that is not certain: the program, its folder or a link target may be written by the project
        or by a command.
        """
        name = part.name
        if not part.words[0].fixed or part.words[0].glob or "\0" in name:
            return None
        if "/" in name:
            return name if name.startswith("/") and self._is_out_of_reach(name) else None
        for folder in self.path.split(":"):
            file = f"{folder}/{name}"
            if not folder.startswith("/"):
                if script.folder_changes or _is_in(bases, folder, name):
                    return None
            elif os.access(file, os.X_OK) and not os.path.isdir(file):  # noqa: PTH112
                return file if self._is_out_of_reach(file) else None
        safe = all(f.startswith("/") and self._is_out_of_reach(f) for f in self.path.split(":"))
        return "" if safe else None

    def folder_of(self, path: str, bases: Sequence[str]) -> str:
        """Return the PATH entry whose folder directly contains an absolute path, links resolved or
        not; "" for none.
        """
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
        return not any(is_writable_by_commands(p) or within(p, untrusted) for p in (*named, real))


def _is_in(bases: Sequence[str], folder: str, name: str) -> bool:
    """Return True if a file with this name exists in a folder relative to one of the bases."""
    return any(os.path.lexists(os.path.join(base, folder, name)) for base in bases)  # noqa: PTH118
