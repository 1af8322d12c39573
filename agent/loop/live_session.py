"""A session that is open in this process, as its features see it.

It includes the permission rules that command files and skills add until the end of the turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from ...tools.base import Context, Tool
from ...tools.offered import Offered
from ...tools.system.git_links import current_branch
from ...tools.system.take_turn import starting_programs
from ..compaction.in_time import policy_in_time
from ..compaction.policy import Policy
from ..errors import UsageError
from ..events import Ask, Notice
from ..launch import LaunchOptions
from ..lazy import dataclass
from ..permissions.approval import Approval
from ..permissions.rules import parse_rule
from ..session.entries import BOUND, FREE, Session, User
from ..session.project_record import update_record
from ..version import __version__
from .denials import Denials
from .model_session import ModelSession
from .open_log import SessionRecord


@dataclass(slots=True)
class TurnRules:
    """The rules added by the current turn."""

    approval: Approval
    _added: list[str] = field(default_factory=list)

    def allow(self, rules: Sequence[str]) -> list[str]:
        """Allow calls by these rules until the turn ends. Invalid rules are ignored; return a
        message for each.
        """
        known = {rule for each in self.approval.rules().values() for rule in each}
        problems = list[str]()
        for text in rules:
            try:
                rule = str(parse_rule(text))
            except UsageError as error:
                problems.append(error.message)
                continue
            if rule not in known:
                self.approval.allow_for_session(rule)
                self._added.append(rule)
        return problems

    def end(self) -> None:
        """Remove the rules."""
        while self._added:
            self.approval.revoke(self._added.pop())


@dataclass(frozen=True, slots=True)
class SessionOpening:
    """The entry that records how this process opens a session."""

    system: str  # the system prompt, for a conversation with every tool if it is a `Wording`
    parent: Mapping[str, Any] | None = None  # ID and newest entry of the session it was forked from

    def model_entry(self, session: "LiveSession") -> Session:
        """Return the entry for a change of the model."""
        model, cwd = session.model.client, session.options.places.cwd
        return Session(
            id=session.folder.name,
            cwd=str(cwd),
            branch=current_branch(cwd),
            version=__version__,
            model=model.id,
            thinking=BOUND if model.abilities.binds_thinking else FREE,
        )

    def session_entry(self, session: "LiveSession") -> Session:
        """Return the entry. It has the system prompt and the tools only if they differ from the
        view's.
        """
        schemas, view = session.tool_schemas(), session.view
        system = session.context.offered.rendered(self.system)
        is_same = system == view.system
        return replace(
            self.model_entry(session),
            system=None if is_same else system,
            own_prompt=None if is_same else session.options.prompts.own or None,
            tools=None if schemas == view.tools else schemas,
            parent=dict(self.parent) if self.parent else None,
        )


@dataclass(eq=False)
class LiveSession(SessionRecord):
    """A session that is open in this process: its record, and the parts that its features may use.
    `model` is set by the code that opens the session.
    """

    model: ModelSession = field(init=False)
    tools: list[Tool[Any]] = field(default_factory=list, init=False)
    options: LaunchOptions
    approval: Approval
    context: Context  # for the tools
    opening: SessionOpening
    ask: Ask | None  # None if the user cannot be asked
    policy: Policy
    records_project: bool = True  # False for single tasks, whose folders are often removed
    kind: str = ""  # the type of a subagent
    denials: Denials = field(default_factory=Denials, init=False)
    turn_rules: TurnRules = field(init=False)
    # User messages given as an answer to a call; recorded after the results of the reply.
    queued_messages: list[str] = field(default_factory=list, init=False)
    # Added directories in the log: real path by name.
    directories: dict[str, str] = field(default_factory=dict)
    _notices: set[str] = field(default_factory=set, init=False)  # shown by `warn_once`

    def __post_init__(self) -> None:
        self.turn_rules = TurnRules(self.approval)
        self.context.offered = Offered(self._tool_names)
        self.context.window_tokens = lambda: self.model.current_window().size

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools as the model gets them."""
        return [self.context.offered.rendered(tool.schema()) for tool in self.tools]

    @property
    def policy_now(self) -> Policy:
        """The policy, as adapted to the speed of a local server."""
        return policy_in_time(self.policy, self.model.token_seconds(), self.model.current_window())

    def _tool_names(self) -> set[str]:
        """Return the names of the tools that no rule denies as a whole. Before the tools are made,
        it is those in the log.
        """
        names = [each.name for each in self.tools] or [str(t.get("name")) for t in self.view.tools]
        return {name for name in names if not self.approval.denies_tool(name)}

    def notify(self, level: Literal["info", "warning"], text: str) -> None:
        """Show the user a notice."""
        self.emit(Notice(level, text))

    def warn_once(self, text: str) -> None:
        """Show the user a warning once per session."""
        if text not in self._notices:
            self._notices.add(text)
            self.notify("warning", text)

    def allow_for_turn(self, rules: Sequence[str], origin: str) -> None:
        """Allow calls by these rules until the turn ends. `origin` names the source of the rules in
        warnings.
        """
        for problem in self.turn_rules.allow(rules):
            self.notify("warning", f"{origin}: allowed-tools: {problem}")

    def record_queued_messages(self) -> None:
        """Record the queued user messages. Raises RecordError."""
        while self.queued_messages:
            self.record(User(content=self.queued_messages[0], mid_turn=True))
            del self.queued_messages[0]

    def record_opening(self) -> None:
        """Record the model, and the system prompt and tools if they have changed. Also write the
        record of the project. Raises RecordError.
        """
        self.record(self.opening.session_entry(self))
        if self.records_project:
            update_record(self.log.path, self.context.cwd)

    def record_model(self) -> None:
        """Record the model if the log has another one, since thinking may only be sent to the model
        that wrote it. Raises RecordError.
        """
        if self.log.last_seq and self.view.model != self.model.id:
            self.record(self.opening.model_entry(self))

    async def snapshot(self) -> None:
        """Record the state of the files, once per turn. Raises RecordError."""
        checkpoints = self.checkpoints
        if taken := await starting_programs(checkpoints.turn_snapshot):
            self.record(taken)
            for warning in (
                checkpoints.missing_files_notice(taken),
                checkpoints.repository_notice(),
            ):
                if warning:
                    self.notify("warning", warning)
