"""The order to make an attempt at a task, as a worker gets it."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from ..lazy import dataclass
from .ledger import FleetFolder, TaskFolder
from .manifest import Task


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """All that an attempt needs, wherever it is made."""

    task: Task
    fleet: FleetFolder
    session: str
    attempt: int
    options: tuple[str, ...] = ()  # of the command line, for all tasks
    dollars: float | None = None  # what it may cost
    is_share: bool = False  # whether that is what is left for the fleet, not the task's own budget
    env: Mapping[str, str] = field(default_factory=dict)  # beside that of the worker
    log: str = ""  # of the session, where it is expected; "" where that is not known
    tries: Mapping[str, int] = field(
        default_factory=dict
    )  # of each step in the session, beside one

    @property
    def folder(self) -> TaskFolder:
        return self.fleet.task(self.task.id, self.session)

    @property
    def state(self) -> Path:
        """The state folder of the agent."""
        return self.folder.state_of(self.task.image)

    def find_log(self) -> Path | None:
        """Return the log of the session, None where there is none yet."""
        if self.log and Path(self.log).exists():
            return Path(self.log)
        return self.folder.find_log() if self.folder.stderr.exists() else None
