"""The sandbox of a session's commands: bubblewrap, or seatbelt on macOS.

Commands see the file system read-only, and only toolchains of the homes. They can write to the
project, its repository, and private caches and temporary folders. Secrets, the agent's own files
and other programs' sockets are hidden. Files that would make git or the agent run something later
are read-only. The processes of a call end with it. If bubblewrap is missing or the system forbids
it, `absent` gives the reason and commands are not confined.
"""

import copy
import errno
import functools
import os
import shlex
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from ...tools.system.confinement import CommandLimits
from ...tools.system.files import make_private_folder
from ...tools.system.programs import within
from ...tools.system.spawn import Enclosed
from ..config.places import user_file
from ..errors import UsageError
from ..extensions.skills import readable_folders
from ..launch import LaunchOptions
from ..lazy import dataclass
from . import (
    bubblewrap,
    landlock,
    looking,
    sandbox_paths,
    seatbelt,
    seccomp,
)
from .bubblewrap import Bubblewrap, find_bubblewrap
from .guarded_parts import GuardedParts
from .sandbox_paths import (
    Boundary,
    Region,
    RegionAccess,
    contains_home,
    existing,
    expand_home,
    home_folders,
    own_homes,
    writable_of_project,
)

# The capabilities that root keeps: files, own processes, switching the user.
_ROOT_CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7,
    "NET_BIND_SERVICE": 10,
}  # fmt: skip
_KERNEL_PATHS = (
    "/proc/sys", "/proc/fs", "/proc/irq", "/proc/bus", "/proc/sysrq-trigger", "/proc/mtrr",
)  # fmt: skip
_COMPUTE_DEVICES = ("nvidia*", "kfd", "dri/renderD*")
RECENT_S = 0.2  # cache time of a boundary in permission checks; each command makes a new one

# This shell runs the command's shell as a child. Its stdin is a pipe to the agent: it first reports
# that the sandbox started (`SANDBOX_STANDS`), and at the end any processes that are left running,
# which end with it. A job waits for them instead. It ignores SIGTERM, so that the other processes
# have time to exit.
_SHELL_SCRIPT = """trap : HUP INT TERM
echo up >&0
exec 3>&2 2>/dev/null
(exec "$@" </dev/null 2>&3 3>&-)
code=$?
set -- /proc/[0-9]*
[ $# -le 2 ] || { sleep 0.05; set -- /proc/[0-9]*; }
"""
_REPORT_LEFT_PROCESSES = "[ $# -le 2 ] || echo left >&0\n"
_WAIT_FOR_PROCESSES = "while [ $# -gt 2 ]; do sleep 0.5; set -- /proc/[0-9]*; done\n"


async def _nobody_decides(host: str) -> str:
    return "sandbox.network does not name it"


