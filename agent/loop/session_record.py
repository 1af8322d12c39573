"""The log of a conversation, and the state computed from its entries.

All entries of an open session are written by `SessionRecord.record`.
"""

from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from ..context.view import View, start_folding
from ..lazy import dataclass
from ..session.checkpoints import Checkpoints
from ..session.entries import Entry, Revert, Summary
from ..session.ledger import Ledger
from ..session.log import Log
from ..session.totals import Totals
from .resume import ResumeCache


@dataclass
class SessionRecord:
    """The log of one conversation, with the view, the ledger and the totals of its entries."""

    log: Log
    view: View
    ledger: Ledger
    totals: Totals
    checkpoints: Checkpoints
    resume_cache: ResumeCache
    listeners: list[Callable[[Entry], None]] = field(default_factory=list)  # get each new entry

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
