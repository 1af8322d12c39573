"""The sandbox of a session's commands: bubblewrap, where it works.

A command sees the file system as it is, but read-only. The project, its repository, temporary files
and the caches of package managers can be written; secrets, the agent's own files and the sockets of
other programs are hidden; what would make git or the agent run something later is read-only. Each
call has processes of its own, which end with it. Where bubblewrap is missing or the system forbids
what it needs, `absent` says so and nothing is confined.
"""

import copy
import functools
import os
import pwd
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...tools.system.programs import distrust, within
from ...tools.system.spawn import Enclosed
from ..config.load import user_file
from ..config.settings import SandboxSettings
from ..errors import UsageError
from ..launch import LaunchOptions
from . import bubblewrap, landlock, sandbox_git, sandbox_paths, seccomp
from .bubblewrap import Bubblewrap, find_bubblewrap
from .sandbox_paths import existing

# The powers that root keeps: over files, over processes of its own, to be another user.
_ROOT_CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7,
    "NET_BIND_SERVICE": 10,
}  # fmt: skip
_KERNEL_PATHS = (
    "/proc/sys", "/proc/fs", "/proc/irq", "/proc/bus", "/proc/sysrq-trigger", "/proc/mtrr",
)  # fmt: skip
_COMPUTE_DEVICES = ("nvidia*", "kfd", "dri/renderD*")
_PROGRAMS = ("git", "rg", "bash", "sh", "bwrap")
_READ_ONLY_IN_PROJECT = (".agentrc", ".ctxagent")

# The command's own shell is a child of this one, whose stdin is a pipe to the agent: it reports
# processes that were left running, which end with it. A job waits for them instead. This shell
# outlives a request to end, so that the others have time to end themselves.
_SHELL_SCRIPT = """trap : HUP INT TERM
exec 3>&2 2>/dev/null
(exec "$@" </dev/null 2>&3 3>&-)
code=$?
set -- /proc/[0-9]*
[ $# -le 2 ] || { sleep 0.05; set -- /proc/[0-9]*; }
"""
_REPORT_LEFT_PROCESSES = "[ $# -le 2 ] || echo left >&0\n"
_WAIT_FOR_PROCESSES = "while [ $# -gt 2 ]; do sleep 0.5; set -- /proc/[0-9]*; done\n"


