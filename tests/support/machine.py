"""What this machine has: kinds of sandboxes, a search program, a terminal multiplexer and other
programs. Tests ask here, so that each skip says what is missing.

A test of a command line runs under all kinds of sandboxes (`every_sandbox`), or it names one and
starts the command with `under`.
"""

import ctypes
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

import pytest

from .command import COMMAND

Kind = Literal["bubblewrap", "Landlock", "none"]  # strongest first

# These ask the machine, not the agent: a defect of the agent must fail tests, not skip them.
_SYSTEM_FOLDERS = "/usr/bin:/bin:/usr/local/bin"
_LANDLOCK_CREATE_RULESET, _LANDLOCK_VERSION = 444, 1
_LANDLOCK_FILES_VERSION = 3
_FILTERED_MACHINES = ("x86_64", "aarch64")
# Statements that take programs away from the agent in a new process.
_TAKEN_AWAY: Mapping[Kind, Sequence[str]] = {
    "Landlock": ("bubblewrap._installed = lambda: iter(())",),
    "none": ("bubblewrap._installed = lambda: iter(())", "landlock.version = lambda: 0"),
}
_START = """import sys
from ctxagent.agent.security import bubblewrap, landlock
from ctxagent.tools.system import program_copy
{taken_away}
from ctxagent.agent.cli.main import main
sys.argv[0] = {command!r}
main()
"""


@cache
def program(name: str) -> str | None:
    """Return the path of a program, None if it is not installed."""
    return shutil.which(name)


def missing(*names: str) -> str:
    """Return which of these programs are not installed, as a reason to skip a test; "" for none."""
    found = [name for name in names if program(name) is None]
    return f"not installed: {', '.join(found)}" if found else ""


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test if programs are not installed."""
    return pytest.mark.skipif(bool(missing(*names)), reason=missing(*names))


def skip_without(*names: str) -> None:
    """Skip the running test if programs are not installed."""
    if why := missing(*names):
        pytest.skip(why)


@cache
def lacks(kind: Kind) -> str:
    """Return why a kind of sandbox does not exist here, "" if it does. Commands without a sandbox
    exist everywhere.
    """
    if kind == "bubblewrap":
        return _lacks_bubblewrap()
    return _lacks_landlock() if kind == "Landlock" else ""


@cache
def bwrap() -> str | None:
    """Return the path of bubblewrap, also if its folder is not on the PATH."""
    return program("bwrap") or shutil.which("bwrap", path=_SYSTEM_FOLDERS)


def _lacks_bubblewrap() -> str:
    found = bwrap()
    if found is None:
        return missing("bwrap")
    options = ("--ro-bind", "/", "/", "--unshare-pid", "--unshare-net", "--proc", "/proc")
    command = [found, *options, "--", "/bin/sh", "-c", ":"]
    done = subprocess.run(command, capture_output=True, text=True)
    return f"bwrap does not work here: {done.stderr.strip()[:200]}" if done.returncode else ""


def _lacks_landlock() -> str:
    if sys.platform != "linux":
        return "Landlock exists only on Linux"
    ask = ctypes.CDLL(None).syscall
    version = ask(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if version < _LANDLOCK_FILES_VERSION:
        return f"this kernel's Landlock has version {max(0, version)}"
    known = platform.machine() in _FILTERED_MACHINES
    return "" if known else f"there is no filter of system calls for {platform.machine()}"


needs_bwrap = pytest.mark.skipif(bool(lacks("bubblewrap")), reason=lacks("bubblewrap"))
needs_landlock = pytest.mark.skipif(bool(lacks("Landlock")), reason=lacks("Landlock"))
BUBBLEWRAP = pytest.param("bubblewrap", marks=needs_bwrap)
LANDLOCK = pytest.param("Landlock", marks=needs_landlock)
every_sandbox = pytest.mark.parametrize("kind", [BUBBLEWRAP, LANDLOCK, "none"])


# A statement that takes away the files in memory that programs can be started from.
NO_PROGRAMS_IN_MEMORY = "del program_copy.os.MFD_ALLOW_SEALING"


def under(kind: Kind, python: str = "", taken_away: str = "") -> tuple[str, ...]:
    """Return the beginning of a command line that starts the agent under one kind of sandbox, also
    if this machine has a stronger one. For the kinds without bubblewrap, it is not installed.

    `python` starts the agent in another environment. `taken_away` is a statement that takes away
    something else.
    """
    usual: Kind = "none" if lacks("Landlock") else "Landlock"
    is_usual = kind == ("bubblewrap" if bwrap() else usual)
    if is_usual and not python and not taken_away:
        return (COMMAND,)
    statements = [*(() if is_usual else _TAKEN_AWAY[kind]), taken_away]
    start = _START.format(taken_away="\n".join(statements), command=COMMAND)
    return (python or sys.executable, "-c", start)
