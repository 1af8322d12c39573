"""Features with behaviour set by a test, and the parts of a conversation that use them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MethodType
from typing import Any

from ctxagent.agent.assembly import base_tools
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.config.settings import PermissionMode, Settings
from ctxagent.agent.config.start_gate import StartGate
from ctxagent.agent.events import Ask, Emit
from ctxagent.agent.features import plain_features
from ctxagent.agent.features.attachments import AttachmentsFeature
from ctxagent.agent.features.drift import DriftFeature
from ctxagent.agent.features.plan import PlanFeature
from ctxagent.agent.features.questions import QuestionsFeature
from ctxagent.agent.features.result_schema import ResultSchemaFeature
from ctxagent.agent.features.run_state import RunStateFeature
from ctxagent.agent.features.skills import SkillsFeature, SkillSource
from ctxagent.agent.features.subagent_types import AgentType, names_and_descriptions
from ctxagent.agent.features.web_search import WebSearchFeature
from ctxagent.agent.launch import LaunchOptions, Places
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.budget import BudgetMeter
from ctxagent.agent.loop.compaction_host import attach_engine
from ctxagent.agent.loop.interface import Feature, ToolCall, Veto
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.loop.model_roles import ModelRoles
from ctxagent.agent.loop.model_session import ModelSession
from ctxagent.agent.loop.resume import OpenedLog, create_session
from ctxagent.agent.loop.tool_calls import ToolRunner
from ctxagent.agent.models.base import Model
from ctxagent.agent.models.scripted import ScriptedModel
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.security.planted import PlantedWatch
from ctxagent.agent.session.checkpoints import Checkpoints
from ctxagent.agent.session.entries import Entry, Session
from ctxagent.tools.ask_user import AskUserTool
from ctxagent.tools.base import Context, Output, Tool
from ctxagent.tools.function_tool import function_tool
from ctxagent.tools.plan import PlanTool
from ctxagent.tools.task import TaskTool

from ..starts import start_gate


def long_text(count: int) -> str:
    """Return a text of `count` words, about one token each, without repetition."""
    return "".join(f"word {n} " for n in range(count // 2))


def every_tool(types: Sequence[AgentType] = ()) -> list[Tool[Any]]:
    """Return all tools of a session without skills, MCP servers and web search."""
    found = [*base_tools(), AskUserTool(), PlanTool()]
    found += [TaskTool(names_and_descriptions(types))] if types else []
    return [
        *found,
        *(
            function_tool(MethodType(getattr(kind, method), kind), effect)
            for kind in plain_features()
            for method, effect in kind.marked("tool_effect")
        ),
    ]


@dataclass
class FixedOpening:
    """A stand-in for `SessionOpening`."""

    session: Callable[[], Session]

    def session_entry(self, session: LiveSession) -> Session:
        return replace(self.session(), model=session.model.id)

    def model_entry(self, session: LiveSession) -> Session:
        return replace(self.session(), model=session.model.id, system=None, tools=None)


class FixedEnvironment(Feature):
    """A stand-in for `EnvironmentFeature`; a test may set each field."""

    def __init__(self, session: LiveSession, after_summary: Callable[[], Sequence[Entry]] = list):
        super().__init__(session)
        self.startup: Callable[[], Sequence[Entry]] = list
        self.after_summary_entries = after_summary

    def first_entries(self) -> Sequence[Entry]:
        return self.startup()

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        return self.after_summary_entries()


@dataclass
class FixedHooks:
    """A stand-in for the hooks: records events, and vetoes calls if a test sets `veto`."""

    has_tool_hooks: bool = False
    veto: str | None = None
    seen: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


class FixedHooksFeature(Feature):
    """Feature that forwards events to `FixedHooks`."""

    def __init__(self, session: LiveSession, hooks: FixedHooks) -> None:
        super().__init__(session)
        self.hooks = hooks

    def _told(self, name: str, event: Mapping[str, Any]) -> None:
        self.hooks.seen.append((name, event))
        if self.hooks.veto is not None and name.startswith("before_"):
            raise Veto(self.hooks.veto)

    async def session_started(self) -> None:
        self._told("session_start", {})

    async def session_ended(self) -> None:
        self._told("session_end", {})

    async def before_tool(self, call: ToolCall) -> None:
        if self.hooks.has_tool_hooks:
            self._told("before_tool", {"tool": call.tool})

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        if self.hooks.has_tool_hooks:
            self._told("after_tool", {"tool": call.tool})

    async def before_summary(self, event: Mapping[str, Any]) -> None:
        self._told("before_compact", event)

    async def after_summary(self, event: Mapping[str, Any]) -> None:
        self._told("after_compact", event)


def put_together(
    agent: AgentState,
    environment: FixedEnvironment,
    hooks: FixedHooks,
    tools: Sequence[Tool[Any]],
    planted: PlantedWatch | None = None,
) -> AgentState:
    """Give an agent the features that need no files and no settings, and return it."""
    agent.runner = ToolRunner(agent, agent.features, None, planted)
    agent.features.add(
        environment,
        QuestionsFeature(agent),
        AttachmentsFeature(agent, agent.runner),
        PlanFeature(agent),
        SkillsFeature(agent, SkillSource()),
        WebSearchFeature(agent, None, has_tool=False),
        DriftFeature(agent),
        RunStateFeature(agent),
        ResultSchemaFeature(agent),
        FixedHooksFeature(agent, hooks),
    )
    own = {tool.name: tool for tool in agent.features.tools()}
    agent.tools[:] = [own.get(tool.name, tool) for tool in tools]
    attach_engine(agent)
    return agent


def options_in(cwd: Path, state: Path, *, starts: StartGate | None = None) -> LaunchOptions:
    """Return the default options for a session in `cwd`. `starts` is its gate for programs."""
    return LaunchOptions(
        Settings(),
        Places(cwd=cwd, state=state, config_home=state, environ={}),
        starts=starts or start_gate(state),
    )


def options_with(
    extensions: Mapping[str, Mapping[str, Any]], options: LaunchOptions
) -> LaunchOptions:
    """Return the options with these settings of extensions."""
    return replace(options, settings=replace(options.settings, extensions=extensions))


def agent_of(
    opened: OpenedLog,
    model: Model,
    context: Context,
    *,
    opening: Callable[[], Session],
    emit: Emit,
    ask: Ask | None = None,
    approval: Approval | None = None,
    policy: Policy = DEFAULT,
    meter: BudgetMeter | None = None,
) -> AgentState:
    """Return the agent of an open log, without features."""
    state, folder = opened.state, opened.log.path.parent
    agent = AgentState(
        log=opened.log,
        view=state.view,
        ledger=state.ledger,
        totals=state.totals,
        checkpoints=Checkpoints(folder, None, state.numbering),
        resume_cache=opened.cache,
        emit=emit,
        options=options_in(context.cwd, folder),
        approval=approval or Approval(cwd=context.cwd),
        context=context,
        opening=FixedOpening(opening),  # type: ignore[arg-type]
        ask=ask,
        policy=policy,
    )
    agent.model = ModelSession(ModelRoles(model), agent, meter or BudgetMeter())
    agent.runner = ToolRunner(agent, agent.features)
    return agent


def live_session(
    cwd: Path,
    log: Path,
    *,
    emit: Emit = lambda event: None,
    mode: PermissionMode = "bypass",
    policy: Policy = DEFAULT,
    context: Context | None = None,
) -> AgentState:
    """Return a new session, with a scripted model that has no replies and without features."""
    entry = Session(id="s", cwd=str(cwd), version="0", model="m")
    agent = agent_of(
        create_session(log),
        ScriptedModel([]),
        context or Context(cwd=cwd, session_dir=log.parent),
        opening=lambda: entry,
        emit=emit,
        approval=Approval(mode=mode, cwd=cwd),
        policy=policy,
    )
    agent.tools[:] = every_tool()
    return agent
