"""Assemble a conversation: its log, model, tools and features become an `AgentState`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..tools.base import Context, Tool
from ..tools.bash import BashTool
from ..tools.edit import EditTool
from ..tools.glob import GlobTool
from ..tools.grep import GrepTool
from ..tools.job import JobTool
from ..tools.mcp import McpTool
from ..tools.read import ReadTool
from ..tools.recall import RecallTool
from ..tools.system.environment import child_environment
from ..tools.todo import TodoTool
from ..tools.web_fetch import WebFetchTool
from ..tools.write import WriteTool
from .compaction.policy import policy_of
from .config.keys import SCRIPTED
from .events import Ask, Emit
from .features import FeatureSources, built_in_features, plain_features
from .features.environment import Surroundings
from .features.extension_features import add_extensions, model_of, without_clashes
from .features.instruction_places import InstructionPlaces
from .features.skills import SkillSource
from .features.subagent_types import AgentType
from .features.subagents import SubagentSpec
from .launch import LaunchOptions
from .lazy import dataclass
from .loop.agent import AgentState
from .loop.budget import BudgetMeter
from .loop.compaction_host import attach_engine
from .loop.features import Features
from .loop.file_changes import ChangeTracker, FileSaver
from .loop.model_roles import ModelRoles
from .loop.model_session import ModelSession
from .loop.open_log import SessionOpening, SessionRecord, fork_origin
from .loop.resume import OpenedLog
from .loop.session_handle import SessionHandle
from .loop.tool_calls import ToolRunner
from .models.base import Model
from .models.catalog import check_price
from .models.factory import with_model
from .permissions.approval import Approval
from .security.guarded_parts import search_bounds
from .security.planted import PlantedWatch
from .security.program_starts import gate_of
from .security.redaction import Redaction, redaction_for, reply_filter
from .session.checkpoints import Checkpoints
from .session.search.recall import enable_recall
from .session.store import Project, locate_log
from .session.subagent_logs import missing_entries
from .worktree import (
    RECORD_FOLDER,
    REPOSITORY_FOLDER,
    SAVED_FOLDER,
    RepositoryRecorder,
    SavedFiles,
    TouchRecord,
    WorkTree,
)

# Default time to retry an overloaded server: without a user, and with a user who waits.
OVERLOAD_WAIT_S, WATCHED_OVERLOAD_WAIT_S = 120.0, 600.0

# Features that are off for small models, because each adds tools or texts. So is each plain feature
# with a tool.
NOT_BRIEF = ("questions", "plan", "subagents", "skills", "memory", "web-search")


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The parts in which the main conversation and its subagents differ."""

    opened: OpenedLog
    model: Model
    approval: Approval
    budget_meter: BudgetMeter
    system: str
    skills: SkillSource
    prior: str = ""  # a hand-over of another session
    types: Sequence[AgentType] = ()  # of subagents
    type: AgentType | None = None  # of this subagent
    parent: AgentState | None = None  # of a subagent


