"""One conversation: its log, what is folded from it, its model and its tools.

Everything that happens in a conversation goes through `AgentState.record` (durable, in the log) and
`AgentState.emit` (for a front end to show). `loop.turn` runs the turns of an agent, and
`loop.compaction_host` is the agent as the compaction engine sees it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tools.base import Context, Tool
from ...tools.job import end_all
from ...tools.system.tasks import finish_despite_cancel
from ..compaction.drift.monitor import DriftMonitor
from ..compaction.engine import CompactionEngine
from ..compaction.policy import DEFAULT, Policy
from ..config.settings import ImagesMode
from ..context.request import Request
from ..context.view import View, start_folding
from ..context.window import MIN_OUTPUT_TOKENS, LearnedWindow, Window, measure
from ..errors import RequestRejected, UsageError
from ..events import Ask, CallFinished, Emit, GivenAnswers, Notice, waiting
from ..models.base import Model, Reply, ReplyStream
from ..models.catalog import Limits, known_model
from ..permissions.approval import Approval
from ..permissions.rules import parse_rule
from ..security.planted import PlantedWatch
from ..session.checkpoints import Checkpoints
from ..session.entries import Assistant, Entry, Mask, Note, Revert, Summary
from ..session.ledger import Ledger
from ..session.log import Log
from ..session.searches import SEARCH_TOOL, WIRE_NAME
from ..session.store import AGENTS
from ..session.totals import Totals
from .budget import BudgetMeter
from .crash_recovery import KILLED_TOPIC, left_behind
from .file_changes import ChangeTracker
from .hooks import SessionHooks
from .model_call import stream_reply
from .person_questions import ask_person
from .plans import SessionPlan
from .resume import ResumeCache
from .skills import SessionSkills, SkillSource
from .startup import SessionSetup, StartupEntries
from .subagent_types import AgentType
from .tool_calls import Denial, ToolRunner
from .web_search import WebSearches

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers

MAX_WHY_CHARS = 200  # of a refusal, where it is told what was learned from it
DEFAULT_REPLY_TOKENS = 32_000  # asked for where no setting says otherwise


@dataclass
class AgentState:
    """The state of one conversation.

    `engine` is given by whoever puts the conversation together (`compaction_host.attach_engine`),
    and so are `skills` where there are any (`skills.attach_skills`).
    """

    log: Log
    view: View
    ledger: Ledger
    totals: Totals
    checkpoints: Checkpoints
    resume_cache: ResumeCache
    model: Model
    tools: Sequence[Tool[Any]]
    approval: Approval
    context: Context  # what the tools are handed
    emit: Emit
    ask: Ask | None  # None where no person can be asked
    setup: SessionSetup
    hooks: SessionHooks
    change_tracker: ChangeTracker | None = None
    planted: PlantedWatch | None = None  # shared by all conversations of a session
    policy: Policy = DEFAULT
    budget_meter: BudgetMeter = field(default_factory=BudgetMeter)
    max_tokens: int | None = None  # of a reply
    effort: str | None = None
    overload_wait: float | None = None  # seconds for which a turn asks an overloaded server again
    limits: Limits | None = None  # of the model; None until it was asked
    learned_window: LearnedWindow = field(default_factory=LearnedWindow)  # of the model, too
    denials: list[Denial] = field(default_factory=list)
    # takes out of a reply what must not be kept
    clean_reply: Callable[[ReplyStream], ReplyStream] = lambda stream: stream
    denials_told: int = 0  # how many of them the ends of turns have told of
    answers: GivenAnswers | None = None  # to questions of its own, given beforehand
    unrecorded_answers: list[str] = field(default_factory=list)
    turn_rules: list[str] = field(default_factory=list)  # rules that allow until the turn ends
    images_setting: ImagesMode = "auto"  # whether the model takes images
    mcp: "McpServers | None" = None  # of a conversation that is no subagent
    subagent_types: Sequence[AgentType] = ()  # that this conversation can start
    # When this process last asked each model with this conversation, in Unix time.
    last_calls: dict[str, float] = field(default_factory=dict)
    token_correction: float = 1.0  # the server's token count over our estimate
    engine: CompactionEngine = field(init=False)
    skills: SessionSkills = field(init=False)
    is_open: bool = False  # whether the entry that says who opened the session is recorded

    def __post_init__(self) -> None:
        self.skills = SessionSkills(self, SkillSource())
        self.web_searches = WebSearches(self)
        self.context.reaches_private = self._names_host
        self.context.ask_person = partial(ask_person, self)
        self.plan = SessionPlan(self)
        self.context.propose_plan = self.plan.propose
        self.startup = StartupEntries(self._startup_entries, self._record_at_startup)
        self.drift_monitor = DriftMonitor(
            self.record, lambda: self.emit, self.ledger, self._search_archive
        )

    @property
    def folder(self) -> Path:
        """The folder of the session."""
        return self.log.path.parent

    def record(self, entry: Entry) -> Entry:
        """Append an entry to the log and fold it in. Raises RecordError."""
        recorded = self.log.append(entry)
        if not isinstance(recorded, Revert):  # which needs `refold`
            self.view.add(recorded)
        for add in (self.ledger.add, self.totals.add, self.checkpoints.add, self.skills.tell_of):
            add(recorded)
        if isinstance(recorded, Summary):
            self.drift_monitor.arm(recorded)
            self.resume_cache.renew_aside()
        elif isinstance(recorded, Mask):
            self.drift_monitor.arm_after_mask(self.view.summary)
        return recorded

    def rebuild_view(self) -> None:
        """Fold the view again from the whole log, as after a revert."""
        self.view = start_folding(self.log.entries()).view

    async def begin(self) -> None:
        """Record what a session begins with, once. Raises RecordError."""
        await self.prepare()
        self.open()
        await self.look_around()

    async def prepare(self) -> None:
        """Wait for what the list of tools needs, once and before the session is opened."""
        if self.mcp is None or self.is_open:
            return
        with waiting(self.emit, "MCP servers that are needed from the start"):
            if self.ask is None:
                await self.mcp.wait_for(self.mcp.needed)
            loaded = await self.mcp.tools_at_start(self.view.tools)
        known = {tool.name for tool in self.tools}
        self.tools = [*self.tools, *(tool for tool in loaded if tool.name not in known)]

    def open(self) -> None:
        """Record who opened the session, once. Raises RecordError."""
        if not self.is_open:
            self.record(self.setup.session_entry(self.view, self.model.id, self.tools))
            self.is_open = True

    async def look_around(self) -> None:
        """Record what the session learns of its surroundings, once. Raises RecordError."""
        if not self.startup.is_over:
            with waiting(self.emit, "reading what the project says"):
                await self.startup.complete()
            await self.hooks.run("session_start", {})

    async def refresh_instructions(self) -> None:
        """Record what has changed in instruction files, and tell the user. Raises RecordError."""
        changes = await asyncio.to_thread(
            self.setup.changed_instructions, self.view, self.log.redact
        )
        for entry, told in changes:
            self.record(entry)
            self.emit(Notice("info", told))

    async def window(self) -> Window:
        """Return the context's size and level; ask the model for its limits at first use."""
        if self.limits is None:
            with waiting(self.emit, "asking how much the model takes"):
                self.limits = await self.model.limits()
        return self.current_window()

    def current_window(self) -> Window:
        """Return the context's size and level from what is known without asking the model."""
        size = (self.limits or self.model.assumed_limits()).window
        window = measure(self.view, self.learned_window.limit(size))
        return replace(window, tokens=round(window.tokens * self.token_correction))

    def least_window(self) -> int:
        """Return how many tokens the model's window has at least: those of the largest prompt that
        it took, or of the system prompt, the tools and a reply."""
        fixed = self.view.size - sum(item.size for item in self.view.items)
        return max(self.learned_window.accepted, self.view.scaled(fixed) + MIN_OUTPUT_TOKENS)

    def reply_room(self) -> int:
        """Return how many tokens the next reply may have; 0 when nothing fits."""
        limits = self.limits or self.model.assumed_limits()
        wanted = self.max_tokens or DEFAULT_REPLY_TOKENS
        if limits.source == "server" or known_model(self.model.id):  # the limit is no assumption
            wanted = min(wanted, limits.output)
        return self.current_window().max_output(wanted)

    async def ask_model(self, request: Request, emit: Emit, purpose: str) -> Reply:
        """Ask the model, pass its deltas to `emit` and record its reply, also one that is cut short
        by a cancellation. Raises ModelError and RecordError."""
        if purpose == "turn":
            self.last_calls[self.model.id] = time.time()
            request = replace(request, overload_wait=self.overload_wait)
        took_images = self.model.abilities.images
        try:
            return await stream_reply(
                self.model,
                request,
                lambda event: (self.emit if isinstance(event, Notice) else emit)(event),
                self._record_reply,
                purpose,
                ratio=self.view.ratio,
                clean=self.clean_reply,
            )
        except RequestRejected as refusal:
            is_new = took_images and not self.model.abilities.images
            if is_new and self.images_setting == "auto":
                why = refusal.message[:MAX_WHY_CHARS]
                text = f"{self.model.id} takes no images: requests go without from now on ({why})"
                self.emit(Notice("warning", text))
            raise

    def has_compaction(self) -> bool:
        """Tell whether the server can summarise this conversation by itself, as far as is known:
        not one in which an earlier block stands that it is sent as text."""
        can = self.model.abilities
        stands = self.view.summary is not None and self.view.summary.block is not None
        return can.makes_blocks and (can.takes_blocks or not stands)

    def takes_images(self) -> bool:
        """Tell whether the model takes images, by the setting, else as far as is known."""
        if self.images_setting != "auto":
            return self.images_setting == "on"
        return self.model.abilities.images

    def allow_for_turn(self, rules: Sequence[str], of: str) -> None:
        """Let rules allow calls until the turn ends; `of` says in warnings whose they are."""
        known = {rule for each in self.approval.rules().values() for rule in each}
        for text in rules:
            try:
                rule = str(parse_rule(text))
            except UsageError as error:
                self.emit(Notice("warning", f"{of}: allowed-tools: {error.message}"))
                continue
            if rule not in known:
                self.approval.allow_for_session(rule)
                self.turn_rules.append(rule)

    def tool_runner(self) -> ToolRunner:
        """Return what runs this conversation's tool calls."""
        return ToolRunner(
            tools=self._callable_tools(),
            approval=self.approval,
            context=self.context,
            policy=self.policy,
            record=self.record,
            next_seq=lambda: self.log.last_seq + 1,
            emit=self.emit,
            ask=self.ask,
            denials=self.denials,
            change_tracker=self.change_tracker,
            before_change=self.snapshot,
            run_hook=self.hooks.run if self.hooks.has_tool_hooks else None,
            planted=self.planted,
        )

    def _callable_tools(self) -> dict[str, Tool[Any]]:
        """Return the tools by the names that the model knows."""
        called = {SEARCH_TOOL: WIRE_NAME}
        return {called.get(tool.name, tool.name): tool for tool in self.tools}

    async def snapshot(self) -> None:
        """Record what the files are like before a turn changes them, once a turn."""
        if taken := await asyncio.to_thread(self.checkpoints.turn_snapshot):
            self.record(taken)
            if warning := self.checkpoints.missing_files_notice(taken):
                self.emit(Notice("warning", warning))

    async def finish(self) -> None:
        """Do what is due when the session ends in good order; to be called before `close`."""
        if self.is_open:
            await self.engine.finish()

    async def close(self) -> None:
        """End background jobs, close the model and let go of the session."""
        try:
            await self.leave()
        finally:
            await self.model.close()

    async def leave(self) -> None:
        """Do what `close` does, but leave the model open for another conversation."""
        try:
            await self.engine.close()
            await end_all(self.context.jobs, self.context.sandbox)
            if self.context.sandbox and self.log.path.parent.parent.name != AGENTS:
                await asyncio.to_thread(self.context.sandbox.remove_empty)
            if self.planted and (found := await asyncio.to_thread(self.planted.last)):
                self.emit(Notice("warning", found.notice))
            if self.change_tracker and self.log.path.parent.parent.name != AGENTS:
                self.change_tracker.close()
            await self.startup.close()
        finally:
            await finish_despite_cancel(asyncio.to_thread(self.resume_cache.leave, self.log))
            self.log.close()
        task = asyncio.current_task()
        cancelled = task and task.cancelling()  # `finish_despite_cancel` does not raise it
        if self.is_open and not cancelled:
            await self.hooks.run("session_end", {})

    def _names_host(self, tool: str, host: str) -> bool:
        """Tell whether a rule allows a tool this very host."""
        rules = self.approval.rules()
        return f"{tool}({host})" in (*rules["allow"], *rules["session"])

    def _record_at_startup(self, entry: Entry) -> Entry:
        recorded = self.record(entry)
        if not isinstance(entry, Note) or entry.topic != KILLED_TOPIC:
            return recorded
        if left := left_behind(entry, self.ledger.display_path):
            self.emit(Notice("warning", left))
        return recorded

    def _startup_entries(self) -> Sequence[Entry]:
        found = self.setup.startup_entries(self.view, self.ledger, self.tools, self.context.env)
        return [*found, *self.plan.first_entries(), *self.skills.first_entries()]

    def _search_archive(self, words: str) -> list[str]:
        passages = self.context.search(words, "session").passages
        return [f"{passage.ref} ({passage.what}): {passage.excerpt}" for passage in passages]

    def _record_reply(self, reply: Assistant) -> None:
        self.budget_meter.pay(reply.cost_usd or 0.0)
        self.record(reply)
        if reply.purpose == "turn":
            self.emit(CallFinished(reply.usage, reply.cost_usd, reply.stop_reason))
