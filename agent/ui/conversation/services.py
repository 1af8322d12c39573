"""The services that the command line gives the REPL: the project, its sessions and settings."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...errors import UsageError
from ...events import Ask, Emit
from ...launch import SessionChoice
from ...lazy import dataclass

if TYPE_CHECKING:
    from ...config.user_settings import UserSettings
    from ...extensions.command_files import CommandFile
    from ...extensions.skills import Skill
    from ...library.from_recording import Recordings
    from ...library.login import Logins
    from ...loop.agent import AgentState
    from ...permissions.rule_files import RuleFiles


# Returns the commands that files describe, by name, and what is wrong with files; blocking.
CommandFilesReader = Callable[[], tuple[Mapping[str, "CommandFile"], Sequence[str]]]

# The same for skills.
SkillsReader = Callable[[], tuple[Mapping[str, "Skill"], Sequence[str]]]


class Opener(Protocol):
    """Opens the session that the command line asked for, or the one `resume` names.

    With `fork` in a copy; with `prior` a fresh one that is told this text about another; with
    `read_only` even if another process has it. Raises CtxagentError, SessionBusy when another
    process has it.
    """

    async def __call__(
        self,
        emit: Emit,
        ask: Ask,
        *,
        resume: str | None = None,
        fork: bool = False,
        prior: str | None = None,
        read_only: bool = False,
    ) -> "AgentState": ...


def _no_model_change(agent: "AgentState", id: str) -> None:
    raise UsageError("the model cannot be changed here", hint=f"Start with --model {id}")


def _no_copy(log: Path, last_seq: int) -> Path:
    raise UsageError("this session cannot be copied here")


@dataclass(frozen=True, slots=True)
class ConversationServices:
    """The services of the REPL; each has a default, for when it is not given."""

    open: Opener
    cwd: Path
    version: str
    history: Path | None = None  # the file of what was typed before
    check_key: Callable[[], None] = lambda: None  # raises NoCredentials
    warm: Callable[[], None] = lambda: None  # runs in a thread once the prompt is painted
    sessions: Callable[[], Sequence[Path]] = list  # the project's logs, newest first
    everywhere: Callable[[], Sequence[Path]] = list  # the logs of all projects, newest first
    recordings: "Recordings | None" = None  # the sessions of other agents
    copy: Callable[[Path, int], Path] = _no_copy  # copies a session up to an entry
    command_files: "CommandFilesReader" = lambda: ({}, ())
    skills: "SkillsReader" = lambda: ({}, ())
    settings: "UserSettings | None" = None
    checks: Callable[[], Sequence[Sequence[str]]] = list  # rows of ok, note or FAIL, what, finding
    models: Callable[[], Sequence[Sequence[str]]] = list  # rows of id, prices, window, provider
    # the same of providers that are asked, which may take seconds
    listed_models: Callable[[], Sequence[Sequence[str]]] = list
    # rows of ready or -, a provider, and how its key is found; the servers here are asked
    providers: Callable[[], Sequence[Sequence[str]]] = list
    set_model: Callable[["AgentState", str], None] = _no_model_change
    logins: "Logins | None" = None  # the keys of providers
    rules: "RuleFiles | None" = None  # the files that permission rules are kept in
    choice: SessionChoice = field(default_factory=SessionChoice)  # the session asked for
    wait: bool = False  # whether to wait for the session asked for, if another process has it
    # loads the extensions again, and returns their names and warnings
    reload_extensions: "Callable[[AgentState], Awaitable[tuple[list[str], list[str]]]] | None" = (
        None
    )
    status_command: str = ""  # of the person's; its line stands below the status line
