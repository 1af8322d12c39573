"""Find bubblewrap and check its features here, and report the sandbox's state to the user.

The check tries each start mode once, the strictest first. The strictest mode runs under Landlock,
so that commands cannot connect to sockets without a path, and forbids nested user namespaces. A
setuid-root bubblewrap supports neither.

Interactive starts show the state once on each machine, and again when it has become worse. A file
in the state folder keeps the state that each machine had at its last interactive start.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, get_args

from ...tools.system.confinement import Confinement
from ...tools.system.files import make_private_folder, replace_file
from ...tools.system.programs import program, within
from ..events import Notice
from ..lazy import dataclass
from . import landlock, seccomp

FILE_NAME = "sandbox.json"
MAX_MACHINES = 100  # that share the state folder, such as those of a cluster
MAX_FILE_BYTES = 1 << 16
_MACHINE_ID = Path("/etc/machine-id")  # most containers have none, and count as one machine

SandboxState = Literal["none", "partial", "complete"]  # weakest first
_STATES: tuple[SandboxState, ...] = get_args(SandboxState)


def state_of(sandbox: Confinement) -> SandboxState:
    """Return how far a sandbox confines commands. "partial" is Landlock without bubblewrap."""
    return "none" if sandbox.absent else "partial" if sandbox.partial else "complete"


def sandbox_news(sandbox: Confinement | None, folder: Path) -> Notice | None:
    """Return a notice on the state of the sandbox if the user of this state folder does not know it
    yet, else None. Without a sandbox by choice, return None. Blocks and never fails: if the file
    cannot be written, each call returns the notice.
    """
    if sandbox is None:
        return None
    now, machine = state_of(sandbox), _machine_id()
    known = _read(folder / FILE_NAME)
    before = known.pop(machine, None)
    if before == now:
        return None
    newest = [*known.items(), (machine, now)][-MAX_MACHINES:]
    _write(folder / FILE_NAME, dict(newest))
    if before is not None and _STATES.index(before) < _STATES.index(now):
        return None
    text = f"sandbox: {sandbox.describe().removesuffix('.')}. /status shows this again."
    return Notice("info" if now == "complete" else "warning", text)


def _machine_id() -> str:
    try:
        return _MACHINE_ID.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _read(path: Path) -> dict[str, SandboxState]:
    """Return the state of each machine, the newest last. Leave out damaged parts."""
    try:
        with path.open("rb") as file:
            kept = json.loads(file.read(MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    rows = kept.items() if isinstance(kept, dict) else ()
    return {machine: state for machine, state in rows if state in _STATES}


def _write(path: Path, states: Mapping[str, SandboxState]) -> None:
    try:
        make_private_folder(path.parent)
        replace_file(path, json.dumps(states, indent=1).encode(), durable=False)
    except OSError:
        return


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
