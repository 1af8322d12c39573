"""The features of a session, in the order in which the loop calls them: the built-in ones, then
those of add-ons.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ...tools.system.foreign_code import foreign_code
from ..border.entry_points import FEATURES, EntryPoint, entry_points
from ..config.add_on_settings import ADD_ON_SECTIONS
from ..config.settings import FEATURE_NAMES
from ..errors import CtxagentError, UsageError
from ..loop.agent import AgentState
from ..loop.interface import Feature, check_settings
from ..loop.resume import SessionState
from ..permissions.rules import add_tool_names
from ..session.entries import Entry
from .attachments import AttachmentsFeature
from .crash_recovery import CrashRecoveryFeature
from .disk_budget import DiskBudgetFeature
from .drift import DriftFeature
from .environment import EnvironmentFeature, Surroundings
from .folder_instructions import FolderInstructionsFeature
from .hooks import HooksFeature
from .instruction_places import InstructionPlaces
from .mcp import McpFeature
from .memory import MemoryFeature, memory_of
from .provenance import ProvenanceFeature
from .questions import QuestionsFeature
from .skills import SkillsFeature, SkillSource
from .subagent_types import AgentType
from .subagents import OpenSubagent, SubagentsFeature
from .web_search import WebSearchFeature, has_web_searches
from .window import WindowFeature

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers


# Makes a feature from the session, the state of its log, the names of the MCP servers that it can
# call, the entries of unfinished subagents of a killed process, its skills, and the types of the
# subagents that the last argument opens (None for a subagent).
MakeFeature = Callable[
    [
        AgentState,
        SessionState,
        Sequence[str],
        Sequence[Entry],
        SkillSource,
        Sequence[AgentType],
        OpenSubagent | None,
    ],
    Feature | None,
]


def _environment(agent: AgentState, state: SessionState, server_names: Sequence[str]) -> Feature:
    options = agent.options
    places = InstructionPlaces.of(options)
    around = Surroundings(places, options.prompts.prior, server_names, state.renamed)
    return EnvironmentFeature(agent, around)


def _crash_recovery(
    agent: AgentState, state: SessionState, unrecorded: Sequence[Entry]
) -> Feature | None:
    if (worktree := agent.checkpoints.worktree) is None:
        return None
    return CrashRecoveryFeature(agent, worktree, unrecorded, resumed=state.entries > 0)


def _attachments(agent: AgentState) -> Feature | None:
    if agent.parent:
        return None  # the user does not write a subagent's prompt
    return AttachmentsFeature(agent, agent.runner, _servers(agent))


def _subagents(
    agent: AgentState, types: Sequence[AgentType], open_subagent: OpenSubagent | None
) -> Feature | None:
    if open_subagent is None or not types:
        return None
    return SubagentsFeature(agent, agent.runner, types, open_subagent)


def _servers(agent: AgentState) -> "McpServers | None":
    """Return the MCP servers for the features of a session. A subagent uses its parent's."""
    options = agent.options
    return None if agent.parent or "mcp" in options.settings.features.off else options.extras.mcp


def _memory(agent: AgentState) -> Feature:
    return MemoryFeature(
        agent,
        memory_of(agent.options, agent.approval.denies_reading),
        is_offered=agent.options.settings.memory.offer == "always",
        may_change=agent.parent is None,
    )


def _web_search(agent: AgentState) -> Feature:
    searches_web = agent.model.client.abilities.searches_web
    has_tool = has_web_searches(agent.options.settings, searches_web, agent.view.tools)
    return WebSearchFeature(agent, _servers(agent), has_tool=has_tool)


def _mcp(agent: AgentState) -> Feature | None:
    if not (servers := _servers(agent)):
        return None
    from .mcp_respondent import McpRespondent

    options = agent.options
    respondent = McpRespondent(agent, agent.runner.gate, options.answers, options.places.environ)
    return McpFeature(agent, servers, respondent)


def _disk_budget(agent: AgentState) -> Feature | None:
    tracker, options = agent.runner.change_tracker, agent.options
    if agent.parent or tracker is None or tracker.saver is None:
        return None  # a subagent saves files for its parent
    room = tracker.saver.files.room
    return DiskBudgetFeature(agent, options.places.state, options.settings.state, room)


def _provenance(agent: AgentState) -> Feature:
    parent = agent.parent.features.find(ProvenanceFeature) if agent.parent else None
    read_before = parent.session.ledger.outside if parent else ""
    places, tracker = InstructionPlaces.of(agent.options), agent.runner.change_tracker
    return ProvenanceFeature(agent, places, tracker, read_before)


def _hooks(agent: AgentState, state: SessionState) -> Feature:
    options = agent.options
    return HooksFeature(
        agent,
        options.settings.hooks,
        [
            *(options.extras.hook_files.hooks if options.extras.hook_files else ()),
            *(options.extras.installed.hooks if options.extras.installed else ()),
        ],
        begins="resume" if state.entries else "clear" if options.after_clear else "startup",
        kind=agent.kind,
        environ=options.places.environ,
    )