@dataclass(slots=True)
class Sandbox:
    """The confinement of a session's commands."""

    cwd: Path
    environ: Mapping[str, str]
    own_temporary: Path  # replaces the folders `temporary` for commands; created on demand
    own_caches: Path  # likewise, replaces the caches in a home
    off: bool = False  # confine only read-only commands, with Landlock
    required: bool = False  # refuse to run commands without the sandbox
    network: bool = True
    network_if_asked: bool = False  # the network would be on if the user had approved the command
    names: Sequence[str] | None = None  # allowed hosts and patterns, without `network`
    # Returns why a host that is not in `names` is refused; "" if it is allowed.
    decide: Callable[[str], Awaitable[str]] = _nobody_decides
    write: Sequence[Path] = ()  # further writable folders
    hide: Sequence[Path] = ()  # hidden paths
    show: Sequence[Path] = ()  # readable paths within `hide`
    read: Sequence[Path] = ()  # further readable paths in homes
    temporary: Sequence[str] = ("/tmp", "/var/tmp")
    added: Sequence[str] = ()  # additional directories of the session; may grow
    pinned: Sequence[str] = ()  # files that hooks and servers run; may grow
    limits: CommandLimits = field(default_factory=CommandLimits)
    _parts: GuardedParts = field(init=False)
    _homes: list[str] = field(init=False)
    _toolchains: list[str] = field(init=False)  # for read-only commands
    _bubblewrap: Bubblewrap = field(init=False)
    # The time (monotonic, s) of the cached boundary, and the boundary.
    _recent: tuple[float, Boundary] = field(init=False, default=(0.0, Boundary()))
    _lasting: list[bool] = field(init=False, default_factory=list)  # one item per job, shared

    def __post_init__(self) -> None:
        # Must happen before a command of the session can change the files.
        cwd = os.path.realpath(self.cwd)
        self._homes = home_folders(self.environ)
        self._toolchains = list(looking.toolchains(self.environ, self._homes))
        self._parts = GuardedParts(cwd, self.added, self.environ.get("PATH", ""))
        self._parts.look()
        off = Bubblewrap(absent='sandbox.mode is "off".')
        self._bubblewrap = off if self.off else find_bubblewrap(cwd, self.network)

    @property
    def absent(self) -> str:
        """Why commands are not confined here, with a hint; "" if they are."""
        return "" if self.partial or seatbelt.works() else self._bubblewrap.absent

    @property
    def partial(self) -> str:
        """Why commands run under Landlock only, with a hint; else "". A required sandbox, and
        commands that run without asking, need more than Landlock.
        """
        without = "" if self.required or seatbelt.works() else self._bubblewrap.absent
        return without if without and landlock.works() else ""

    @property
    def by_name(self) -> bool:
        """Whether commands reach hosts by name through the proxy; other hosts need the user's
        approval.
        """
        return self.names is not None and not self._bubblewrap.absent

    @property
    def unasked_absent(self) -> str:
        """Why a command cannot run in the sandbox without asking; "" if it can."""
        if seatbelt.works():
            return ""
        return (
            self._bubblewrap.absent
            or find_bubblewrap(os.path.realpath(self.cwd), network=False).absent
        )

    @property
    def holds_looking(self) -> bool:
        """Whether the kernel can limit read-only commands to the files they may read."""
        return not seatbelt.works() and (not self._bubblewrap.absent or landlock.works())

    @property
    def keeps_repository(self) -> bool:
        """Whether the project's repository is read-only."""
        writable = self.limits.writes_repository or self.absent or self.partial
        return bool(self._parts.repositories) and not writable

    def for_command(self, limits: CommandLimits) -> "Sandbox":
        """Return the sandbox of a command with these limits. It does not open secrets or paths in
        temporary folders, where other commands could replace the path with a link.
        """
        own = copy.copy(self)
        own.limits, own._recent = limits, (0.0, Boundary())
        opened = [*limits.opens]
        if limits.looks or limits.offline:
            own.names = None
        if limits.looks or limits.unasked:
            opened += self._toolchains
        read = [Path(path) for path in opened if self.moved(path) == path]
        own.read = read if limits.looks else [*self.read, *read]
        if limits.looks or limits.unasked or limits.offline:
            own.network, own.network_if_asked = False, self.network
            if not (self.off or (limits.looks and seccomp.filter_program(seccomp.NETLINK))):
                own._bubblewrap = find_bubblewrap(os.path.realpath(self.cwd), network=False)
        return own

    def can_read(self, path: str) -> bool:
        """Return True if commands can read a path. `path` is absolute with links resolved."""
        moved = self.moved(path)
        gone = moved != path and os.path.lexists(path) and not os.path.lexists(moved)
        return not gone and self._recent_boundary().can_read(moved)

    def can_write(self, path: str) -> bool:
        """Return True if commands can write to a path. `path` is absolute with links resolved."""
        return self._recent_boundary().can_write(self.moved(path))

    def moved(self, path: str) -> str:
        """Map a path in a temporary folder to the sandbox's private copy. Return other paths
        unchanged. `path` is absolute with links resolved.
        """
        around = [folder for folder in self._temporary_folders() if within(path, [folder])]
        if self._bubblewrap.absent or not around or self._opens(path, max(around, key=len)):
            return path
        boundary = self._recent_boundary()
        if boundary.at(path)[1].source != os.path.realpath(self.own_temporary):
            return path
        try:
            make_own_folder(self.own_temporary)
        except OSError:
            return path
        return boundary.moved(path)

    def _opens(self, path: str, temporary: str) -> bool:
        """Return True if a writable folder inside the folder `temporary` contains the path. Such a
        path is never moved, which is known without the boundary: computing that takes about 500
        file system calls.
        """
        opened = (folder for folder in self._opened() if within(folder, [temporary]))
        return within(path, [folder for folder in opened if folder != temporary])

    def named(self, path: str) -> str:
        """Return the path under which commands see an absolute path."""
        own = os.path.realpath(self.own_temporary)
        for folder in self._temporary_folders() if within(path, [own]) else ():
            if self._recent_boundary().at(folder)[1].source == own:
                return folder + path[len(own) :]
        return path

    def _recent_boundary(self) -> Boundary:
        """Return the boundary, cached for RECENT_S: one judgement may check many paths."""
        since, boundary = self._recent
        if not since or time.monotonic() - since > RECENT_S:
            boundary = self.boundary()
            self._recent = (time.monotonic(), boundary)
        return boundary

    @property
    def _is_narrow(self) -> bool:
        """Whether commands see nothing but the project, the system's programs and toolchains."""
        return self.limits.looks or (self.limits.unasked and not seatbelt.works())

    @property
    def _worked_in(self) -> str:
        return "the project and added directories" if self.added else "the project"

    def describe(self) -> str:
        """Describe the confinement for the user in one line."""
        if self.absent:
            held = "no command can run" if self.required else "commands run without a sandbox"
            return f"{held}: {self.absent}"
        network = "approved commands have network access" if self.network else "no network"
        if self.by_name:
            network = f"network by host name: {', '.join(self.names or ()) or 'you are asked'}"
        if self.partial:
            return f"Landlock only, which is weaker; {network}. {self.partial}"
        if seatbelt.works():
            written = f"{self._worked_in}, temporary files and private caches"
            return f"sandbox-exec: commands write only to {written}; {network}"
        own = "caches and temporary files are private"
        return f"bubblewrap: commands write only to {self._worked_in}; {own}; {network}"

    def bounds(self) -> str:
        """Describe the limits of a command, for the result of a failed one."""
        network = "" if self.network else ", and there is no network, nor sockets with a path"
        if self.by_name:
            network = ", and the network is there by names alone, through the proxy that is set"
        if self.partial:
            return (
                f"only {self._worked_in}, temporary files and caches can be written; neither "
                f"folders that hold what is hidden nor sockets with a path can be opened{network}"
            )
        if self.limits.looks:
            return (
                "it only looks, so nothing can be written, there is no network, and only "
                f"{self._worked_in} and the system's folders can be read"
            )
        closed = ".git" if self.keeps_repository else ".git/config and .git/hooks"
        own = "caches are" if seatbelt.works() else "/tmp and caches are"
        seen = "of homes only toolchains are seen"
        if self._is_narrow:
            seen = f"only {self._worked_in}, the system's folders and toolchains are seen"
        return (
            f"only {self._worked_in}, temporary files and caches can be written, but not {closed}; "
            f"{seen}, {own} its own, and sockets of other programs "
            f"cannot be reached{network}"
        )

    def enclose(
        self, command: Sequence[str], *, lasting: bool = False, own: Iterable[int] = ()
    ) -> Enclosed:
        """Return the command line that runs `command` in the sandbox. A `lasting` command runs
        until its last process ends. Sockets of the processes `own` remain reachable.
        """
        if lasting:
            self._lasting.append(True)
        if not self._lasting:  # the present files were not created by our commands
            self._parts.accept_present()
        if self.partial:
            return Enclosed(command, restrict=self._confinement())
        if seatbelt.works():
            make_own_folder(self.own_caches)
            missing = [path for path in self._closed() if not os.path.lexists(path)]
            never, regions = [*self._parts.must_not_appear, *missing], self.boundary().mounted()
            return Enclosed(seatbelt.confined(command, regions, never, network=self.network))
        looks = self.limits.looks
        narrow = self._is_narrow
        arguments = [*self._bubblewrap.command, *bubblewrap.root_arguments(empty=narrow)]
        if os.geteuid() == 0:
            arguments += ["--cap-drop", "ALL"]
            for power in _ROOT_CAPABILITIES:
                arguments += ["--cap-add", f"CAP_{power}"]
            # For these paths the kernel checks only the user (root), not capabilities.
            for path in existing(_KERNEL_PATHS):
                arguments += ["--ro-bind", path, path]
        for device in () if looks else _compute_devices():
            arguments += ["--dev-bind", device, device]
        regions = self.boundary().mounted()
        self._make_own_folders(regions)
        arguments += _mount_arguments({**regions, **self._foreign_sockets(regions, own)})
        if narrow:
            arguments += ["--remount-ro", "/"]
        ending = _WAIT_FOR_PROCESSES if lasting else _REPORT_LEFT_PROCESSES
        script = _SHELL_SCRIPT + ending + "exit $code"
        proxy = None
        families = seccomp.EVERY_FAMILY if self.network else seccomp.INTERNET
        passed = seccomp.readable_filter(seccomp.NETLINK if looks else families)
        arguments += bubblewrap.filter_arguments(passed)
        if self.by_name:
            from .name_proxy import NameProxy, listener_command  # imports asyncio

            proxy = NameProxy(self.names or (), self.decide, self.environ)
            script = f"{shlex.join(listener_command(proxy.descriptor))} </dev/null\n{script}"
            passed = (*passed, proxy.descriptor)
        arguments += ["--chdir", str(self.cwd), "--", "/bin/sh", "-c", script, "sh"]
        restrict = self._bubblewrap.restrict
        return Enclosed([*arguments, *command], passed, restrict, reports=True, service=proxy)

    def _confinement(self) -> Callable[[], None]:
        """Return a function that confines a command with Landlock only. Unix sockets are refused,
        since no rule can tell them apart. Without the network, all sockets are refused.
        """
        boundary, looks = self.boundary(), self.limits.looks
        make_own_folder(self.own_caches)
        regions = {"/": boundary.at("/")[1], **boundary.mounted()}
        places: dict[str, landlock.Access] = {**landlock.DEVICES}
        for path, region in regions.items():
            access = region.access
            places[region.source or path] = "hidden" if access == "empty" else access
        if not looks:
            kept = filter(boundary.can_read, existing(self.limits.keep))
            places |= {**dict.fromkeys(kept, "kept"), **dict.fromkeys(_compute_devices(), "write")}
        return landlock.confinement(
            places,
            network=self.network,
            filter=seccomp.filter_program(seccomp.INTERNET if self.network else seccomp.NETLINK),
            powers=tuple(_ROOT_CAPABILITIES.values()),
        )

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of `env` for a command, without those that name a way out of the
        sandbox.
        """
        hidden = {*sandbox_paths.ESCAPE_VARIABLES}
        if env.get("DOCKER_HOST", "").startswith("unix:"):
            hidden.add("DOCKER_HOST")
        given = {name: value for name, value in env.items() if name not in hidden}
        if not self._bubblewrap.absent:
            given.pop("XDG_CACHE_HOME", None)  # the private caches are at the default path
            if self.by_name:
                from .name_proxy import proxy_variables

                given |= proxy_variables()
        elif self.partial or seatbelt.works():
            given["XDG_CACHE_HOME"] = str(self.own_caches)
        if self.limits.looks:
            given |= looking.VARIABLES
        return given

    def set_aside(self) -> list[str]:
        """Rename new files that git would read as configuration or the agent would run as a
        program. Return the new names.
        """
        return self._parts.set_aside()

    def remove_empty(self) -> None:
        """Remove the session's temporary folder at the end if it is empty."""
        with suppress(OSError):
            self.own_temporary.rmdir()

    def boundary(self) -> Boundary:
        """Return the current access that commands have to each path."""
        self._parts.look()
        cwd, moves = os.path.realpath(self.cwd), not self._bubblewrap.absent
        looks, guarded = self.limits.looks, [*existing(self.limits.hide)]
        regions = looking.readable_regions(cwd) if self._is_narrow else {}
        regions |= _all(filter(sandbox_paths.hides, self._homes), "hidden")
        opened = [*self._opened()]
        for home in filter(sandbox_paths.hides, own_homes(self.environ)):
            regions |= self._of_home(home, opened, moves)
        if not moves:
            regions[os.path.realpath(self.own_caches)] = Region("write")
        regions |= _all(existing(sandbox_paths.RUN_FOLDERS), "empty")
        regions |= _all(sandbox_paths.needed_run_paths(), "read")
        hidden = [*sandbox_paths.secret_paths(self._homes), *existing(map(str, self.hide))]
        hidden += looking.secrets() if self._is_narrow else ()
        chosen = existing(self._expanded(self.read))
        regions |= _all((path for path in chosen if not within(path, hidden)), "read")
        regions |= _all(hidden, "hidden")
        regions |= _all(existing(map(str, self.show)), "read")
        for root in filter(None, map(sandbox_paths.repository_root, self._parts.folders)):
            if not contains_home(root, self._homes):
                regions.setdefault(os.path.realpath(root), Region("read"))
        regions |= _all(opened, "write")
        # Links among them may lead to hidden paths.
        found = Boundary(regions)
        regions |= _all((p for p in existing(self._closed()) if found.can_read(p)), "read")
        regions |= _all((path for path in guarded if path not in self._parts.folders), "hidden")
        for path in (*guarded, *existing(self.limits.keep), *self._pinned()):
            regions |= _all(_folders_above(path, Boundary(regions)), "write")
        own: dict[str, Region] = {}
        for folder in self._temporary_folders():
            # Mount nothing where commands may create links at the same time.
            has_inner = any(path.startswith(f"{folder}/") for path in regions)
            source = "" if has_inner or not moves else os.path.realpath(self.own_temporary)
            shown = source or not looks
            regions.setdefault(folder, Region("write" if shown else "hidden", source))
            own |= {source: Region("write")} if source else {}
        regions |= own
        if looks:
            written = {path: each for path, each in regions.items() if each.access == "write"}
            regions |= {path: replace(each, access="read") for path, each in written.items()}
        return Boundary(regions)

    def _closed(self) -> Iterator[str]:
        """Yield the read-only paths within writable folders."""
        yield from (*self._parts.read_only, *self.limits.keep, *self._pinned())
        if not self.limits.writes_repository:
            yield from self._parts.repositories

    def _pinned(self) -> Iterator[str]:
        """Yield the files of the session's folders that hooks and servers run."""
        return (path for path in existing(self.pinned) if within(path, self._parts.folders))

    def _of_home(
        self, home: str, opened: Sequence[str], moves: bool
    ) -> Iterator[tuple[str, Region]]:
        """Yield the regions of a home: readable user files and private caches."""
        if os.path.realpath(self.cwd) == home:  # the project shows the user's own files
            yield from _all(sandbox_paths.plain_files(home), "read").items()
        for path, real in sandbox_paths.readable_paths(home, self.environ):
            if not within(path, opened):
                yield path, Region("read", "" if real == path else real)
        if moves and home == self._homes[0]:
            for path, name in sandbox_paths.own_caches(home):
                yield path, Region("write", str(self.own_caches / name))

    def _make_own_folders(self, regions: Mapping[str, Region]) -> None:
        """Create the private folders that replace other paths. Raises OSError."""
        own = [os.path.realpath(self.own_temporary), str(self.own_caches)]
        for path, region in regions.items():
            if region.source and within(region.source, own):
                make_own_folder(Path(region.source))
                if path.endswith("/.cache"):
                    sandbox_paths.link_shared_caches(path.rpartition("/")[0], Path(region.source))

    def _opened(self) -> Iterator[str]:
        """Yield the writable folders of the project, its repository and the settings."""
        for folder in self._parts.folders:
            yield from writable_of_project(folder, self._homes)
        yield from existing(self._parts.repositories)
        if not self.limits.looks:
            yield from existing(self._expanded(self.write))

    def _expanded(self, paths: Iterable[Path]) -> Iterator[str]:
        return (str(expand_home(path, self._homes)) for path in paths)

    def _temporary_folders(self) -> Iterator[str]:
        named = [*self.temporary, *filter(None, [self.environ.get("TMPDIR")])]
        for path in dict.fromkeys(existing(named)):
            if path == "/tmp" or not contains_home(path, self._homes):
                yield path

    def _foreign_sockets(
        self, regions: Mapping[str, Region], own: Iterable[int]
    ) -> dict[str, Region]:
        """Return hidden regions for other programs' sockets that would still be reachable."""
        opened = list(self._opened())
        covered = [
            path
            for path, region in regions.items()
            if region.access in ("hidden", "empty") or region.source
        ]
        left = [
            (path, number)
            for path, number in sandbox_paths.sockets()
            if not within(path, opened) and not within(path, covered)
        ]
        held = sandbox_paths.sockets_held_by(own) if left else set()
        return _all((path for path, number in left if number not in held), "hidden")


