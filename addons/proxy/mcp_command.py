"""`ctxagent mcp-server`: serve the recorded sessions of a project to other agents through MCP."""

import os
import signal
import sys
from typing import Any

import click

from ...api.base import UsageError
from ...api.cli import exits_with_code, load, project_of


@click.command("mcp-server", epilog="Example: ctxagent mcp-server")
@click.option("--session", "id", metavar="ID", help="Read this session instead of the newest one.")
@click.pass_obj
@exits_with_code
def mcp_server(options: dict[str, Any], id: str | None) -> int:
    """Give another agent recall and search through MCP (stdin, stdout)."""
    import asyncio

    from ...api.guard import redaction_for

    if sys.stdin is None or sys.stdin.isatty():
        hint = "Add `ctxagent mcp-server` to the agent's MCP servers; see `ctxagent guide mcp`."
        raise UsageError("this command is for other agents, which start it with pipes", hint=hint)
    loaded = load(options)
    project = project_of(options, loaded)
    fixed = None if id is None else project.find_log(id)
    redaction = redaction_for(os.environ, shapes=loaded.settings.state.redact)
    from .mcp_server import SessionServer, serve_stdio
    from .session_tools import ServedSessions

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing to clean up
    sessions = ServedSessions(project, fixed)
    asyncio.run(serve_stdio(SessionServer(sessions, redaction.clean)))
    return 0
