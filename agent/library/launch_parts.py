"""Build the parts of a launch: the `LaunchOptions`, the commands from files, and the MCP servers.

The options come from settings files and choices. The commands are for headless runs and the REPL.
The MCP servers of a run are read from their configuration and started.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, CtxagentError, NoCredentials, UsageError
from ..events import Notice
from ..extensions.mcp.config import ServerConfig, load_servers
from ..extensions.plugins import part_named
from ..launch import Budget, Extras, LaunchOptions, Places, Prompts
from ..lazy import dataclass

if TYPE_CHECKING:
    from ..config.load import LoadedSettings
    from ..events import GivenAnswers
    from ..extensions.command_files import CommandFile
    from ..extensions.mcp.servers import McpServers
    from ..extensions.python_extensions import ExtensionSource
    from ..loop.agent import AgentState


MCP_FOLDER = "mcp"  # in the state folder: login tokens, output of failed servers


def configured(launch: LaunchOptions) -> tuple[list[ServerConfig], list[str]]:
    """Return the servers configured for a run, and warnings about their files."""
    if launch.extras.safe:
        return [], []
    return load_servers(
        launch.places.cwd,
        config_home=launch.places.config_home,
        home=launch.places.home,
        trust_dir=launch.places.trust_dir,
        environ=launch.places.environ,
        plugins=launch.extras.plugins,
    )


class RunServers:
    """The MCP servers of a run, started once for all its sessions. Servers in `more` override those
    of the same name from files.
    """

    def __init__(self, launch: LaunchOptions, more: Sequence[ServerConfig] = ()) -> None:
        self._launch, self._more = launch, more
        self._has_begun = False

    def begin(self, warn: Callable[[str], None]) -> "McpServers | None":
        """Start the configured servers on the first call, without waiting for them. Return the
        servers.
        """
        if not self._has_begun and "mcp" not in self._launch.settings.features.off:
            self._has_begun = True
            configs, warnings = configured(self._launch)
            configs = [*{each.name: each for each in [*configs, *self._more]}.values()]
            for warning in warnings:
                warn(warning)
            if configs:
                servers = start_servers(self._launch, configs)
                self._launch = self._launch.with_servers(servers)
        return self._launch.extras.mcp

    def end(self) -> None:
        """Stop the servers. Blocks."""
        if self._launch.extras.mcp is not None:
            self._launch.extras.mcp.close()


def start_servers(
    launch: LaunchOptions,
    configs: list[ServerConfig],
    show: Callable[[str], None] | None = None,
) -> "McpServers":
    """Start these servers without waiting for them. With `show`, the user logs in: `show` gets the
    login addresses.
    """
    from ...tools.system.environment import child_environment
    from ..extensions.mcp.login import LOGIN_TIMEOUT_S
    from ..extensions.mcp.servers import McpServers
    from ..security.program_starts import gate_of

    settings = launch.settings.mcp
    servers = McpServers(
        configs,
        env=child_environment(launch.places.environ, launch.settings.bash.keep_env),
        cwd=launch.places.cwd,
        starts=gate_of(launch),
        start_timeout=LOGIN_TIMEOUT_S if show else settings.start_timeout,
        call_timeout=settings.call_timeout,
        needed=settings.needed,
        load_at_start=settings.load_at_start,
        folder=launch.places.state / MCP_FOLDER,
        show=show,
    )
    servers.start()
    return servers


SESSION_COMMANDS = ("compact", "uncompact")  # terminal commands that a run takes as a message


@dataclass(frozen=True, slots=True)
class Shown:
    """The text that a command prints. It ends the run."""

    text: str


async def _run_session_command(agent: "AgentState", name: str, instructions: str) -> str:
    """Run one of SESSION_COMMANDS and return what it did. Raises CtxagentError."""
    from ..compaction.history import describe, last_acts, user_wrote_since

    agent.log.check_writable()
    if name == "compact":
        await agent.model.window()
        summary = await agent.engine.compact(instructions)
        before, after = summary.tokens_before, summary.tokens_after
        return f"compacted: {before:,} to {after:,} tokens"
    entries = agent.log.entries()
    last = last_acts(entries)
    if last and user_wrote_since(entries, last[-1].seq):
        raise UsageError(
            "turns followed the last compaction",
            hint="`ctxagent compact --undo` undoes it in a copy of the session.",
        )
    undone = describe(*agent.engine.uncompact(entries))
    return f"undone: {undone}; the context has {agent.model.current_window().tokens:,} tokens again"


def command_files_of(launch: LaunchOptions) -> tuple[Mapping[str, "CommandFile"], Sequence[str]]:
    """Return the commands defined in files by name, and warnings about bad files. A file overrides
    the built-in command of the same name.
    """
    from ..extensions.command_files import built_in_commands, load_command_files

    if launch.extras.safe:
        return built_in_commands(), ()
    found, warnings = load_command_files(
        launch.places.cwd,
        config_home=launch.places.config_home,
        home=launch.places.home,
        trust_dir=launch.places.trust_dir,
        plugins=launch.extras.plugins,
    )
    return {**built_in_commands(), **found}, warnings


async def expand_task(agent: "AgentState", task: str) -> "str | Shown":
    """Return the message of a headless run: the prompt of the command that the task calls, or the
    task itself. Return Shown for a command that only prints text. Raises RecordError, CtxagentError
    for a failed command, and ToolError for a prompt of a server.
    """
    name, _, arguments = task.partition(" ")
    if not name.startswith("/"):
        return task
    import asyncio

    from ..app import change_model
    from ..extensions.command import Prompt
    from ..features.mcp import servers_of
    from ..features.skills import SkillsFeature
    from ..loop.user_commands import command_message, model_of_turn, prompt_message

    if name[1:] in SESSION_COMMANDS:
        return Shown(await _run_session_command(agent, name[1:], arguments.strip()))
    if ":" in name and (servers := servers_of(agent)) is not None:
        await servers.wait_for([name[1:].partition(":")[0]])
        if name[1:] in servers.prompts():
            return await prompt_message(agent, servers, name[1:], arguments.strip())
    if (own := agent.features.command(name[1:])) is not None and own.run is not None:
        found = own.run(arguments.strip())
        found = await found if isawaitable(found) else found
        return found.text if isinstance(found, Prompt) else Shown(found or "")
    files, warnings = await asyncio.to_thread(command_files_of, agent.options)
    for warning in warnings:
        agent.emit(Notice("warning", warning))
    command, skills = part_named(files, name[1:]), agent.features.find(SkillsFeature)
    if command is None or (command.is_built_in and skills and command.name in skills.known):
        return task
    if model := model_of_turn(command, agent.model.id):
        change_model(agent, model)
    return await command_message(agent, command, arguments.strip())


def load(
    cwd: Path,
    environ: Mapping[str, str],
    flags: Sequence[str],
    *,
    safe: bool = False,
    skip_invalid: bool = False,
) -> "LoadedSettings":
    """Load all settings for work in `cwd`. `flags` are KEY=VALUE and override other settings. With
    `safe`, add-ons and extensions do not run, but rules may name their tools. With `skip_invalid`,
    invalid values of a project file are left out. Short names of models become IDs. Raises
    ConfigError.
    """
    loaded = _load(cwd, environ, flags, safe=safe, skip_invalid=skip_invalid)
    return _with_model_ids(loaded, environ)


def _with_model_ids(loaded: "LoadedSettings", environ: Mapping[str, str]) -> "LoadedSettings":
    """Return the settings with the IDs of the models in place of short names."""
    from ..config.settings import ModelSettings

    given, default = loaded.settings.model, ModelSettings()
    names = {name: getattr(given, name) for name in ("id", "small", "fallback", "plan")}
    names = {name: value for name, value in names.items() if value != getattr(default, name)}
    if not names:  # nothing is imported for the default
        return loaded
    from ..models.factory import full_model_id

    ids: dict[str, Any] = {
        name: full_model_id(value, given.base_url, environ) for name, value in names.items()
    }
    return loaded._replace(settings=replace(loaded.settings, model=replace(given, **ids)))


def notices_of(loaded: "LoadedSettings", environ: Mapping[str, str]) -> list[str]:
    """Return the notices about settings for a session, also one about an unknown model."""
    from ..models.factory import unknown_model_notice

    chosen = loaded.settings.model
    notice = unknown_model_notice(chosen.id, chosen.base_url, environ)
    return [*loaded.notices, *([notice] if notice else [])]


def _load(
    cwd: Path, environ: Mapping[str, str], flags: Sequence[str], *, safe: bool, skip_invalid: bool
) -> "LoadedSettings":
    """Load the settings of `load`, with the names of models as they are."""
    from ..config.load import load_settings
    from ..config.places import config_home
    from ..permissions.rules import add_tool_names, parse_rule

    own = config_home(environ)
    if os.access(own / "providers.toml", os.R_OK):
        from ..models.providers import add_providers

        add_providers(own / "providers.toml")
    if os.access(own / "models.toml", os.R_OK):  # needs the providers above
        from ..models.catalog import add_models

        add_models(own / "models.toml")
    settings_with = partial(
        load_settings, cwd, environ=environ, flags=flags, skip_invalid=skip_invalid
    )
    try:
        return load_settings(cwd, environ=environ, flags=flags, check_rule=parse_rule)
    except ConfigError:  # perhaps a rule names the tool of a feature, an add-on or an extension
        from ..features import learn_add_on_tools, plain_features

        plain_features()  # adds the names of their tools
        loaded = settings_with()
        source = extension_source(loaded, cwd, environ)
    all_known = learn_add_on_tools(off=loaded.settings.features.off, safe=safe)
    if source.exists:
        from ..features.extension_features import load_extensions

        all_known = not safe and not load_extensions(source).warnings and all_known
    if not all_known:
        # Add-ons and extensions that did not load may have these tools.
        given = loaded.settings.permissions
        rules = (*given.allow, *given.ask, *given.deny)
        add_tool_names(rule.partition("(")[0].strip() for rule in rules)
    return settings_with(check_rule=parse_rule)


def extension_source(
    loaded: "LoadedSettings", cwd: Path, environ: Mapping[str, str]
) -> "ExtensionSource":
    """Return the folders with extensions for work in `cwd`."""
    from ..config.places import config_home, home_folder
    from ..extensions.python_extensions import ExtensionSource

    return ExtensionSource(config_home(environ), cwd, home_folder(environ), loaded.trust_dir)


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return settings in the format of the option -c."""
    flags = []
    for key, value in settings.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            flags.append(f"{key}={str(each).lower() if isinstance(each, bool) else each}")
    return flags


