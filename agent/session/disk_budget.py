"""Keep the state directory below its limits, `state.max_gb` and `state.max_age_days`.

A session that was used in the last RECENT_DAYS days is only removed after a question. The oldest
sessions are removed first.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...tools.system.plural import count_of, format_size
from ..config.state_settings import StateSettings
from ..errors import RecordError, SessionBusy
from ..lazy import dataclass
from .deletion import delete_session, locked_sessions
from .lock import LOCK_NAME
from .reclaim import is_running, reclaim_space
from .usage import SessionUsage, StateUsage, measure_state, store_total

RECENT_DAYS = 30
DAY_S = 86_400
WARNING_SHARE = 0.8  # of the limit
GB = 1_000_000_000
PRUNE = "ctxagent sessions prune"


@dataclass(frozen=True, slots=True)
class Removal:
    """Sessions to remove, oldest first, to meet the limits."""

    free: tuple[SessionUsage, ...] = ()  # unused for RECENT_DAYS days
    recent: tuple[SessionUsage, ...] = ()  # only after a question


def limit_bytes(settings: StateSettings) -> int | None:
    """Return `state.max_gb` in bytes, None for no limit."""
    return None if settings.max_gb is None else round(settings.max_gb * GB)


def plan_removal(usage: StateUsage, settings: StateSettings, now: float) -> Removal:
    """Return the sessions that are too old, and the oldest ones until the rest is below the limit.
    Open sessions stay.
    """
    limit, age = limit_bytes(settings), settings.max_age_days
    sessions = [each for project in usage.projects for each in project.sessions.values()]
    left, chosen = usage.total, list[SessionUsage]()
    for session in sorted(sessions, key=lambda each: each.changed):
        is_old = age is not None and now - session.changed > age * DAY_S
        is_too_much = limit is not None and left > limit
        if (is_old or is_too_much) and not is_running(session.log.with_name(LOCK_NAME)):
            chosen.append(session)
            left -= session.total
    recent = [each for each in chosen if now - each.changed <= RECENT_DAYS * DAY_S]
    return Removal(tuple(each for each in chosen if each not in recent), tuple(recent))


def remove_sessions(sessions: Iterable[SessionUsage]) -> list[SessionUsage]:
    """Delete sessions and free their space. Return those deleted: a session that is open or was
    used meanwhile stays.
    """
    done, projects = list[SessionUsage](), set[Path]()
    for session in sessions:
        with suppress(RecordError, SessionBusy, OSError), locked_sessions([session.log]):
            if session.log.stat().st_mtime == session.changed:
                delete_session(session.log)
                done.append(session)
                projects.add(session.log.parents[2])
    for project in projects:
        reclaim_space(project)
    return done


def enforce_limits(state: Path, settings: StateSettings) -> tuple[int, str]:
    """Remove what needs no question, and return the bytes of the state directory and a notice, ""
    for none.
    """
    usage = measure_state(state)
    limit, said = limit_bytes(settings), list[str]()
    planned = plan_removal(usage, settings, time.time())
    if limit is not None and usage.total > limit:
        for project in usage.projects:
            reclaim_space(project.folder)
        usage = measure_state(state, snapshots=True)
        planned = plan_removal(usage, settings, time.time())
    if done := remove_sessions(planned.free):
        before = usage.total
        usage = measure_state(state)
        said.append(
            f"removed {count_of(len(done), 'session')} that no one used for {RECENT_DAYS} days "
            f"({format_size(before - usage.total)}), to keep the limits of [state]"
        )
    if limit is not None and usage.total > limit:
        said.append(
            f"the state directory has {format_size(usage.total)}, and state.max_gb allows "
            f"{format_size(limit)}: `{PRUNE}` shows what can be removed"
        )
    elif planned.recent:
        said.append(
            f"{count_of(len(planned.recent), 'session')} older than state.max_age_days: `{PRUNE}` "
            "removes them"
        )
    store_total(state, usage.total)
    return usage.total, "; ".join(said)