def _all(paths: Iterable[str], access: RegionAccess) -> dict[str, Region]:
    return dict.fromkeys(paths, Region(access))


def _folders_above(path: str, boundary: Boundary) -> Iterator[str]:
    """Yield the writable folders above a path, to mount them: a mount point cannot be renamed."""
    above = os.path.dirname(path)  # noqa: PTH120
    top, region = boundary.at(above)
    while above != top and region == Region("write"):
        yield above
        above = os.path.dirname(above)  # noqa: PTH120


def make_own_folder(path: Path) -> None:
    """Create a folder that only its owner can access. Raises OSError if the name is taken."""
    make_private_folder(path)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(errno.EEXIST, f"{path} belongs to somebody else", str(path))
    if found.st_mode & 0o077:
        path.chmod(0o700)


def _mount_arguments(regions: Mapping[str, Region]) -> Iterator[str]:
    """Yield the bubblewrap arguments for the regions, outer ones first."""
    sealed = []
    for path in sorted(regions, key=lambda path: path.count("/")):
        access, source = regions[path].access, regions[path].source or path
        if within(path, ["/proc", "/sys"]) or path in ("/", "/dev"):
            continue
        if access in ("write", "read"):
            yield from ("--bind-try" if access == "write" else "--ro-bind-try", source, path)
        elif os.path.isdir(path):  # noqa: PTH112
            yield from ("--tmpfs", path)
            sealed += [path] if access == "hidden" else []
        else:
            # Read-only, so that nobody can change the mode of the system's /dev/null.
            yield from ("--dev-bind", "/dev/null", path, "--remount-ro", path)
    for path in sealed:
        yield from ("--remount-ro", path)


