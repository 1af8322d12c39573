"""When the person's own commands run in a conversation, and what they are told of its session."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..tools.base import Output
from .errors import SessionError
from .events import Notice, waiting
from .hooks import run_hooks
from .launch import Launch
from .loop import Loop
from .record.entries import End
from .record.log import Entries
from .record.sessions import AGENTS


async def occasion(
    launch: Launch, loop: Loop, name: str, event: Mapping[str, Any], *, resumed: bool
) -> str | None:
    """Run the commands for an occasion by its name, if there are any; the reason of a veto. A
    subagent's session is part of its parent's and has no start and end of its own."""
    commands, of_agent = getattr(launch.settings.hooks, name), loop.folder.parent.name == AGENTS
    if not commands or (of_agent and name.startswith("session_")):
        return None
    more: dict[str, Any] = {}
    if name == "session_start":
        more = {"log": str(loop.log.path), "cwd": str(launch.cwd), "resumed": resumed}
    elif name == "session_end":
        more = {"log": str(loop.log.path), "status": _status(loop)}
    with waiting(loop.emit, f"the hooks of {name}"):
        return await run_hooks(
            commands,
            {"event": name, "session": loop.folder.name, **event, **more},
            cwd=launch.cwd,
            env=loop.context.env,
            warn=lambda text: loop.emit(Notice("warning", loop.context.redact(Output(text)).text)),
        )


def _status(loop: Loop) -> str:
    """How the newest turn ended, "" where none has."""
    with suppress(SessionError):
        return next((e.status for e in reversed(Entries(loop.log.path)) if isinstance(e, End)), "")
    return ""
