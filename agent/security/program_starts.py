"""The gate of a process for hooks and servers: the folders whose files are pinned."""

import os
from collections.abc import Iterable

from ..config.pinned_files import PinnedFiles
from ..config.start_gate import StartGate
from ..launch import LaunchOptions
from .folders import writable_folders
from .sandbox import agent_paths
from .sandbox_git import repository_root


def gate_of(launch: LaunchOptions) -> StartGate:
    """Return the gate for the hooks and servers of a run."""
    return launch.starts or make_gate(launch)


def make_gate(launch: LaunchOptions, project_commands: Iterable[str] = ()) -> StartGate:
    """Return a new gate. `project_commands` are the commands that a project's settings contain. It
    pins files in the project and in folders that commands may write to.
    """
    cwd, write = str(launch.cwd), launch.settings.sandbox.write
    project = filter(None, [cwd, repository_root(os.path.realpath(cwd))])
    named = [*project, *writable_folders(cwd, launch.environ, write)]
    folders = list(dict.fromkeys(map(os.path.realpath, named)))
    own = [os.path.realpath(path) for path in agent_paths(launch)]
    pins = PinnedFiles(launch.trust or launch.state)
    return StartGate(pins, folders, own, frozenset(project_commands))