@functools.cache
def _compute_devices() -> tuple[str, ...]:
    return tuple(str(p) for pattern in _COMPUTE_DEVICES for p in Path("/dev").glob(pattern))


def make_sandbox(
    launch: LaunchOptions, session: Path, added: Sequence[str] = (), pinned: Sequence[str] = ()
) -> Sandbox:
    """Return the sandbox for the commands of a session, which also works in the `added`
    directories. The agent's own files are hidden, except for the session's folder. The `pinned`
    files are read-only.
    """
    chosen = launch.settings.sandbox
    return Sandbox(
        cwd=launch.places.cwd,
        added=added,
        pinned=pinned,
        environ=launch.places.environ,
        off=chosen.mode == "off",
        required=chosen.mode == "require",
        network=chosen.network is True,
        names=chosen.network if isinstance(chosen.network, tuple) else None,
        own_temporary=session / "temporary",
        own_caches=session.parents[1] / "caches",
        write=chosen.write,
        read=chosen.read,
        hide=agent_paths(launch),
        show=[
            session,
            *readable_folders(launch.places.config_home, launch.places.home),
            *(plugin.folder for plugin in launch.extras.plugins),
        ],
    )


def agent_paths(launch: LaunchOptions) -> list[Path]:
    """Return the agent's own paths: settings, sessions, and the list of trusted files."""
    kept = [launch.places.state, launch.places.config_home, user_file(launch.places.environ)]
    return [*kept, launch.places.trust] if launch.places.trust else kept


def check_sandbox(launch: LaunchOptions) -> None:
    """Raise UsageError if the sandbox is required but not available."""
    chosen = launch.settings.sandbox
    if chosen.mode != "require":
        return
    absent = find_bubblewrap(str(launch.places.cwd.resolve()), chosen.network is True).absent
    if absent and not seatbelt.works():
        what, _, hint = absent.partition(". ")
        raise UsageError(
            f'sandbox.mode is "require", and {what}', hint=f'{hint} Or set it to "auto".'
        )
