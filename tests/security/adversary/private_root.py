"""A private root for commands that may do anything: read-only system folders, one empty writable
folder, only a loopback network, and separate processes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import ctxagent

FIELD = Path("/field")
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix")
PACKAGE = Path(ctxagent.__path__[0]).resolve()


def _options() -> Iterator[str]:
    for name in _SYSTEM:
        place = Path("/", name)
        if place.is_symlink():
            yield from ("--symlink", str(place.readlink()), str(place))
        elif place.is_dir():
            yield from ("--ro-bind", str(place), str(place))
    for kind, place in (("proc", "/proc"), ("dev", "/dev"), ("tmpfs", "/tmp"), ("tmpfs", FIELD)):
        yield from (f"--{kind}", str(place))
    for folder in {*map(os.path.realpath, (sys.base_prefix, sys.prefix, PACKAGE))}:
        if Path(folder).parts[1] not in _SYSTEM:
            yield from ("--ro-bind", folder, folder)
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--clearenv")
    for name, value in (
        ("PATH", os.defpath), ("HOME", str(FIELD)), ("PYTHONDONTWRITEBYTECODE", "1"),
    ):  # fmt: skip
        yield from ("--setenv", name, value)


def in_private_root(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a Python module with arguments in a private root."""
    bwrap = shutil.which("bwrap") or "bwrap"
    return [bwrap, *_options(), "--", sys.executable, "-m", *arguments]


@cache
def absent() -> str:
    """Return why a private root cannot be created here, "" if it can."""
    missing = [name for name in ("bwrap", "bash", "git", "make") if not shutil.which(name)]
    if missing:
        return f"needs {', '.join(missing)}"
    command = in_private_root(["this"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"bwrap makes no private root here: {done.stderr[:200]}" if done.returncode else ""
