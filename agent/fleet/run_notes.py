"""A run's notes for other processes that watch it: when it began, and which outages it waits for.
Only the ledger is authoritative.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ...tools.system.files import replace_file
from ..lazy import dataclass
from .ledger import FleetFolder

NAME = "run.json"


@dataclass(frozen=True, slots=True)
class OutageNote:
    """An outage. Times are in seconds since 1970."""

    cause: str
    why: str
    since: float
    probe_at: float  # earliest time of the next attempt


@dataclass(frozen=True, slots=True)
class RunNotes:
    """The notes of a run."""

    began: float  # seconds since 1970
    dollars: float  # cost of all sessions when it began
    ended: int  # number of ended tasks when it began
    outages: tuple[OutageNote, ...] = ()

    def write(self, folder: FleetFolder) -> None:
        """Write the notes; ignore errors."""
        with suppress(OSError):
            replace_file(folder.path / NAME, json.dumps(asdict(self)).encode(), durable=False)

    @classmethod
    def read(cls, folder: FleetFolder) -> "RunNotes | None":
        """Return the notes of the newest run, or None if they cannot be read."""
        with suppress(OSError, ValueError, TypeError, LookupError):
            found: Mapping[str, Any] = json.loads((folder.path / NAME).read_bytes())
            outages = tuple(OutageNote(**each) for each in found["outages"])
            return cls(float(found["began"]), float(found["dollars"]), int(found["ended"]), outages)
        return None