@dataclass(slots=True)
class Sandbox:
    """The confinement of a session's commands."""

    cwd: Path
    environ: Mapping[str, str]
    required: bool = False  # no command runs where the sandbox is absent
    network: bool = True
    network_if_asked: bool = False  # it is off only because nobody was asked about the command
    write: Sequence[Path] = ()  # folders that commands may also write to
    hide: Sequence[Path] = ()  # what commands must not see
    show: Sequence[Path] = ()  # what they may read within `hide`
    temporary: Sequence[str] = ("/tmp", "/var/tmp")
    _git: sandbox_git.GitFolders = field(init=False)
    _read_only: list[str] = field(init=False)
    _must_not_appear: list[str] = field(init=False)
    _homes: list[str] = field(init=False)
    _bubblewrap: Bubblewrap = field(init=False)
    _open: list[str] = field(init=False)  # what commands may write to, as far as it is there
    _lasting: list[bool] = field(init=False, default_factory=list)  # one for each job, shared

    def __post_init__(self) -> None:
        # All this happens before a command of the session could change what is found.
        cwd = os.path.realpath(self.cwd)
        self._homes, self._git = home_folders(self.environ), sandbox_git.find_repository(cwd)
        programs = list(_project_programs(self.environ.get("PATH", ""), cwd))
        present = list(filter(os.path.lexists, programs))
        own = (f"{cwd}/{name}" for name in _READ_ONLY_IN_PROJECT)
        self._read_only = [*self._git.closed, *present, *own]
        missing = (path for path in programs if path not in present)
        self._must_not_appear = [*self._git.absent, *missing]
        self._bubblewrap = find_bubblewrap(cwd, self.network)
        self._open = [*self._temporary_folders(), *self._cache_folders(), *self._opened(cwd)]

    @property
    def absent(self) -> str:
        """Why commands are not confined here, with what would help; "" if they are."""
        return "" if self.partial else self._bubblewrap.absent

    @property
    def partial(self) -> str:
        """Why commands are confined by Landlock alone, with what would help; "" if they are not.
        That holds less than is promised where a sandbox is required, or nobody is asked."""
        without = "" if self.required else self._bubblewrap.absent
        return without if without and landlock.works() else ""

    @property
    def unasked_absent(self) -> str:
        """Why a command that nobody was asked about cannot be confined; "" if it can."""
        return (
            self._bubblewrap.absent
            or find_bubblewrap(os.path.realpath(self.cwd), network=False).absent
        )

    def unasked(self, hide: Sequence[str], keep: Sequence[str]) -> "Sandbox":
        """Return the sandbox for a command that nobody was asked about: without a network, with the
        paths `hide` hidden, and with `keep` read-only."""
        cwd = os.path.realpath(self.cwd)
        stricter = copy.copy(self)
        stricter.network, stricter.network_if_asked = False, self.network
        stricter._bubblewrap = find_bubblewrap(cwd, network=False)
        stricter.hide = [*self.hide, *map(Path, hide)]
        stricter._read_only = [*self._read_only, *keep]
        return stricter

    def can_write(self, path: str) -> bool:
        """Tell whether commands may write to an absolute path, with links followed."""
        return within(path, self._open) and not within(path, list(existing(self._read_only)))

    def describe(self) -> str:
        """Return one line for people about how commands are confined."""
        if self.absent:
            held = "no command runs" if self.required else "commands run without one"
            return f"{held}: {self.absent}"
        network = "those you allow have the network" if self.network else "without a network"
        if self.partial:
            return f"Landlock alone, which holds less; {network}. {self.partial}"
        return f"bubblewrap: commands write to the project and temporary files only; {network}"

    def bounds(self) -> str:
        """Return what a command cannot do, for one that failed."""
        network = "" if self.network else ", and there is no network, nor sockets with a path"
        if self.partial:
            return (
                "only the project, temporary files and caches can be written; neither folders that "
                f"hold what is hidden nor sockets with a path can be opened{network}"
            )
        return (
            "only the project, temporary files and caches can be written, but not .git/config and "
            f".git/hooks; keys and sockets of other programs cannot be reached{network}"
        )

    def enclose(
        self, command: Sequence[str], *, lasting: bool = False, own: Iterable[int] = ()
    ) -> Enclosed:
        """Return the command line that runs `command` in the sandbox. A `lasting` command goes on
        until the last of its processes has ended. Sockets that the processes `own` hold stay within
        reach."""
        if lasting:
            self._lasting.append(True)
        if not self._lasting:  # then somebody else made what is there now
            made = list(filter(os.path.lexists, self._must_not_appear))
            self._read_only += made
            self._must_not_appear = [path for path in self._must_not_appear if path not in made]
        if self.partial:
            return Enclosed(command, give_up=self._confinement())
        arguments = [*self._bubblewrap.command]
        if os.geteuid() == 0:
            arguments += ["--cap-drop", "ALL"]
            for power in _ROOT_CAPABILITIES:
                arguments += ["--cap-add", f"CAP_{power}"]
            # Here the kernel does not ask for powers, only for the user, who is its root.
            for path in existing(_KERNEL_PATHS):
                arguments += ["--ro-bind", path, path]
        for device in _compute_devices():
            arguments += ["--dev-bind", device, device]
        places = self._places()
        arguments += _mount_arguments(places | self._covered_sockets(places, own))
        ending = _WAIT_FOR_PROCESSES if lasting else _REPORT_LEFT_PROCESSES
        script = _SHELL_SCRIPT + ending + "exit $code"
        families = seccomp.EVERY_FAMILY if self.network else seccomp.INTERNET
        passed = seccomp.readable_filter(families)
        arguments += bubblewrap.filter_arguments(passed)
        arguments += ["--chdir", str(self.cwd), "--", "/bin/sh", "-c", script, "sh"]
        return Enclosed([*arguments, *command], passed, self._bubblewrap.give_up, reports=True)

    def _confinement(self) -> Callable[[], None]:
        """Return what confines a command by Landlock alone. Sockets with a path are refused, as no
        rule tells them apart; without the network all are, as there is none of its own."""
        access: dict[str, landlock.Access] = {"rw": "write", "ro": "read"}
        places: dict[str, landlock.Access] = {"/": "read", **landlock.DEVICES}
        for path, kind in self._places().items():
            places[path] = access.get(kind, "hidden")
        places |= dict.fromkeys(_compute_devices(), "write")
        return landlock.confinement(
            places,
            network=self.network,
            filter=seccomp.filter_program(seccomp.INTERNET if self.network else seccomp.NETLINK),
            powers=tuple(_ROOT_CAPABILITIES.values()),
        )

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of `env` that a command is given: none that names a way out."""
        hidden = {*sandbox_paths.ESCAPE_VARIABLES}
        if env.get("DOCKER_HOST", "").startswith("unix:"):
            hidden.add("DOCKER_HOST")
        return {name: value for name, value in env.items() if name not in hidden}

    def set_aside(self) -> list[str]:
        """Rename what has appeared where git would take it for its configuration, or the agent for
        a program of its own; return the new names."""
        renamed = []
        for path in self._must_not_appear:
            if os.path.lexists(path):
                name = f"{path}.set-aside-{secrets.token_hex(3)}"
                with suppress(OSError):
                    Path(path).rename(name)
                    renamed.append(name)
        return renamed

    def _places(self) -> dict[str, str]:
        """Return each place's kind: "rw", "ro", "empty" or "run". Inner places win."""
        cwd = os.path.realpath(self.cwd)
        temporary = list(self._temporary_folders())
        places = dict.fromkeys(temporary, "rw")
        places |= {home: "ro" for home in self._homes if within(home, temporary)}
        places |= dict.fromkeys(self._cache_folders(), "rw")
        places |= dict.fromkeys(existing(sandbox_paths.RUN_FOLDERS), "run")
        places |= dict.fromkeys(sandbox_paths.needed_run_paths(), "ro")
        places |= dict.fromkeys(sandbox_paths.secret_paths(self._homes), "empty")
        places |= dict.fromkeys(existing(map(str, self.hide)), "empty")
        places |= dict.fromkeys(existing(map(str, self.show)), "ro")
        places |= dict.fromkeys(self._opened(cwd), "rw")
        # Links among them may lead to what is hidden.
        closed = [path for path in existing(self._read_only) if _kind(path, places) in ("rw", "ro")]
        return places | dict.fromkeys(closed, "ro")

    def _covered_sockets(self, places: Mapping[str, str], own: Iterable[int]) -> dict[str, str]:
        """Return the places of sockets of other programs, and of the folders where they lie."""
        opened = list(self._opened(os.path.realpath(self.cwd)))
        folders = sandbox_paths.socket_folders(self._temporary_folders())
        covered = {path: "empty" for path in folders if path not in places}
        found = self._foreign_sockets({**places, **covered}, opened, own)
        return covered | dict.fromkeys(found, "empty")

    def _opened(self, cwd: str) -> Iterator[str]:
        """Yield what may be written of the project and its repository, and what settings open."""
        yield from _writable_project_folders(cwd, self._homes)
        yield from existing(self._git.folders)
        yield from existing(str(_expand_home(path, self._homes)) for path in self.write)

    def _cache_folders(self) -> Iterator[str]:
        for home in self._homes[:2]:
            yield from sandbox_paths.cache_folders(home, dict(self.environ))

    def _temporary_folders(self) -> Iterator[str]:
        named = [*self.temporary, *filter(None, [self.environ.get("TMPDIR")])]
        for path in dict.fromkeys(existing(named)):
            if path == "/tmp" or not contains_home(path, self._homes):
                yield path

    def _foreign_sockets(
        self, places: Mapping[str, str], opened: Sequence[str], own: Iterable[int]
    ) -> Iterator[str]:
        """Yield sockets of other programs that could still be reached."""
        covered = [path for path, kind in places.items() if kind in ("empty", "run")]
        left = [
            (path, number)
            for path, number in sandbox_paths.sockets()
            if not within(path, opened) and not within(path, covered)
        ]
        held = sandbox_paths.sockets_held_by(own) if left else set()
        yield from (path for path, number in left if number not in held)


