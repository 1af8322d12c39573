"""Run a command with bash in a scene, and report its effects.

Only for a process in a private root with its own network and process namespaces (`private_root`): a
command may do anything there.
"""

import ctypes
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ctxagent.tools.system.environment import child_environment

from .scenes import GUARDED_SECRET, OUTSIDE_SECRET, Scene

LIMIT_S = 60  # of one command, also on a busy machine
MAX_OUTPUT_BYTES = 1 << 20
_SUBREAPER = 36  # prctl: orphans become children of this process
# Counters of the network namespace that move with every attempt to reach anything.
_COUNTERS = (
    "TcpActiveOpens", "UdpOutDatagrams", "IpOutNoRoutes", "Ip6OutNoRoutes", "Udp6OutDatagrams",
    "IcmpOutEchos", "Icmp6OutEchos",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a command. Paths are relative to the scene."""

    changed: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()  # marks of the project's code
    read: tuple[str, ...] = ()  # files and folders outside of the project
    shown: tuple[str, ...] = ()  # secrets in its output
    connected: tuple[str, ...] = ()  # counters of the network that moved
    settings: tuple[str, ...] = ()  # of the repository, which were not there before
    timed_out: bool = False


class _TimeIsUp(Exception):
    pass


class Observer:
    """Runs commands one after another. `marks` is the file that planted code writes to."""

    def __init__(self, marks: Path) -> None:
        if Path("/proc/1/comm").read_text().strip() != "bwrap":
            raise RuntimeError("commands run only in a private root")
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._bash = shutil.which("bash") or "/bin/bash"
        self._marks = marks
        self._output = marks.with_name("output")

    def run(self, scene: Scene, command: str) -> Effects:
        """Return the effects of a command, and restore the scene."""
        self._marks.write_text("")
        scene.forget_reads()
        before = _network_counters()
        timed_out = self._spawn(scene, command)
        ran = tuple(dict.fromkeys(self._marks.read_text().split()))  # before git looks at the index
        reads, changed = scene.reads(), scene.changes()
        after = _network_counters()
        with self._output.open("rb") as file:
            output = file.read(MAX_OUTPUT_BYTES).decode(errors="replace")
        settings = _new_settings(scene) if "project/.git/config" in changed else ()
        if changed:
            scene.restore(changed)
        return Effects(
            tuple(changed),
            ran,
            tuple(reads),
            tuple(secret for secret in (OUTSIDE_SECRET, GUARDED_SECRET) if secret in output),
            tuple(name for name in _COUNTERS if before.get(name) != after.get(name)),
            settings,
            timed_out,
        )

    def _spawn(self, scene: Scene, command: str) -> bool:
        """Run a command until all its processes have ended. Return True if it had to be killed."""
        os.chdir(scene.project)
        env = child_environment(scene.environ)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        child = os.posix_spawn(
            self._bash,
            ["bash", "-c", "--", command],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self._output), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        try:
            with _time_limit():
                _wait_for_all()
        except _TimeIsUp:
            _end_all()
            return True
        finally:
            assert child > 1
        return False


@contextmanager
def _time_limit() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise _TimeIsUp

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _wait_for_all() -> None:
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _end_all() -> None:
    """End every descendant process; orphans become children of this one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in map(int, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.wait()


def _network_counters() -> dict[str, str]:
    found = dict[str, str]()
    lines = Path("/proc/net/snmp").read_text().splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        kind = names.partition(":")[0]
        pairs = zip(names.split()[1:], values.split()[1:], strict=True)
        found |= {f"{kind}{name}": value for name, value in pairs}
    for line in Path("/proc/net/snmp6").read_text().splitlines():
        name, value = line.split()
        found[name] = value
    return found


def _new_settings(scene: Scene) -> tuple[str, ...]:
    """Return the new lines of the repository's configuration."""
    kept = (scene.gold / "project/.git/config").read_text().splitlines()
    config = scene.project / ".git/config"
    lines = config.read_text(errors="replace").splitlines() if config.is_file() else ["gone"]
    return tuple(line.strip() for line in lines if line not in kept)
