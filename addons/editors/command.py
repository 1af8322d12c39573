"""`ctxagent acp`: serve editors through the Agent Client Protocol."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.base import UsageError, __version__
from ...api.cli import exits_with_code, launch_of, load, project_of, say_notices
from ...api.session import check_key

if TYPE_CHECKING:
    from ...api.front_ends import ConversationPlace
    from ...api.session import ServerConfig


@click.command(epilog="Example: ctxagent acp")
@click.pass_obj
@exits_with_code
def acp(options: dict[str, Any]) -> int:
    """Serve an editor through the Agent Client Protocol (stdin, stdout)."""
    import asyncio

    if sys.stdin is None or sys.stdin.isatty():
        hint = "Enter it as an agent in the editor's settings; see `ctxagent guide editors`."
        raise UsageError("this command is for editors, which start it with pipes", hint=hint)
    sink = os.dup(1)
    os.dup2(2, 1)  # keep other output out of the message stream
    from ...api.record import all_logs
    from .server import EditorServices, serve_editor

    def options_for(cwd: Path) -> dict[str, Any]:
        return {**options, "cwd": cwd}

    def place_of(cwd: Path, servers: "Sequence[ServerConfig]") -> "ConversationPlace":
        from ...api.front_ends import conversation_place

        loaded = load(options_for(cwd))
        say_notices(loaded, safe=options["safe"])
        return conversation_place(options_for(cwd), loaded, servers)

    def logs(cwd: Path | None) -> Sequence[Path]:
        project = project_of(options_for(cwd) if cwd else options)
        return project.logs() if cwd else all_logs(project.state)

    services = EditorServices(
        version=__version__,
        place_of=place_of,
        check_key=lambda: check_key(launch_of(options)),
        main_key_variable=lambda: _usual_key(options),
        logs=logs,
    )
    asyncio.run(serve_editor(services, 0, sink))
    return 0


def _usual_key(options: dict[str, Any]) -> str:
    from ...api.models import main_key_variable

    return main_key_variable(launch_of(options).settings.model)
