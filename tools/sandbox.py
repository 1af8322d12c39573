"""The sandbox of a session's commands: bubblewrap, where it works.

A command sees the file system as it is, but read-only. The project, its repository, temporary
files and the caches of package managers can be written; secrets, the agent's own files and the
sockets of other programs cannot be seen; what would make git or the agent run something later is
closed. Each call has processes of its own, which end with it. Where bubblewrap is missing or the
system forbids what it needs, `absent` says so and nothing is confined.
"""

import functools
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from . import gitplace, hidden
from .programs import program, within

PROBING = 10  # seconds
INSTALL = "Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`)"
ALLOW = (
    "Let it make user namespaces (in a container: start that with fewer restrictions; on Ubuntu: "
    "an AppArmor profile for bwrap)"
)

# Of the root's powers: over files, over processes of its own, to be another user.
_POWERS = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
)
_KERNEL = ("/proc/sys", "/proc/fs", "/proc/irq", "/proc/bus", "/proc/sysrq-trigger", "/proc/mtrr")
_DEVICES = ("nvidia*", "kfd", "dri/renderD*")
_PROGRAMS = ("git", "rg", "bash", "sh", "bwrap")
_CLOSED = (".agentrc", ".ctxagent")  # in the project
_PLACES = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/run/wrappers/bin")

# The command's own shell is a child of this one, whose stdin is a pipe to the agent: it tells of
# processes that were left running, which are ended with it. A job waits for them. It outlives a
# request to end, so that the others have their moment.
_SHELL = """trap : HUP INT TERM
exec 3>&2 2>/dev/null
(exec "$@" </dev/null 2>&3 3>&-)
code=$?
set -- /proc/[0-9]*
[ $# -le 2 ] || { sleep 0.05; set -- /proc/[0-9]*; }
"""
_TELL = "[ $# -le 2 ] || echo left >&0\n"
_WAIT = "while [ $# -gt 2 ]; do sleep 0.5; set -- /proc/[0-9]*; done\n"
_EXIT = "exit $code"

_BASE = (
    "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent",
    "--new-session", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
)  # fmt: skip