def launch_options(
    loaded: "LoadedSettings",
    cwd: Path,
    environ: Mapping[str, str],
    *,
    prompts: Prompts | None = None,
    budget: Budget | None = None,
    answers: "GivenAnswers | None" = None,
    safe: bool = False,
) -> LaunchOptions:
    """Return the launch options of a conversation in `cwd`. The parameters are fields of
    `LaunchOptions`. Raises ConfigError, and UsageError for a directory that cannot be added.
    """
    from ..config.places import config_home, state_dir
    from ..config.settings import HookSettings, StatuslineSettings
    from ..security.program_starts import make_gate
    from ..security.sandbox_paths import distrust_writable_folders

    settings = loaded.settings
    if safe:
        ui, hooks = replace(settings.ui, notify_command=""), HookSettings()
        settings = replace(settings, hooks=hooks, ui=ui, statusline=StatuslineSettings())
    launch = LaunchOptions(
        settings=settings,
        places=Places(
            cwd=cwd,
            state=state_dir(settings, environ),
            config_home=config_home(environ),
            environ=environ,
            trust=loaded.trust_dir,
        ),
        prompts=prompts or Prompts(),
        budget=budget or Budget(),
        answers=answers,
        extras=Extras(safe=True) if safe else _extras_of(loaded, cwd, environ),
    )
    launch = replace(launch, starts=make_gate(launch, _project_commands(loaded)))
    distrust_writable_folders(launch.settings.sandbox, cwd, environ, launch.places.state)
    if settings.permissions.directories:
        _check_directories(launch)
    return launch


