"""The built-in features, in the order in which the loop calls them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING

from ..config.settings import FEATURE_NAMES
from ..errors import UsageError
from ..launch import LaunchOptions
from ..lazy import dataclass
from ..loop.feature import Feature, check_settings
from ..loop.features import Features
from ..loop.resume import SessionState
from ..loop.session_handle import SessionHandle
from ..loop.tool_calls import ToolRunner
from ..permissions.rules import add_tool_names
from ..session.entries import Entry
from ..worktree import WorkTree
from .attachments import AttachmentsFeature
from .crash_recovery import CrashRecoveryFeature
from .diagnostics import DiagnosticsFeature
from .disk_budget import DiskBudgetFeature
from .drift import DriftFeature
from .environment import EnvironmentFeature, Surroundings
from .folder_instructions import FolderInstructionsFeature
from .hooks import HooksFeature
from .mcp import McpFeature
from .memory import MemoryFeature, memory_of
from .provenance import ProvenanceFeature
from .questions import QuestionsFeature
from .skills import SkillsFeature, SkillSource
from .subagent_types import AgentType
from .subagents import OpenSubagent, SubagentsFeature
from .web_search import WebSearchFeature, has_web_searches

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers


@dataclass(frozen=True, slots=True)
class FeatureSources:
    """The inputs for making the features of a conversation."""

    launch: LaunchOptions
    state: SessionState
    surroundings: Surroundings
    worktree: WorkTree
    unrecorded: Sequence[Entry]  # entries of unfinished subagents of a killed process
    skills: SkillSource
    opener: OpenSubagent | None = None  # None for a subagent, which cannot start subagents
    types: Sequence[AgentType] = field(default_factory=tuple)  # subagent types
    servers: "McpServers | None" = None
    parent: Features | None = None  # features of a subagent's parent
    kind: str = ""  # the type of a subagent


MakeFeature = Callable[[SessionHandle, ToolRunner, FeatureSources], Feature | None]


def _attachments(
    handle: SessionHandle, runner: ToolRunner, sources: FeatureSources
) -> Feature | None:
    if sources.opener is None:
        return None  # the user does not write a subagent's prompt
    return AttachmentsFeature(handle, runner, sources.servers)


def _subagents(
    handle: SessionHandle, runner: ToolRunner, sources: FeatureSources
) -> Feature | None:
    if sources.opener is None or not sources.types:
        return None
    return SubagentsFeature(handle, runner, sources.types, sources.opener)


def _questions(handle: SessionHandle, runner: ToolRunner, sources: FeatureSources) -> Feature:
    is_subagent = sources.opener is None
    return QuestionsFeature(handle, None if is_subagent else sources.launch.answers)


def _memory(handle: SessionHandle, runner: ToolRunner, sources: FeatureSources) -> Feature:
    return MemoryFeature(
        handle,
        memory_of(sources.launch, handle.approval.denies_reading),
        is_offered=sources.launch.settings.memory.offer == "always",
        may_change=sources.opener is not None,
    )


def _mcp(handle: SessionHandle, runner: ToolRunner, sources: FeatureSources) -> Feature | None:
    if not sources.servers:
        return None
    from .mcp_respondent import McpRespondent

    launch = sources.launch
    respondent = McpRespondent(handle, runner.gate, launch.answers, launch.environ)
    return McpFeature(handle, sources.servers, respondent)


def _web_search(handle: SessionHandle, runner: ToolRunner, sources: FeatureSources) -> Feature:
    searches_web = handle.model.client.abilities.searches_web
    has_tool = has_web_searches(sources.launch.settings, searches_web, handle.view.tools)
    return WebSearchFeature(handle, sources.servers, has_tool=has_tool)


def _diagnostics(
    handle: SessionHandle, runner: ToolRunner, sources: FeatureSources
) -> Feature | None:
    launch, parent = sources.launch, None
    if launch.safe:
        return None
    if sources.parent is not None and (parent := sources.parent.find(DiagnosticsFeature)) is None:
        return None
    return DiagnosticsFeature(handle, runner, launch.settings.lsp, parent, launch.plugins)


def _disk_budget(
    handle: SessionHandle, runner: ToolRunner, sources: FeatureSources
) -> Feature | None:
    tracker, launch = runner.change_tracker, sources.launch
    if sources.opener is None or tracker is None or tracker.saver is None:
        return None  # a subagent saves files for its parent
    room = tracker.saver.files.room
    return DiskBudgetFeature(handle, launch.state, launch.settings.state, room)


def _provenance(handle: SessionHandle, runner: ToolRunner, sources: FeatureSources) -> Feature:
    parent = sources.parent.find(ProvenanceFeature) if sources.parent else None
    read_before = parent.handle.ledger.outside if parent else ""
    tracker = runner.change_tracker
    return ProvenanceFeature(handle, sources.surroundings.places, tracker, read_before)


def _hooks(handle: SessionHandle, runner: ToolRunner, sources: FeatureSources) -> Feature:
    launch = sources.launch
    return HooksFeature(
        handle,
        launch.settings.hooks,
        [
            *(launch.hook_files.hooks if launch.hook_files else ()),
            *(launch.installed.hooks if launch.installed else ()),
        ],
        begins="resume" if sources.state.entries else "clear" if launch.after_clear else "startup",
        kind=sources.kind,
        environ=launch.environ,
    )


def _telemetry(
    handle: SessionHandle, runner: ToolRunner, sources: FeatureSources
) -> Feature | None:
    launch, settings = sources.launch, sources.launch.settings.telemetry
    if not settings.on:
        return None
    from .telemetry import TelemetryFeature, telemetry_or_warning

    if (telemetry := telemetry_or_warning(handle)) is None:
        return None
    parent = sources.parent.find(TelemetryFeature) if sources.parent else None
    return TelemetryFeature(
        handle,
        telemetry,
        agent=sources.kind,
        parent=parent,
        provider="custom" if launch.model else "scripted" if launch.is_scripted else "",
        environ=launch.environ,
        has_contents=settings.contents,
    )


# The features that need more than the handle. The order of all is that of `FeatureName`.
MAKERS: dict[str, MakeFeature] = {
    "environment": lambda handle, _, sources: EnvironmentFeature(handle, sources.surroundings),
    "folder-instructions": lambda handle, _, sources: FolderInstructionsFeature(
        handle, sources.surroundings.places
    ),
    "crash-recovery": lambda handle, _, sources: CrashRecoveryFeature(
        handle, sources.worktree, sources.unrecorded, resumed=sources.state.entries > 0
    ),
    "questions": _questions,
    "attachments": _attachments,
    "subagents": _subagents,
    "skills": lambda handle, _, sources: SkillsFeature(handle, sources.skills),
    "memory": _memory,
    "web-search": _web_search,
    "mcp": _mcp,
    "drift": lambda handle, _, sources: DriftFeature(
        handle, sources.state.summary, sources.state.ended
    ),
    "diagnostics": _diagnostics,
    "disk-budget": _disk_budget,
    "provenance": _provenance,
    "hooks": _hooks,
    "telemetry": _telemetry,
}


def built_in_features(
    handle: SessionHandle,
    runner: ToolRunner,
    sources: FeatureSources,
    *,
    off: Collection[str] = (),
) -> Iterator[Feature]:
    """Yield the features of a conversation in the order in which they are called and in which
    their tools are listed, without those that are `off`. Raises UsageError for a wrong setting.
    """
    for name in FEATURE_NAMES:
        if name in off:
            continue
        make = MAKERS.get(name)
        feature = make(handle, runner, sources) if make else plain_feature(name)(handle)
        if feature is None:
            continue
        if feature.settings:
            try:
                check_settings(feature.name, feature.settings, handle.extension_settings)
            except ValueError as error:
                raise UsageError(str(error)) from None
        yield feature


def plain_feature(name: str) -> type[Feature]:
    """Return the class of a feature that needs only the handle: `RunStateFeature` of the module
    `run_state` for "run-state". Permission rules may name its tools from now on.
    """
    module = import_module(f".{name.replace('-', '_')}", __name__)
    kind: type[Feature] = getattr(module, f"{name.title().replace('-', '')}Feature")
    kind.name = name
    add_tool_names(kind.tool_names())
    return kind


def plain_features(off: Collection[str] = ()) -> list[type[Feature]]:
    """Return the classes of the features that need only the handle, without those that are
    `off`.
    """
    return [plain_feature(name) for name in FEATURE_NAMES if name not in {*MAKERS, *off}]
