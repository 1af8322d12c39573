"""Assemble a session: its log, model, tools and features become an `AgentState`."""

from collections.abc import Sequence
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
from ..tools.search.installed import find_ripgrep, missing_ripgrep
from ..tools.system.environment import child_environment
from ..tools.todo import TodoTool
from ..tools.web_fetch import WebFetchTool
from ..tools.write import WriteTool
from .compaction.policy import policy_of
from .config.keys import SCRIPTED
from .events import Ask, Emit, Notice
from .features import add_on_features, built_in_features, plain_features
from .features.extension_features import add_extensions, model_of, without_clashes
from .features.skills import SkillSource
from .features.subagent_types import AgentType
from .features.subagents import OpenSubagent
from .launch import LaunchOptions
from .loop.agent import AgentState
from .loop.budget import BudgetMeter
from .loop.compaction_host import attach_engine
from .loop.file_changes import ChangeTracker, FileSaver
from .loop.live_session import SessionOpening
from .loop.model_roles import ModelRoles
from .loop.model_session import ModelSession
from .loop.open_log import fork_origin
from .loop.resume import OpenedLog, SessionState
from .loop.tool_calls import ToolRunner
from .models.base import Model
from .models.catalog import check_price
from .models.factory import with_model
from .permissions.approval import Approval
from .security.guarded_parts import search_bounds
from .security.planted import PlantedWatch
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


def make_agent(
    options: LaunchOptions,
    opened: OpenedLog,
    approval: Approval,
    system: str,
    emit: Emit,
    ask: Ask | None,
    *,
    parent: AgentState | None = None,
    kind: str = "",
    records_project: bool = True,
) -> AgentState:
    """Return the agent of an open log, without a model and without features. `system` is its
    prompt. A subagent has a `parent` and a `kind`.
    """
    log, state, folder = opened.log, opened.state, opened.log.path.parent
    context, cwd = _context(options, opened, approval), options.places.cwd
    store = Project(options.places.state, cwd).store
    worktree = WorkTree(cwd, store=store, index=folder / "worktree.index", env=context.env)
    saved = SavedFiles(store / SAVED_FOLDER / folder.name)
    keeper = RepositoryRecorder(cwd, store / REPOSITORY_FOLDER, context.env)
    agent = AgentState(
        log=log,
        view=state.view,
        ledger=state.ledger,
        totals=state.totals,
        checkpoints=Checkpoints(folder, worktree, state.numbering, saved, keeper),
        resume_cache=opened.cache,
        emit=emit,
        options=options,
        approval=approval,
        context=context,
        opening=SessionOpening(system, fork_origin(log, state)),
        ask=ask,
        policy=policy_of(options.settings),
        kind=kind,
        records_project=records_project,
        directories=dict(state.directories),
        parent=parent,
    )
    planted = parent.runner.planted if parent else PlantedWatch(cwd, approval.folders.added)
    tracker = _change_tracker(agent, worktree, saved)
    agent.runner = ToolRunner(agent, agent.features, tracker, planted)
    return agent


def connect_model(agent: AgentState, model: Model, budget_meter: BudgetMeter) -> None:
    """Give an agent its model, whose calls the meter counts."""
    chosen = agent.options.settings.model
    wait = WATCHED_OVERLOAD_WAIT_S if agent.ask is not None else OVERLOAD_WAIT_S
    agent.model = ModelSession(
        _roles(agent, model),
        agent,
        budget_meter,
        max_tokens=chosen.max_tokens,
        effort=chosen.effort,
        overload_wait=wait if chosen.overload_wait is None else chosen.overload_wait,
        images_setting=chosen.images,
        clean_reply=reply_filter(_redaction(agent.options)),
    )


