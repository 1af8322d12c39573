"""A turn: from a user message to the agent's final answer.

1. The message is recorded.
2. The context is compacted if needed, and the model is called.
3. Its reply is recorded.
4. The tool calls of the reply are run, and each result is recorded. Messages that the user has sent
   meanwhile are recorded. Back to 2.
5. A reply without calls ends the turn.

The features (`loop.feature`) are called at each step. If a turn ends early (an interrupt, a limit,
an error of the model), the log stays valid and the agent accepts the next message.
"""

import asyncio
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ...tools.system.tasks import finish_despite_cancel
from ..context.request import PAUSED_STOP_REASON
from ..errors import CtxagentError, KeyRefused, LimitReached, RecordError, RequestRejected
from ..events import Notice, TurnFinished
from ..models.base import text_of
from ..session.entries import Content, End, Note, User
from ..session.ledger import REFUSED
from .agent import AgentState
from .ask_model import ask_for_reply
from .denials import denial_error
from .dialects import DialectReader
from .feature import IncomingMessage, Turn, Veto
from .model_call import last_text
from .odd_replies import OddReplies, continuation_prompt, raise_if_turn_ends
from .permission_mode import announce_mode
from .stuck import end_unless_allowed
from .user_messages import record_message

NextMessage = Callable[[], Content | None]  # takes the user's next message, if any


async def run_turn(
    agent: AgentState,
    content: Content | None,
    next_message: NextMessage = lambda: None,
    *,
    attached: Sequence[Any] = (),
    verbatim: bool = False,
    schema: Any = None,
) -> TurnFinished:
    """Run a turn and return how it ended. Without `content`, continue an interrupted turn.

    `next_message` is called before each model call. `attached` belongs to the first message.
    `verbatim` messages were not typed by the user. `schema` is the JSON schema of the answer. Model
    errors, limits and cancellations end the turn and are returned in the result. Raises only
    RecordError, since nothing may continue unrecorded.
    """

    def message(content: Content, *, mid_turn: bool) -> IncomingMessage:
        return IncomingMessage(content, () if mid_turn else attached, verbatim, mid_turn)

    async def record_next_message() -> None:
        while (said := next_message()) is not None:
            try:
                await record_message(agent, message(said, mid_turn=True))
            except Veto as veto:  # the turn continues without the message
                agent.emit(Notice("warning", f"your message was not sent: {veto.message}"))

    try:
        try:
            await agent.prepare()
        finally:
            agent.open()
        announce_mode(agent.handle, agent.turn_mode)
        agent.turn_mode = agent.approval.mode
        if content is not None:
            await record_message(agent, message(content, mid_turn=False))
        agent.model.token_correction = 1.0  # the estimate of the last turn may be wrong
        await agent.record_startup()
        agent.handle.record_queued_messages()
        await agent.features.turn_started(Turn(schema))
        dialect = DialectReader(agent, takes_json=schema is None)
        text = await _until_answered(agent, record_next_message, dialect)
        unasked = agent.handle.denials.unasked()
        finished = TurnFinished("denied" if unasked else "ok", text, denial_error(unasked))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        finished = TurnFinished("interrupted", last_text(agent.view.items))
    except RecordError:
        raise
    except Exception as error:  # the session must stay usable after a bug
        finished = _failed(agent, error)
    agent.handle.denials.end_turn()
    agent.handle.turn_rules.end()
    agent.record(End(status=finished.status, reason=(finished.error or {}).get("message", "")))
    await finish_despite_cancel(asyncio.to_thread(agent.log.sync))  # it waits for the disk
    await agent.features.turn_ended(finished)
    agent.emit(finished)
    return finished


async def _until_answered(
    agent: AgentState, record_next_message: Callable[[], Any], dialect: DialectReader
) -> str:
    """Call the model and run its tool calls until it answers. Return the answer."""
    features, odd, is_paused, is_first = agent.features, OddReplies(), False, True
    while True:
        agent.handle.budget_meter.check()
        if not is_paused:
            await record_next_message()
            await features.before_call()
        reply = await ask_for_reply(agent, turn_start=is_first, read=dialect.read)
        is_first, is_paused = False, reply.stop_reason == PAUSED_STOP_REASON
        raise_if_turn_ends(reply)
        calls = [block for block in reply.content if block.get("type") == "tool_use"]
        notice = dialect.notice(reply)
        if not calls and notice is None:
            notice = continuation_prompt(reply)
        is_final = not calls and notice is None
        go_on = await features.reply_received(reply, is_final=is_final)
        if is_final and go_on is None:
            dialect.check_answer()
            return text_of(reply.content)
        if calls:
            await agent.runner.run(calls, reply.broken, cut=reply.stop_reason == "max_tokens")
            agent.handle.record_queued_messages()
        if not is_final and (answer := await features.step_finished()) is not None:
            return answer
        if too_many := odd.count(reply, notice):
            await end_unless_allowed(agent.handle, too_many)
        if told := go_on or notice:
            agent.record(User(content=told, source="notice"))


def _failed(agent: AgentState, error: Exception) -> TurnFinished:
    """Record the error that ended a turn. Internal errors are recorded with their traceback."""
    status: Literal["limit", "error"] = "limit" if isinstance(error, LimitReached) else "error"
    shown = {"type": type(error).__name__, "message": str(error)}
    data: dict[str, Any] = dict(shown)
    is_full = isinstance(error, LimitReached) and error.limit == "context"
    if is_full or (isinstance(error, RequestRejected) and not isinstance(error, KeyRefused)):
        data[REFUSED] = True
    if not isinstance(error, CtxagentError | Veto):
        shown["message"] = f"internal error: {shown['type']}: {error}"
        data["traceback"] = traceback.format_exception(error)
    note = agent.log.redact(Note(topic="warning", text=shown["message"], data=data))
    agent.record(note)
    shown["message"] = note.text
    return TurnFinished(status, last_text(agent.view.items), shown)