def assemble(
    launch: LaunchOptions,
    parts: SessionParts,
    emit: Emit,
    ask: Ask | None,
    open_subagent: Callable[[LaunchOptions, AgentState, SubagentSpec], AgentState] | None = None,
) -> AgentState:
    """Return a conversation built from these parts. `open_subagent` is None for a subagent."""
    log, state, parent = parts.opened.log, parts.opened.state, parts.parent
    folder, store = log.path.parent, Project(launch.state, launch.cwd).store
    context = _context(launch, parts)
    worktree = WorkTree(launch.cwd, store=store, index=folder / "worktree.index", env=context.env)
    saved = SavedFiles(store / SAVED_FOLDER / folder.name)
    unrecorded = missing_entries(folder, state.unreported, state.ledger.agents.values())
    for entry in unrecorded:  # count the usage of subagents before it is logged
        state.totals.add(entry)
    keeper = RepositoryRecorder(launch.cwd, store / REPOSITORY_FOLDER, context.env)
    checkpoints = Checkpoints(folder, worktree, state.numbering, saved, keeper)
    record = SessionRecord(
        log, state.view, state.ledger, state.totals, checkpoints, parts.opened.cache
    )
    handle = _handle(launch, parts, record, context, emit, ask)
    features = Features(emit)
    tracker = _change_tracker(launch, handle, worktree, saved, parent)
    added = parts.approval.folders.added
    planted = parent.runner.planted if parent else PlantedWatch(launch.cwd, added)
    runner = ToolRunner(handle, features, tracker, planted)
    agent = AgentState(handle, features, runner)
    surroundings = Surroundings(
        instruction_places(launch),
        prior=parts.prior,
        servers=_server_names(launch, parts),
        renamed=state.renamed,
    )
    off = {*launch.settings.features.off, *(not_brief() if handle.policy.brief else ())}
    sources = FeatureSources(
        launch=launch,
        state=state,
        surroundings=surroundings,
        worktree=worktree,
        unrecorded=unrecorded,
        skills=parts.skills,
        opener=partial(open_subagent, launch, agent) if open_subagent else None,
        types=parts.types,
        servers=None if parent or "mcp" in off else launch.mcp,
        parent=parent.features if parent else None,
        kind=parts.type.name if parts.type else "",
    )
    features.add(*built_in_features(handle, runner, sources, off=off))
    add_extensions(launch, handle, features)
    handle.tools[:] = _tools(launch, features, parts, emit)
    attach_engine(agent)
    return agent


def instruction_places(launch: LaunchOptions) -> InstructionPlaces:
    """Return the folders that may have instruction files for a session."""
    trust_dir = launch.trust or launch.state
    return InstructionPlaces(launch.cwd, launch.config_home, launch.home, trust_dir)


def _context(launch: LaunchOptions, parts: SessionParts) -> Context:
    """Return the context object for the tools of a conversation, connected to its log."""
    log, state = parts.opened.log, parts.opened.state
    settings = launch.settings
    redaction = _redaction(launch)
    context = Context(
        cwd=launch.cwd,
        session_dir=log.path.parent,
        env=child_environment(launch.environ, settings.bash.keep_env),
        max_output_bytes=settings.tools.max_output_bytes,
        search_bounds=partial(search_bounds, launch.environ),
        sieve=redaction.filtered_sink,
        redact=redaction.clean_output,
        reaches_private=parts.approval.names_host,
    )
    log.redact = redaction.clean_entry
    enable_recall(context, locate_log(log.path)[0], log.path)
    context.seen.digests |= state.seen
    context.todos[:] = state.todos
    return context


def _redaction(launch: LaunchOptions) -> Redaction:
    settings = launch.settings
    return redaction_for(launch.environ, settings.model.base_url, shapes=settings.state.redact)


def _handle(
    launch: LaunchOptions,
    parts: SessionParts,
    record: SessionRecord,
    context: Context,
    emit: Emit,
    ask: Ask | None,
) -> SessionHandle:
    chosen, log, state = launch.settings.model, record.log, parts.opened.state
    wait = WATCHED_OVERLOAD_WAIT_S if ask is not None else OVERLOAD_WAIT_S
    model = ModelSession(
        _roles(launch, parts),
        record,
        parts.budget_meter,
        emit,
        max_tokens=chosen.max_tokens,
        effort=chosen.effort,
        overload_wait=wait if chosen.overload_wait is None else chosen.overload_wait,
        images_setting=chosen.images,
        clean_reply=reply_filter(_redaction(launch)),
    )
    return SessionHandle(
        session=record,
        model=model,
        tools=[],
        approval=parts.approval,
        context=context,
        opening=SessionOpening(
            log.path, launch.cwd, parts.system, launch.own_prompt, fork_origin(log, state)
        ),
        emit=emit,
        ask=ask,
        policy=policy_of(launch.settings),
        extension_settings=launch.settings.extensions,
        directories=dict(state.directories),
        budget_meter=parts.budget_meter,
        starts=gate_of(launch),
    )


