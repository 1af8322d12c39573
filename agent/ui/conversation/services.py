"""The services that the command line passes to the REPL: the project, its sessions and settings."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
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


# Returns (command files by name, problems with files). Blocks.
CommandFilesReader = Callable[[], tuple[Mapping[str, "CommandFile"], Sequence[str]]]

# Returns (skills by name, problems with files). Blocks.
SkillsReader = Callable[[], tuple[Mapping[str, "Skill"], Sequence[str]]]


class Opener(Protocol):
    """A function that opens the session chosen on the command line, or the one in `resume`.

    `fork` opens a copy. `prior` opens a new session with this text about another one. `read_only`
    opens a session even if another process has it open. Raises CtxagentError, and SessionBusy if
    another process has the session open.
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
    """The services of the REPL, with defaults for most."""

    open: Opener
    cwd: Path
    version: str
    history: Path | None = None  # the input history file
    check_key: Callable[[], None] = lambda: None  # raises NoCredentials
    warm: Callable[[], None] = lambda: None  # runs in a thread once the prompt is painted
    sessions: Callable[[], Sequence[Path]] = list  # the project's logs, newest first
    all_sessions: Callable[[], Sequence[Path]] = list  # the logs of all projects, newest first
    recordings: "Recordings | None" = None  # the sessions of other agents
    copy: Callable[[Path, int], Path] = _no_copy  # copies a session up to an entry
    command_files: "CommandFilesReader" = lambda: ({}, ())
    skills: "SkillsReader" = lambda: ({}, ())
    settings: "UserSettings | None" = None
    checks: Callable[[], Sequence[Sequence[str]]] = list  # rows of (state, check, finding)
    models: Callable[[], Sequence[Sequence[str]]] = list  # rows of (ID, prices, window, provider)
    without_key: Callable[[], Collection[str]] = list  # names of providers that need a key
    # rows like `models`, queried from providers; may take seconds
    listed_models: Callable[[], Sequence[Sequence[str]]] = list
    # rows of (ready or -, provider, key source); queries local servers
    providers: Callable[[], Sequence[Sequence[str]]] = list
    set_model: Callable[["AgentState", str], None] = _no_model_change
    logins: "Logins | None" = None  # the keys of providers
    rules: "RuleFiles | None" = None  # the settings files for permission rules
    choice: SessionChoice = field(default_factory=SessionChoice)  # the chosen session
    wait: bool = False  # wait if another process has the chosen session open
    # reloads the extensions; returns (names, warnings)
    reload_extensions: "Callable[[AgentState], Awaitable[tuple[list[str], list[str]]]] | None" = (
        None
    )
    status_command: str = ""  # the user's command for the line below the status line
