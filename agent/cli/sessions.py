"""`ctxagent sessions`: list, show, export and fork sessions."""

from typing import Any

import click

from ..ui.visible import clean
from .options import guarded, project_of, say


@click.group(invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, export or fork sessions."""
    if context.invoked_subcommand is None:
        context.invoke(list_sessions)


@sessions.command("list")
@click.option("--all", "everywhere", is_flag=True, help="Of every directory.")
@click.pass_obj
def list_sessions(options: dict[str, Any], everywhere: bool = False) -> None:
    """The sessions of this directory, the newest first."""

    def run() -> int:
        from ..record.sessions import every_log, row

        project = project_of(options)
        rows = [row(log) for log in (every_log(project.state) if everywhere else project.logs())]
        for each in rows:
            say(f"{each.id}  {each.size // 1024:>6} KiB  {clean(each.title)[:70]}")
        if not rows:
            say(f"No sessions for {project.cwd}.", err=True)
        return 0

    guarded(run)


@sessions.command("show")
@click.argument("id")
@click.pass_obj
def show_session(options: dict[str, Any], id: str) -> None:
    """Print a session as Markdown."""
    _export(options, id, "md")


@sessions.command("export")
@click.argument("id")
@click.option("--format", type=click.Choice(["md", "json"]), default="md", show_default=True)
@click.pass_obj
def export_session(options: dict[str, Any], id: str, format: str) -> None:
    """Write a session to standard output."""
    _export(options, id, format)


@sessions.command("fork")
@click.argument("id")
@click.pass_obj
def fork_session(options: dict[str, Any], id: str) -> None:
    """Copy a session; prints the id of the copy."""

    def run() -> int:
        project = project_of(options)
        say(project.fork(project.find(id)).parent.name)
        return 0

    guarded(run)


def _export(options: dict[str, Any], id: str, format: str) -> None:
    def run() -> int:
        from ..record.sessions import export

        say(export(project_of(options).find(id), format), nl=False)
        return 0

    guarded(run)