def add_features(
    agent: AgentState,
    state: SessionState,
    skills: SkillSource,
    *,
    types: Sequence[AgentType] = (),
    type: AgentType | None = None,
    open_subagent: OpenSubagent | None = None,
) -> None:
    """Give an agent its features, add-ons, extensions, tools and compaction engine.

    `state` is that of its log. `types` are the subagents that `open_subagent` can open. A subagent
    has a `type` and cannot open others.
    """
    subagents, offered = agent.ledger.agents.values(), agent.context.offered
    unrecorded = missing_entries(agent.folder, state.unreported, subagents, offered)
    for entry in unrecorded:  # count the usage of subagents before it is logged
        agent.totals.add(entry)
    names = _server_names(agent.options, type)
    off = {*agent.options.settings.features.off, *(not_brief() if agent.policy.brief else ())}
    given = state, names, unrecorded, skills, types, open_subagent
    agent.features.add(*built_in_features(agent, *given, off=off))
    agent.features.add(*add_on_features(agent, off=off), guarded=True, add_on=True)
    add_extensions(agent, agent.features)
    agent.tools[:] = _tools(agent, type)
    attach_engine(agent)


def _context(options: LaunchOptions, opened: OpenedLog, approval: Approval) -> Context:
    """Return the context object for the tools of a session, connected to its log."""
    log, state, settings = opened.log, opened.state, options.settings
    redaction = _redaction(options)
    context = Context(
        cwd=options.places.cwd,
        session_dir=log.path.parent,
        env=child_environment(options.places.environ, settings.bash.keep_env),
        max_output_bytes=settings.tools.max_output_bytes,
        search_bounds=partial(search_bounds, options.places.environ),
        sieve=redaction.filtered_sink,
        redact=redaction.clean,
        reaches_private=approval.names_host,
    )
    log.redact = redaction.clean
    enable_recall(context, locate_log(log.path)[0], log.path)
    context.seen.digests |= state.seen
    context.todos[:] = state.todos
    return context


def _redaction(options: LaunchOptions) -> Redaction:
    settings = options.settings
    return redaction_for(
        options.places.environ, settings.model.base_url, shapes=settings.state.redact
    )


def _roles(agent: AgentState, model: Model) -> ModelRoles:
    """Return the models of a session. A model of the program has no models for plan mode and
    overloads. A scripted model has them only if they are scripted too.
    """
    options = agent.options
    chosen = options.settings.model
    if options.model is not None:
        return ModelRoles(model)
    named = "" if agent.parent else chosen.plan or "", chosen.fallback or ""
    plan, fallback = (id * (id.startswith(SCRIPTED) or not options.is_scripted) for id in named)
    makes = not options.is_scripted or plan or fallback
    return ModelRoles(model, partial(other_model, options) if makes else None, plan, fallback)


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


def _tools(agent: AgentState, type: AgentType | None) -> list[Tool[Any]]:
    """Return the tools of a session. A subagent gets those tools of its parent that its type
    allows, connected to its own features.
    """
    own = agent.features.tools()
    if agent.parent is None or type is None:
        base, path = base_tools(brief=agent.policy.brief), agent.context.env.get("PATH")
        if find_ripgrep(path) is None:
            base = [tool for tool in base if tool.name != GrepTool.name]
            agent.emit(Notice("warning", f"the tool Grep is off: {missing_ripgrep(path)}"))
        return without_clashes([*base, *own, *agent.options.extras.tools], agent.emit)
    taken = {tool.name for tool in base_tools()}
    by_name = {tool.name: tool for tool in reversed(own) if tool.name not in taken}
    return [by_name.get(tool.name, tool) for tool in type.allowed_tools(agent.parent.tools)]


def _server_names(options: LaunchOptions, type: AgentType | None) -> Sequence[str]:
    """Return the names of the MCP servers that a session can call."""
    if options.extras.mcp is None or "mcp" in options.settings.features.off:
        return ()
    allowed = type.tools if type else None
    return options.extras.mcp.names if allowed is None or McpTool.name in allowed else ()


def _change_tracker(agent: AgentState, worktree: WorkTree, saved: SavedFiles) -> ChangeTracker:
    """Return the tracker of file changes for a session. A subagent shares its parent's edits, touch
    record and saved files.
    """
    folder, context, places = agent.folder, agent.context, agent.options.places
    if agent.parent is not None and (shared := agent.parent.runner.change_tracker) is not None:
        return ChangeTracker(
            worktree, context, folder.name, shared.edits, shared.record, shared.saver
        )
    touched = TouchRecord(Project(places.state, places.cwd).folder / RECORD_FOLDER, folder.name)
    saver = FileSaver(saved, agent.record, lambda: agent.checkpoints.newest)
    return ChangeTracker(worktree, context, folder.name, [], touched, saver)
