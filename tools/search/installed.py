"""Find the ripgrep for searches.

The ripgrep that was installed with this program may be in a folder that commands can write to, such
as an environment in the project or below /tmp. A copy of it is made before the first command can
run, and only the copy is started. Any other ripgrep is used only if commands cannot write to it.
"""

import shutil
import sysconfig
from pathlib import Path

from ..system.program_copy import ProgramCopy, copy_program
from ..system.programs import describe_program, program
from .ripgrep import Ripgrep

COPIES = "programs"  # folder of copies in the state folder
_copies: dict[str, ProgramCopy | OSError] = {}  # by the path of the program


def find_ripgrep(path: str | None) -> Ripgrep | None:
    """Return the ripgrep that was installed with this program, or else the one in `path`; None if
    there is none that commands cannot change.
    """
    folder = sysconfig.get_path("scripts")
    if found := program("rg", folder):
        return Ripgrep(found)
    copied = _copies.get(f"{folder}/rg")
    if isinstance(copied, ProgramCopy):
        return Ripgrep(f"{folder}/rg", copied)
    found = program("rg", path)
    return Ripgrep(found) if found else None


def keep_ripgrep(state: Path) -> None:
    """Copy the installed ripgrep if commands can write to it from now on. `state` is the folder for
    a copy that cannot be in memory.
    """
    folder = sysconfig.get_path("scripts")
    name = f"{folder}/rg"
    if name in _copies or program("rg", folder) or not shutil.which("rg", path=folder):
        return
    try:
        _copies[name] = copy_program(Path(name), state / COPIES)
    except OSError as error:
        _copies[name] = error


def missing_ripgrep(path: str | None) -> str:
    """Return why `find_ripgrep` finds none, and what to do."""
    folder = sysconfig.get_path("scripts")
    copied = _copies.get(f"{folder}/rg")
    if isinstance(copied, OSError):
        why = f"{folder}/rg cannot be copied: {copied.strerror}"
    else:
        why = describe_program("rg", path) or "ripgrep is not installed"
    return f"{why}. Install ripgrep from your system's packages"
