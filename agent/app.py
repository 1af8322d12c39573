"""Open conversations: settings, log, model, tools and features become an `AgentState`."""

from dataclasses import replace
from functools import partial

from .assembly import add_features, check_budget, connect_model, make_agent, other_model
from .compaction.policy import policy_of
from .config.keys import SCRIPTED
from .context import tokens
from .events import Ask, Emit, Notice, SessionOpened
from .extensions.skills import readable_folders
from .features import environment
from .features.crash_recovery import unknown_outcomes
from .features.extension_features import extensions_of, model_of
from .features.instruction_places import InstructionPlaces, instruction_warnings
from .features.mcp import report_problems, servers_of_session
from .features.other_files import used_files_line
from .features.skills import SkillsFeature, SkillSource, find_skills
from .features.started_programs import connect_gate
from .features.subagent_types import SMALL, types_of_conversation
from .features.subagents import SubagentSpec
from .launch import LaunchOptions, SessionChoice
from .loop.agent import AgentState
from .loop.budget import BudgetMeter
from .loop.directories import open_directories
from .loop.open_log import open_log, warnings_on_resume
from .loop.resume import OpenedLog, create_session, resume_session
from .models.base import Model
from .models.catalog import model_of_family
from .models.factory import full_model_id, unencrypted_warnings, with_model
from .models.providers import canonical_id
from .permissions.approval import Approval
from .security.program_starts import gate_of
from .security.sandbox import agent_paths, make_sandbox
from .session.search import SearchIndex
from .session.store import Project, locate_log

# Short sessions need not update the index, because each search updates it first.
INDEX_DELAY_S = 3.0


def open_agent(
    launch: LaunchOptions, choice: SessionChoice, *, emit: Emit, ask: Ask | None
) -> AgentState:
    """Open a session with its model, tools and features.

    Raises SessionError if the session does not exist or is in use, UsageError for a budget in
    dollars without a known price, and the model's error for a broken script.
    """
    tokens.use_vocabulary()
    model = launch.model or model_of(launch, launch.settings)
    check_budget(launch, model)
    opened = open_log(Project(launch.places.state, launch.places.cwd), choice)
    log, state = opened.log, opened.state
    with log.closed_on_error():
        launch = launch.with_servers(servers_of_session(launch, state.view.tools))
        types, warnings = types_of_conversation(launch, log.path)
        skills, left_out = find_skills(launch)
        warnings += launch.extras.installed.warnings if launch.extras.installed else []
        warnings += launch.extras.hook_files.warnings if launch.extras.hook_files else []
        warnings += extensions_of(launch).warnings
        warnings += [*left_out, *warnings_on_resume(state, launch.places.cwd, launch.prompts.own)]
        warnings += instruction_warnings(InstructionPlaces.of(launch))
        if state.entries:  # a session keeps its first prompt
            prompts = replace(launch.prompts, own=state.own_prompt)
            launch = replace(launch, prompts=prompts)
        launch = replace(launch, starts=gate_of(launch))
        approval, chosen = _approval(launch, opened), launch.settings.permissions.directories
        warnings += open_directories(
            approval, state.directories, [*map(str, chosen)], launch.places.state
        )
        system = environment.system_prompt(
            launch.prompts.append, own=launch.prompts.own, brief=policy_of(launch.settings).brief
        )
        agent = make_agent(
            launch, opened, approval, system, emit, ask, records_project=choice.for_task is None
        )
        records_requests = choice.for_task is not None or launch.budget.dollars is not None
        connect_model(agent, model, BudgetMeter(launch.budget, records_requests=records_requests))
        open_subagent = partial(_open_subagent, agent)
        add_features(agent, state, skills, types=types, open_subagent=open_subagent)
        connect_gate(agent)
        _confine(agent)
        report_problems(launch.extras.mcp, emit)
        SearchIndex(locate_log(log.path)[0]).catch_up_in_background(INDEX_DELAY_S)
        log.warn = lambda text: emit(Notice("warning", text))
        emit(SessionOpened(log.path.parent.name, str(log.path), model.id, state.entries))
        warnings += unencrypted_warnings(launch.settings.model, launch.places.environ)
        if state.entries and not log.refusal:
            warnings += unknown_outcomes(log.path, agent.tools)
        for warning in [*log.warnings, *warnings]:
            emit(Notice("warning", warning))
        if ask is not None and (line := used_files_line(launch)):
            emit(Notice("info", line))
    return agent


