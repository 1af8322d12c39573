"""A turn: ask, record, execute, record.

1. The user's words are recorded before anything else.
2. The request is made from the view, and the model is asked.
3. Its reply is recorded.
4. The calls in it are executed, each result recorded as it finishes; back to 2.
5. A reply without calls ends the turn.

Whatever ends a turn early (an interrupt, a limit, an error of the model) leaves the log whole and
the loop ready for the next words.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from ..tools.base import Context, Tool
from ..tools.job import end_all
from .approval import Approval
from .context.view import View
from .context.window import Window, measure
from .context.wire import wire
from .errors import CtxagentError, LimitReached, ModelError, RecordError
from .events import (
    Accepted,
    Ask,
    CallFinished,
    CallStarted,
    Emit,
    Retrying,
    TextDelta,
    TurnFinished,
    UserSaid,
)
from .execution import Denial, Execution
from .launch import Bounds
from .model.base import UNKNOWN, Limits, Model, Reply, cost
from .record.entries import Assistant, Content, End, Entry, Note, Usage, User
from .record.log import Log
from .record.sessions import plain
from .record.totals import Totals
from .settings import DemoteSettings

PATIENCE = 3  # replies in a row that are neither an answer nor a call
OUTPUT = 32_000  # tokens of reply asked for where no setting says otherwise

CUT = "Your reply was cut off at the output limit of {limit:,} tokens. Go on exactly where it \
stopped. If you were writing a file, write it in smaller pieces."
EMPTY = "Your reply was empty. Go on with the task; if it is done, say what you did."


@dataclass
class Loop:
    """One conversation. All that happens in it goes through `record` and `emit`.

    `opening` gives the entries that stand before the first words of a session (environment,
    instructions); it is called once, at the first turn.
    """

    log: Log
    view: View
    totals: Totals
    model: Model
    tools: Sequence[Tool[Any]]
    approval: Approval
    context: Context
    emit: Emit
    ask: Ask | None
    demotion: DemoteSettings
    opening: Callable[[], Sequence[Entry]]
    bounds: Bounds = field(default_factory=Bounds)
    max_tokens: int | None = None
    effort: str | None = None
    limits: Limits | None = None
    denials: list[Denial] = field(default_factory=list)
    _calls: int = 0
    _spent: float = 0.0
    _opened: bool = False

    def record(self, entry: Entry) -> Entry:
        """Append an entry to the log and fold it in. Raises RecordError."""
        recorded = self.log.append(entry)
        self.view.add(recorded)
        self.totals.add(recorded)
        return recorded

    async def turn(self, words: Content) -> TurnFinished:
        """From the user's words to the final answer.

        Errors of the model and limits end the turn and are told in the result; cancelling the
        task does too. Raises RecordError alone: when nothing can be recorded, nothing may go on.
        """
        try:
            if not self._opened:
                for entry in await asyncio.to_thread(self.opening):
                    self.record(entry)
                self._opened = True
            self.record(User(content=words))
            self.emit(UserSaid(plain(words)))
            denied = len(self.denials)
            text = await self._until_answered()
            unasked = [d for d in self.denials[denied:] if not d.asked]
            finished = TurnFinished("denied" if unasked else "ok", text, _denied(unasked))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
            finished = TurnFinished("interrupted", self._last_text())
        except RecordError:
            raise
        except CtxagentError as error:
            status: Literal["limit", "error"] = (
                "limit" if isinstance(error, LimitReached) else "error"
            )
            told = {"type": type(error).__name__, "message": str(error)}
            finished = TurnFinished(status, self._last_text(), told)
            self.record(Note(topic="warning", text=str(error), data=told))
        self.record(End(status=finished.status, reason=(finished.error or {}).get("message", "")))
        self.log.sync()
        self.emit(finished)
        return finished

    async def window(self) -> Window:
        """The context's size and level now; asks the model for its limits at first use."""
        if self.limits is None:
            self.limits = await self.model.limits()
        return self.measured()

    async def close(self) -> None:
        """End background jobs, close the model and let go of the session."""
        await end_all(self.context.jobs)
        await self.model.close()
        self.log.close()

    def measured(self) -> Window:
        """As `window`, from what is known without asking."""
        return measure(self.view, (self.limits or UNKNOWN).window)

    async def _until_answered(self) -> str:
        odd = 0
        while True:
            reply = await self._call()
            calls = [b for b in reply.content if b.get("type") == "tool_use"]
            if calls:
                await self._execute(calls, reply)
                odd = 0
                continue
            notice = self._missing(reply)
            if notice is None:
                return text_of(reply.content)
            odd += 1
            if odd >= PATIENCE:
                raise _gave_up(reply)
            if notice:
                self.record(User(content=notice, source="notice"))

    async def _call(self) -> Reply:
        """One request, its deltas told as they come, its reply recorded."""
        self._within_bounds()
        window = await self.window()
        assert self.limits is not None
        room = window.output(self.max_tokens or min(OUTPUT, self.limits.output))
        if not room:
            raise LimitReached(
                f"the context holds {window.tokens:,} of {window.size:,} tokens: no room for a "
                "reply",
                limit="context",
                hint="Start a fresh session; everything said stays in the log.",
            )
        request = wire(self.view, model=self.model.id, max_tokens=room, effort=self.effort)
        self._calls += 1
        self.emit(CallStarted(self._calls, window.tokens))
        usage, said = Usage(), ""
        try:
            async with aclosing(self.model.stream(request)) as stream:
                async for delta in stream:
                    if isinstance(delta, Reply):
                        self._record_reply(delta)
                        return delta
                    if isinstance(delta, Accepted):
                        usage = Usage.from_json(delta.usage)
                    elif isinstance(delta, TextDelta):
                        said += delta.text
                    elif isinstance(delta, Retrying):
                        said = ""
                    self.emit(delta)
        except asyncio.CancelledError:
            if said or usage.prompt:
                content = [{"type": "text", "text": said}] if said else []
                self._record_reply(Reply(content, "interrupted", usage, self.model.id))
            raise
        raise ModelError("the model ended its stream without a reply", hint="Try again.")

    def _record_reply(self, reply: Reply) -> None:
        dollars = cost(reply.model, reply.usage)
        self._spent += dollars or 0.0
        self.record(
            Assistant(
                content=reply.content,
                usage=reply.usage.to_json(),
                stop_reason=reply.stop_reason,
                model=reply.model,
                message_id=reply.message_id,
                cost_usd=dollars,
                broken=reply.broken,
            )
        )
        self.emit(CallFinished(reply.usage.to_json(), dollars, reply.stop_reason))

    async def _execute(self, calls: list[dict[str, Any]], reply: Reply) -> None:
        execution = Execution(
            tools={tool.name: tool for tool in self.tools},
            approval=self.approval,
            context=self.context,
            demotion=self.demotion,
            record=self.record,
            next_seq=lambda: self.log.last_seq + 1,
            emit=self.emit,
            ask=self.ask,
            denials=self.denials,
        )
        await execution.run(calls, reply.broken, reply.stop_reason == "max_tokens")

    def _within_bounds(self) -> None:
        """Raises LimitReached before a call that this run may not make."""
        if self.bounds.calls is not None and self._calls >= self.bounds.calls:
            raise LimitReached(
                f"the limit of {self.bounds.calls} model calls is reached",
                limit="turns",
                hint="Go on with `ctxagent --continue` and a higher --max-turns.",
            )
        if self.bounds.dollars is not None and self._spent >= self.bounds.dollars:
            raise LimitReached(
                f"the budget of ${self.bounds.dollars:g} is spent (${self._spent:.4f})",
                limit="budget",
                hint="Go on with `ctxagent --continue` and a higher --max-budget-usd.",
            )

    def _missing(self, reply: Reply) -> str | None:
        """What a reply without calls still lacks: None when it is an answer, else words that ask
        for the rest, or "" to call again as it stands."""
        if reply.stop_reason == "refusal":
            raise CtxagentError(
                "the model declined to answer (stop reason: refusal)",
                hint="Its reply is in the log but not in the context. Say it in other words.",
            )
        if reply.stop_reason == "model_context_window_exceeded":
            raise LimitReached(
                "the model's context window is full",
                limit="context",
                hint="Start a fresh session; everything said stays in the log.",
            )
        if reply.stop_reason == "pause_turn":
            return ""
        if reply.stop_reason == "max_tokens":
            return CUT.format(limit=reply.usage.output)
        return None if text_of(reply.content).strip() else EMPTY

    def _last_text(self) -> str:
        """The newest words of the model in this turn."""
        for item in reversed(self.view.items):
            if item.role == "assistant" and (text := text_of(item.blocks)):
                return text
            if item.role == "user" and any(b.get("type") == "text" for b in item.blocks):
                break
        return ""


def text_of(blocks: list[dict[str, Any]]) -> str:
    return "".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


def _denied(denials: Sequence[Denial]) -> dict[str, str] | None:
    if not denials:
        return None
    lines = [f"{d.tool} {d.title}: {d.reason}; allow it with --allow '{d.rule}'" for d in denials]
    return {"type": "PermissionDenied", "message": "\n".join(dict.fromkeys(lines))}


def _gave_up(reply: Reply) -> CtxagentError:
    if reply.stop_reason == "max_tokens":
        return LimitReached(
            f"{PATIENCE} replies in a row were cut off at the output limit",
            limit="output",
            hint="Raise --max-tokens or ask for less at a time.",
        )
    what = "paused" if reply.stop_reason == "pause_turn" else "were empty"
    return CtxagentError(f"{PATIENCE} replies in a row {what}", hint="Say what to do next.")