def _project_programs(path: str, cwd: str) -> Iterator[str]:
    """Yield the paths in the project where the agent would look for the programs that it runs."""
    for folder in dict.fromkeys(path.split(":")):
        place = os.path.realpath(os.path.join(cwd, folder))  # noqa: PTH118 - may be relative
        if folder and within(place, [cwd]):
            yield from (f"{place}/{name}" for name in _PROGRAMS)


def writable_folders(cwd: str, environ: Mapping[str, str], write: Sequence[Path] = ()) -> list[str]:
    """Return the names of the folders that commands may write to, now or once they exist."""
    homes = home_folders(environ)
    temporary = ["/tmp", "/var/tmp", *filter(None, [environ.get("TMPDIR")])]
    named = [path for path in temporary if path == "/tmp" or not contains_home(path, homes)]
    for home in homes[:2]:
        named += sandbox_paths.possible_cache_folders(home, environ)
    named += [str(_expand_home(path, homes)) for path in write]
    repository = sandbox_git.find_repository(os.path.realpath(cwd))
    return [*named, *project_folders(cwd, environ), *repository.folders]


def project_folders(cwd: str, environ: Mapping[str, str]) -> list[str]:
    """Return the folders of the project that are its own, and not a person's or the system's."""
    return _writable_project_folders(os.path.realpath(cwd), home_folders(environ))


