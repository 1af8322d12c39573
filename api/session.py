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
        Event,
        FormQuestion,
        Question,
        TextDelta,
        ThinkingDelta,
        ToolDraft,
        TurnFinished,
    )
    from ..agent.extensions import python_extensions
    from ..agent.extensions.hook_files import HookFiles
    from ..agent.extensions.mcp.config import ServerConfig, plain_name
    from ..agent.extensions.plugins import InstalledPlugins, check_plugins
    from ..agent.features import otel
    from ..agent.features.environment import system_prompt
    from ..agent.features.extension_features import extensions_of, load_extensions, model_of
    from ..agent.features.skills import skills_of
    from ..agent.features.subagent_types import BUILT_IN, types_of
    from ..agent.launch import AttachedData, Budget, LaunchOptions
    from ..agent.library.launching import (
        as_flags,
        check_key,
        check_start,
        command_files_of,
        configured,
        extension_source,
        launch_options,
        load,
    )
    from ..agent.loop.call_arguments import CallRefused, checked_call
    from ..agent.loop.repairs import TEXT, TOOL_NAME, named_repair
    from ..agent.loop.resume import CACHE_NAME, ResumeCache, resume_session
    from ..agent.loop.turn import run_turn

__all__ = [
    "BUILT_IN",
    "CACHE_NAME",
    "TEXT",
    "TOOL_NAME",
    "Accepted",
    "Answer",
    "AttachedData",
    "Budget",
    "CallRefused",
    "Compacted",
    "Delta",
    "Event",
    "FormQuestion",
    "HookFiles",
    "InstalledPlugins",
    "LaunchOptions",
    "Question",
    "ResumeCache",
    "ServerConfig",
    "TextDelta",
    "ThinkingDelta",
    "ToolDraft",
    "TurnFinished",
    "as_flags",
    "base_tools",
    "check_key",
    "check_plugins",
    "check_start",
    "checked_call",
    "command_files_of",
    "configured",
    "events",
    "extension_source",
    "extensions_of",
    "launch_options",
    "load",
    "load_extensions",
    "model_of",
    "named_repair",
    "otel",
    "plain_name",
    "python_extensions",
    "resume_session",
    "run_turn",
    "skills_of",
    "system_prompt",
    "types_of",
]

__getattr__ = names_on_demand(__name__, __file__)
