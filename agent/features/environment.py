"""The surroundings of a session: the machine, the project and its instructions.

The model gets a description of the surroundings at the start of a new session and after each
summary. In a resumed session it gets a list of changed files.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ...tools import job
from ...tools.system.take_turn import in_thread
from ..compaction.preserve import preserved_sections, preserved_text
from ..lazy import dataclass
from ..loop.feature import Feature, Turn
from ..loop.session_handle import SessionHandle
from ..session.entries import Entry, User
from ..session.stale_files import list_stale_files
from ..session.subagent_logs import list_unfinished
from . import instructions, prompt
from .instruction_places import InstructionPlaces
from .instruction_reader import InstructionReader


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a session."""

    places: InstructionPlaces  # without directories that the user adds later
    prior: str = ""  # the hand-over of another session to a new one
    servers: Sequence[str] = ()  # names of the MCP servers that the session can call
    renamed: tuple[str, str] | None = None  # old and new path of the project's folder


class EnvironmentFeature(Feature):
    """Describes the surroundings to the model."""

    name = "environment"

    def __init__(self, handle: SessionHandle, surroundings: Surroundings) -> None:
        super().__init__(handle)
        self.surroundings, self._cwd = surroundings, handle.context.cwd

    def first_entries(self) -> Sequence[Entry]:
        """Return entries about surroundings that are new to the model."""
        handle, around = self.handle, self.surroundings
        if any(item.source == "environment" for item in handle.view.items):
            return [
                *prompt.renamed_notice(around.renamed),
                *prompt.changed_files_notice(self._stale_files()),
            ]
        return prompt.first_entries(
            self._cwd,
            handle.context.env,
            around.prior,
            instructions=instructions.first_entries(
                self._read().files, handle.view, (), self._window
            ),
            servers=around.servers,
        )

    async def turn_started(self, turn: Turn) -> None:
        """Record changed instruction files, and notify the user."""
        changes, problems = await in_thread(self._changed_instructions)
        for problem in problems:
            self.handle.warn_once(problem)
        for entry, text in changes:
            self.handle.record(entry)
            self.handle.notify("info", text)

    def recorded(self, entry: Entry) -> None:
        """Warn the user if instructions exceed the budget."""
        if warning := instructions.budget_warning(entry):
            self.handle.warn_once(warning)

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        """Return the entries about the surroundings to insert after a summary."""
        handle, around = self.handle, self.surroundings
        sections = preserved_sections(
            self._cwd,
            handle.policy.rules,
            handle.ledger,
            handle.ledger.phase,
            handle.model.current_window().size,
        )
        now = prompt.entry_after_summary(
            self._cwd,
            mode=handle.approval.mode,
            todos=handle.context.todos,
            jobs=job.listing(handle.context.jobs),
            agents=list_unfinished(handle.ledger.agents.values(), handle.context.agents),
            preserved=preserved_text(sections),
            changed=self._stale_files(),
            servers=around.servers,
            directories=handle.approval.folders.names,
        )
        files = InstructionReader(self._places, handle.approval.denies_reading)
        texts = files.read(self._places.for_all_work())
        return [now, *instructions.first_entries(texts, handle.view, staying, self._window)]

    @property
    def _places(self) -> InstructionPlaces:
        added = tuple(map(Path, self.handle.approval.folders.names))
        return replace(self.surroundings.places, added=added)

    @property
    def _window(self) -> int:
        return self.handle.model.current_window().size

    def _read(self) -> InstructionReader:
        """Read the instruction files in force. Blocks."""
        handle = self.handle
        return instructions.reader_for_all_work(
            self._places, handle.view, handle.approval.denies_reading
        )

    def _changed_instructions(self) -> tuple[list[tuple[User, str]], list[str]]:
        """Return (entry, line for the user) for each changed instruction file, and the problems of
        all files. Blocks.
        """
        reader, view, redact = self._read(), self.handle.view, self.handle.log.redact
        paths = [each.path for each in reader.places.for_all_work()]
        changes = instructions.new_entries(reader.files, view, redact, self._window)
        return [*changes, *instructions.gone_entries(reader, paths, view, redact)], reader.problems

    def instruction_states(self) -> list[instructions.InstructionState]:
        """Return each instruction file with its state in the context. Blocks."""
        return instructions.instruction_states(
            self._read(), self.handle.view, self.handle.log.redact
        )

    def _stale_files(self) -> list[str]:
        """Return the files that the model should read again, without instruction files, whose new
        text the model gets anyway.
        """
        ledger = self.handle.ledger
        texts = {str(each.path) for each in self._places.for_all_work()}
        texts |= instructions.files_in_context(self.handle.view).keys()
        stale = list_stale_files(ledger)
        return [path for path in stale if ledger.absolute_path(path) not in texts]
