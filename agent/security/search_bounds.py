"""The files that a search may read: the approved folder, ignore files, and the files of the search
program.

ripgrep opens files by path. If a folder is replaced by a link during the search, ripgrep would
leave the approved folder. Landlock prevents that. A search also writes nothing and opens no socket,
whatever program it is.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...tools.search.engine import search_engine
from ...tools.search.python_engine import PythonEngine
from . import landlock

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
    engine = search_engine(environ.get("PATH"))
    musl = map(str, Path("/etc").glob(_MUSL_PATHS))
    named = [*_SYSTEM, *musl, *engine.files, *PythonEngine().files]
    named += _ignore_files(environ, folder)
    there = (os.path.realpath(path) for path in named if os.path.exists(path))  # noqa: PTH110
    return landlock.read_only_restriction([str(folder), *dict.fromkeys(there)])


def _ignore_files(environ: Mapping[str, str], folder: Path) -> Iterator[str]:
    for above in folder.parents:
        yield from (str(above / name) for name in _IGNORE_FILES)
    if home := environ.get("HOME"):
        yield from (f"{home}/{name}" for name in _OWN_IGNORE_FILES)
