"""Open the log of the requested session, and the state computed from its entries.

An entry records how a process opens the session. All entries of an open session are
written by `SessionRecord.record`.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from ..context.view import View, start_folding
from ..errors import LogDamaged
from ..events import Emit
from ..launch import SessionChoice
from ..lazy import dataclass
from ..session.checkpoints import Checkpoints
from ..session.entries import Entry, Revert, Summary
from ..session.ledger import Ledger
from ..session.log import Log
from ..session.store import Project
from ..session.totals import Totals
from .resume import (
    OpenedLog,
    ResumeCache,
    SessionState,
    create_session,
    read_cache,
    resume_session,
    write_cache,
)


@dataclass(eq=False)
class SessionRecord:
    """The log of one session, with the view, the ledger and the totals of its entries. `record`
    writes to the log, `emit` shows an event in the front end.
    """

    log: Log
    view: View
    ledger: Ledger
    totals: Totals
    checkpoints: Checkpoints
    resume_cache: ResumeCache
    emit: Emit
    # get each new entry
    listeners: list[Callable[[Entry], None]] = field(default_factory=list, init=False)

    @property
    def folder(self) -> Path:
        """The folder of the session."""
        return self.log.path.parent

    def record(self, entry: Entry) -> Entry:
        """Append an entry to the log and update the computed state. Return the entry with its
        number. Raises RecordError.
        """
        recorded = self.log.append(entry)
        if not isinstance(recorded, Revert):  # a revert needs `rebuild_view`
            self.view.add(recorded)
        for add in (self.ledger.add, self.totals.add, self.checkpoints.add, *self.listeners):
            add(recorded)
        if isinstance(recorded, Summary):
            self.resume_cache.renew_in_background()
        return recorded

    def rebuild_view(self) -> None:
        """Rebuild the view from the whole log, for example after a revert."""
        self.view = start_folding(self.log.entries()).view


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
