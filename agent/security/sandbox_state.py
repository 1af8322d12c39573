"""The state of the sandbox on this machine, and whether the user knows it.

Interactive starts tell the user the state once on each machine, and again when it has become worse.
A file in the state folder keeps the state that each machine had at its last interactive start.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from ...tools.base import Confinement
from ...tools.system.files import make_private_folder, replace_file
from ..events import Notice

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
