"""Find bubblewrap and check which of its features work here.

It tries each start mode once, the strictest first. The strictest mode runs under Landlock, so that
commands cannot connect to sockets without a path, and forbids nested user namespaces. A setuid-root
bubblewrap supports neither.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...tools.system.programs import program, within
from ..lazy import dataclass
from . import landlock, seccomp

PROBE_TIMEOUT_S = 10  # seconds
INSTALL_HINT = "Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`)"
MOVE_HINT = "Start in a project's folder, or name it with --cwd DIR"
NAMESPACE_HINT = (
    "Allow user namespaces (in a container: start it with fewer restrictions; on Ubuntu: add an "
    "AppArmor profile for bwrap)"
)
_FOLDERS = (
    "/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/run/wrappers/bin",
)  # fmt: skip
_ARGUMENTS = (
    "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent",
    "--new-session",
)  # fmt: skip
_WHOLE_ROOT = ("--ro-bind", "/", "/")
_KERNEL_FOLDERS = ("--dev", "/dev", "--proc", "/proc")
# Not as root: a user namespace would not know the other users.
_NO_USER_NAMESPACES = ("--unshare-user", "--disable-userns")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The result of the search for bubblewrap."""

    command: Sequence[str] = ()  # the beginning of each command line that it runs
    restrict: Callable[[], None] | None = None  # called by the thread that starts it
    absent: str = ""  # why no bubblewrap works, with a hint


def find_bubblewrap(cwd: str, network: bool) -> Bubblewrap:
    """Return the start command of bubblewrap for work in `cwd`, or the reason why none works."""
    if not sys.platform.startswith("linux"):
        reason = "there is no sandbox for this system. Run ctxagent in a container."
        return Bubblewrap(absent=reason)
    installed = list(_installed())
    for path in installed:
        if _is_out_of_reach(path, cwd):
            return _try(path, network)
    if not installed:
        return Bubblewrap(absent=f"bwrap is not installed. {INSTALL_HINT}.")
    too_wide = any(within(folder, [cwd]) for folder in _FOLDERS)
    hint = MOVE_HINT if too_wide else INSTALL_HINT
    reason = f"{installed[0]} is not used, since commands can write to its folder"
    return Bubblewrap(absent=f"{reason}. {hint}.")


def root_arguments(*, empty: bool) -> Iterator[str]:
    """Yield the arguments for the root folder: either all of it, read-only, or only its links and
    the kernel's file systems.
    """
    if not empty:
        yield from (*_WHOLE_ROOT, *_KERNEL_FOLDERS)
        return
    with os.scandir("/") as entries:
        for entry in entries:
            if entry.is_symlink():
                yield from ("--symlink", str(Path(entry.path).readlink()), entry.path)
    yield from (*_KERNEL_FOLDERS, "--ro-bind", "/sys", "/sys")


def filter_arguments(descriptors: Sequence[int]) -> list[str]:
    """Return the arguments for system call filters that are read from these descriptors."""
    return [word for number in descriptors for word in ("--seccomp", str(number))]


@functools.cache
def _try(path: str, network: bool) -> Bubblewrap:
    own_network = () if network else ("--unshare-net",)
    scopes = landlock.isolate_from_outside
    said = ""
    for restrict, users in (
        (scopes, _NO_USER_NAMESPACES if os.geteuid() else ()),
        (scopes, ()),
        (None, ()),
    ):
        command = (path, *_ARGUMENTS, *users, *own_network)
        with ThreadPoolExecutor(1) as thread:
            said = thread.submit(_test_error, command, restrict).result()
        if not said:
            return Bubblewrap(command, restrict)
    return Bubblewrap(absent=f"bwrap does not work here ({said}). {NAMESPACE_HINT}.")


def _test_error(command: Sequence[str], restrict: Callable[[], None] | None) -> str:
    """Run a test command and return the error message, "" if it works. `restrict` is called in its
    thread, which it restricts permanently.
    """
    passed = seccomp.readable_filter(seccomp.INTERNET)
    try:
        if restrict:
            restrict()
        done = subprocess.run(
            [
                *command, *root_arguments(empty=False), *filter_arguments(passed),
                "--", "/bin/sh", "-c", ":",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=PROBE_TIMEOUT_S, env={}, cwd="/", pass_fds=passed,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        for number in passed:
            os.close(number)
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
    return lines[-1][:200] if done.returncode else ""


def _installed() -> Iterator[str]:
    """Yield each path at which bubblewrap is installed."""
    named = [folder for folder in os.environ.get("PATH", "").split(":") if folder.startswith("/")]
    for folder in dict.fromkeys((*_FOLDERS, *named)):
        if found := shutil.which("bwrap", path=folder):
            yield found


def _is_out_of_reach(path: str, cwd: str) -> bool:
    """Return True if no command that works in `cwd` can change the program at `path`."""
    found = program("bwrap", str(Path(path).parent))
    return bool(found) and not within(os.path.realpath(found), [cwd, "/tmp", "/var/tmp"])