@dataclass(slots=True)
class Sandbox:
    """How the commands of a session are confined.

    `write` are folders that they may write to besides, `hide` what they must not see, `show` what
    of that they may read all the same. With `required` none runs where the sandbox is absent.
    """

    cwd: Path
    environ: Mapping[str, str]
    required: bool = False
    network: bool = True
    write: Sequence[Path] = ()
    hide: Sequence[Path] = ()
    show: Sequence[Path] = ()
    temporary: Sequence[str] = ("/tmp", "/var/tmp")
    _git: gitplace.GitPlace = field(init=False)
    _closed: list[str] = field(init=False)
    _absent: list[str] = field(init=False)
    _homes: list[str] = field(init=False)
    _found: "Found" = field(init=False)
    _jobs: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        # All before a command of the session could change what is found.
        cwd = os.path.realpath(self.cwd)
        self._homes, self._git = homes(self.environ), gitplace.find(cwd)
        programs = list(_programs(self.environ.get("PATH", ""), cwd))
        there = list(filter(os.path.lexists, programs))
        own = (f"{cwd}/{name}" for name in _CLOSED)
        self._closed = [*self._git.closed, *there, *own]
        self._absent = [*self._git.absent, *(path for path in programs if path not in there)]
        self._found = probe(cwd, self.network)

    @property
    def absent(self) -> str:
        """Why commands are not confined here, with what would help; "" where they are."""
        return self._found.absent

    def describe(self) -> str:
        """One line for people: what holds for commands."""
        if self.absent:
            held = "no command runs" if self.required else "commands run without one"
            return f"{held}: {self.absent}"
        network = "with the network" if self.network else "without a network"
        return f"bubblewrap: commands write to the project and temporary files only, {network}"

    def bounds(self) -> str:
        """What a command cannot do, for one that failed."""
        network = "" if self.network else ", and there is no network"
        return (
            "only the project, temporary files and caches can be written, but not .git/config and "
            f".git/hooks; keys and sockets of other programs cannot be reached{network}"
        )

    def enclose(
        self, command: Sequence[str], *, lasting: bool = False, own: Iterable[int] = ()
    ) -> list[str]:
        """The command line that runs `command` in the sandbox. One that is `lasting` goes on
        until the last of its processes has ended. Sockets that the processes `own` hold stay
        within reach."""
        self._jobs = self._jobs or lasting
        if not self._jobs:  # what is there now was made by somebody else
            made = list(filter(os.path.lexists, self._absent))
            self._closed += made
            self._absent = [path for path in self._absent if path not in made]
        arguments = [self._found.path, *_BASE]
        if not self.network:
            arguments.append("--unshare-net")
        if os.geteuid() == 0:
            arguments += ["--cap-drop", "ALL"]
            arguments += [part for power in _POWERS for part in ("--cap-add", f"CAP_{power}")]
            # The kernel asks for no powers there, only for the user, who is its root.
            for path in hidden.there(_KERNEL):
                arguments += ["--ro-bind", path, path]
        for path in _devices():
            arguments += ["--dev-bind", path, path]
        arguments += _arguments(self._places(own))
        script = _SHELL + (_WAIT if lasting else _TELL) + _EXIT
        return [
            *(*arguments, "--chdir", str(self.cwd), "--"),
            *("/bin/sh", "-c", script, "sh", *command),
        ]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """What a command in the sandbox is given of `env`: no name of a way out of it."""
        docker = env.get("DOCKER_HOST", "").startswith("unix:")
        return {
            name: value
            for name, value in env.items()
            if name not in hidden.WAYS_OUT and not (name == "DOCKER_HOST" and docker)
        }

    def set_aside(self) -> list[str]:
        """Rename what has appeared where git would take it for its configuration, or the agent
        for a program of its own; what it is called now."""
        renamed = []
        for path in self._absent:
            if os.path.lexists(path):
                name = f"{path}.set-aside-{secrets.token_hex(3)}"
                with suppress(OSError):
                    Path(path).rename(name)
                    renamed.append(name)
        return renamed

    def _places(self, own: Iterable[int]) -> dict[str, str]:
        """What each place is: "rw", "ro", "empty" or "run". What lies deeper holds against what
        it lies in."""
        cwd = os.path.realpath(self.cwd)
        temporary = list(self._temporary())
        places = dict.fromkeys(temporary, "rw")
        places |= {home: "ro" for home in self._homes if within(home, temporary)}
        for home in self._homes[:2]:
            places |= dict.fromkeys(hidden.caches(home, dict(self.environ)), "rw")
        places |= dict.fromkeys(hidden.there(hidden.RUN), "run")
        places |= dict.fromkeys(hidden.needed(), "ro")
        places |= dict.fromkeys(hidden.listening(temporary), "empty")
        secret = [*hidden.secrets(self._homes), *hidden.there(map(str, self.hide))]
        places |= dict.fromkeys(secret, "empty")
        places |= dict.fromkeys(hidden.there(map(str, self.show)), "ro")
        opened = [*_project(cwd, self._homes), *hidden.there(self._git.folders), *self._given()]
        places |= dict.fromkeys(opened, "rw")
        places |= dict.fromkeys(hidden.there(self._closed), "ro")
        return places | dict.fromkeys(self._foreign(places, opened, own), "empty")

    def _temporary(self) -> Iterator[str]:
        named = [*self.temporary, *filter(None, [self.environ.get("TMPDIR")])]
        for path in dict.fromkeys(hidden.there(named)):
            if path == "/tmp" or not holds(path, self._homes):
                yield path

    def _given(self) -> Iterator[str]:
        yield from hidden.there(str(_from_home(path, self._homes)) for path in self.write)

    def _foreign(
        self, places: Mapping[str, str], opened: Sequence[str], own: Iterable[int]
    ) -> Iterator[str]:
        """Sockets of other programs that could still be reached."""
        covered = [path for path, kind in places.items() if kind in ("empty", "run")]
        left = [
            (path, number)
            for path, number in hidden.sockets()
            if not within(path, opened) and not within(path, covered)
        ]
        held = hidden.held(own) if left else set()
        yield from (path for path, number in left if number not in held)


@dataclass(frozen=True, slots=True)
class Found:
    """Where bubblewrap is; or why there is none that works, with what would help."""

    path: str = ""
    absent: str = ""


def probe(cwd: str, network: bool) -> Found:
    """Whether bubblewrap is there for work in `cwd`, and does what is needed."""
    if not sys.platform.startswith("linux"):
        return Found(absent="there is no sandbox for this system. Work in a container to have one.")
    path = _program(cwd)
    return _tried(path, network) if path else Found(absent=f"bwrap is not installed. {INSTALL}.")


