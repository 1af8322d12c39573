"""`ctxagent sessions usage` and `prune`: the disk space of sessions."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...tools.system.plural import count_of, format_size
from ...tools.system.unicode import clean
from .options import can_ask, exits_with_code, is_confirmed, load, project_of, say

if TYPE_CHECKING:
    from ..config.state_settings import StateSettings
    from ..session.usage import ProjectUsage, SessionUsage, StateUsage

COLUMNS = ("total", "logs", "results", "files", "snapshots")


@click.command("usage")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def usage(options: dict[str, Any], as_json: bool) -> int:
    """Show the disk space of each project and session."""
    from ..session.usage import measure_state

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


@click.command("prune")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
@exits_with_code
def prune(options: dict[str, Any], dry_run: bool, yes: bool) -> int:
    """Remove old sessions to keep state.max_gb and state.max_age_days.

    Sessions that were used in the last 30 days are only removed after a question.
    """
    from ..session.disk_budget import RECENT_DAYS, plan_removal, remove_sessions
    from ..session.reclaim import reclaim_space
    from ..session.usage import measure_state, store_total

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