def _roles(launch: LaunchOptions, parts: SessionParts) -> ModelRoles:
    """Return the models of a conversation. A model of the program has no models for plan mode and
    overloads. A scripted model has them only if they are scripted too.
    """
    chosen = launch.settings.model
    if launch.model is not None:
        return ModelRoles(parts.model)
    named = "" if parts.parent else chosen.plan or "", chosen.fallback or ""
    plan, fallback = (id * (id.startswith(SCRIPTED) or not launch.is_scripted) for id in named)
    makes = not launch.is_scripted or plan or fallback
    return ModelRoles(parts.model, partial(other_model, launch) if makes else None, plan, fallback)


def other_model(launch: LaunchOptions, id: str) -> Model:
    """Return another model than the one in the settings, with its own context window. Raises
    UsageError for an unreadable script and for a budget in dollars without a known price.
    """
    chosen = replace(with_model(launch.settings.model, id), context_window=None)
    model = model_of(launch, replace(launch.settings, model=chosen))
    check_budget(launch, model)
    return model


def check_budget(launch: LaunchOptions, model: Model) -> None:
    """Raise UsageError if there is a budget in dollars and the model's price is unknown."""
    if launch.budget.dollars is not None:
        check_price(model.id)


def not_brief() -> list[str]:
    """Return the names of the features that are off for small models."""
    return [*NOT_BRIEF, *(kind.name for kind in plain_features() if kind.tool_names())]


def base_tools(*, brief: bool = False) -> list[Tool[Any]]:
    """Return the tools that belong to no feature. With `brief`, return only those for small
    models.
    """
    tools: list[Tool[Any]] = [
        BashTool(), JobTool(), ReadTool(), GrepTool(), GlobTool(), EditTool(), WriteTool(),
        TodoTool(), RecallTool(), WebFetchTool(),
    ]  # fmt: skip
    if brief:
        tools = [tool for tool in tools if tool.brief]
    for tool in tools:
        tool.is_brief = brief
    return tools


def _tools(
    launch: LaunchOptions, features: Features, parts: SessionParts, emit: Emit
) -> list[Tool[Any]]:
    """Return the tools of a conversation. A subagent gets those tools of its parent that its type
    allows, connected to its own features.
    """
    own = features.tools()
    if parts.parent is None or parts.type is None:
        brief = policy_of(launch.settings).brief
        return without_clashes([*base_tools(brief=brief), *own, *launch.tools], emit)
    taken = {tool.name for tool in base_tools()}
    by_name = {tool.name: tool for tool in reversed(own) if tool.name not in taken}
    return [
        by_name.get(tool.name, tool) for tool in parts.type.allowed_tools(parts.parent.handle.tools)
    ]


def _server_names(launch: LaunchOptions, parts: SessionParts) -> Sequence[str]:
    """Return the names of the MCP servers that a conversation can call."""
    if launch.mcp is None or "mcp" in launch.settings.features.off:
        return ()
    allowed = parts.type.tools if parts.type else None
    return launch.mcp.names if allowed is None or McpTool.name in allowed else ()


def _change_tracker(
    launch: LaunchOptions,
    handle: SessionHandle,
    worktree: WorkTree,
    saved: SavedFiles,
    parent: AgentState | None,
) -> ChangeTracker:
    """Return the tracker of file changes for a conversation. A subagent shares its parent's edits,
    touch record and saved files.
    """
    folder, context, record = handle.folder, handle.context, handle.session
    if parent is not None and (shared := parent.runner.change_tracker) is not None:
        return ChangeTracker(
            worktree, context, folder.name, shared.edits, shared.record, shared.saver
        )
    touched = TouchRecord(Project(launch.state, launch.cwd).folder / RECORD_FOLDER, folder.name)
    saver = FileSaver(saved, record.record, lambda: record.checkpoints.newest)
    return ChangeTracker(worktree, context, folder.name, [], touched, saver)
