"""The sections of what the agent may do outside of itself: permissions, commands, hooks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..keys import Key, differs, on
from ..shapes import SWITCH, one_of
from .values import COMMANDS, FOLDERS, RULES, VARIABLES, Mode, Sandboxing, freer, laxer


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """[permissions]"""

    mode: Annotated[
        Mode,
        Key(
            one_of(Mode),
            'What is done where no rule speaks. "plan" changes nothing, "bypass" asks nothing.',
            loosens=laxer,
        ),
    ] = "ask"
    allow: Annotated[
        tuple[str, ...],
        Key(RULES, "Calls that need no question.", adds=True, loosens=differs),
    ] = ()
    ask: Annotated[
        tuple[str, ...], Key(RULES, "Calls that are always asked about.", adds=True)
    ] = ()
    deny: Annotated[tuple[str, ...], Key(RULES, "Calls that are never made.", adds=True)] = ()


@dataclass(frozen=True, slots=True)
class BashSettings:
    """[bash]"""

    keep_env: Annotated[
        tuple[str, ...],
        Key(
            VARIABLES,
            "Variables that commands may see although they look like secrets.",
            loosens=differs,
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """[sandbox]"""

    mode: Annotated[
        Sandboxing,
        Key(
            one_of(Sandboxing),
            '"auto" runs commands under bubblewrap where it works; "require" runs none without.',
            loosens=freer,
        ),
    ] = "auto"
    network: Annotated[
        bool,
        Key(SWITCH, "Whether commands in the sandbox reach the network.", loosens=on),
    ] = True
    write: Annotated[
        tuple[Path, ...],
        Key(
            FOLDERS,
            "Folders that commands may write to, besides the project and the temporary ones.",
            adds=True,
            loosens=differs,
        ),
    ] = ()


def _hook(help: str) -> Key:
    return Key(COMMANDS, help, adds=True, loosens=differs)


@dataclass(frozen=True, slots=True)
class HookSettings:
    """[hooks]"""

    before_compact: Annotated[
        tuple[str, ...],
        _hook("Shell commands to run before each compaction; exit code 2 prevents it."),
    ] = ()
    after_compact: Annotated[
        tuple[str, ...], _hook("Shell commands to run after each compaction.")
    ] = ()
    before_tool: Annotated[
        tuple[str, ...],
        _hook("Shell commands to run before each call of a tool; exit code 2 prevents it."),
    ] = ()
    after_tool: Annotated[
        tuple[str, ...], _hook("Shell commands to run after each call of a tool.")
    ] = ()
    session_start: Annotated[
        tuple[str, ...], _hook("Shell commands to run when a session is opened.")
    ] = ()
    session_end: Annotated[
        tuple[str, ...], _hook("Shell commands to run when a session is left.")
    ] = ()
