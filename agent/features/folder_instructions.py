"""Instructions of folders below the working directory, and rules for certain files only.

The model gets them when a call first reads or changes a file they apply to. After a summary removed
them, the model gets them again at the next such call. Touched files are found in the log. So a
resumed session also gets the instructions for the last calls before a kill.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...tools.system.take_turn import in_thread
from ..lazy import dataclass
from ..loop.interface import Feature
from ..loop.live_session import LiveSession
from ..permissions.shell import reach
from ..permissions.shell.parser import parse
from ..session.entries import ATTACHMENT, Entry, ToolResult, User, attachment_call
from . import instructions
from .instruction_places import InstructionPlaces, InstructionReader

FILE_TOOLS = ("Read", "Edit", "Write")
MAX_TOUCHED_PATHS = 200  # checked before a model call


@dataclass(frozen=True, slots=True)
class Touch:
    """A call that read or changed files."""

    tool: str
    subject: str  # a path, or the command of Bash

    def paths(self, cwd: Path) -> Iterator[Path]:
        """Yield the files that the call visibly used. Blocks."""
        if self.tool != "Bash":
            yield Path(os.path.normpath(cwd / self.subject))
            return
        script = parse(self.subject)
        bases = [str(cwd)]
        for part in script.parts:
            if part.name == "cd" and len(part.words) == 2 and part.words[1].fixed:
                bases.append(os.path.join(bases[-1], part.words[1].text))  # noqa: PTH118 - as text
        found = [*reach.paths_read(script, bases), *reach.paths_written(script, bases[0])]
        yield from (path for path in map(Path, found) if not path.is_dir())


class FolderInstructionsFeature(Feature):
    """Gives the model the instructions for the files it works on."""

    name = "folder-instructions"

    def __init__(self, session: LiveSession, places: InstructionPlaces) -> None:
        super().__init__(session)
        self._places = places
        self._touched = dict[Touch, None]()  # since the last check for instructions
        self._is_resumed = False

    def recorded(self, entry: Entry) -> None:
        """Note the files that a call touched."""
        if isinstance(entry, ToolResult):
            call = self.session.view.calls.get(entry.tool_use_id)
            found = _touch_of(call.name if call else "", entry.details, is_error=entry.is_error)
        elif isinstance(entry, User) and entry.source == ATTACHMENT:
            found = _touch_of(attachment_call(entry)[0], entry.details, is_error=False)
        else:
            return
        self._touched |= dict.fromkeys(found)

    async def before_call(self) -> None:
        """Record the instructions for touched files, and notify the user. Raises RecordError."""
        if not self._is_resumed:
            self._touched = dict.fromkeys(self._touches_since_summary()) | self._touched
            self._is_resumed = True
        if not self._touched:
            return
        touched = [*self._touched]
        new, problems = await in_thread(self._new_instructions, touched)
        for problem in problems:
            self.session.warn_once(problem)
        for entry, text in new:
            self.session.record(entry)
            self.session.notify("info", text.removeprefix(f"{self.session.context.cwd}/"))
        for touch in touched:
            self._touched.pop(touch, None)

    def _new_instructions(
        self, touched: Iterable[Touch]
    ) -> tuple[list[tuple[User, str]], list[str]]:
        """Return (entry, line for the user) for each instruction file that the model does not have,
        and the problems of all files. Blocks.
        """
        session = self.session
        added = tuple(map(Path, session.approval.folders.names))
        places = replace(self._places, added=added)
        cwd = session.context.cwd
        found = (path for touch in touched for path in touch.paths(cwd))
        paths = list(dict.fromkeys(found))[-MAX_TOUCHED_PATHS:]
        if not paths and not added:
            return [], []
        reader = InstructionReader(places, session.approval.denies_reading, paths)
        rules = (each for each in places.for_all_work() if each.is_rule)
        reader.read(each for each in (*rules, *places.for_files(paths)) if each.path not in paths)
        files = [file for file in reader.files if file.folder or file.globs or file.by]
        window = session.model.current_window().size
        new = instructions.new_entries(files, session.view, session.log.redact, window)
        return new, reader.problems

    def _touches_since_summary(self) -> Iterator[Touch]:
        """Yield the touches since the newest summary of a resumed session."""
        view = self.session.view
        since = view.summary.seq if view.summary else 0
        for result in view.results():
            if result.item.seq > since:
                is_error = result.block.get("is_error") is True
                yield from _touch_of(result.call.name, result.details, is_error=is_error)


def _touch_of(tool: str, details: Mapping[str, Any], *, is_error: bool) -> Iterator[Touch]:
    """Yield the touch of a result with these details, if it touched a file. A failed command
    counts, because it may have read files before.
    """
    subject = details.get("command" if tool == "Bash" else "path")
    is_use = tool == "Bash" or (tool in FILE_TOOLS and not is_error)
    if is_use and isinstance(subject, str):
        yield Touch(tool, subject)