# The features that need more than the session. The order of all is that of `FeatureName`.
MAKERS: dict[str, MakeFeature] = {
    "environment": lambda agent, state, names, *_: _environment(agent, state, names),
    "folder-instructions": lambda agent, *_: FolderInstructionsFeature(
        agent, InstructionPlaces.of(agent.options)
    ),
    "crash-recovery": lambda agent, state, _, unrecorded, *__: _crash_recovery(
        agent, state, unrecorded
    ),
    "questions": lambda agent, *_: QuestionsFeature(
        agent, None if agent.parent else agent.options.answers
    ),
    "attachments": lambda agent, *_: _attachments(agent),
    "subagents": lambda agent, *given: _subagents(agent, *given[-2:]),
    "skills": lambda agent, *given: SkillsFeature(agent, given[3]),
    "memory": lambda agent, *_: _memory(agent),
    "web-search": lambda agent, *_: _web_search(agent),
    "mcp": lambda agent, *_: _mcp(agent),
    "drift": lambda agent, state, *_: DriftFeature(agent, state.summary, state.ended),
    "disk-budget": lambda agent, *_: _disk_budget(agent),
    "provenance": lambda agent, *_: _provenance(agent),
    "window": lambda agent, *_: WindowFeature(agent),
    "hooks": lambda agent, state, *_: _hooks(agent, state),
}

add_tool_names(WindowFeature.tool_names())


def built_in_features(
    agent: AgentState,
    state: SessionState,
    server_names: Sequence[str],
    unrecorded: Sequence[Entry],
    skills: SkillSource,
    types: Sequence[AgentType],
    open_subagent: OpenSubagent | None,
    *,
    off: Collection[str] = (),
) -> Iterator[Feature]:
    """Yield the features of a session in the order in which they are called and in which their
    tools are listed, without those that are `off`. See `MakeFeature` for the arguments. Raises
    UsageError for a wrong setting.
    """
    for name in FEATURE_NAMES:
        if name in off:
            continue
        make = MAKERS.get(name)
        feature = (
            make(agent, state, server_names, unrecorded, skills, types, open_subagent)
            if make
            else plain_feature(name)(agent)
        )
        if feature is not None:
            _check_settings(agent, type(feature))
            yield feature


def _check_settings(agent: AgentState, kind: type[Feature]) -> None:
    """Raise UsageError for a wrong setting of a feature."""
    try:
        if kind.settings:
            check_settings(kind.name, kind.settings, agent.options.settings.extensions)
    except ValueError as error:
        raise UsageError(
            str(error),
            hint="Correct it in your settings; `ctxagent config --explain` names their files.",
        ) from None


def add_on_features(agent: AgentState, *, off: Collection[str] = ()) -> Iterator[Feature]:
    """Yield the features of add-ons by their names in order, without those that are `off`. Import
    none that the session does not need. Skip a failing one with a warning. Raises UsageError for a
    wrong setting.
    """
    if agent.options.extras.safe:
        return
    has_user = (agent.parent or agent).ask is not None
    points, given = entry_points(FEATURES), agent.options.settings.of_add_ons
    for name in sorted({*points, *given}.difference(off)):
        need = given[name].need(has_user=has_user) if name in given else "optional"
        if need != "no" and name in points:
            if feature := _add_on_feature(agent, points[name]):
                _check_settings(agent, type(feature))
                yield feature
        elif need == "requested":
            section = ADD_ON_SECTIONS[name]
            agent.warn_once(f"[{section}] has no effect: the add-on {name!r} is not installed")


def add_on_classes(off: Collection[str] = ()) -> list[type[Feature]]:
    """Return the classes of the features of other packages, without those that are `off` or cannot
    be loaded.
    """
    found = list[type[Feature]]()
    for name, point in entry_points(FEATURES).items():
        if name not in ADD_ON_SECTIONS and name not in off:
            with foreign_code():
                found.append(_add_on_class(point))
    return found


def _add_on_feature(agent: AgentState, point: EntryPoint) -> Feature | None:
    """Return the feature of an add-on, or warn and return None."""
    with foreign_code() as problems:
        kind = _add_on_class(point)
        try:
            return kind(agent)
        except CtxagentError as error:  # the feature says what it lacks
            agent.warn_once(". ".join(filter(None, [error.message, error.hint])))
            return None
    agent.warn_once(f"the add-on {point.name!r} of {point.package} is left out: {problems[0]}")
    return None


def _add_on_class(point: EntryPoint) -> type[Feature]:
    """Import the class of an add-on's feature. Permission rules may name its tools from now on.
    Raises what its module raises, and TypeError for any other object.
    """
    kind = point.load()
    if not (isinstance(kind, type) and issubclass(kind, Feature)):
        raise TypeError(f"{point.value} is not a subclass of Feature")
    kind.name = kind.name or point.name
    add_tool_names(kind.tool_names())
    return kind


def learn_add_on_tools(*, off: Collection[str], safe: bool) -> bool:
    """Let permission rules name the tools of add-ons from other packages. Return False if the tools
    of one are unknown: if it is `off`, fails, or may not be imported because the start is `safe`.
    """
    all_known = True
    for name, point in entry_points(FEATURES).items():
        if name in ADD_ON_SECTIONS:
            continue  # it has no tools
        if safe or name in off:
            all_known = False
            continue
        with foreign_code() as problems:
            _add_on_class(point)
        all_known = all_known and not problems
    return all_known


def plain_feature(name: str) -> type[Feature]:
    """Return the class of a feature that needs only the session: `RunStateFeature` of the module
    `run_state` for "run-state". Permission rules may name its tools from now on.
    """
    module = import_module(f".{name.replace('-', '_')}", __name__)
    kind: type[Feature] = getattr(module, f"{name.title().replace('-', '')}Feature")
    kind.name = name
    add_tool_names(kind.tool_names())
    return kind


def plain_features(off: Collection[str] = ()) -> list[type[Feature]]:
    """Return the classes of the features that need only the session, without those that are
    `off`.
    """
    return [plain_feature(name) for name in FEATURE_NAMES if name not in {*MAKERS, *off}]
