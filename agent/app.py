"""Put a conversation together: settings, log, model and tools become an `AgentState`."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools import job
from ..tools.ask_user import AskUserTool
from ..tools.base import Confinement, Context, Tool
from ..tools.bash import BashTool
from ..tools.edit import EditTool
from ..tools.glob import GlobTool
from ..tools.grep import GrepTool
from ..tools.plan import PlanTool
from ..tools.read import ReadTool
from ..tools.recall import RecallTool
from ..tools.skill import SkillTool
from ..tools.system.environment import child_environment
from ..tools.task import TaskTool
from ..tools.todo import TodoTool
from ..tools.web_fetch import WebFetchTool
from ..tools.web_search import WebSearchTool
from ..tools.write import WriteTool
from .compaction.policy import policy_of
from .config.keys import SCRIPTED
from .context import tokens
from .context.window import LearnedWindow
from .events import Ask, Emit, Notice, SessionOpened
from .extensions.skills import readable_folders
from .launch import LaunchOptions, SessionChoice
from .loop import prompt
from .loop.agent import AgentState
from .loop.budget import BudgetMeter
from .loop.compaction_host import attach_engine
from .loop.crash_recovery import unknown_outcomes
from .loop.file_changes import ChangeTracker
from .loop.hooks import SessionHooks
from .loop.instructions import instruction_warnings
from .loop.resume import ResumeCache, SessionState, copy_cache, create_session, resume_session
from .loop.saving import FileSaver
from .loop.skills import SkillSource, attach_skills, find_skills
from .loop.startup import SessionSetup
from .loop.subagent_types import (
    AgentType,
    built_in_types,
    load_types,
    names_and_descriptions,
)
from .loop.subagents import SubagentRunner, SubagentSpec
from .loop.web_search import asks_for_searches
from .models.address import UNENCRYPTED, unencrypted_host
from .models.base import Model
from .models.catalog import check_price
from .models.factory import make_model
from .models.messages.servers import BASE_URL_VAR
from .permissions.approval import Approval
from .security.planted import PlantedWatch
from .security.redaction import Redaction
from .security.redaction import redaction_for as secrets_of
from .security.reply_filter import reply_filter
from .security.sandbox import agent_paths, make_sandbox
from .security.search_bounds import search_bounds
from .session.checkpoints import Checkpoints
from .session.entries import Entry, Session
from .session.log import Log
from .session.search import SearchIndex
from .session.search.recall import enable_recall
from .session.store import AGENTS, Project, locate_log
from .session.subagent_logs import missing_entries
from .version import __version__
from .worktree import RECORD_FOLDER, SAVED_FOLDER, SavedFiles, TouchRecord, WorkTree
from .worktree.git import current_branch

if TYPE_CHECKING:
    from .extensions.mcp.servers import McpServers

# For which an overloaded server is asked again where no setting says otherwise.
OVERLOAD_WAIT_S, WATCHED_OVERLOAD_WAIT_S = 120.0, 600.0


def every_tool(
    types: Sequence[AgentType] = (),
    mcp: "McpServers | None" = None,
    own: Sequence[Tool[Any]] = (),
    *,
    skills: bool = False,
    searches: bool = False,
) -> list[Tool[Any]]:
    """Return all tools; Task is among them where there are `types` of subagents, Mcp where there
    are servers, Skill where there are `skills`, WebSearch where the server `searches`; last those
    of the program's own."""
    tools: list[Tool[Any]] = [
        BashTool(), job.JobTool(), ReadTool(), GrepTool(), GlobTool(),
        EditTool(), WriteTool(), TodoTool(), RecallTool(), WebFetchTool(),
        AskUserTool(), PlanTool(),
    ]  # fmt: skip
    if types:
        tools.append(TaskTool(names_and_descriptions(types)))
    if skills:
        tools.append(SkillTool())
    if searches:
        tools.append(WebSearchTool())
    return [*tools, *([mcp.tool()] if mcp else []), *own]


