"""The order to make an attempt at a task, as sent to a worker."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from ...api.base import dataclass
from .ledger import FleetFolder, TaskFolder
from .manifest import Task


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """Everything an attempt needs, on any machine."""

    task: Task
    fleet: FleetFolder
    session: str
    attempt: int
    options: tuple[str, ...] = ()  # command line options for all tasks
    dollars: float | None = None  # maximum cost
    is_share: bool = False  # True if `dollars` is a share of the fleet's budget, not the task's own
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to the worker's variables
    log: str = ""  # expected path of the session's log; "" if unknown
    tries: Mapping[str, int] = field(default_factory=dict)  # retries of each step in the session

    @property
    def folder(self) -> TaskFolder:
        return self.fleet.task(self.task.id, self.session)

    @property
    def state(self) -> Path:
        """The state folder of the agent."""
        return self.folder.state_of(self.task.image)

    def find_log(self) -> Path | None:
        """Return the log of the session, or None if it does not exist yet."""
        if self.log and Path(self.log).exists():
            return Path(self.log)
        return self.folder.find_log() if self.folder.stderr.exists() else None
