"""Find and open the log of the requested session."""

import os
import shutil
from pathlib import Path
from typing import Any

from ..errors import LogDamaged
from ..launch import SessionChoice
from ..session.log import Log
from ..session.store import Project
from .resume import (
    OpenedLog,
    SessionState,
    create_session,
    read_cache,
    resume_session,
    write_cache,
)


def open_log(project: Project, choice: SessionChoice) -> OpenedLog:
    """Open the log of a new or an existing session. Raises SessionError."""
    if choice.for_task is not None:
        path = project.log_for_task(choice.for_task)
        return resume_session(path) if path.exists() else create_session(path)
    if choice.id is None and not choice.newest:
        return create_session(project.new_log())
    path = project.newest_log() if choice.id is None else project.find_log(choice.id)
    return _fork(project, path) if choice.fork else resume_session(path, read_only=choice.read_only)


def _fork(project: Project, path: Path) -> OpenedLog:
    """Copy a session and open the copy. Raises SessionError and leaves no copy of a damaged log."""
    cache = read_cache(path)
    copy = project.fork(path)
    write_cache(copy, cache)
    try:
        return resume_session(copy)
    except LogDamaged:
        shutil.rmtree(copy.parent, ignore_errors=True)
        resume_session(path).log.close()  # raises the error of the original
        raise


def fork_origin(log: Log, state: SessionState) -> dict[str, Any] | None:
    """Return the ID and the newest entry of the session that this one was forked from; None if it
    is not a fork.
    """
    if state.session in ("", log.path.parent.name):
        return None
    return {"id": state.session, "seq": state.newest}


def warnings_on_resume(state: SessionState, cwd: Path, own_prompt: str) -> list[str]:
    """Return warnings about start options that a resumed session ignores."""
    warnings = list[str]()
    if state.began is not None and os.path.realpath(state.began) != os.path.realpath(cwd):
        warnings.append(f"this session began in {state.began} and continues in {cwd}")
    if state.entries and own_prompt and own_prompt != state.own_prompt:
        before = "another system prompt" if state.own_prompt else "the usual system prompt"
        warnings.append(
            f"this session began with {before} and keeps it: --system-prompt only applies to new "
            "sessions"
        )
    return warnings
