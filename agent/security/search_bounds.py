"""What a search may read: the folder that was judged, what says which files are ignored, and what
ripgrep itself needs.

ripgrep opens files by their paths. A folder that is exchanged for a link while it searches would
lead it elsewhere, past every rule; Landlock holds it to the folder itself.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...tools.system.programs import ripgrep
from . import landlock

_SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/nix/store")
_MUSL_PATHS = "ld-musl-*.path"  # in /etc: without it the loader of musl looks nowhere
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude")
_OWN_IGNORE_FILES = (
    ".gitconfig", ".config/git/config", ".config/git/ignore", ".gitignore", ".gitignore_global",
)  # fmt: skip


def search_bounds(environ: Mapping[str, str], folder: Path) -> Callable[[], None] | None:
    """Return what a thread gives up before it starts ripgrep for a search in a folder, an absolute
    real path; None where the kernel has no Landlock."""
    if not landlock.version():
        return None
    musl = map(str, Path("/etc").glob(_MUSL_PATHS))
    named = [*_SYSTEM, *musl, *_ripgrep(environ), *_ignore_files(environ, folder)]
    there = (os.path.realpath(path) for path in named if os.path.exists(path))  # noqa: PTH110
    return landlock.only_reading([str(folder), *dict.fromkeys(there)])


def _ripgrep(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the program, and the libraries that may lie next to it."""
    if found := ripgrep(environ.get("PATH")):
        real = Path(os.path.realpath(found))
        yield from (str(real), str(real.parent.parent / "lib"))


def _ignore_files(environ: Mapping[str, str], folder: Path) -> Iterator[str]:
    for above in folder.parents:
        yield from (str(above / name) for name in _IGNORE_FILES)
    if home := environ.get("HOME"):
        yield from (f"{home}/{name}" for name in _OWN_IGNORE_FILES)