@functools.cache
def _tried(path: str, network: bool) -> Found:
    apart = () if network else ("--unshare-net",)
    try:
        done = subprocess.run(
            [path, *_BASE, *apart, "--", "/bin/sh", "-c", ":"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=PROBING, env={}, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Found(absent=f"bwrap does not work here ({error}). {ALLOW}.")
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        return Found(absent=f"bwrap does not work here ({said[-1][:200]}). {ALLOW}.")
    return Found(path)


def _program(cwd: str) -> str:
    """Where bubblewrap is, "" for nowhere. A folder that a command could write to does not count:
    what lies there may be anything."""
    named = [folder for folder in os.environ.get("PATH", "").split(":") if folder.startswith("/")]
    for folder in (*_PLACES, *named):
        found = program("bwrap", folder)
        if found and not within(os.path.realpath(found), [cwd, "/tmp", "/var/tmp"]):
            return found
    return ""


def _programs(path: str, cwd: str) -> Iterator[str]:
    """Where in the project the agent would look for the programs that it runs itself."""
    for folder in dict.fromkeys(path.split(":")):
        place = os.path.realpath(os.path.join(cwd, folder))  # noqa: PTH118 - may be relative
        if folder and within(place, [cwd]):
            yield from (f"{place}/{name}" for name in _PROGRAMS)


def writable(cwd: str, environ: Mapping[str, str], write: Sequence[Path] = ()) -> list[str]:
    """The folders that commands in the sandbox may write to, or could once they exist, by name."""
    people = homes(environ)
    temporary = ["/tmp", "/var/tmp", *filter(None, [environ.get("TMPDIR")])]
    named = [path for path in temporary if path == "/tmp" or not holds(path, people)]
    for home in people[:2]:
        named += hidden.cache_places(home, environ)
    named += [str(_from_home(path, people)) for path in write]
    return [*named, *own_folders(cwd, environ), *gitplace.find(os.path.realpath(cwd)).folders]


def own_folders(cwd: str, environ: Mapping[str, str]) -> list[str]:
    """The folders of the project that are its own, and not those of a person or the system."""
    return _project(os.path.realpath(cwd), homes(environ))


def homes(environ: Mapping[str, str]) -> list[str]:
    """The home that `environ` names, that of the user, and to the root those of all."""
    named = [environ.get("HOME", "")]
    with suppress(RuntimeError):
        named.append(os.path.expanduser(f"~{_user()}"))  # noqa: PTH111
    if os.geteuid() == 0:
        named += [str(path) for path in Path("/home").glob("*")]
    found = hidden.there(name for name in named if name.startswith("/"))
    return [home for home in dict.fromkeys(found) if home != "/"]


def _user() -> str:
    import pwd

    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return ""


def _project(cwd: str, homes: Sequence[str]) -> list[str]:
    """What of the project may be written. A home holds what runs when its person comes in, so of
    one only the folders that have no dot, and no `bin`; of what holds homes, nothing."""
    if cwd in homes:
        try:
            entries = [entry for entry in os.scandir(cwd) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        return [e.path for e in entries if not e.name.startswith(".") and e.name != "bin"]
    if cwd == "/" or any(within(home, [cwd]) for home in homes):
        return []
    return [cwd]


def _arguments(places: Mapping[str, str]) -> Iterator[str]:
    """The places as bubblewrap takes them, what holds others first."""
    sealed = []
    for path in sorted(places, key=lambda path: path.count("/")):
        kind = places[path]
        if within(path, ["/proc", "/sys"]) or path in ("/", "/dev"):
            continue
        if kind in ("rw", "ro"):
            yield from ("--bind-try" if kind == "rw" else "--ro-bind-try", path, path)
        elif os.path.isdir(path):  # noqa: PTH112
            yield from ("--tmpfs", path)
            sealed += [path] if kind == "empty" else []
        else:
            yield from ("--dev-bind", "/dev/null", path)
    for path in sealed:
        yield from ("--remount-ro", path)


def _devices() -> Iterator[str]:
    """Devices that compute."""
    for pattern in _DEVICES:
        yield from (str(path) for path in Path("/dev").glob(pattern))


def _from_home(path: Path, homes: Sequence[str]) -> Path:
    home = Path(homes[0]) if homes else Path("/")
    return home.joinpath(*path.parts[1:]) if path.parts[:1] == ("~",) else path


def holds(path: str, homes: Sequence[str]) -> bool:
    """Whether a folder is one of these homes, or has one in it."""
    return any(within(home, [os.path.realpath(path)]) for home in homes)
