"""Save files before calls change them, and record the saves in the session's log.

Each file is saved once between two rewind points. Subagents save for the session that started them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from ..lazy import dataclass
from ..session.entries import Entry
from ..session.since_point import saved_note
from ..worktree import SavedFile, SavedFiles


@dataclass(slots=True)
class FileSaver:
    """Saves the files of one session. `point` returns the number of the newest rewind point."""

    files: SavedFiles
    record: Callable[[Entry], Entry]
    point: Callable[[], int]
    _since: int = -1  # the point after which `_saved` were saved
    _saved: set[tuple[str, str]] = field(default_factory=set)

    async def save(
        self,
        paths: Iterable[str],
        by: str,
        left_out: Iterable[SavedFile] = (),
        *,
        drop: bool = True,
    ) -> Sequence[SavedFile]:
        """Save the files at these paths that were not saved since the newest point. Record and
        return the saved files and `left_out`, which are files that cannot be saved. `drop` is that
        of `SavedFiles.save`. Raises RecordError.
        """
        if self.point() != self._since:
            self._since, self._saved = self.point(), set()
        wanted = [p for p in dict.fromkeys(paths) if p and (p, by) not in self._saved]
        self._saved.update((path, by) for path in wanted)
        rows = [*await asyncio.to_thread(self.files.save, wanted, drop=drop), *left_out]
        if rows:
            self.record(saved_note(rows, by))
        return rows
