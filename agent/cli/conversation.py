"""The services of a conversation in a directory, for the REPL and editors."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...tools.system.descriptors import raise_limit
from ...tools.system.hardening import close_memory
from ..border.entry_points import service
from ..config.load import LoadedSettings, load_settings
from ..config.user_settings import UserSettings
from ..events import Ask, Emit, Notice
from ..launch import LaunchOptions, SessionChoice
from ..lazy import dataclass
from ..library.launch_parts import RunServers, check_key, command_files_of, warm
from ..library.login import Logins
from ..permissions.rule_set import RuleFiles
from ..permissions.rules import parse_rule
from ..recordings.other_sessions import other_sessions
from ..security.redaction import redaction_for
from ..session.store import all_logs
from ..ui.conversation.open_session import ConversationServices, Opener
from ..version import __version__
from .options import choice_of, cwd_of, launch_of, project_of, setting_flags

if TYPE_CHECKING:
    from ..extensions.mcp.config import ServerConfig
    from ..extensions.skills import Skill
    from ..loop.agent import AgentState


@dataclass(frozen=True, slots=True)
class ConversationPlace:
    """A directory with the services for a conversation in it."""

    launch: LaunchOptions
    services: ConversationServices
    _servers: RunServers

    def end(self) -> None:
        """Stop the MCP servers. Blocks."""
        self._servers.end()


def conversation_place(
    options: dict[str, Any],
    loaded: LoadedSettings,
    more_servers: "Sequence[ServerConfig]" = (),
    *,
    has_user: bool = False,
) -> ConversationPlace:
    """Return the services of a conversation for these options, with `more_servers` in addition to
    the MCP servers in files. `has_user`: a user at a terminal reads the notices. Raises
    CtxagentError.
    """
    project, launch = project_of(options, loaded), launch_of(options, loaded)
    rules = RuleFiles(loaded, cwd=project.cwd, environ=os.environ)
    servers = RunServers(launch, more_servers)

    def skills() -> "tuple[Mapping[str, Skill], Sequence[str]]":
        from ..features.skills import skills_of

        return skills_of(launch)

    services = ConversationServices(
        open=_opener(options, launch, rules, servers, has_user=has_user),
        cwd=project.cwd,
        version=__version__,
        history=project.folder / "history",
        check_key=lambda: check_key(launch),
        warm=lambda: warm(launch),
        sessions=project.logs,
        all_sessions=lambda: all_logs(project.state),
        recordings=lambda: other_sessions(launch),
        copy=project.fork,
        command_files=lambda: command_files_of(launch),
        skills=skills,
        settings=_settings(options, loaded),
        checks=lambda: service("checks")(loaded, project),
        models=_models,
        without_key=_without_key,
        listed_models=lambda: _listed_models(launch),
        providers=lambda: _providers(launch),
        set_model=_set_model,
        logins=Logins(launch, os.environ),
        rules=rules,
        wait=options["wait"],
        choice=choice_of(options),
        reload_extensions=_reload_extensions,
        status_command=launch.settings.statusline.command,
    )
    return ConversationPlace(launch, services, servers)


def _settings(options: dict[str, Any], loaded: LoadedSettings) -> UserSettings:
    """Return the settings, for the slash commands that show and change them."""
    flags, cwd = setting_flags(options), cwd_of(options)
    clean = redaction_for(os.environ, loaded.settings.model.base_url, shapes=True).clean_text
    return UserSettings(
        loaded,
        lambda: load_settings(cwd, environ=os.environ, flags=flags, check_rule=parse_rule),
        os.environ,
        clean,
    )


def _opener(
    options: dict[str, Any],
    launch: LaunchOptions,
    rules: RuleFiles,
    servers: RunServers,
    *,
    has_user: bool,
) -> Opener:
    """Return the function that opens the sessions of a conversation."""

    async def open_session(
        emit: Emit,
        ask: Ask,
        *,
        resume: str | None = None,
        fork: bool = False,
        prior: str | None = None,
        read_only: bool = False,
    ) -> "AgentState":
        def build() -> "AgentState":
            close_memory()
            raise_limit()
            permissions = replace(launch.settings.permissions, allow=tuple(rules.allow))
            now = replace(launch, settings=replace(launch.settings, permissions=permissions))
            now = now.with_servers(servers.begin(lambda text: emit(Notice("warning", text))))
            if prior is not None:
                prompts = replace(now.prompts, prior=prior)
                now = replace(now, prompts=prompts, after_clear=True)
                return opened(now, SessionChoice())
            choice = choice_of(options)
            if resume:
                choice = SessionChoice(id=resume, fork=fork, read_only=read_only)
            return opened(now, choice)

        def opened(now: LaunchOptions, choice: SessionChoice) -> "AgentState":
            from ..app import open_agent
            from ..security.bubblewrap import sandbox_news

            agent = open_agent(now, choice, emit=emit, ask=ask)
            if has_user and (news := sandbox_news(agent.context.sandbox, launch.places.state)):
                emit(news)
            return agent

        return await asyncio.to_thread(build)

    return open_session


def _set_model(agent: "AgentState", id: str) -> None:
    from ..app import change_model

    change_model(agent, id)


async def _reload_extensions(agent: "AgentState") -> tuple[list[str], list[str]]:
    from ..features.extension_features import reload_extensions

    return await reload_extensions(agent)


def _models() -> list[tuple[str, str, str, str]]:
    """Return the known models with price, window and provider."""
    from ..models.catalog import known_models
    from ..models.overview import list_row

    return [list_row(id, row.limits, row.price) for id, row in known_models().items()]


def _without_key() -> set[str]:
    """Return the names of the providers that need a key and have none."""
    from ..models.overview import providers_without_key

    return providers_without_key(os.environ)


def _listed_models(launch: LaunchOptions) -> list[tuple[str, str, str, str]]:
    """Return the models that usable providers list, except those of the default provider."""
    from ..models.overview import list_row, models_of_other_providers

    found = asyncio.run(
        models_of_other_providers(launch.settings, launch.places.environ, launch.places.state)
    )
    return [list_row(*each) for each in found]


def _providers(launch: LaunchOptions) -> list[tuple[str, str, str]]:
    """Return the providers, usable ones first."""
    from ..models.overview import provider_states

    found = asyncio.run(provider_states(launch.places.environ))
    return [("ready" if row.ready else "-", row.provider.name, row.state) for row in found]
