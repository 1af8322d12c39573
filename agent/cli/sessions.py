"""`ctxagent sessions`: list, show, export, fork and search sessions."""

from typing import Any

import click

from ..ui.visible import clean
from .options import guarded, project_of, say
from .recover import tell

SHOWN = 20  # of what was found in one directory's sessions


@click.group(invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, export, fork or search sessions."""
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


@sessions.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--all", "everywhere", is_flag=True, help="Sessions of every directory.")
@click.pass_obj
def search_sessions(options: dict[str, Any], words: tuple[str, ...], everywhere: bool) -> None:
    """Find words in what the sessions of this directory recorded."""

    def run() -> int:
        from ..recall import passage
        from ..record.index import Index

        project = project_of(options)
        folders = sorted(project.state.glob("projects/*/")) if everywhere else [project.folder]
        query, found = " ".join(words), 0
        for folder in folders:
            hits = Index(folder).search(query, limit=SHOWN, patience=None).hits
            tell([passage(hit) for hit in hits])
            found += len(hits)
        if not found:
            say(f"nothing found: {query}", err=True)
        return 0 if found else 1

    guarded(run)


def _export(options: dict[str, Any], id: str, format: str) -> None:
    def run() -> int:
        from ..record.sessions import export

        say(export(project_of(options).find(id), format), nl=False)
        return 0

    guarded(run)
