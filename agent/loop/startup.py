"""What a session is told at its start and after a summary, made from how it was started."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...tools import job
from ...tools.base import Context, Tool
from ..config.settings import PermissionMode
from ..context.view import View
from ..errors import CtxagentError
from ..session.entries import Entry, Session, User
from ..session.ledger import Ledger
from ..session.stale_files import list_stale_files
from ..session.subagent_logs import list_unfinished
from ..version import __version__
from ..worktree import WorkTree
from ..worktree.git import current_branch
from . import instructions, prompt
from .crash_recovery import recover_from_kill


@dataclass(frozen=True, slots=True)
class SessionSetup:
    """How a session was started: what its first entries, and those after a summary, are made of."""

    log_path: Path
    cwd: Path
    config_home: Path
    trust_dir: Path
    worktree: WorkTree
    system: str  # the system prompt
    own_prompt: str = ""  # the part of it that the person wrote in place of ours
    prior: str = ""  # what another session hands over to a new one
    parent: Mapping[str, Any] | None = None  # id and seq of the session that this is a fork of
    resumed: bool = False
    servers: Sequence[str] = ()  # names of the MCP servers that it reaches
    unrecorded: Sequence[Entry] = ()  # of subagents that a killed process left behind

    def session_entry(self, view: View, model_id: str, tools: Sequence[Tool[Any]]) -> Session:
        """Return the entry that says who opened the session, with the system prompt and the tools
        where they are not those of the view."""
        schemas = [tool.schema() for tool in tools]
        return Session(
            id=self.log_path.parent.name,
            cwd=str(self.cwd),
            branch=current_branch(self.cwd),
            version=__version__,
            model=model_id,
            system=None if self.system == view.system else self.system,
            own_prompt=None if self.system == view.system else self.own_prompt or None,
            tools=None if schemas == view.tools else schemas,
            parent=dict(self.parent) if self.parent else None,
        )

    def startup_entries(
        self, view: View, ledger: Ledger, tools: Sequence[Tool[Any]], env: Mapping[str, str]
    ) -> Sequence[Entry]:
        """Return what the session learns before its first turn; blocking.

        A new session learns where it is and what the project says, one that goes on which files
        others have changed, and what a killed process left undone.
        """
        if any(item.source == "environment" for item in view.items):
            entries = prompt.changed_files_notice(self._stale_files(ledger))
        else:
            entries = prompt.first_entries(
                self.cwd, self.config_home, env, self.prior, trust_dir=self.trust_dir,
                servers=self.servers,
            )  # fmt: skip
        entries = [*entries, *self.unrecorded]
        if self.resumed:
            entries += recover_from_kill(
                self.log_path, ledger, self.worktree, tools, self.unrecorded
            )
        return entries

    def reinserted(
        self, ledger: Ledger, context: Context, *, mode: PermissionMode, preserved: str
    ) -> Sequence[Entry]:
        """Return what must stand in the context after a summary. `mode` is the permission mode,
        `preserved` the text of what is always kept."""
        return prompt.entries_after_summary(
            self.cwd,
            self.config_home,
            trust_dir=self.trust_dir,
            mode=mode,
            todos=context.todos,
            jobs=job.listing(context.jobs),
            agents=list_unfinished(ledger.agents.values()),
            preserved=preserved,
            changed=self._stale_files(ledger),
            servers=self.servers,
        )

    def changed_instructions(
        self, view: View, redact: Callable[[User], User]
    ) -> Sequence[tuple[User, str]]:
        """Return an entry, and a line for the user, for each instruction file that is no longer as
        the model was told; blocking."""
        folders = instructions.search_folders(self.cwd, self.config_home)
        files = instructions.instruction_files(self.cwd, self.config_home, self.trust_dir)
        return instructions.changed_entries(folders, files, view, redact)

    def _stale_files(self, ledger: Ledger) -> list[str]:
        """Return the files that the model should read again. Changed instruction files are left
        out: the model gets their new text."""
        folders = instructions.search_folders(self.cwd, self.config_home)
        told = set(map(str, instructions.candidates(folders)))
        stale = list_stale_files(ledger)
        return [path for path in stale if ledger.absolute_path(path) not in told]


class StartupEntries:
    """The entries that a session begins with, looked for once and recorded once.

    The look runs in a thread that cannot be stopped: what it has found is never lost to an
    interrupt, and whoever asks next waits for the same thread.
    """

    def __init__(
        self, look: Callable[[], Sequence[Entry]], record: Callable[[Entry], Entry]
    ) -> None:
        self._look, self._record = look, record
        self._looking: Future[Sequence[Entry]] | None = None
        self._unrecorded: list[Entry] = []
        self.is_over = False

    async def complete(self) -> None:
        """Look, and record what was found.

        Raises what the look raises, and RecordError: calling again goes on with what is missing.
        """
        if not (self.is_over or self._unrecorded):
            self._unrecorded = list(await self._found())
        while self._unrecorded:
            self._record(self._unrecorded[0])
            del self._unrecorded[0]
        self.is_over = True

    async def close(self) -> None:
        """Complete what has begun, as far as that is possible."""
        if self._looking or self._unrecorded:
            with suppress(CtxagentError, OSError):
                await self.complete()

    async def _found(self) -> Sequence[Entry]:
        if self._looking is None:
            thread = ThreadPoolExecutor(1, "startup")
            self._looking = thread.submit(self._look)
            thread.shutdown(wait=False)
        done = asyncio.wrap_future(self._looking)
        done.add_done_callback(lambda d: d.cancelled() or d.exception())  # raised below
        await asyncio.wait([done])
        looked, self._looking = self._looking, None
        return looked.result()
