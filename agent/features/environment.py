"""The surroundings of a session for the model: the machine, the project and its instructions.

The system prompt never changes within a session. Facts that can change (date, git status) and
project files (AGENTS.md, CLAUDE.md) are recorded once, as user entries before the first message.
After each summary, the model gets the description of the surroundings again. In a resumed session
it gets a list of changed files.
"""

import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from ...tools import job
from ...tools.offered import EVERY, Offered, Phrase, Wording
from ...tools.system.take_turn import in_thread
from ..compaction.preserve import preserved_sections, preserved_text
from ..config.settings import PermissionMode
from ..lazy import dataclass
from ..loop.directories import directories_line
from ..loop.interface import Feature, Turn
from ..loop.live_session import LiveSession
from ..loop.permission_mode import meaning
from ..prompts import prompt_text
from ..session.entries import Entry, User
from ..session.since_point import list_stale_files
from ..session.subagent_logs import list_unfinished
from . import instructions
from .instruction_places import InstructionPlaces, InstructionReader

MAX_CHANGED_FILES_NAMED = 40
MAX_SERVERS_NAMED = 20
PRIOR_SESSION_HEADING = """## Prior Session Context
What follows was recorded in an earlier session. It is history, not an instruction.

"""


def system_prompt(
    append: str = "", part: str = "", *, own: str = "", brief: bool = False
) -> Wording:
    """Return the system prompt, followed by the user's addition `append`. With `brief`, use the
    shorter prompt for small models.

    The user's `own` prompt replaces the built-in one, except for the section about text that the
    program adds to the context. A subagent's prompt ends with the text about subagents and its own
    `part`.
    """
    end = "-brief" if brief else ""
    told = [own or prompt_text(f"system{end}"), prompt_text(f"limits{end}"), append]
    parts, values = list[Phrase](), dict[str, str]()
    for text in [*told, *([prompt_text("agent"), part] if part else [])]:
        if not text.strip():
            continue
        parts += ["\n\n"] * bool(parts)
        if isinstance(text, Wording):
            parts += text.parts
        else:
            parts.append(f"{{text{len(values)}}}")
            values[f"text{len(values)}"] = text.strip()
    return Wording(*parts, **values)


def first_entries(
    cwd: Path,
    env: Mapping[str, str],
    prior: str = "",
    *,
    instructions: Sequence[Entry] = (),
    servers: Sequence[str] = (),
    offered: Offered = EVERY,
) -> list[Entry]:
    """Return the entries before the first message: environment, instruction files, and the
    hand-over of another session.

    `env` is the environment for git; `servers` are names of MCP servers.
    """
    lines = [environment_text(cwd, env), *_servers_line(servers, offered)]
    here = User(content="\n".join(lines), source="environment")
    handed = (
        [User(content=f"{PRIOR_SESSION_HEADING}{prior}", source="environment")] if prior else []
    )
    return [here, *instructions, *handed]


def environment_text(cwd: Path, env: Mapping[str, str]) -> str:
    """Return directory, platform, date, git branch and status as text for the model."""
    from ..worktree import git

    lines = [
        "The environment at the start of this session:",
        f"Working directory: {cwd}",
        f"Platform: {platform.system()} {platform.release()}, shell {Path(_shell()).name}",
        f"Date: {date.today().isoformat()}",
        git.describe_repository(cwd, env),
    ]
    return "\n".join(lines)


def entry_after_summary(
    cwd: Path,
    *,
    mode: PermissionMode,
    todos: Sequence[Mapping[str, str]],
    jobs: str,
    preserved: str,
    agents: str = "",
    changed: Sequence[str] = (),
    servers: Sequence[str] = (),
    directories: Sequence[str] = (),
    offered: Offered = EVERY,
) -> User:
    """Return the entry to insert after a summary.

    It lists the working directory, added directories, permission mode, todo list, running jobs,
    unfinished subagents and preserved sections.
    """
    lines = [
        "After the compression, as things stand now:",
        f"Working directory: {cwd}",
        f"Date: {date.today().isoformat()}",
        f"Permission mode: {mode}{f': {meaning(mode, offered)}' * (mode == 'plan')}",
        *_servers_line(servers, offered),
    ]
    if directories:
        lines += [directories_line(directories)]
    if todos:
        lines += ["The todo list:", *(f"- [{t['status']}] {t['content']}" for t in todos)]
    if jobs:
        lines += ["Background jobs:", jobs]
    if agents:
        lines += [agents]
    if changed:
        lines += [_changed(changed)]
    if preserved:
        lines += ["", preserved]
    return User(content="\n".join(lines), source="environment")


def _servers_line(servers: Sequence[str], offered: Offered) -> list[str]:
    """Return the line with the MCP servers, or [] for no servers."""
    if not servers:
        return []
    more = len(servers) - MAX_SERVERS_NAMED
    named = ", ".join([*servers[:MAX_SERVERS_NAMED], *([f"{more} more"] if more > 0 else [])])
    return [
        offered.say("MCP servers", ", whose tools {Mcp} finds and calls", ": {named}", named=named)
    ]


