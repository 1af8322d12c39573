"""`ctxagent sessions`: list, show, export, fork and search sessions."""

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..ui.visible import clean
from .options import guarded, load, project_of, say
from .recover import tell

if TYPE_CHECKING:
    from ..record.export import Format, Scale

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
        from ..record.listing import rows
        from ..record.sessions import every_log

        project = project_of(options)
        logs = every_log(project.state) if everywhere else project.logs()
        for each in rows(logs):
            when = f"{datetime.fromtimestamp(each.changed):%Y-%m-%d %H:%M}"
            size, branch = f"{each.size // 1024:>6} KiB", clean(each.branch) or "-"
            say(f"{each.id}  {when}  {size}  {branch:<12}  {clean(each.title)[:70]}")
        if not logs:
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
@click.option(
    "--format", type=click.Choice(["md", "html", "json"]), default="md", show_default=True
)
@click.pass_obj
def export_session(options: dict[str, Any], id: str, format: "Format") -> None:
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


def _export(options: dict[str, Any], id: str, format: "Format") -> None:
    def run() -> int:
        from ..record.export import export
        from ..redaction import of as secrets_of

        loaded = load(options)
        log = project_of(options, loaded).find(id)
        window = loaded.settings.model.context_window
        scale = _scale(log, window) if format == "html" else None
        redaction = secrets_of(os.environ, shapes=loaded.settings.state.redact)
        say(export(log, format, scale=scale, redact=redaction.entry), nl=False)
        return 0

    guarded(run)


def _scale(log: Path, window: int | None) -> "Scale | None":
    """The window that the settings name, else that of the session's model, if it is known."""
    from ..context.window import LEVELS
    from ..model.base import known
    from ..record.entries import Session
    from ..record.export import Scale
    from ..record.log import Entries

    if window is None:
        models = [entry.model for entry in Entries(log) if isinstance(entry, Session)]
        row = known(models[-1]) if models else None
        window = row[0].window if row else None
    return Scale(window, LEVELS) if window else None
