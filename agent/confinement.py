"""How the commands of a session are confined, as its settings have it."""

import os
from collections.abc import Mapping
from pathlib import Path

from ..tools import gitplace
from ..tools.programs import distrust
from ..tools.sandbox import Sandbox, holds, homes, own_folders, probe, writable
from .config import user_file
from .errors import UsageError
from .launch import Launch
from .settings.effects import SandboxSettings


def confine(launch: Launch, session: Path) -> Sandbox | None:
    """What the commands of a session with this folder run in; None where that is off. What the
    agent keeps is hidden from them, but for what the session itself has kept."""
    chosen = launch.settings.sandbox
    if chosen.mode == "off":
        return None
    return Sandbox(
        cwd=launch.cwd,
        environ=launch.environ,
        required=chosen.mode == "require",
        network=chosen.network,
        write=chosen.write,
        hide=own_places(launch),
        show=[session],
    )


def choose_programs(chosen: SandboxSettings, cwd: Path, environ: Mapping[str, str]) -> None:
    """See to it that no program of ours comes from a folder that commands may write to. Where
    there is no sandbox that is any folder, and only the project's are kept out."""
    distrust(_around(os.path.realpath(cwd), environ))
    if chosen.mode == "off":
        distrust(own_folders(str(cwd), environ))
    else:
        distrust(writable(str(cwd), environ, chosen.write))


def _around(cwd: str, environ: Mapping[str, str]) -> list[str]:
    """The folder the project is in and that of its repository, where they are nobody's home and
    hold none: what a project ships is as little ours as what a command writes there. A home that
    is the project is among them: folders that are made in it can be written to, too."""
    people, root = homes(environ), gitplace.root(cwd)
    found = [cwd] if cwd in people or not holds(cwd, people) else []
    return [*found, root] if root and not holds(root, people) else found


def own_places(launch: Launch) -> list[Path]:
    """What the agent keeps for itself: settings, sessions, and what the person has trusted."""
    kept = [launch.state, launch.config_home, user_file(launch.environ)]
    return [*kept, launch.trust] if launch.trust else kept


def check_sandbox(launch: Launch) -> None:
    """Raises UsageError where commands must be confined and cannot be."""
    chosen = launch.settings.sandbox
    if chosen.mode != "require":
        return
    if absent := probe(str(launch.cwd.resolve()), chosen.network).absent:
        what, _, move = absent.partition(". ")
        raise UsageError(
            f'sandbox.mode is "require", and {what}', hint=f'{move} Or set it to "auto".'
        )