def _confine(agent: AgentState) -> None:
    """Set the sandbox of a session's commands. If the sandbox is off, confine only read-only
    commands.
    """
    added, protected = agent.approval.folders.added, gate_of(agent.options).protected
    sandbox = make_sandbox(agent.options, agent.folder, added, protected)
    agent.context.read_only_sandbox = sandbox
    sandbox.decide = lambda host: agent.runner.gate.network_refusal(host)
    agent.approval.kernel_confines_read_only = lambda: sandbox.holds_looking
    if not sandbox.off:
        agent.context.sandbox = agent.approval.sandbox = sandbox


def _open_subagent(parent: AgentState, spec: SubagentSpec) -> AgentState:
    """Open a subagent.

    Raises SessionError if it cannot be resumed, and UsageError for a budget in dollars if the price
    of its model is unknown.
    """
    opened = resume_session(spec.log) if spec.log.exists() else create_session(spec.log)
    options, type = parent.options, spec.type
    options = replace(options, prompts=replace(options.prompts, prior=spec.prior))
    own_skills = parent.features.find(SkillsFeature)
    skills = replace(own_skills.source, known=own_skills.known) if own_skills else SkillSource()
    with opened.log.closed_on_error():
        model = _model_of(parent, spec, opened.state.view.model)
        approval = parent.approval.read_only_view() if type.is_read_only else parent.approval
        system = environment.system_prompt(
            options.prompts.append, type.prompt, own=options.prompts.own
        )
        agent = make_agent(
            options, opened, approval, system, spec.emit, spec.ask, parent=parent, kind=type.name
        )
        connect_model(agent, model, spec.budget_meter)
        add_features(agent, opened.state, skills, type=type)
    agent.context.sandbox = parent.context.sandbox
    agent.context.read_only_sandbox = parent.context.read_only_sandbox
    if model is parent.model.client:
        agent.model.share(parent.model)
    else:
        agent.model.effort = None
    for warning in opened.log.warnings:
        spec.emit(Notice("warning", warning))
    return agent


def _approval(launch: LaunchOptions, opened: OpenedLog) -> Approval:
    """Return the permission rules of a session. The session may read its own folders."""
    permissions, folder = launch.settings.permissions, opened.log.path.parent
    origins = opened.state.origins - {folder.name}
    return Approval(
        mode=permissions.mode,
        sandboxed=permissions.sandboxed == "allow",
        allow=permissions.allow,
        ask=permissions.ask,
        deny=permissions.deny,
        cwd=launch.places.cwd,
        readable=(
            folder,
            *Project(launch.places.state, launch.places.cwd).session_folders(origins),
            *readable_folders(launch.places.config_home, launch.places.home),
            *(plugin.folder for plugin in launch.extras.plugins),
        ),
        own=[*agent_paths(launch), *filter(None, [launch.shared_memory])],
        given=[tool.name for tool in launch.extras.tools],
        path=launch.places.environ.get("PATH"),
    )


def _model_of(parent: AgentState, spec: SubagentSpec, before: str) -> Model:
    """Return the model of a subagent: the one it asks for, its earlier one, or the parent's. A
    subagent that asks for the small model continues with its earlier one. A model other than the
    parent's has its own context window, not that of the settings.
    """
    own = parent.model.id
    asked = before or _small_model(parent.options) if spec.model == SMALL else spec.model or before
    wanted = canonical_id(model_of_family(asked or own, own))
    if wanted == parent.model.id:
        return parent.model.client
    return other_model(parent.options, wanted)


def _small_model(launch: LaunchOptions) -> str:
    """Return the model in `model.small`, "" if it is not set. A scripted session or one with a
    model of the program has none, unless it is scripted too.
    """
    small = launch.settings.model.small or ""
    own = launch.model is not None or (launch.is_scripted and not small.startswith(SCRIPTED))
    return "" if own else small


def change_model(agent: AgentState, id: str) -> None:
    """Continue with another model, which may have a short name. Raises UsageError for an unreadable
    script.
    """
    options = agent.options
    chosen = options.settings.model
    id = full_model_id(id, chosen.base_url, options.places.environ)
    settings = replace(options.settings, model=with_model(chosen, id))
    own = model_of(options, settings)
    agent.model.roles.choose(own, planning=agent.approval.mode == "plan")
    agent.model.change(own)
    agent.record_model()