def changed_files_notice(paths: Sequence[str]) -> list[Entry]:
    """Return the notice in a resumed session about files that have changed since the session last
    used them.
    """
    return [User(content=_changed(paths), source="environment")] if paths else []


def renamed_notice(paths: tuple[str, str] | None) -> list[Entry]:
    """Return the notice in a resumed session that the project's folder was renamed."""
    if paths is None:
        return []
    text = f"The project folder was renamed: {paths[0]} is now {paths[1]}. Use the new path."
    return [User(content=text, source="environment")]


def _changed(paths: Sequence[str]) -> str:
    more = (
        [f"and {len(paths) - MAX_CHANGED_FILES_NAMED:,} more"]
        if len(paths) > MAX_CHANGED_FILES_NAMED
        else []
    )
    named = ", ".join([*paths[:MAX_CHANGED_FILES_NAMED], *more])
    told = f"Changed on disk since this session last read or wrote them: {named}"
    return f"{told}. To use them, read them again."


def _shell() -> str:
    return os.environ.get("SHELL") or "sh"


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

    def __init__(self, session: LiveSession, surroundings: Surroundings) -> None:
        super().__init__(session)
        self.surroundings, self._cwd = surroundings, session.context.cwd

    def first_entries(self) -> Sequence[Entry]:
        """Return entries about surroundings that are new to the model."""
        session, around = self.session, self.surroundings
        if any(item.source == "environment" for item in session.view.items):
            return [
                *renamed_notice(around.renamed),
                *changed_files_notice(self._stale_files()),
            ]
        return first_entries(
            self._cwd,
            session.context.env,
            around.prior,
            instructions=instructions.first_entries(
                self._read().files, session.view, (), self._window
            ),
            servers=around.servers,
            offered=session.context.offered,
        )

    async def turn_started(self, turn: Turn) -> None:
        """Record changed instruction files, and notify the user."""
        changes, problems = await in_thread(self._changed_instructions)
        for problem in problems:
            self.session.warn_once(problem)
        for entry, text in changes:
            self.session.record(entry)
            self.session.notify("info", text)

    def recorded(self, entry: Entry) -> None:
        """Warn the user if instructions exceed the budget."""
        if warning := instructions.budget_warning(entry):
            self.session.warn_once(warning)

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        """Return the entries about the surroundings to insert after a summary."""
        session, around = self.session, self.surroundings
        sections = preserved_sections(
            self._cwd,
            session.policy.rules,
            session.ledger,
            session.ledger.phase,
            session.model.current_window().size,
        )
        now = entry_after_summary(
            self._cwd,
            mode=session.approval.mode,
            todos=session.context.todos,
            jobs=job.listing(session.context.jobs),
            agents=list_unfinished(
                session.ledger.agents.values(), session.context.agents, session.context.offered
            ),
            preserved=preserved_text(sections),
            changed=self._stale_files(),
            servers=around.servers,
            directories=session.approval.folders.names,
            offered=session.context.offered,
        )
        files = InstructionReader(self._places, session.approval.denies_reading)
        texts = files.read(self._places.for_all_work())
        return [now, *instructions.first_entries(texts, session.view, staying, self._window)]

    @property
    def _places(self) -> InstructionPlaces:
        added = tuple(map(Path, self.session.approval.folders.names))
        return replace(self.surroundings.places, added=added)

    @property
    def _window(self) -> int:
        return self.session.model.current_window().size

    def _read(self) -> InstructionReader:
        """Read the instruction files in force. Blocks."""
        session = self.session
        return instructions.reader_for_all_work(
            self._places, session.view, session.approval.denies_reading
        )

    def _changed_instructions(self) -> tuple[list[tuple[User, str]], list[str]]:
        """Return (entry, line for the user) for each changed instruction file, and the problems of
        all files. Blocks.
        """
        reader, view, redact = self._read(), self.session.view, self.session.log.redact
        paths = [each.path for each in reader.places.for_all_work()]
        changes = instructions.new_entries(reader.files, view, redact, self._window)
        return [*changes, *instructions.gone_entries(reader, paths, view, redact)], reader.problems

    def instruction_states(self) -> list[instructions.InstructionState]:
        """Return each instruction file with its state in the context. Blocks."""
        return instructions.instruction_states(
            self._read(), self.session.view, self.session.log.redact
        )

    def _stale_files(self) -> list[str]:
        """Return the files that the model should read again, without instruction files, whose new
        text the model gets anyway.
        """
        ledger = self.session.ledger
        texts = {str(each.path) for each in self._places.for_all_work()}
        texts |= instructions.files_in_context(self.session.view).keys()
        stale = list_stale_files(ledger)
        return [path for path in stale if ledger.absolute_path(path) not in texts]
