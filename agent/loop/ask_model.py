"""Ask the model for the next reply of a turn."""

from ...tools.system.take_turn import take_turn
from ..context.request import build_request
from ..context.window import learn_from_refusal
from ..errors import LimitReached, ModelUnavailable, PromptTooLong, RequestRejected
from ..events import CallStarted, Notice
from ..models.base import Reply
from .agent import AgentState


async def ask_for_reply(agent: AgentState, *, turn_start: bool) -> Reply:
    """Compact if needed and ask the model for one reply.

    If the server refuses images, they are removed. If it refuses the prompt as too long, the
    context is shrunk, once. Then the request is repeated. If the server stays overloaded, the
    fallback model is used.
    """
    await take_turn()
    _switch_model(agent)
    await _fit_window(agent, turn_start=turn_start)
    first_size = 0  # tokens of the request that was too long
    while True:
        try:
            return await _send_request(agent)
        except ModelUnavailable as error:
            takes_over, told = agent.model.roles.take_over(agent.model.id, error)
            if not takes_over:
                raise
            if told:
                agent.emit(Notice("warning", told))
            _switch_model(agent)
            await _fit_window(agent, turn_start=False)
        except RequestRejected as error:
            if agent.engine.drop_refused_images(error):
                if agent.model.takes_images():
                    agent.emit(Notice("info", f"retrying without images: {error.message}"))
                continue
            if await agent.features.request_refused(error):
                continue
            if not isinstance(error, PromptTooLong):
                raise
            if first_size:
                raise _too_long_error(agent, error, first_size) from error
            first_size = agent.model.current_window().tokens
            await _shrink_context(agent, error)


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


async def _send_request(agent: AgentState) -> Reply:
    window = await agent.model.window()
    request = build_request(
        agent.view,
        model=agent.model.id,
        max_tokens=agent.model.reply_room(),
        effort=agent.model.effort,
        stable_before=agent.engine.stable_before(),
    )
    agent.emit(CallStarted(agent.handle.budget_meter.call(), window.tokens))
    reply = await agent.model.ask(request, "turn", agent.emit, agent.features.reply_streamed)
    agent.model.token_correction = 1.0
    if reply.usage.web_searches:
        return reply  # each search counts the prompt again in the usage
    if wrong := agent.model.learned_window.accept(reply.usage.prompt):
        text = f"a request of {reply.usage.prompt:,} tokens was accepted: the window is larger "
        agent.emit(Notice("info", f"{text}than the assumed {wrong:,} tokens"))
    return reply


async def _shrink_context(agent: AgentState, refusal: PromptTooLong) -> None:
    """Shrink the context below a prompt that the server refused. Use the window size in the refusal
    if it is plausible and a request fits into it. Raises LimitReached if nothing can be removed.
    """
    before, size_before = agent.model.current_window(), agent.view.size
    size, correction = learn_from_refusal(
        before, refusal.tokens, refusal.maximum, least=agent.model.least_window()
    )
    agent.model.learned_window.size = size
    agent.model.token_correction *= correction
    learned = f"the window is {size:,} tokens" if size else "the window is smaller than assumed"
    if refusal.maximum and not size:
        learned = f"the server's window size of {refusal.maximum:,} tokens is not plausible"
    agent.emit(Notice("info", f"the prompt was too long; {learned}"))
    try:
        await agent.engine.force_fit()
    except LimitReached as error:
        agent.model.token_correction = 1.0
        if agent.view.size >= size_before:
            raise _too_long_error(agent, refusal, before.tokens) from error
        agent.model.learned_window.forget()


def _too_long_error(agent: AgentState, refusal: PromptTooLong, first_size: int) -> LimitReached:
    """Return the error for a prompt that is refused even at its smallest. Forget the learned window
    size, so that the next turn starts without it.
    """
    agent.model.learned_window.forget()
    agent.model.token_correction = 1.0
    tokens = agent.model.current_window().tokens
    tried = f"reduced from about {first_size:,} tokens to {tokens:,}, it was refused again"
    if tokens >= first_size:
        tried = f"its {tokens:,} tokens (estimated) could not be reduced"
    return LimitReached(
        f"the server refused the request as too long; {tried}. The server said: {refusal.message}",
        limit="context",
        hint="Send another message; nothing is lost. If it is refused too, start with an empty "
        "context (/clear) or choose a model with a larger window (/model).",
    )
