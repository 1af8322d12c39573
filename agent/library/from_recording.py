"""Makes a session that goes on with a session of another agent."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RecordError
from ..lazy import dataclass

if TYPE_CHECKING:
    from ..launch import LaunchOptions


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """A session that was made of a recording."""

    id: str
    line: str  # what it was made of, for people


def import_recording(launch: "LaunchOptions", path: Path) -> ImportedSession:
    """Write the session that another agent recorded in a file as a new session of this project.

    Raises UsageError for a file that is no recorded session, RecordError when the session cannot be
    written.
    """
    from ...tools.system.plural import count_of
    from ..compaction.policy import policy_of
    from ..context import tokens
    from ..features.from_outside import extensions_of, model_of
    from ..replay.formats import load_recording
    from ..replay.recorded_entries import EntryTerms
    from ..replay.session_log import write_session_log
    from ..security.redaction import redaction_for
    from ..session.entries import Session
    from ..session.store import Project
    from ..version import __version__

    extensions_of(launch)  # they may add formats
    tokens.use_vocabulary()
    recording, settings = load_recording(path), launch.settings
    log = Project(launch.state, launch.cwd).new_log()
    window = model_of(launch, settings).assumed_limits().window
    terms = EntryTerms(log.parent, window, policy_of(settings))
    opening = Session(
        id=log.parent.name,
        cwd=str(launch.cwd),
        version=__version__,
        model="",
        own_prompt=launch.own_prompt or None,
    )
    redaction = redaction_for(launch.environ, settings.model.base_url, shapes=settings.state.redact)
    try:
        write_session_log(recording, log, opening, terms, redaction.clean_entry)
    except OSError as error:
        shutil.rmtree(log.parent, ignore_errors=True)
        raise RecordError(
            f"the session cannot be written: {error.strerror}",
            hint="Free the disk, then try again; the recording itself is as it was.",
        ) from error
    parts = [
        f"goes on from a session of {recording.format}",
        count_of(recording.replies, "reply", "replies"),
        count_of(recording.calls, "call"),
    ]
    if recording.skipped:
        parts.append(f"{count_of(recording.skipped, 'line or item', 'lines or items')} unreadable")
    return ImportedSession(log.parent.name, " · ".join([*parts, *recording.notes]))
