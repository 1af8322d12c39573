"""Mark files that the agent writes after it has read text from outside.

A web page, a tool of an MCP server or another repository may contain instructions for the agent. An
agent that obeys them could write them to an instruction file, and every later session would obey
that file. So an instruction file with such a mark is used only after the user has accepted its
content. Every file is marked: it can be renamed to an instruction file later, or imported by one.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...tools.base import OUTSIDE, Output
from ...tools.system.take_turn import in_thread
from ..config.trust import mark_outside
from ..errors import RecordError
from ..loop.file_changes import ChangeTracker
from ..loop.interface import Feature, ToolCall
from ..loop.live_session import LiveSession
from ..permissions.shell.parser import parse
from ..session.change_rows import change_rows
from .instruction_places import InstructionPlaces

EDITS = ("Write", "Edit")
WRITTEN_AFTER = "written_after"  # in the details of a result: the text from outside read before


class ProvenanceFeature(Feature):
    """Watches what the agent reads, and marks the files that it writes afterwards."""

    name = "provenance"

    def __init__(
        self,
        session: LiveSession,
        places: InstructionPlaces,
        tracker: ChangeTracker | None = None,
        inherited: str = "",
    ) -> None:
        """`inherited` is the newest text from outside that a subagent's parent has read."""
        super().__init__(session)
        self._places, self._tracker = places, tracker
        session.ledger.outside = session.ledger.outside or inherited

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output | None:
        """Note in a result that it has text from outside, or that it changed files after such text
        was read. Mark these files.
        """
        found = await in_thread(self._details, call, output)
        return replace(output, details={**output.details, **found}) if found else None

    async def close(self) -> None:
        """Mark the files that jobs wrote after the last call."""
        source = self.session.ledger.outside
        if source and self._tracker is not None:
            details = await self._tracker.last()
            await in_thread(self._mark, self._changed(details), source)

    def _details(self, call: ToolCall, output: Output) -> dict[str, str]:
        """Return what to note in a result, and mark the files that it changed. Blocks. Raises
        RecordError.
        """
        details, found = output.details, dict[str, str]()
        path, changed = details.get("path"), self._changed(details)
        if call.tool in EDITS:
            changed += [Path(path)] if isinstance(path, str) and not output.is_error else []
        elif not details.get(OUTSIDE) and (other := self._other_repository_of(call, path)):
            found[OUTSIDE] = f"a file of {other}"
        source = details.get(OUTSIDE) or found.get(OUTSIDE) or self.session.ledger.outside
        if changed and source:
            found[WRITTEN_AFTER] = source
            self._mark(changed, source)
        return found

    def _changed(self, details: Mapping[str, Any]) -> list[Path]:
        """Return the files that a result says were changed."""
        rows = [row for row in change_rows(details) if row["action"] != "deleted"]
        return [Path(self.session.ledger.absolute_path(row["path"])) for row in rows]

    def _mark(self, paths: Sequence[Path], source: str) -> None:
        for path in paths:
            try:
                mark_outside(path, source, self._places.trust_dir)
            except OSError as error:
                raise RecordError(f"cannot mark {path}: {error.strerror}") from error

    def _other_repository_of(self, call: ToolCall, path: object) -> Path | None:
        """Return another repository that a call reads, as far as its arguments or result name it.
        Blocks.
        """
        names = [each for each in (path, call.arguments.get("path")) if isinstance(each, str)]
        if isinstance(command := call.arguments.get("command"), str):
            names += [word.text for part in parse(command).parts for word in part.words]
        cwd = self.session.context.cwd
        places = (cwd / os.path.expanduser(name) for name in names if "\0" not in name)  # noqa: PTH111
        return next(filter(None, map(self._other_repository, places)), None)

    def _other_repository(self, path: Path) -> Path | None:
        """Return the repository of an existing file or folder if it is not the project's or an
        added one. Blocks.
        """
        if not os.path.exists(path):  # noqa: PTH110
            return None
        real = path.resolve()
        found = next((each for each in (real, *real.parents) if (each / ".git").exists()), None)
        added = map(Path, self.session.approval.folders.names)
        own = (each.resolve() for each in (*self._places.roots, *added))
        return found if found and not any(each.is_relative_to(found) for each in own) else None