def _extras_of(loaded: "LoadedSettings", cwd: Path, environ: Mapping[str, str]) -> Extras:
    """Return the plugins, hooks and extensions in files, for work in `cwd`."""
    from ..config.places import config_home, home_folder
    from ..extensions.hook_files import HookFiles
    from ..extensions.plugins import InstalledPlugins

    own = config_home(environ)
    return Extras(
        installed=InstalledPlugins(own, loaded.trust_dir),
        hook_files=HookFiles(own, cwd, home_folder(environ), loaded.trust_dir),
        extensions=extension_source(loaded, cwd, environ),
    )


def _project_commands(loaded: "LoadedSettings") -> Iterator[str]:
    """Yield the texts in the project's settings file, which may be commands."""
    for given in loaded.given:
        if given.source.startswith(f"{loaded.project}:"):
            values = given.value if isinstance(given.value, tuple | list) else [given.value]
            yield from (value for value in values if isinstance(value, str))


def _check_directories(launch: LaunchOptions) -> None:
    from ..permissions.paths import all_path_forms, checked_directory
    from ..security.sandbox import agent_paths

    for folder in launch.settings.permissions.directories:
        checked_directory(folder, launch.places.cwd, all_path_forms(agent_paths(launch)))


def check_key(launch: LaunchOptions) -> None:
    """Raise NoCredentials if the model needs a key and has none, and UsageError for an unknown
    provider. Call it before anything is logged.
    """
    from ..models.factory import find_key

    if launch.model is not None:
        return
    try:
        find_key(launch.settings.model, launch.places.environ)
    except (NoCredentials, UsageError):
        from ..features.extension_features import has_provider

        if not has_provider(launch):
            raise


def start_errors(launch: LaunchOptions) -> Iterator[CtxagentError]:
    """Yield the errors that would stop every session with these options before its first request:
    NoCredentials, and UsageError for an unreadable script, a budget in dollars without a known
    price, or a sandbox that is required but unavailable.
    """
    from ..models.catalog import check_price
    from ..models.factory import make_model

    def check_sandbox_of_launch() -> None:
        if launch.settings.sandbox.mode == "require":  # else not imported
            from ..security.sandbox import check_sandbox

            check_sandbox(launch)

    def check_model() -> None:
        model = launch.settings.model.id
        if launch.is_scripted:
            model = make_model(launch.settings, launch.places.environ, launch.places.state).id
        if launch.budget.dollars is not None:
            check_price(model)

    for check in (partial(check_key, launch), check_sandbox_of_launch, check_model):
        try:
            check()
        except CtxagentError as error:
            yield error


def warm(launch: LaunchOptions) -> None:
    """Start to import the modules of the first request."""
    from ..models.factory import start_import

    if launch.model is None:
        start_import(launch.settings.model, launch.places.environ)
