"""Create sessions that continue sessions of other agents."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.base import RecordError, UsageError
from ...api.recordings import ImportedSession
from .own_history import OwnHistory

if TYPE_CHECKING:
    from ...api.recordings import FoundRecording
    from ...api.session import LaunchOptions

HEAD_ROWS = 200  # rows of a recording that are searched for the first messages


def import_recording(launch: "LaunchOptions", path: Path) -> ImportedSession:
    """Convert a session that another agent recorded into a new session of this project.

    Raises UsageError if the file is not a recorded session, and RecordError if the new session
    cannot be written.
    """
    from ...api.base import __version__
    from ...api.context import policy_of, tokens
    from ...api.guard import redaction_for
    from ...api.record import Project, Session
    from ...api.session import extensions_of, model_of
    from ...api.text import count_of
    from .formats import load_recording
    from .session_log import EntryStorage, write_session_log

    extensions_of(launch)  # extensions may add formats
    tokens.use_vocabulary()
    recording, settings, places = load_recording(path), launch.settings, launch.places
    log = Project(places.state, places.cwd).new_log()
    window = model_of(launch, settings).assumed_limits().window
    opening = Session(
        id=log.parent.name,
        cwd=str(places.cwd),
        version=__version__,
        model="",
        own_prompt=launch.prompts.own or None,
    )
    redaction = redaction_for(places.environ, settings.model.base_url, shapes=settings.state.redact)
    terms = EntryStorage(log.parent, window, policy_of(settings), redaction.clean_text)
    try:
        write_session_log(recording, log, opening, terms, redaction.clean)
    except OSError as error:
        shutil.rmtree(log.parent, ignore_errors=True)
        raise RecordError(
            f"the session cannot be written: {error.strerror}",
            hint="Free disk space, then try again. The recording is unchanged.",
        ) from error
    parts = [
        f"continues a session of {recording.format}",
        count_of(recording.replies, "reply", "replies"),
        count_of(recording.calls, "call"),
    ]
    if recording.skipped:
        bad = count_of(recording.skipped, "unreadable line or item", "unreadable lines or items")
        parts.append(f"{bad}, first line {recording.bad_line}" if recording.bad_line else bad)
    return ImportedSession(log.parent.name, " · ".join([*parts, *recording.notes]))


class Recordings(OwnHistory):
    """The sessions of other agents on this machine. All methods block."""

    def find(self, *, everywhere: bool) -> "list[FoundRecording]":
        """Return the recordings of this project, or of all projects, newest first."""
        from .formats.places import find_recordings

        places = self._launch.places
        return find_recordings(places.home, places.environ, None if everywhere else places.cwd)

    def first_messages(self, path: str) -> list[str]:
        """Return the first user messages of a recording, or [] if it cannot be read."""
        from ...api.recordings import RecordedMessage
        from .formats import load_recording

        try:
            steps = load_recording(Path(path), HEAD_ROWS).steps
        except UsageError:
            return []
        said = (step for step in steps if isinstance(step, RecordedMessage))
        return [step.text for step in said if not (step.by_client or step.is_summary)]

    def import_session(self, path: str) -> ImportedSession:
        """Create a session from a recording with `import_recording`. The path may start with
        `~`.
        """
        place = Path(os.path.expanduser(path))  # noqa: PTH111 - keeps `~name` of an unknown user
        return import_recording(self._launch, self._launch.places.cwd / place)
