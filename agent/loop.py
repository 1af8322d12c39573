"""A turn: ask, record, execute, record.

1. The user's words are recorded before anything else.
2. The request is made from the view, and the model is asked.
   Before each request the engine makes the context small enough.
3. Its reply is recorded.
4. The calls in it are executed, each result recorded as it finishes; back to 2.
5. A reply without calls ends the turn.

Whatever ends a turn early (an interrupt, a limit, an error of the model) leaves the log whole and
the loop ready for the next words.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..tools.base import Context, Tool
from ..tools.job import end_all
from .alignment import Alignment
from .approval import Approval
from .arrival import Arrival
from .compaction import moving, truncate
from .compaction.engine import Engine
from .compaction.host import Purpose, Said
from .compaction.policy import DEFAULT, Policy
from .compaction.preserve import Section, sections
from .context.view import View, fold
from .context.window import Window, learned, measure
from .context.wire import Request, wire
from .errors import CtxagentError, LimitReached, PromptTooLong, RecordError
from .events import Ask, CallFinished, CallStarted, Emit, Notice, TurnFinished, UserSaid, waiting
from .execution import Denial, Execution, denied
from .model.base import CACHE_LIFE, Limits, Model, Reply, cache_prices, cost, known
from .record.checkpoints import Checkpoints
from .record.entries import (
    Assistant,
    Checkpoint,
    Content,
    End,
    Entry,
    Note,
    Revert,
    Summary,
    Usage,
    User,
)
from .record.ledger import Ledger
from .record.log import Log
from .record.sessions import plain
from .record.totals import Totals
from .replies import PATIENCE, check_ending, gave_up, heard, last_text, missing, text_of
from .resumption import Resumption
from .spending import Spending
from .unbroken import unbroken

if TYPE_CHECKING:
    from .agents import AgentType
    from .changes import Watch
    from .hooks import Hook

MANY = 4_096  # characters of words from which on it matters how large the window is
OUTPUT = 32_000  # tokens of reply asked for where no setting says otherwise


@dataclass
class Loop:
    """One conversation. All that happens in it goes through `record` and `emit`.

    `opening` gives the entry that says who opened the session, `surroundings` what a new one begins
    with: both are called once, at the first turn, the second in a thread. The rest is as
    `compaction.host` says.
    """

    log: Log
    view: View
    ledger: Ledger
    totals: Totals
    checkpoints: Checkpoints
    resumption: Resumption
    model: Model
    tools: Sequence[Tool[Any]]
    approval: Approval
    context: Context
    emit: Emit
    ask: Ask | None
    opening: Callable[[], Entry]
    surroundings: Callable[[], Sequence[Entry]]
    renewal: Callable[[], Sequence[Entry]]
    hook: Callable[[str, dict[str, Any]], Awaitable[str | None]]
    checkpoint: Callable[[str], Awaitable[Checkpoint | None]]
    watch: "Watch | None" = None
    tool_hook: "Hook | None" = None
    policy: Policy = DEFAULT
    spending: Spending = field(default_factory=Spending)
    max_tokens: int | None = None
    effort: str | None = None
    limits: Limits | None = None
    denials: list[Denial] = field(default_factory=list)
    types: "Sequence[AgentType]" = ()  # of the subagents that it can start
    _opened: bool = False
    _called: float | None = None  # when the model was last asked, in this process
    _short: float = 1.0  # how much larger the server found the newest prompt than we did

    def __post_init__(self) -> None:
        self.engine = Engine(self, self.policy)
        self.arrival = Arrival(lambda: self.surroundings(), self.record)
        self.alignment = Alignment(self.record, lambda: self.emit, self.ledger, self._archived)

    def record(self, entry: Entry) -> Entry:
        """Append an entry to the log and fold it in. Raises RecordError."""
        recorded = self.log.append(entry)
        if not isinstance(recorded, Revert):  # which needs `refold`
            self.view.add(recorded)
        for fold_of in (self.ledger.add, self.totals.add, self.checkpoints.seen):
            fold_of(recorded)
        if isinstance(recorded, Summary):
            self.alignment.arm(recorded)
            self.resumption.renew_aside()
        return recorded

    def refold(self) -> None:
        """Fold the view again from the whole log, as after a revert."""
        self.view = fold(self.log.entries())

    async def turn(self, words: Content) -> TurnFinished:
        """From the user's words to the final answer.

        Errors of the model and limits end the turn and are told in the result; cancelling the
        task does too. Raises RecordError alone: when nothing can be recorded, nothing may go on.
        """
        try:
            self._open()
            words = self.log.redact(User(content=words)).content
            self.record(User(content=await self._offered(words)))
            self.emit(UserSaid(plain(words)))
            self.alignment.heard(plain(words))
            self._short = 1.0  # what a server said once does not close the session
            await self._look_around()
            before = len(self.denials)
            text = await self._until_answered()
            unasked = [d for d in self.denials[before:] if not d.asked]
            finished = TurnFinished("denied" if unasked else "ok", text, denied(unasked))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
            finished = TurnFinished("interrupted", last_text(self.view.items))
        except RecordError:
            raise
        except Exception as error:  # also a fault of our own must leave the session usable
            finished = self._failed(error)
        self.record(End(status=finished.status, reason=(finished.error or {}).get("message", "")))
        self.log.sync()
        self.alignment.turn_ended()
        self.emit(finished)
        return finished

    async def begin(self) -> None:
        """Record what a session begins with, for what comes before its first turn."""
        self._open()
        await self._look_around()

    def _open(self) -> None:
        if not self._opened:
            self.record(self.opening())
            self._opened = True

    async def _look_around(self) -> None:
        if not self.arrival.is_over:
            with waiting(self.emit, "reading what the project says"):
                await self.arrival.complete()
            await self.hook("session_start", {})

    def _failed(self, error: Exception) -> TurnFinished:
        """How a turn ends that an error ended; recorded, with the traceback of a fault of ours."""
        status: Literal["limit", "error"] = "limit" if isinstance(error, LimitReached) else "error"
        told = {"type": type(error).__name__, "message": str(error)}
        data: dict[str, Any] = dict(told)
        if not isinstance(error, CtxagentError):
            told["message"] = f"a fault of ctxagent's own: {told['type']}: {error}"
            data["traceback"] = traceback.format_exception(error)
        note = self.log.redact(Note(topic="warning", text=told["message"], data=data))
        self.record(note)
        told["message"] = note.text
        return TurnFinished(status, last_text(self.view.items), told)

    async def _offered(self, words: Content) -> Content:
        """The words, or a reference to a file that holds them when they would fill the window."""
        if not isinstance(words, str) or len(words) < MANY:
            return words
        size = (await self.window()).size
        seq = self.log.last_seq + 1
        try:
            return moving.words(words, size=size, seq=seq, folder=self.folder, policy=self.policy)
        except OSError as error:
            told = f"cannot keep the words in {self.folder}: {error.strerror}"
            raise RecordError(told) from error

    async def window(self) -> Window:
        """The context's size and level now; asks the model for its limits at first use."""
        if self.limits is None:
            with waiting(self.emit, "asking how much the model takes"):
                self.limits = await self.model.limits()
        return self.measured()

    async def finish(self) -> None:
        """What is done when the session ends in good order; before `close`."""
        if self._opened:
            await self.engine.finish()

    async def close(self) -> None:
        """End background jobs, close the model and let go of the session."""
        try:
            await self.leave()
        finally:
            await self.model.close()

    async def leave(self) -> None:
        """As `close`, where the model is still needed elsewhere."""
        try:
            await self.engine.close()
            await end_all(self.context.jobs, self.context.sandbox)
            await self.arrival.close()
        finally:
            await unbroken(asyncio.to_thread(self.resumption.leave, self.log))
            self.log.close()
        task = asyncio.current_task()
        if self._opened and not (task and task.cancelling()):  # which `unbroken` does not pass on
            await self.hook("session_end", {})

    def measured(self) -> Window:
        """As `window`, from what is known without asking."""
        window = measure(self.view, (self.limits or self.model.supposed()).window)
        return Window(round(window.tokens * self._short), window.size)

    def reply_room(self) -> int:
        """Tokens that the next reply may have; 0 when nothing fits."""
        limits, wanted = self.limits or self.model.supposed(), self.max_tokens or OUTPUT
        if limits.source == "server" or known(self.model.id):  # no mere supposition
            wanted = min(wanted, limits.output)
        return self.measured().output(wanted)

    # What the engine asks of its host.

    @property
    def folder(self) -> Path:
        return self.log.path.parent

    @property
    def model_id(self) -> str:
        return self.model.id

    def sync(self) -> None:
        self.log.sync()

    def digest(self, path: str) -> str | None:
        return truncate.digest(path)

    def sections(self) -> Sequence[Section]:
        cwd, rules, size = self.context.cwd, self.policy.rules, self.measured().size
        return sections(cwd, rules, self.ledger, self.ledger.phase, size)

    def _archived(self, words: str) -> list[str]:
        passages = self.context.search(words, "session").passages
        return [f"{passage.ref} ({passage.what}): {passage.excerpt}" for passage in passages]

    def recall(self, ref: int) -> str | None:
        return self.context.recall(ref)

    def prices(self) -> tuple[float, float]:
        return cache_prices(self.model.id)

    def cold(self) -> bool:
        asked = self._called or self.totals.replied_at
        return asked is None or time.time() - asked > CACHE_LIFE

    def price(self, read: int, written: int) -> float | None:
        return cost(self.model.id, Usage(cache_read=read, output=written))

    def cleared(self, words: str) -> str:
        return plain(self.log.redact(User(content=words)).content)

    async def ask_aside(self, request: Request, purpose: Purpose = "summary") -> Said:
        reply = await self._answered(request, lambda event: None, purpose)
        return Said(text_of(reply.content), reply.stop_reason, cost(reply.model, reply.usage))

    async def _until_answered(self) -> str:
        odd, start = 0, True
        while True:
            reply = await self._call(turn_start=start)
            start = False
            check_ending(reply)
            calls = [b for b in reply.content if b.get("type") == "tool_use"]
            notice = None if calls else missing(reply)
            final = not calls and notice is None
            drifts = self.alignment.noticed(reply.content, final=final)
            if final and (not drifts or self.spending.is_spent):
                return text_of(reply.content)
            if calls:
                await self.execution().run(calls, reply.broken, reply.stop_reason == "max_tokens")
                odd = 0
            await self.alignment.realign(drifts)
            if notice is None:
                continue
            odd += 1
            if odd >= PATIENCE:
                raise gave_up(reply)
            if notice:
                self.record(User(content=notice, source="notice"))

    async def _call(self, *, turn_start: bool) -> Reply:
        """One request, its deltas told as they come, its reply recorded. When the server finds
        the prompt too long, the engine makes it smaller, once, and it is asked again."""
        self.spending.check()
        await self.window()
        await self.engine.before_call(turn_start=turn_start)
        try:
            return await self._ask()
        except PromptTooLong as error:
            self._learn(error)
            await self.engine.fit()
            return await self._ask()

    async def _ask(self) -> Reply:
        window = await self.window()
        request = wire(
            self.view,
            model=self.model.id,
            max_tokens=self.reply_room(),
            effort=self.effort,
            settled=self.engine.settled(),
        )
        self.emit(CallStarted(self.spending.call(), window.tokens))
        reply = await self._answered(request, self.emit, "turn")
        self._short = 1.0
        return reply

    def _learn(self, error: PromptTooLong) -> None:
        """What the server says of its window, and of our count, is true where it can be."""
        size, short = learned(self.measured(), error.tokens, error.maximum)
        if size:
            before = self.limits or self.model.supposed()
            self.limits = replace(before, window=size, source="server")
        self._short *= short
        told = f"{size:,} tokens" if size else "smaller than thought"
        self.emit(Notice("info", f"the prompt was too long; the window is {told}"))

    async def _answered(self, request: Request, tell: Emit, purpose: str) -> Reply:
        """The reply to a request, recorded; cancelled, what there was of it."""
        self._called = time.time()
        return await heard(self.model, request, tell, self._record_reply, purpose)

    def _record_reply(self, reply: Assistant) -> None:
        self.spending.pay(reply.cost_usd or 0.0)
        self.record(reply)
        if reply.purpose == "turn":
            self.emit(CallFinished(reply.usage, reply.cost_usd, reply.stop_reason))

    def execution(self) -> Execution:
        """What runs tools here."""
        return Execution(
            tools={tool.name: tool for tool in self.tools},
            approval=self.approval,
            context=self.context,
            policy=self.policy,
            record=self.record,
            next_seq=lambda: self.log.last_seq + 1,
            emit=self.emit,
            ask=self.ask,
            denials=self.denials,
            watch=self.watch,
            before_change=self.snapshot,
            hook=self.tool_hook,
        )

    async def snapshot(self) -> None:
        """Record what the files are like before a turn changes them, once a turn."""
        if taken := await asyncio.to_thread(self.checkpoints.turn):
            self.record(taken)
            if told := self.checkpoints.untold(taken):
                self.emit(Notice("warning", told))
