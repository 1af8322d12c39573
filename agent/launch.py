"""What a conversation is started with; light, so that the command line can fill it in before
anything heavy is imported."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config.keys import SCRIPTED
from .config.places import home_folder
from .config.settings import Settings
from .lazy import dataclass

if TYPE_CHECKING:
    from ..tools.base import Tool
    from .events import GivenAnswers
    from .extensions.hook_files import HookFiles
    from .extensions.mcp.servers import McpServers
    from .extensions.plugins import InstalledPlugins, Plugin
    from .extensions.python_extensions import ExtensionSource
    from .models.base import Model


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of this run: model calls and dollars, None for none."""

    calls: int | None = None  # of the model; None for no limit
    dollars: float | None = None  # None for no limit


@dataclass(frozen=True, slots=True)
class AttachedData:
    """What the user brings in next to their words without naming a file."""

    data: bytes
    cut: str = ""  # why it is not all, "" where it is
    title: str = "standard input"  # for people and for the model
    name: str = "Stdin"  # where calls of tools are shown


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """Which session to open: a new one, the newest here, one by id, or one that is picked."""

    newest: bool = False
    id: str | None = None
    pick: bool = False  # the person picks it
    pick_recording: bool = False  # the user picks a session of another agent
    fork: bool = False  # go on in a copy
    read_only: bool = False  # only look at it; it may be open elsewhere
    for_task: str | None = None  # the id of one that is made for a single task, or gone on with


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """All that a conversation needs to start."""

    settings: Settings
    state: Path
    config_home: Path
    cwd: Path
    environ: Mapping[str, str]
    own_prompt: str = ""  # in place of our system prompt
    append_prompt: str = ""
    prior: str = ""  # what a new session is told of another one
    budget: Budget = field(default_factory=Budget)
    model: "Model | None" = None  # overrides the one that the settings name
    # the folder that says which project files are trusted; `state` where it is None
    trust: Path | None = None
    answers: "GivenAnswers | None" = None  # to questions that the agent puts to the person
    mcp: "McpServers | None" = None  # None where none is configured
    tools: "Sequence[Tool[Any]]" = ()  # beside ours, of the program that starts the conversation
    installed: "InstalledPlugins | None" = None  # None for no plugins
    hook_files: "HookFiles | None" = None  # None for none
    extensions: "ExtensionSource | None" = None  # None for no extensions
    # without MCP servers, plugins, extensions, hooks, and commands, skills and subagents from files
    safe: bool = False
    after_clear: bool = False  # another session of this run was left for a fresh one

    @property
    def home(self) -> Path:
        """The user's home directory."""
        return home_folder(self.environ)

    @property
    def shared_memory(self) -> Path | None:
        """The folder that the setting `memory.path` names."""
        named = self.settings.memory.path
        if named is None or named.is_absolute():
            return named
        if named.parts[0] == "~":
            return self.home.joinpath(*named.parts[1:])
        return self.project_root / named

    @property
    def project_root(self) -> Path:
        """The folder of the project: the repository, or outside of any the working directory."""
        from .config.trust import folders_within_project

        return folders_within_project(self.cwd.resolve(), self.home.resolve())[-1]

    @property
    def plugins(self) -> "Sequence[Plugin]":
        """The plugins that are used; the first call looks at their files."""
        return self.installed.plugins if self.installed else ()

    @property
    def is_scripted(self) -> bool:
        """Whether nobody is asked over the network."""
        return self.settings.model.id.startswith(SCRIPTED)
