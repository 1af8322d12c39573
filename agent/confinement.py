"""How the commands of a session are confined, as its settings have it."""

from pathlib import Path

from ..tools.sandbox import Sandbox, probe
from .config import user_file
from .errors import UsageError
from .launch import Launch


def confine(launch: Launch, session: Path) -> Sandbox | None:
    """What the commands of a session with this folder run in; None where that is off. What the
    agent keeps is hidden from them, but for what the session itself has kept."""
    chosen = launch.settings.sandbox
    if chosen.mode == "off":
        return None
    kept = [launch.state, launch.config_home, user_file(launch.environ)]
    return Sandbox(
        cwd=launch.cwd,
        environ=launch.environ,
        required=chosen.mode == "require",
        network=chosen.network,
        write=chosen.write,
        hide=[*kept, launch.trust] if launch.trust else kept,
        show=[session],
    )


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
