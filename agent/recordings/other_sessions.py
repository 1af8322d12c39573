"""The sessions that other agents recorded on this machine, as an add-on offers them."""

from typing import TYPE_CHECKING, Protocol

from ..border.entry_points import service
from ..lazy import dataclass

if TYPE_CHECKING:
    from ..launch import LaunchOptions


@dataclass(frozen=True, slots=True)
class FoundRecording:
    """A session that another agent stored on this machine."""

    agent: str
    path: str  # path for `load_recording`, with `#ID` in a database
    changed: float  # in seconds since 1970
    size: int = 0  # bytes, 0 for a session in a database
    title: str = ""  # title from the agent


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """A session created from a recording."""

    id: str
    line: str  # origin and size, for the user


class OtherSessions(Protocol):
    """The sessions of other agents on this machine. All methods block."""

    def find(self, *, everywhere: bool) -> list[FoundRecording]:
        """Return the recordings of this project, or of all projects, newest first."""

    def first_messages(self, path: str) -> list[str]:
        """Return the first user messages of a recording, or [] if it cannot be read."""

    def import_session(self, path: str) -> ImportedSession:
        """Create a session of this project from a recording. The path may start with `~`.

        Raises UsageError if the file is not a recorded session, and RecordError if the new session
        cannot be written.
        """


def other_sessions(launch: "LaunchOptions") -> OtherSessions:
    """Return the sessions of other agents. Raises UsageError without the add-on."""
    found: OtherSessions = service("recordings")(launch)
    return found
