"""What a run says of itself for those who look at it from another process: when it began, and which
outages it waits for. The file is a note; the ledger is the truth."""

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
    probe_at: float  # when the next attempt may start


@dataclass(frozen=True, slots=True)
class RunNotes:
    """The notes of a run."""

    began: float  # seconds since 1970
    dollars: float  # that all sessions had cost when it began
    ended: int  # tasks that had ended when it began
    outages: tuple[OutageNote, ...] = ()

    def write(self, folder: FleetFolder) -> None:
        """Write the notes, if that is possible."""
        with suppress(OSError):
            replace_file(folder.path / NAME, json.dumps(asdict(self)).encode(), durable=False)

    @classmethod
    def read(cls, folder: FleetFolder) -> "RunNotes | None":
        """Return the notes of the newest run, None where there are none that can be read."""
        with suppress(OSError, ValueError, TypeError, LookupError):
            found: Mapping[str, Any] = json.loads((folder.path / NAME).read_bytes())
            outages = tuple(OutageNote(**each) for each in found["outages"])
            return cls(float(found["began"]), float(found["dollars"]), int(found["ended"]), outages)
        return None