def home_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the home that `environ` names, that of the user, and for root those of all users."""
    user = ""
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid()).pw_name
    named = [environ.get("HOME", ""), os.path.expanduser(f"~{user}")]  # noqa: PTH111
    if os.geteuid() == 0:
        named += [str(path) for path in Path("/home").glob("*")]
    found = existing(name for name in named if name.startswith("/"))
    return [home for home in dict.fromkeys(found) if home != "/"]


def _writable_project_folders(cwd: str, homes: Sequence[str]) -> list[str]:
    """Return what may be written of the project. A home holds files that run when its person logs
    in, so of a home only the folders without a dot, and not `bin`; of a folder that holds homes,
    nothing."""
    if cwd in homes:
        try:
            entries = [entry for entry in os.scandir(cwd) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        return [e.path for e in entries if not e.name.startswith(".") and e.name != "bin"]
    if cwd == "/" or any(within(home, [cwd]) for home in homes):
        return []
    return [cwd]


def _kind(path: str, places: Mapping[str, str]) -> str:
    """Return the kind of the innermost place that a path is in; all else can be read only."""
    while path not in places and path != "/":
        path = os.path.dirname(path)  # noqa: PTH120
    return places.get(path, "ro")


def _mount_arguments(places: Mapping[str, str]) -> Iterator[str]:
    """Yield the bubblewrap arguments for the places, outer ones first."""
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


@functools.cache
def _compute_devices() -> tuple[str, ...]:
    return tuple(str(p) for pattern in _COMPUTE_DEVICES for p in Path("/dev").glob(pattern))


def _expand_home(path: Path, homes: Sequence[str]) -> Path:
    home = Path(homes[0]) if homes else Path("/")
    return home.joinpath(*path.parts[1:]) if path.parts[:1] == ("~",) else path


def contains_home(path: str, homes: Sequence[str]) -> bool:
    """Tell whether a folder is one of these homes, or has one in it."""
    return any(within(home, [os.path.realpath(path)]) for home in homes)


def make_sandbox(launch: LaunchOptions, session: Path) -> Sandbox | None:
    """Return the sandbox for the commands of the session in this folder, None if it is off. What
    the agent keeps is hidden from commands, except for what the session itself has kept."""
    chosen = launch.settings.sandbox
    if chosen.mode == "off":
        return None
    return Sandbox(
        cwd=launch.cwd,
        environ=launch.environ,
        required=chosen.mode == "require",
        network=chosen.network,
        write=chosen.write,
        hide=agent_paths(launch),
        show=[session],
    )


def distrust_writable_folders(
    chosen: SandboxSettings, cwd: Path, environ: Mapping[str, str]
) -> None:
    """Make sure that no program of ours comes from a folder that commands may write to. Without a
    sandbox that would be any folder; then only the project's are excluded."""
    distrust(_shipped_folders(os.path.realpath(cwd), environ))
    if chosen.mode == "off":
        distrust(project_folders(str(cwd), environ))
    else:
        distrust(writable_folders(str(cwd), environ, chosen.write))


def _shipped_folders(cwd: str, environ: Mapping[str, str]) -> list[str]:
    """Return the project's folder and its repository's, unless they hold somebody's home. What a
    project ships is as little ours as what a command writes there. A home that is itself the
    project is included: folders that are made in it can be written to, too."""
    homes, root = home_folders(environ), sandbox_git.repository_root(cwd)
    found = [cwd] if cwd in homes or not contains_home(cwd, homes) else []
    return [*found, root] if root and not contains_home(root, homes) else found


def agent_paths(launch: LaunchOptions) -> list[Path]:
    """Return what the agent keeps for itself: settings, sessions, and the list of trusted files."""
    kept = [launch.state, launch.config_home, user_file(launch.environ)]
    return [*kept, launch.trust] if launch.trust else kept


def check_sandbox(launch: LaunchOptions) -> None:
    """Raise UsageError where commands must be confined and cannot be."""
    chosen = launch.settings.sandbox
    if chosen.mode != "require":
        return
    if absent := find_bubblewrap(str(launch.cwd.resolve()), chosen.network).absent:
        what, _, hint = absent.partition(". ")
        raise UsageError(
            f'sandbox.mode is "require", and {what}', hint=f'{hint} Or set it to "auto".'
        )
