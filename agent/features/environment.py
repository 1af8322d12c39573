"""The surroundings of a session: the machine, the project and its instructions.

A new session is told where it works. A resumed session is told which files have changed. After a
summary the model is told again.
"""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

from ...tools import job
from ..compaction.preserve import preserved_sections, preserved_text
from ..lazy import dataclass
from ..loop.feature import Feature, Turn
from ..loop.session_handle import SessionHandle
from ..session.entries import Entry
from ..session.stale_files import list_stale_files
from ..session.subagent_logs import list_unfinished
from . import instructions, prompt


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a session works."""

    config_home: Path
    trust_dir: Path
    prior: str = ""  # the hand-over of another session to a new one
    servers: Sequence[str] = ()  # names of the MCP servers that the session can call


class EnvironmentFeature(Feature):
    """Tells the model of its surroundings."""

    name = "environment"

    def __init__(self, handle: SessionHandle, surroundings: Surroundings) -> None:
        super().__init__(handle)
        self.surroundings, self._cwd = surroundings, handle.context.cwd

    def first_entries(self) -> Sequence[Entry]:
        """Return the entries about the surroundings that the model does not know yet."""
        handle, around = self.handle, self.surroundings
        if any(item.source == "environment" for item in handle.view.items):
            entries = prompt.changed_files_notice(self._stale_files())
        else:
            entries = prompt.first_entries(
                self._cwd, around.config_home, handle.context.env, around.prior,
                trust_dir=around.trust_dir, servers=around.servers,
            )  # fmt: skip
        return entries

    async def turn_started(self, turn: Turn) -> None:
        """Record which instruction files have changed, and notify the user."""
        for entry, text in await asyncio.to_thread(self._changed_instructions):
            self.handle.record(entry)
            self.handle.notify("info", text)

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        """Return the entries about the surroundings that a summary removed from the context."""
        handle, around = self.handle, self.surroundings
        sections = preserved_sections(
            self._cwd,
            handle.policy.rules,
            handle.ledger,
            handle.ledger.phase,
            handle.model.current_window().size,
        )
        entries = prompt.entries_after_summary(
            self._cwd,
            around.config_home,
            trust_dir=around.trust_dir,
            mode=handle.approval.mode,
            todos=handle.context.todos,
            jobs=job.listing(handle.context.jobs),
            agents=list_unfinished(handle.ledger.agents.values(), handle.context.agents),
            preserved=preserved_text(sections),
            changed=self._stale_files(),
            servers=around.servers,
            directories=handle.approval.folders.names,
        )
        return instructions.without_standing(entries, handle.view, staying)

    def _changed_instructions(self) -> Sequence[tuple[Entry, str]]:
        """Return an entry, and a line for the user, for each changed instruction file; blocking."""
        around = self.surroundings
        folders = instructions.search_folders(self._cwd, around.config_home)
        files = instructions.instruction_files(self._cwd, around.config_home, around.trust_dir)
        return instructions.changed_entries(
            folders, files, self.handle.view, self.handle.log.redact
        )

    def instruction_states(self) -> list[instructions.InstructionState]:
        """Return each instruction file with what the model has of it; blocking."""
        around = self.surroundings
        files = instructions.instruction_files(self._cwd, around.config_home, around.trust_dir)
        return instructions.instruction_states(
            files, self.handle.view, self.handle.log.redact, self._cwd, around.config_home
        )

    def _stale_files(self) -> list[str]:
        """Return the files that the model should read again. Changed instruction files are left
        out: the model gets their new text."""
        ledger = self.handle.ledger
        folders = instructions.search_folders(self._cwd, self.surroundings.config_home)
        told = set(map(str, instructions.candidates(folders)))
        stale = list_stale_files(ledger)
        return [path for path in stale if ledger.absolute_path(path) not in told]
