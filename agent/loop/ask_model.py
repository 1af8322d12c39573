"""Ask the model for the next reply of a turn."""

from collections.abc import Callable
from dataclasses import replace

from ...tools.system.take_turn import take_turn
from ..context.request import build_request
from ..errors import LimitReached, ModelError, ModelUnavailable, RequestRejected
from ..events import CallStarted, Notice
from ..models.base import Reply
from .agent import AgentState
from .ladder import Ladder, refusal_in
from .quiet_reply import quiet_notices


async def ask_for_reply(
    agent: AgentState, *, turn_start: bool, read: Callable[[Reply], Reply] = lambda reply: reply
) -> Reply:
    """Compact if needed and ask the model for one reply. It is recorded as `read` returns it.

    A refused request is repeated in other forms (`ladder`). If the server stays overloaded, the
    fallback model is used. Raises ModelError and LimitReached.
    """
    await take_turn()
    _switch_model(agent)
    await _fit_window(agent, turn_start=turn_start)
    ladder = Ladder(agent)
    while True:
        try:
            reply = await _send_request(agent, ladder, read)
            error: ModelError | None = refusal_in(reply)
        except ModelUnavailable as failure:
            takes_over, told = agent.model.roles.take_over(agent.model.id, failure)
            if takes_over:
                if told:
                    agent.emit(Notice("warning", told))
                _switch_model(agent)
                await _fit_window(agent, turn_start=False)
                continue
            error = failure
        except RequestRejected as refusal:
            error = refusal
        if error is None:
            ladder.accepted()
            return reply
        if not await ladder.climb(error):
            raise ladder.failure(error) from error


def _switch_model(agent: AgentState) -> None:
    """Switch to the model that should answer now, and record the change. Raises RecordError and
    UsageError.
    """
    due = agent.model.roles.due(agent.approval.mode)
    if agent.model.client is not due:
        agent.model.change(due)
        agent.handle.record_model()


async def _fit_window(agent: AgentState, *, turn_start: bool) -> None:
    """Compact the context for the current model if needed."""
    await agent.model.window()
    try:
        await agent.engine.before_call(turn_start=turn_start)
    except LimitReached:
        if agent.model.learned_window.forget() is None:
            raise
        # The learned size may be wrong, so the server decides.


async def _send_request(agent: AgentState, ladder: Ladder, read: Callable[[Reply], Reply]) -> Reply:
    window = await agent.model.window()
    request = build_request(
        agent.view,
        model=agent.model.id,
        max_tokens=agent.model.reply_room(),
        effort=agent.model.effort,
        stable_before=agent.engine.stable_before(),
    )
    request = replace(
        request, failed_attempts=ladder.failed_attempts, same_failures=ladder.same_failures
    )
    size = agent.view.size
    agent.emit(CallStarted(agent.handle.budget_meter.call(), window.tokens))
    with quiet_notices(agent.emit) as emit:
        repeats = agent.features.reply_streamed
        reply = await agent.model.ask(request, "turn", emit, repeats, read)
    agent.model.token_correction = 1.0
    if not reply.usage.web_searches:  # each search counts the prompt again in the usage
        agent.model.accept(reply.usage.prompt, size)
    return reply
