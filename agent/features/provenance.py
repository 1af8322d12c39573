"""Mark instruction files that the agent writes after it has read text from outside.

A web page, a tool of an MCP server or another repository may contain instructions for the agent. An
agent that obeys them could write them to an instruction file, and every later session would obey
that file. So a file with such a mark is used only after the user has accepted its content.
"""

from dataclasses import replace
from pathlib import Path

from ...tools.base import OUTSIDE, Output
from ...tools.system.take_turn import in_thread
from ..config.trust import mark_outside
from ..errors import RecordError
from ..loop.feature import Feature, ToolCall
from ..loop.session_handle import SessionHandle
from ..permissions.paths import is_instruction
from ..session.change_rows import change_rows
from .instruction_places import InstructionPlaces

EDITS = ("Write", "Edit")
WRITTEN_AFTER = "written_after"  # in the details of a result: the text from outside read before


class ProvenanceFeature(Feature):
    """Watches what the agent reads, and marks the instruction files that it writes afterwards."""

    name = "provenance"

    def __init__(
        self, handle: SessionHandle, places: InstructionPlaces, inherited: str = ""
    ) -> None:
        """`inherited` is the newest text from outside that a subagent's parent has read."""
        super().__init__(handle)
        self._places = places
        handle.ledger.outside = handle.ledger.outside or inherited

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output | None:
        """Note in a result that it has text from outside, or that it changed files after such text
        was read. Mark the instruction files among them.
        """
        found = await in_thread(self._details, call, output)
        return replace(output, details={**output.details, **found}) if found else None

    def _details(self, call: ToolCall, output: Output) -> dict[str, str]:
        """Return what to note in a result, and mark the instruction files that it changed. Blocks.
        Raises RecordError.
        """
        details, found = output.details, dict[str, str]()
        path = details.get("path")
        rows = [row for row in change_rows(details) if row["action"] != "deleted"]
        changed = [Path(self.handle.ledger.absolute_path(row["path"])) for row in rows]
        if isinstance(path, str) and not output.is_error:
            if call.tool in EDITS:
                changed.append(Path(path))
            elif other := self._other_repository(Path(path)):
                found[OUTSIDE] = f"a file of {other}"
        source = details.get(OUTSIDE) or self.handle.ledger.outside
        if changed and source:
            found[WRITTEN_AFTER] = source
            for each in changed:
                if is_instruction(str(each)):
                    self._mark(each, source)
        return found

    def _mark(self, path: Path, source: str) -> None:
        try:
            mark_outside(path, source, self._places.trust_dir)
        except OSError as error:
            raise RecordError(f"cannot mark {path}: {error.strerror}") from error

    def _other_repository(self, path: Path) -> Path | None:
        """Return the repository of a file if it is not the project's or an added one. Blocks."""
        found = next((each for each in path.resolve().parents if (each / ".git").exists()), None)
        added = map(Path, self.handle.approval.folders.names)
        own = (each.resolve() for each in (*self._places.roots, *added))
        return found if found and not any(each.is_relative_to(found) for each in own) else None
