"""The gate of a process for hooks and servers: the folders whose files are pinned, and the sandbox
of programs that a project names.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ...tools.system.confinement import CommandLimits
from ...tools.system.spawn import Enclosed
from ..config.start_gate import ClearedStart, ProgramRights, ProgramStart, StartGate
from ..config.trust import PinnedFiles
from ..launch import LaunchOptions
from ..session.store import Project
from .sandbox import Sandbox, agent_paths, make_sandbox
from .sandbox_paths import repository_root, writable_folders

PROGRAMS_FOLDER = "programs"  # in the project's folder of the state folder
_IN_FOLDER = 'cd "$0" && exec "$@"'


def gate_of(launch: LaunchOptions) -> StartGate:
    """Return the gate for the hooks and servers of a run."""
    return launch.starts or make_gate(launch)


def make_gate(launch: LaunchOptions, project_commands: Iterable[str] = ()) -> StartGate:
    """Return a new gate. `project_commands` are the commands that a project's settings contain. It
    pins files in the project and in folders that commands may write to.
    """
    cwd, settings = str(launch.places.cwd), launch.settings
    project = filter(None, [cwd, repository_root(os.path.realpath(cwd))])
    named = [*project, *writable_folders(cwd, launch.places.environ, settings.sandbox.write)]
    folders = list(dict.fromkeys(map(os.path.realpath, named)))
    own, programs = [os.path.realpath(path) for path in agent_paths(launch)], settings.programs
    return StartGate(
        PinnedFiles(launch.places.trust_dir),
        folders,
        own,
        frozenset(project_commands),
        ProgramRights(programs.network, tuple(map(str, programs.write)), programs.outside),
        ProgramSandbox(launch).confine,
    )


class ProgramSandbox:
    """The sandbox of a project's programs. They have the rights of commands that run without a
    question, and the rights that they declare.
    """

    def __init__(self, launch: LaunchOptions) -> None:
        self._launch = launch
        self._session = (
            Project(launch.places.state, launch.places.cwd).folder / PROGRAMS_FOLDER / "own"
        )
        self._made: dict[ProgramRights, Sandbox] = {}

    def confine(self, start: ProgramStart) -> ClearedStart | None:
        """Return a program in the sandbox, or None without one. Blocking."""
        from ..permissions.approval import Approval

        box = self._made.get(start.rights) or self._make(start.rights)
        self._made[start.rights] = box
        if box.off or box.absent:
            return None
        named, path = self._launch.settings.permissions, box.environ.get("PATH")
        rules = Approval(deny=named.deny, ask=named.ask, cwd=self._launch.places.cwd, path=path)
        hide, keep = rules.guarded_files() or ((), ())
        free = start.rights.network
        limits = CommandLimits(
            unasked=not free, offline=not free, writes_repository=False, hide=hide, keep=keep
        )
        confined = box.for_command(limits)

        def enclose(command: Sequence[str]) -> Enclosed:
            return confined.enclose(["/bin/sh", "-c", _IN_FOLDER, str(start.cwd), *command])

        env = confined.environment(start.env)
        return ClearedStart(start.command, start.cwd, env, enclose)

    def _make(self, rights: ProgramRights) -> Sandbox:
        box = make_sandbox(self._launch, self._session)
        cwd = self._launch.places.cwd
        folders = [Path(each) if each[:1] == "~" else cwd / each for each in rights.write]
        return replace(box, network=rights.network, names=None, write=[*box.write, *folders])
