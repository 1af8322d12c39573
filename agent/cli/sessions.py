"""`ctxagent sessions`: the sessions of a project, their disk space, and sessions of a renamed
folder.

The subcommands list, show, export, fork, rename, delete and search sessions. `usage` and `prune`
manage the disk space. `adopt` moves the sessions of a renamed folder here; the terminal offers this
before it starts.
"""

import json
import os
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...tools.system.phrasing import count_of, format_size
from ...tools.system.unicode import clean
from ..errors import NoSuchSession, UsageError
from .group import Group
from .log import print_passages
from .options import can_ask, exits_with_code, is_confirmed, load, load_for_reading, project_of, say

if TYPE_CHECKING:
    from ..config.compaction_settings import StateSettings
    from ..session.disk_budget import ProjectUsage, SessionUsage, StateUsage
    from ..session.listing import SessionRow
    from ..session.store import Project


@click.command("adopt", epilog="Example: ctxagent sessions adopt ~/old-name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("oldpath")
@click.pass_obj
@exits_with_code
def adopt(options: dict[str, Any], yes: bool, oldpath: str) -> int:
    """Move the sessions of a renamed folder to this directory.

    OLDPATH is the path before the folder was renamed. If this directory is not known to be the same
    folder, the command asks.
    """
    from ...tools.system.phrasing import count_of
    from ..session.project_record import is_same_folder, load_record, project_logs

    project = project_of(options, load_for_reading(options))
    path = os.path.normpath(os.path.join(project.cwd, oldpath))  # noqa: PTH118 - links stay
    source = _project_at(project, path)
    record, logs = load_record(source), project_logs(source)
    if source == project.folder:
        raise UsageError(f"{path} is this directory", hint="Its sessions are already used here.")
    if not logs:
        hint = "`ctxagent sessions list --all` lists the sessions of every directory."
        raise NoSuchSession(f"there are no sessions of {path}", hint=hint)
    is_same = record is not None and is_same_folder(record, project.cwd)
    _check_left(path, project.cwd)
    if not (is_same or yes):
        what = f"{count_of(len(logs), 'session')} of {path}"
        if not can_ask():
            why = f"nothing was moved: {project.cwd} is not known to be the folder {path}"
            raise UsageError(why, hint="Give --yes to use its sessions here.")
        if not is_confirmed(f"This may be another folder. Move {what} here?"):
            say("nothing was moved", err=True)
            return 1
    move_here(project, source, record.path if record else path)
    return 0


def move_here(project: "Project", source: Path, old: str) -> None:
    """Move the sessions of another project here, and print what was moved. Raises SessionBusy and
    RecordError.
    """
    from ...tools.system.descriptors import raise_limit
    from ...tools.system.phrasing import count_of
    from ..session.adoption import adopt_sessions

    raise_limit()  # each session is locked
    ids, left = adopt_sessions(source, old, project.cwd)
    say(f"{count_of(len(ids), 'session')} of {old} moved to {project.cwd}", err=True)
    for name in left:
        say(f"note: this file stays, because this directory has another: {name}", err=True)


def offer_former(project: "Project") -> None:
    """Ask once whether to use the sessions of the folder that this one was before it was renamed.
    Does nothing if this folder has sessions or if there is no terminal.
    """
    from ..session.project_record import decline, find_former

    if not can_ask() or project.logs() or not project.cwd.is_dir():
        return
    former = find_former(project.folder, project.cwd)
    if former is None:
        return
    keys = click.Choice(["y", "n"], case_sensitive=False)
    question = clean(f"{former.line} Use them here? [y]es [n]o")
    try:
        answer = click.prompt(question, type=keys, show_choices=False, err=True)
    except click.Abort:  # no answer: the next start asks again
        return
    if answer == "y":
        move_here(project, former.folder, former.path)
    else:
        decline(project.folder, project.cwd)


def _project_at(project: "Project", path: str) -> Path:
    """Return the folder with the sessions of a path that may no longer exist."""
    from ..session.project_record import project_folder

    projects = project.state / "projects"
    found = [project_folder(projects, each) for each in (path, os.path.realpath(path))]
    return next((folder for folder in found if folder.is_dir()), found[0])


def _check_left(path: str, cwd: Path) -> None:
    """Raise UsageError if the old folder, or another folder at its path, still exists."""
    from ..session.project_record import is_gone

    if not is_gone(path, cwd):
        raise UsageError(
            f"{path} still exists, so its sessions stay there",
            hint="To go on in a copy of a session: `ctxagent --resume ID --fork`.",
        )


COLUMNS = ("total", "logs", "results", "files", "snapshots")


@click.command("usage", epilog="Example: ctxagent sessions usage")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def usage(options: dict[str, Any], as_json: bool) -> int:
    """Show the disk space of each project and session."""
    from ..session.disk_budget import measure_state

    loaded = load(options)
    state = project_of(options, loaded).state
    found = measure_state(state, snapshots=True)
    if as_json:
        document = _document(found, loaded.settings.state)
        say(json.dumps({"state": str(state), **document}, ensure_ascii=False))
        return 0
    say("".join(f"{name:>11}" for name in COLUMNS) + "  session")
    for project in sorted(found.projects, key=lambda each: each.total, reverse=True):
        _say_project(project)
    say(f"{format_size(found.other):>11}{'':44}  other files")
    say(_of_limit(found.total, loaded.settings.state))
    return 0


@click.command("prune", epilog="Example: ctxagent sessions prune --dry-run")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
@exits_with_code
def prune(options: dict[str, Any], dry_run: bool, yes: bool) -> int:
    """Remove old sessions to keep state.max_gb and state.max_age_days.

    Sessions that were used in the last 30 days are only removed after a question.
    """
    from ..session.disk_budget import (
        RECENT_DAYS,
        measure_state,
        plan_removal,
        reclaim_space,
        remove_sessions,
        store_total,
    )

    loaded = load(options)
    settings, state = loaded.settings.state, project_of(options, loaded).state
    before = measure_state(state, snapshots=True)
    if not dry_run:  # what no session needs goes first
        for project in before.projects:
            reclaim_space(project.folder)
    found = before if dry_run else measure_state(state, snapshots=True)
    plan = plan_removal(found, settings, time.time())
    chosen: Sequence[SessionUsage] = plan.free
    _say_sessions([*plan.free, *plan.recent])
    if plan.recent:
        what = f"{count_of(len(plan.recent), 'session')} used in the last {RECENT_DAYS} days"
        if dry_run or yes or (can_ask() and is_confirmed(f"Also delete {what} for good?")):
            chosen = [*plan.free, *plan.recent]
        else:
            say(f"{what} kept; --yes deletes them too", err=True)
    if dry_run:
        size = format_size(sum(each.total for each in chosen))
        say(f"{count_of(len(chosen), 'session')} with {size} would be deleted; nothing was")
        return 0
    done = remove_sessions(chosen)
    for each in done:
        say(f"deleted: {each.id}")
    total = measure_state(state).total
    store_total(state, total)
    freed = format_size(max(0, before.total - total))
    say(f"{freed} freed. {_of_limit(total, settings)}")
    return 0


def _say_project(project: "ProjectUsage") -> None:
    from ..session.listing import session_rows

    sessions = sorted(project.sessions.values(), key=lambda each: each.total, reverse=True)
    rows = {row.id: row for row in session_rows(each.log for each in sessions)}
    where = next((row.cwd for row in rows.values() if row.cwd), "") or project.folder.name
    say(f"\n{clean(where)}: {format_size(project.total)}, with {_shared(project)} shared")
    for each in sessions:
        title = clean(rows[each.id].title)[:50] if each.id in rows else ""
        say(f"{_numbers(each)}  {each.id}  {title}".rstrip())


def _shared(project: "ProjectUsage") -> str:
    """Return the size of what several sessions use: snapshots and the search index."""
    own = sum(each.total for each in project.sessions.values())
    return format_size(max(0, project.total - own))


def _numbers(each: "SessionUsage") -> str:
    sizes = (each.total, each.logs, each.offloaded, each.saved, each.snapshots)
    return "".join(f"{format_size(size):>11}" for size in sizes)


def _say_sessions(sessions: "Iterable[SessionUsage]") -> None:
    from ..session.listing import session_row
    from ..ui.commands.sessions import age

    for each in sessions:
        title = clean(session_row(each.log).title)[:70]
        since = age(each.changed)
        when = since if since == "now" else f"{since} ago"
        say(f"{each.id}  changed {when}  {format_size(each.total)}  {title}", err=True)


def _of_limit(total: int, settings: "StateSettings") -> str:
    """Return the total and its share of the limit."""
    from ..session.disk_budget import limit_bytes

    limit = limit_bytes(settings)
    if limit is None:
        return f"{format_size(total)} in all, without a limit (state.max_gb)"
    return (
        f"{format_size(total)} in all, {total / limit:.0%} of {format_size(limit)} (state.max_gb)"
    )


def _document(found: "StateUsage", settings: "StateSettings") -> dict[str, Any]:
    from ..session.disk_budget import limit_bytes

    return {
        "bytes": found.total,
        "limit_bytes": limit_bytes(settings),
        "other_bytes": found.other,
        "projects": [
            {
                "folder": str(project.folder),
                "bytes": project.total,
                "sessions": [
                    {
                        "id": each.id,
                        "changed": each.changed,
                        "bytes": each.total,
                        "logs": each.logs,
                        "results": each.offloaded,
                        "files": each.saved,
                        "snapshots": each.snapshots,
                    }
                    for each in project.sessions.values()
                ],
            }
            for project in found.projects
        ],
    }


MAX_HITS = 20  # per directory


@click.group(
    cls=Group, invoke_without_command=True, epilog="Example: ctxagent sessions search login test"
)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, export, fork, rename, delete or search sessions, or free disk space."""
    if context.invoked_subcommand is None:
        context.invoke(list_sessions)


sessions.add_command(adopt)
sessions.add_command(usage)
sessions.add_command(prune)


@sessions.command("list", epilog="Example: ctxagent sessions list --all")
@click.option("--all", "everywhere", is_flag=True, help="Include every directory.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def list_sessions(options: dict[str, Any], everywhere: bool = False, as_json: bool = False) -> int:
    """List the sessions of this directory, newest first."""
    from ..session.listing import session_rows
    from ..session.project_record import find_former
    from ..session.store import all_logs

    project = project_of(options, load_for_reading(options))
    logs = all_logs(project.state) if everywhere else project.logs()
    rows = list(session_rows(logs))
    if as_json:
        say(json.dumps({"sessions": [_row_document(each) for each in rows]}, ensure_ascii=False))
        return 0
    widest = max((len(each.id) for each in rows), default=0)
    for each in rows:
        when = f"{datetime.fromtimestamp(each.changed):%Y-%m-%d %H:%M}"
        size, branch = f"{each.size // 1024:>6} KiB", clean(each.branch) or "-"
        copy = f"  (copy of {clean(each.copy_of)})" if each.copy_of else ""
        copy += "  (failed)" if each.has_failed else ""
        say(f"{each.id:<{widest}}  {when}  {size}  {branch:<12}  {clean(each.title)[:70]}{copy}")
    if not logs:
        former = None if everywhere else find_former(project.folder, project.cwd)
        more = f" {former.line} {former.hint}" if former else ""
        say(f"No sessions for {project.cwd}.{more}", err=True)
    return 0


def _row_document(row: "SessionRow") -> dict[str, Any]:
    return {
        "id": row.id,
        "title": row.title,
        "last": row.last,
        "cwd": row.cwd,
        "branch": row.branch,
        "changed": row.changed,
        "bytes": row.size,
        "entries": row.entries,
        "in_use": row.in_use,
        "copy_of": row.copy_of,
        "failed": row.has_failed,
        "log": str(row.log),
    }


@sessions.command("fork", epilog="Example: ctxagent sessions fork 20261130-0912")
@click.argument("id")
@click.pass_obj
@exits_with_code
def fork_session(options: dict[str, Any], id: str) -> int:
    """Copy a session and print the ID of the copy."""
    project = project_of(options, load_for_reading(options))
    say(project.fork(project.find_log(id)).parent.name)
    return 0


@sessions.command("rename", epilog="Example: ctxagent sessions rename 20261130-0912 fix the login")
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
    note = redaction.clean(title_note(" ".join(name)))
    log, _, _ = resume_session(project_of(options, loaded).find_log(id))
    try:
        log.append(note)
        save_title(log.path.parent, note.text)
    finally:
        log.close()
    say(f"{log.path.parent.name} is now called: {note.text}")
    return 0


@sessions.command("delete", epilog="Example: ctxagent sessions delete 20261130-0912")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.pass_obj
@exits_with_code
def delete_sessions(options: dict[str, Any], yes: bool, ids: tuple[str, ...]) -> int:
    """Delete sessions with all their files. This cannot be undone."""
    from ...tools.system.phrasing import count_of
    from ..session.disk_budget import delete_session, locked_sessions, reclaim_space

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
    from ...tools.system.phrasing import format_size
    from ..session.disk_budget import folder_bytes
    from ..session.listing import session_row
    from ..ui.commands.sessions import age

    row = session_row(log)
    title = clean(row.title)[:70] or "(no messages yet)"
    since, size = age(row.changed), format_size(folder_bytes(log.parent))
    when = since if since == "now" else f"{since} ago"
    return f"{row.id}  changed {when}  {size}  {title}"


@sessions.command("search", epilog="Example: ctxagent sessions search login test")
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