def open_agent(
    launch: LaunchOptions, choice: SessionChoice, *, emit: Emit, ask: Ask | None
) -> AgentState:
    """Open a session and everything around it.

    Raises SessionError when the session does not exist or is in use, UsageError for a budget that
    cannot be kept, and what the model raises for a broken script.
    """
    tokens.use_vocabulary()
    model = launch.model or make_model(launch.settings, launch.environ, launch.state)
    _check_price(launch, model)
    project = Project(launch.state, launch.cwd)
    log, state, resume_cache = _session(project, choice)
    with log.closed_on_error():
        types, warnings = _types(launch, log.path)
        launch = _with_servers(launch, state)
        skills, left_out = find_skills(launch)
        warnings += launch.installed.warnings if launch.installed else []
        warnings += [*left_out, *_other_prompt(launch, state)]
        warnings += instruction_warnings(launch.cwd, launch.trust or launch.state)
        if state.entries:  # a session keeps the prompt that it began with
            launch = replace(launch, own_prompt=state.own_prompt)
        folder, resumed = log.path.parent, state.entries
        parts = _Parts(
            log=log,
            state=state,
            resume_cache=resume_cache,
            model=model,
            tools=every_tool(
                types,
                launch.mcp,
                launch.tools,
                skills=_uses_skills(skills, state),
                searches=asks_for_searches(launch, state.view.tools),
            ),
            skills=skills,
            approval=_approval(launch, project, state, folder),
            budget_meter=BudgetMeter(launch.budget),
            system=prompt.system_prompt(launch.append_prompt, own=launch.own_prompt),
            prior=launch.prior,
        )
        agent = _put_together(launch, parts, emit, ask)
        _confine(agent, launch)
        agent.subagent_types = types
        agent.mcp, agent.answers = _heard(launch.mcp, emit), launch.answers
        agent.context.spawn = SubagentRunner(
            agent, lambda spec: _open_subagent(launch, agent, spec)
        ).run
        SearchIndex(locate_log(log.path)[0]).catch_up_in_background()
        log.warn = lambda text: emit(Notice("warning", text))
        emit(SessionOpened(folder.name, str(log.path), model.id, resumed))
        warnings += _without_sandbox(agent.context.sandbox, parts.approval)
        warnings += _unencrypted(launch)
        if resumed and not log.refusal and (unknown := unknown_outcomes(log.path, parts.tools)):
            warnings.append(unknown)
        for warning in [*log.warnings, *_moved(state.began, launch.cwd), *warnings]:
            emit(Notice("warning", warning))
    return agent


def _approval(
    launch: LaunchOptions, project: Project, state: SessionState, folder: Path
) -> Approval:
    """Return the rules of a session in `folder`, which may read what it began with."""
    permissions = launch.settings.permissions
    return Approval(
        mode=permissions.mode,
        sandboxed=permissions.sandboxed == "allow",
        allow=permissions.allow,
        ask=permissions.ask,
        deny=permissions.deny,
        cwd=launch.cwd,
        readable=(
            folder,
            *project.session_folders(state.origins - {folder.name}),
            *readable_folders(launch.config_home, launch.home),
            *(plugin.folder for plugin in launch.plugins),
        ),
        own=agent_paths(launch),
        given=[tool.name for tool in launch.tools],
        path=launch.environ.get("PATH"),
    )


def _confine(agent: AgentState, launch: LaunchOptions) -> None:
    """Give a session's commands their sandbox, if they are to have one."""
    if sandbox := make_sandbox(launch, agent.folder):
        sandbox.decide = lambda host: agent.tool_runner().why_not_reached(host)
    agent.context.sandbox = agent.approval.sandbox = sandbox


def _heard(servers: "McpServers | None", emit: Emit) -> "McpServers | None":
    """Have what servers do wrong told, in the loop of whoever opens the session, if there is one:
    the servers have a thread of their own."""
    if servers is None:
        return None
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        servers.listen(lambda text: emit(Notice("warning", text)))
        return servers

    def tell(text: str) -> None:
        with suppress(RuntimeError):  # the loop may end first
            loop.call_soon_threadsafe(emit, Notice("warning", text))

    servers.listen(tell)
    return servers


