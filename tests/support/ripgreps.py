"""The ripgrep that the project depends on, and copies of it as the agent makes them."""

import sysconfig
from pathlib import Path
from unittest.mock import patch

from ctxagent.tools.search.ripgrep import Ripgrep
from ctxagent.tools.system import program_copy
from ctxagent.tools.system.program_copy import ProgramCopy, copy_program

KINDS = ("program", "copy in memory", "copy in a file")
PROGRAM = Path(sysconfig.get_path("scripts"), "rg")


def file_copy(source: Path, folder: Path) -> ProgramCopy:
    """Copy a program as on a system that starts no programs from memory."""
    with patch.object(program_copy, "_memory_file", side_effect=PermissionError):
        return copy_program(source, folder)


def ripgrep_of(kind: str, folder: Path) -> Ripgrep:
    """Return a ripgrep; `folder` is for the copy in a file."""
    assert PROGRAM.exists(), f"{PROGRAM} is missing: install the project with its dependencies"
    if kind == "program":
        return Ripgrep(str(PROGRAM))
    copy = copy_program if kind == "copy in memory" else file_copy
    return Ripgrep(str(PROGRAM), copy(PROGRAM, folder))
