"""Standing: how a session stands at a point of its log, as folds over the entries up to there.

It holds all that a session which goes on must know of what came before, so that nobody needs those
entries again. Each entry is added at the same cost however long the log is, and none is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .compaction.drift import TURNS
from .context.view import Folding, View, folded
from .record.checkpoints import Numbering
from .record.entries import End, Entry, Session, Summary, ToolResult
from .record.handover import hear
from .record.ledger import Ledger
from .record.totals import Totals


@dataclass(slots=True)
class Standing:
    """`entries` counts them; `newest` is the number of the last one, `highest` the largest there
    is. `began` is the directory in which the session was opened first, `session` the id under
    which it was opened last, `origins` all of them. `seen` and `todos` are what the tools knew,
    `untold` the subagents of which the model has not heard, `ends` the newest ends of turns.

    `behind` says that the view is not that of all entries: one of them changed what was folded
    before it, and only `catch_up` can put it right.
    """

    folding: Folding = field(default_factory=Folding)
    ledger: Ledger = field(default_factory=Ledger)
    totals: Totals = field(default_factory=Totals)
    numbering: Numbering = field(default_factory=Numbering)
    entries: int = 0
    newest: int = 0
    highest: int = 0
    began: str | None = None
    session: str = ""
    origins: set[str] = field(default_factory=set)
    seen: dict[str, str] = field(default_factory=dict)
    todos: list[Any] = field(default_factory=list)
    untold: set[str] = field(default_factory=set)
    ends: list[int] = field(default_factory=list)
    behind: bool = False

    @property
    def view(self) -> View:
        return self.folding.view

    @property
    def summary(self) -> Summary | None:
        """The newest summary that stands."""
        return self.view.summary

    @property
    def ended(self) -> int:
        """How many turns are over since that summary, as far as that matters."""
        since = self.summary.seq if self.summary else 0
        return sum(end > since for end in self.ends)

    def add(self, entry: Entry) -> None:
        """Fold one more entry."""
        self.behind = self.behind or not self.folding.add(entry)
        for fold_of in (self.ledger.add, self.totals.add, self.numbering.add):
            fold_of(entry)
        hear(self.untold, entry)
        self.entries += 1
        self.newest, self.highest = entry.seq, max(self.highest, entry.seq)
        if isinstance(entry, Session):
            self.began = entry.cwd if self.began is None else self.began
            self.session = entry.id
            self.origins.add(entry.id)
        elif isinstance(entry, ToolResult):
            self._add_known(entry.details)
        elif isinstance(entry, End):
            self.ends = [*self.ends, entry.seq][-TURNS:]

    def catch_up(self, entries: Iterable[Entry]) -> None:
        """Fold the view again, from all entries."""
        self.folding, self.behind = folded(entries), False

    def _add_known(self, details: dict[str, Any]) -> None:
        """What a result tells of what its tool knew: a file as it was seen, a list of things to
        do."""
        seen = details.get("seen")
        if isinstance(seen, dict) and "path" in seen and "sha256" in seen:
            self.seen[str(seen["path"])] = str(seen["sha256"])
        if isinstance(details.get("todos"), list):
            self.todos = details["todos"]
