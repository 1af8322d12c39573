"""A session: its options, its features and extensions, its turns, and the events that it sends."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent import events
    from ..agent.assembly import base_tools
    from ..agent.events import (
        Accepted,
        Answer,
        Compacted,
        Delta,
        Emit,
        Event,
        FormQuestion,
        Question,
        TextDelta,
        ThinkingDelta,
        ToolDraft,
        TurnFinished,
    )
    from ..agent.extensions import python_extensions
    from ..agent.extensions.command_files import CommandFile, commands_of
    from ..agent.extensions.hook_files import HOOKS_NAME, HookFiles, PublishedHook
    from ..agent.extensions.mcp.config import (
        OWN_FILE,
        PROJECT_FILE,
        SERVERS_KEY,
        ServerConfig,
        check_server,
        codex_server,
        gemini_server,
        opencode_server,
        plain_name,
        read_document,
        servers_of,
        with_variables,
    )
    from ..agent.extensions.plugins import (
        DEFAULT_PLACES,
        MANIFEST,
        MAX_NAME_CHARS,
        PLUGINS_FOLDER,
        ROOT_VARIABLE,
        InstalledPlugins,
        Plugin,
        check_bounds,
        check_name,
        check_plugins,
        content_digest,
        file_digests,
        hooks_of,
        is_intact,
        layout_problems,
        places_of,
        plugins_lock,
        read_manifest,
        read_plugins,
        subagent_files,
        write_plugins,
    )
    from ..agent.extensions.skills import Skill
    from ..agent.extensions.skills import skills_of as skills_in
    from ..agent.features.environment import system_prompt
    from ..agent.features.extension_features import extensions_of, load_extensions, model_of
    from ..agent.features.mentions import file_names, mention_forms, similar_name
    from ..agent.features.other_files import COPIED, NOT_TAKEN, TAKEN_PLACES, CopiedKind
    from ..agent.features.skills import skills_of
    from ..agent.features.subagent_types import BUILT_IN, types_of
    from ..agent.launch import (
        AttachedData,
        Budget,
        Extras,
        LaunchOptions,
        Places,
        Prompts,
        SessionChoice,
    )
    from ..agent.library.agent import Agent, AgentRun
    from ..agent.library.launch_parts import (
        as_flags,
        check_key,
        command_files_of,
        configured,
        extension_source,
        launch_options,
        load,
        notices_of,
        start_errors,
    )
    from ..agent.library.result import Result
    from ..agent.loop.agent import AgentState
    from ..agent.loop.call_arguments import TEXT, TOOL_NAME, CallRefused, checked_call, named_repair
    from ..agent.loop.resume import CACHE_NAME, ResumeCache, resume_session
    from ..agent.loop.turn import run_turn
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "BUILT_IN",
    "CACHE_NAME",
    "COPIED",
    "DEFAULT_PLACES",
    "HOOKS_NAME",
    "MANIFEST",
    "MAX_NAME_CHARS",
    "NOT_TAKEN",
    "OWN_FILE",
    "PLUGINS_FOLDER",
    "PROJECT_FILE",
    "ROOT_VARIABLE",
    "SERVERS_KEY",
    "TAKEN_PLACES",
    "TEXT",
    "TOOL_NAME",
    "Accepted",
    "Agent",
    "AgentRun",
    "AgentState",
    "Answer",
    "AttachedData",
    "Budget",
    "CallRefused",
    "CommandFile",
    "Compacted",
    "CopiedKind",
    "Delta",
    "Emit",
    "Event",
    "Extras",
    "FormQuestion",
    "HookFiles",
    "InstalledPlugins",
    "LaunchOptions",
    "Places",
    "Plugin",
    "Prompts",
    "PublishedHook",
    "Question",
    "Result",
    "ResumeCache",
    "ServerConfig",
    "SessionChoice",
    "Skill",
    "TextDelta",
    "ThinkingDelta",
    "ToolDraft",
    "TurnFinished",
    "as_flags",
    "base_tools",
    "check_bounds",
    "check_key",
    "check_name",
    "check_plugins",
    "check_server",
    "checked_call",
    "codex_server",
    "command_files_of",
    "commands_of",
    "configured",
    "content_digest",
    "events",
    "extension_source",
    "extensions_of",
    "file_digests",
    "file_names",
    "gemini_server",
    "hooks_of",
    "is_intact",
    "launch_options",
    "layout_problems",
    "load",
    "load_extensions",
    "mention_forms",
    "model_of",
    "named_repair",
    "notices_of",
    "opencode_server",
    "places_of",
    "plain_name",
    "plugins_lock",
    "python_extensions",
    "read_document",
    "read_manifest",
    "read_plugins",
    "resume_session",
    "run_turn",
    "servers_of",
    "similar_name",
    "skills_in",
    "skills_of",
    "start_errors",
    "subagent_files",
    "system_prompt",
    "types_of",
    "with_variables",
    "write_plugins",
]