def _without_sandbox(sandbox: Confinement | None, approval: Approval) -> list[str]:
    """Return a warning where commands were to be confined, or to run without a question, and that
    cannot be as it should."""
    if approval.sandboxed and approval.unconfined:
        less = approval.unconfined
        return [f"Commands are asked about, since nothing confines them here: {less}"]
    if sandbox is None or sandbox.required:
        return []
    if sandbox.partial:
        return [f"Commands are confined by Landlock alone, which holds less: {sandbox.partial}"]
    if sandbox.absent:
        return [f"Commands run without a sandbox: {sandbox.absent}"]
    return []


def _unencrypted(launch: LaunchOptions) -> list[str]:
    """Return a warning where the key would go to another machine as it is."""
    chosen = launch.settings.model
    url = chosen.base_url or launch.environ.get(BASE_URL_VAR) or ""
    host = "" if chosen.id.startswith(SCRIPTED) else unencrypted_host(url)
    return [UNENCRYPTED.format(host=host)] if host else []


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a conversation has of its own; a subagent's differ from its parent's."""

    log: Log
    state: SessionState
    resume_cache: ResumeCache
    model: Model
    tools: Sequence[Tool[Any]]
    approval: Approval
    budget_meter: BudgetMeter
    system: str
    prior: str = ""
    changes: ChangeTracker | None = None  # of the parent, for a subagent
    planted: PlantedWatch | None = None  # of the session, where it has one
    skills: SkillSource = field(default_factory=SkillSource)


def _put_together(launch: LaunchOptions, parts: _Parts, emit: Emit, ask: Ask | None) -> AgentState:
    settings, log, state = launch.settings, parts.log, parts.state
    model, folder = settings.model, log.path.parent
    redaction = secrets_of(launch.environ, settings.model.base_url, shapes=settings.state.redact)
    context = _context(launch, log, state, redaction)
    worktree = _worktree(launch, folder, context)
    checkpoints = Checkpoints(folder, worktree, state.numbering, _saved_files(launch))
    left = missing_entries(folder, state.untold, state.ledger.agents.values())
    for entry in left:  # what they have used counts before it is recorded
        state.totals.add(entry)
    hooks = SessionHooks(
        settings=settings.hooks,
        log_path=log.path,
        cwd=launch.cwd,
        env=context.env,
        resumed=state.entries > 0,
        emit=lambda event: agent.emit(event),
        redact=context.redact,
        of_plugins=launch.installed.hooks if launch.installed else (),
    )
    agent = AgentState(
        log=log,
        view=state.view,
        ledger=state.ledger,
        totals=state.totals,
        checkpoints=checkpoints,
        resume_cache=parts.resume_cache,
        model=parts.model,
        tools=parts.tools,
        approval=parts.approval,
        context=context,
        emit=emit,
        ask=ask,
        setup=_setup(launch, parts, worktree, left),
        hooks=hooks,
        change_tracker=_change_tracker(launch, parts, worktree, context, lambda: agent),
        planted=parts.planted or PlantedWatch(launch.cwd),
        policy=policy_of(settings),
        budget_meter=parts.budget_meter,
        max_tokens=model.max_tokens,
        effort=model.effort,
        images_setting=model.images,
        overload_wait=_overload_wait(model.overload_wait, is_watched=ask is not None),
        clean_reply=reply_filter(redaction),
    )
    attach_engine(agent)
    attach_skills(agent, parts.skills)
    agent.drift_monitor.resume(state.summary, state.ended)
    return agent


def _change_tracker(
    launch: LaunchOptions,
    parts: _Parts,
    worktree: WorkTree,
    context: Context,
    agent: Callable[[], AgentState],
) -> ChangeTracker:
    """Return what finds the changes of a conversation's calls. A subagent shares the edits, the
    touch record and the saved files of its parent."""
    folder = parts.log.path.parent
    if (shared := parts.changes) is None:
        record = TouchRecord(Project(launch.state, launch.cwd).folder / RECORD_FOLDER, folder.name)
        saver = FileSaver(
            _saved_files(launch),
            lambda entry: agent().record(entry),
            lambda: agent().checkpoints.newest,
        )
        return ChangeTracker(worktree, context, folder.name, [], record, saver)
    return ChangeTracker(worktree, context, folder.name, shared.edits, shared.record, shared.saver)


def _setup(
    launch: LaunchOptions, parts: _Parts, worktree: WorkTree, left: Sequence[Entry]
) -> SessionSetup:
    return SessionSetup(
        log_path=parts.log.path,
        cwd=launch.cwd,
        config_home=launch.config_home,
        trust_dir=launch.trust or launch.state,
        worktree=worktree,
        system=parts.system,
        own_prompt=launch.own_prompt,
        prior=parts.prior,
        parent=_fork_origin(parts.log, parts.state),
        resumed=parts.state.entries > 0,
        servers=_names_of_servers(launch, parts.tools),
        unrecorded=left,
    )


def _names_of_servers(launch: LaunchOptions, tools: Sequence[Tool[Any]]) -> Sequence[str]:
    """Return the names of the MCP servers that a conversation with these tools reaches."""
    if launch.mcp is None or not any(tool.name == "Mcp" for tool in tools):
        return ()
    return launch.mcp.names


def _overload_wait(setting: int | None, *, is_watched: bool) -> float:
    """Return for how long an overloaded server is asked again, a person watching or not."""
    if setting is not None:
        return setting
    return WATCHED_OVERLOAD_WAIT_S if is_watched else OVERLOAD_WAIT_S


def _open_subagent(launch: LaunchOptions, parent: AgentState, spec: SubagentSpec) -> AgentState:
    """Open a subagent.

    Raises SessionError when it cannot be resumed, UsageError for a budget that cannot be kept with
    its model.
    """
    log, state, resume_cache = (
        resume_session(spec.log) if spec.log.exists() else create_session(spec.log)
    )
    with log.closed_on_error():
        model = _model_of(launch, parent, spec, state.view.model)
        agent = _put_together(
            launch,
            _Parts(
                log=log,
                state=state,
                resume_cache=resume_cache,
                model=model,
                tools=spec.type.of(parent.tools),
                approval=parent.approval.read_only_view()
                if spec.type.looks_only
                else parent.approval,
                budget_meter=spec.budget_meter,
                system=prompt.system_prompt(
                    launch.append_prompt, spec.type.prompt, own=launch.own_prompt
                ),
                prior=spec.prior,
                changes=parent.change_tracker,
                planted=parent.planted,
                skills=replace(parent.skills.source, known=parent.skills.known),
            ),
            spec.emit,
            spec.ask,
        )
    agent.context.foreground = parent.context.foreground
    agent.context.sandbox = parent.context.sandbox
    shared = model is parent.model
    if shared:
        agent.limits, agent.effort = parent.limits, parent.effort
        agent.learned_window = parent.learned_window
    else:
        agent.effort = None
    for warning in log.warnings:
        spec.emit(Notice("warning", warning))
    return agent


def _model_of(launch: LaunchOptions, parent: AgentState, spec: SubagentSpec, before: str) -> Model:
    """Return the parent's model, or another one that the subagent is to have or had before.

    Another model has the window that is its own, not the one of the settings.
    """
    wanted = spec.model or before or parent.model.id
    if wanted == parent.model.id:
        return parent.model
    chosen = replace(launch.settings.model, id=wanted, context_window=None)
    model = make_model(replace(launch.settings, model=chosen), launch.environ, launch.state)
    _check_price(launch, model)
    return model


def _check_price(launch: LaunchOptions, model: Model) -> None:
    if launch.budget.dollars is not None:
        check_price(model.id)


def _types(launch: LaunchOptions, log: Path) -> tuple[list[AgentType], list[str]]:
    """Return the types of subagents that a conversation can start, and warnings.

    A conversation that is itself a subagent can start none.
    """
    if log.parent.parent.name == AGENTS:
        return [], []
    if launch.safe:
        return built_in_types(), []
    return load_types(
        launch.cwd,
        config_home=launch.config_home,
        home=launch.home,
        trust_dir=launch.trust or launch.state,
        tools=[
            tool.name
            for tool in every_tool(mcp=launch.mcp, own=launch.tools, skills=True, searches=True)
        ],
        plugins=launch.plugins,
    )


def _with_servers(launch: LaunchOptions, state: SessionState) -> LaunchOptions:
    """Return the options with the tool Mcp where the session had it, also when no server is
    configured any more: its list of tools stays as it is."""
    if launch.mcp is not None or all(tool.get("name") != "Mcp" for tool in state.view.tools):
        return launch
    from .extensions.mcp.servers import McpServers

    return replace(launch, mcp=McpServers((), env=launch.environ, cwd=launch.cwd))


def _uses_skills(skills: SkillSource, state: SessionState) -> bool:
    """Tell whether there are skills, or there were when the session began: it keeps its tools,
    since with another list of them every request would begin anew."""
    named = (tool.get("name") for tool in state.view.tools)
    return bool(skills.known) or SkillTool.name in named


def _worktree(launch: LaunchOptions, folder: Path, context: Context) -> WorkTree:
    """Return the files of the project; the store of their snapshots lies among its sessions."""
    store = Project(launch.state, launch.cwd).folder / "worktree.git"
    return WorkTree(launch.cwd, store=store, index=folder / "worktree.index", env=context.env)


def _saved_files(launch: LaunchOptions) -> SavedFiles:
    """Return the saved files of the project; they lie in the store of its snapshots."""
    return SavedFiles(Project(launch.state, launch.cwd).folder / "worktree.git" / SAVED_FOLDER)


def change_model(agent: AgentState, launch: LaunchOptions, id: str) -> None:
    """Go on with another model; recorded, because thinking is bound to the model that thought.

    Raises UsageError for a script that cannot be read.
    """
    settings = replace(launch.settings, model=replace(launch.settings.model, id=id))
    agent.model, agent.limits = make_model(settings, launch.environ, launch.state), None
    agent.learned_window = LearnedWindow()
    if agent.log.last_seq:
        agent.record(
            Session(
                id=agent.log.path.parent.name,
                cwd=str(launch.cwd),
                branch=current_branch(launch.cwd),
                version=__version__,
                model=id,
            )
        )


def _context(launch: LaunchOptions, log: Log, state: SessionState, redaction: Redaction) -> Context:
    """Return what the tools are handed."""
    context = Context(
        cwd=launch.cwd,
        session_dir=log.path.parent,
        env=child_environment(launch.environ, launch.settings.bash.keep_env),
        max_output_bytes=launch.settings.tools.max_output_bytes,
        search_bounds=partial(search_bounds, launch.environ),
    )
    context.sieve, context.redact = redaction.filtered_sink, redaction.clean_output
    log.redact = redaction.clean_entry
    enable_recall(context, locate_log(log.path)[0], log.path)
    context.seen.digests |= state.seen
    context.todos[:] = state.todos
    return context


def _session(project: Project, choice: SessionChoice) -> tuple[Log, SessionState, ResumeCache]:
    if choice.for_task is not None:
        path = project.log_for_task(choice.for_task)
        return resume_session(path) if path.exists() else create_session(path)
    if choice.id is None and not choice.newest:
        return create_session(project.new_log())
    path = project.newest_log() if choice.id is None else project.find_log(choice.id)
    if choice.fork:
        copy = project.fork(path)
        copy_cache(path, copy)
        path = copy
    return resume_session(path, read_only=choice.read_only)


def _fork_origin(log: Log, state: SessionState) -> dict[str, Any] | None:
    """Return id and seq of the session that the entries come from, when this one is its fork."""
    if state.session in ("", log.path.parent.name):
        return None
    return {"id": state.session, "seq": state.newest}


def _other_prompt(launch: LaunchOptions, state: SessionState) -> list[str]:
    if not (state.entries and launch.own_prompt and launch.own_prompt != state.own_prompt):
        return []
    before = "another system prompt" if state.own_prompt else "the usual system prompt"
    return [
        f"this session began with {before} and keeps it: --system-prompt counts for a new session"
    ]


def _moved(began: str | None, cwd: Path) -> list[str]:
    if began is None or os.path.realpath(began) == os.path.realpath(cwd):
        return []
    return [f"this session began in {began}; it goes on in {cwd}"]
