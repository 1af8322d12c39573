"""`ctxagent sessions`: list, show, export, fork, rename, delete and search sessions. `usage` and
`prune` are in `sessions_disk`, `adopt` is in `sessions_adopt`.
"""

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...tools.system.unicode import clean
from ..errors import UsageError
from .group import Group
from .options import can_ask, exits_with_code, is_confirmed, load_for_reading, project_of, say
from .recover import print_passages
from .sessions_adopt import adopt
from .sessions_disk import prune, usage

if TYPE_CHECKING:
    from ..config.load import LoadedSettings
    from ..export import ExportFormat, WindowScale

MAX_HITS = 20  # per directory


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, export, fork, rename, delete or search sessions, or free disk space."""
    if context.invoked_subcommand is None:
        context.invoke(list_sessions)


sessions.add_command(adopt)
sessions.add_command(usage)
sessions.add_command(prune)


@sessions.command("list")
@click.option("--all", "everywhere", is_flag=True, help="Include every directory.")
@click.pass_obj
@exits_with_code
def list_sessions(options: dict[str, Any], everywhere: bool = False) -> int:
    """List the sessions of this directory, newest first."""
    from ..session.listing import session_rows
    from ..session.project_record import find_former
    from ..session.store import all_logs

    project = project_of(options, load_for_reading(options))
    logs = all_logs(project.state) if everywhere else project.logs()
    rows = list(session_rows(logs))
    widest = max((len(each.id) for each in rows), default=0)
    for each in rows:
        when = f"{datetime.fromtimestamp(each.changed):%Y-%m-%d %H:%M}"
        size, branch = f"{each.size // 1024:>6} KiB", clean(each.branch) or "-"
        copy = f"  (copy of {clean(each.copy_of)})" if each.copy_of else ""
        say(f"{each.id:<{widest}}  {when}  {size}  {branch:<12}  {clean(each.title)[:70]}{copy}")
    if not logs:
        former = None if everywhere else find_former(project.folder, project.cwd)
        more = f" {former.line} {former.hint}" if former else ""
        say(f"No sessions for {project.cwd}.{more}", err=True)
    return 0


@sessions.command("show")
@click.argument("id")
@click.pass_obj
@exits_with_code
def show_session(options: dict[str, Any], id: str) -> int:
    """Print a session as Markdown."""
    return _export(options, id, "md")


@sessions.command("export")
@click.argument("id")
@click.option(
    "--format",
    type=click.Choice(["md", "html", "json"]),
    default="md",
    show_default=True,
    help="The format: Markdown, an HTML page or JSON.",
)
@click.pass_obj
@exits_with_code
def export_session(options: dict[str, Any], id: str, format: "ExportFormat") -> int:
    """Write a session to standard output."""
    return _export(options, id, format)


@sessions.command("fork")
@click.argument("id")
@click.pass_obj
@exits_with_code
def fork_session(options: dict[str, Any], id: str) -> int:
    """Copy a session and print the ID of the copy."""
    project = project_of(options, load_for_reading(options))
    say(project.fork(project.find_log(id)).parent.name)
    return 0


@sessions.command("rename")
@click.argument("id")
@click.argument("name", nargs=-1, required=True)
@click.pass_obj
@exits_with_code
def rename_session(options: dict[str, Any], id: str, name: tuple[str, ...]) -> int:
    """Give a session a title."""
    from ..loop.resume import resume_session
    from ..security.redaction import redaction_for as secrets_of
    from ..session.titles import save_title, title_note

    loaded = load_for_reading(options)
    redaction = secrets_of(os.environ, shapes=loaded.settings.state.redact)
    note = redaction.clean_entry(title_note(" ".join(name)))
    log, _, _ = resume_session(project_of(options, loaded).find_log(id))
    try:
        log.append(note)
        save_title(log.path.parent, note.text)
    finally:
        log.close()
    say(f"{log.path.parent.name} is now called: {note.text}")
    return 0


@sessions.command("delete")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.pass_obj
@exits_with_code
def delete_sessions(options: dict[str, Any], yes: bool, ids: tuple[str, ...]) -> int:
    """Delete sessions with all their files. This cannot be undone."""
    from ...tools.system.plural import count_of
    from ..session.deletion import delete_session, locked_sessions
    from ..session.reclaim import reclaim_space

    project = project_of(options, load_for_reading(options))
    logs = [*dict.fromkeys(_whole_session(project.find_log(id)) for id in ids)]
    with locked_sessions(logs) as warnings:
        for warning in warnings:
            say(f"note: {warning}", err=True)
        for log in logs:
            say(_describe(log), err=True)
        if not yes and not can_ask():
            why = "nothing was deleted, because there is no terminal to ask"
            raise UsageError(why, hint="Give --yes.")
        if not yes and not is_confirmed(f"Delete {count_of(len(logs), 'session')} for good?"):
            say("nothing was deleted", err=True)
            return 1
        for log in logs:
            delete_session(log)
            say(f"deleted: {log.parent.name}")
        for folder in {log.parents[2] for log in logs}:
            reclaim_space(folder)
    return 0


def _whole_session(log: Path) -> Path:
    """Return the log of a session. Raises UsageError for the log of a subagent."""
    from ..session.store import locate_log

    name = locate_log(log)[1]
    session, is_part, _ = name.partition("/")
    if is_part:
        why = f"{name} is a subagent's part of session {session}"
        raise UsageError(why, hint=f"Delete the session: ctxagent sessions delete {session}")
    return log


def _describe(log: Path) -> str:
    """Return the ID, age, size and title of a session on one line."""
    from ...tools.system.plural import format_size
    from ..session.deletion import folder_bytes
    from ..session.listing import session_row
    from ..ui.commands.sessions import age

    row = session_row(log)
    title = clean(row.title)[:70] or "(no messages yet)"
    since, size = age(row.changed), format_size(folder_bytes(log.parent))
    when = since if since == "now" else f"{since} ago"
    return f"{row.id}  changed {when}  {size}  {title}"


@sessions.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--all", "everywhere", is_flag=True, help="Sessions of every directory.")
@click.pass_obj
@exits_with_code
def search_sessions(options: dict[str, Any], words: tuple[str, ...], everywhere: bool) -> int:
    """Search the text of this directory's sessions."""
    from ..session.search import SearchIndex
    from ..session.search.recall import to_passage

    project = project_of(options, load_for_reading(options))
    folders = sorted(project.state.glob("projects/*/")) if everywhere else [project.folder]
    query, found = " ".join(words), 0
    for folder in folders:
        hits = SearchIndex(folder).search(query, limit=MAX_HITS, patience=None).hits
        print_passages([to_passage(hit) for hit in hits])
        found += len(hits)
    if not found:
        say(f"nothing found: {query}", err=True)
    return 0 if found else 1


def _export(options: dict[str, Any], id: str, format: "ExportFormat") -> int:
    loaded = load_for_reading(options)
    say(exported(project_of(options, loaded).find_log(id), format, loaded), nl=False)
    return 0


def exported(log: Path, format: "ExportFormat", loaded: "LoadedSettings") -> str:
    """Return a session in a format, with secrets redacted. Raises SessionError."""
    from ..export import export
    from ..security.redaction import redaction_for as secrets_of

    scale = _scale(log, loaded.settings.model.context_window) if format == "html" else None
    redaction = secrets_of(os.environ, shapes=loaded.settings.state.redact)
    return export(log, format, scale=scale, redact=redaction.clean_entry)


def _scale(log: Path, window: int | None) -> "WindowScale | None":
    """Return the scale of the window in the settings, else of the session's model, if known."""
    from ..context.window import LEVELS
    from ..export import WindowScale
    from ..models.catalog import known_limits
    from ..session.entries import Session
    from ..session.log import Entries

    if window is None:
        models = [entry.model for entry in Entries(log) if isinstance(entry, Session)]
        limits = known_limits(models[-1]) if models else None
        window = limits.window if limits else None
    return WindowScale(window, LEVELS) if window else None
