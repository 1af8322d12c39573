"""The sessions that other agents recorded on this machine, as an add-on offers them."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..border.entry_points import service
from ..lazy import dataclass

if TYPE_CHECKING:
    from ..launch import LaunchOptions


MAX_COMPARISON_S = 30


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


@dataclass(frozen=True, slots=True)
class ComparedSessions:
    """The cost of sessions of other agents, with summaries only and with our settings."""

    sessions: int
    dollars: float
    own_dollars: float
    page: Path


class OtherSessions(Protocol):
    """The sessions of other agents on this machine. All methods block."""

    def find(self, *, everywhere: bool) -> list[FoundRecording]:
        """Return the recordings of this project, or of all projects, newest first."""

    def newest_of_others(self) -> list[FoundRecording]:
        """Return the newest sessions on this machine, of the agents that most people use."""

    def compare_newest(self) -> ComparedSessions | None:
        """Compare the cost of these sessions, and write a page about it. Return None if that is not
        done in MAX_COMPARISON_S seconds.
        """

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
