"""The options that a conversation starts with. This module imports nothing heavy, so the command
line can fill them in early.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config.keys import SCRIPTED
from .config.places import home_folder
from .config.settings import Settings
from .lazy import dataclass

if TYPE_CHECKING:
    from ..tools.base import Tool
    from .config.start_gate import StartGate
    from .events import GivenAnswers
    from .extensions.hook_files import HookFiles
    from .extensions.mcp.servers import McpServers
    from .extensions.plugins import InstalledPlugins, Plugin
    from .extensions.python_extensions import ExtensionSource
    from .models.base import Model


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run: model calls and dollars."""

    calls: int | None = None  # model calls; None for no limit
    dollars: float | None = None  # None for no limit


@dataclass(frozen=True, slots=True)
class AttachedData:
    """Data that the user attaches without naming a file, such as standard input."""

    data: bytes
    cut: str = ""  # why the data is incomplete; "" if it is complete
    title: str = "standard input"  # name for the user and the model
    name: str = "Stdin"  # name in the list of tool calls


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """The session to open: a new one, the newest one here, one by ID, or one picked from a list."""

    newest: bool = False
    id: str | None = None
    pick: bool = False  # the user picks a session
    pick_recording: bool = False  # the user picks a session of another agent
    fork: bool = False  # continue in a copy
    read_only: bool = False  # only read the session; it may be open in another process
    for_task: str | None = None  # ID of a session for a single task, created if it is missing


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of a session, and the environment that names more of them."""

    cwd: Path
    state: Path
    config_home: Path
    environ: Mapping[str, str]
    # folder with the list of trusted project files; None for `state`
    trust: Path | None = None

    @property
    def trust_dir(self) -> Path:
        """The folder with the list of trusted project files."""
        return self.trust or self.state

    @property
    def home(self) -> Path:
        """The user's home directory."""
        return home_folder(self.environ)

    @property
    def project_root(self) -> Path:
        """The root of the repository, or the working directory outside of a repository."""
        from .config.trust import folders_within_project

        return folders_within_project(self.cwd.resolve(), self.home.resolve())[-1]


@dataclass(frozen=True, slots=True)
class Prompts:
    """The user's texts for the model, before the first message."""

    own: str = ""  # replaces the built-in system prompt
    append: str = ""
    prior: str = ""  # hand-over from another session to a new one


@dataclass(frozen=True, slots=True)
class Extras:
    """The parts that users, projects and programs add to the agent."""

    mcp: "McpServers | None" = None  # None if no server is configured
    tools: "Sequence[Tool[Any]]" = ()  # from the program that uses the library
    installed: "InstalledPlugins | None" = None  # None for no plugins
    hook_files: "HookFiles | None" = None  # hooks from files, if any
    extensions: "ExtensionSource | None" = None  # None for no extensions
    # no MCP servers, plugins, extensions, hooks or features of add-ons; no commands, skills or
    # subagents from files
    safe: bool = False

    @property
    def plugins(self) -> "Sequence[Plugin]":
        """The plugins in use. The first access reads their files."""
        return self.installed.plugins if self.installed else ()


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Everything that a session starts with."""

    settings: Settings
    places: Places
    prompts: Prompts = field(default_factory=Prompts)
    budget: Budget = field(default_factory=Budget)
    model: "Model | None" = None  # overrides the model in the settings
    answers: "GivenAnswers | None" = None  # prepared answers to the agent's questions
    extras: Extras = field(default_factory=Extras)
    starts: "StartGate | None" = None  # None: the gate is made when it is needed
    after_clear: bool = False  # the session replaces a cleared session of the same run

    @property
    def shared_memory(self) -> Path | None:
        """The folder that the setting `memory.path` names."""
        named, places = self.settings.memory.path, self.places
        if named is None or named.is_absolute():
            return named
        if named.parts[0] == "~":
            return places.home.joinpath(*named.parts[1:])
        return places.project_root / named

    def with_servers(self, mcp: "McpServers | None") -> "LaunchOptions":
        """Return the options with other MCP servers."""
        return replace(self, extras=replace(self.extras, mcp=mcp))

    @property
    def is_scripted(self) -> bool:
        """Whether the model is scripted and makes no network requests."""
        return self.settings.model.id.startswith(SCRIPTED)
