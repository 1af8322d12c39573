"""A turn: from the person's words to the agent's final answer.

1. The words are recorded before anything else.
2. The compaction engine makes the context small enough; the request is made from the view, and the
   model is asked.
3. Its reply is recorded.
4. The tool calls in it are run, each result recorded as it finishes; words that the person has for
   the agent by then are recorded behind them; back to 2.
5. A reply without calls ends the turn.

Whatever ends a turn early (an interrupt, a limit, an error of the model) leaves the log whole and
the agent ready for the next words.
"""

import asyncio
import traceback
from collections.abc import Callable
from typing import Any, Literal

from ..compaction.layers import demote
from ..context.request import PAUSED_STOP_REASON, build_request
from ..context.window import learn_from_refusal
from ..errors import (
    CtxagentError,
    LimitReached,
    PromptTooLong,
    RecordError,
    RequestRejected,
    ResultError,
)
from ..events import CallStarted, Notice, TurnFinished, UserSaid
from ..models.base import Reply
from ..session.entries import Content, End, Note, User
from ..session.store import content_text
from .agent import AgentState
from .attachments import AttachedTo, attach, split_images
from .model_call import last_text, text_of
from .person_questions import record_answers
from .plans import announce_planning
from .result_schema import NOTICE, AnswerCheck, ResultSchema
from .run_state import RunContinuation
from .tool_calls import Denial, denial_error

MAX_ODD_REPLIES = 3  # replies in a row that are neither an answer nor a call
LONG_WORDS_CHARS = 4_096  # from here on it matters how large the window is

CONTINUE_CUT_REPLY = (
    "Your reply was cut off at the output limit of {limit:,} tokens. Go on exactly where it \
stopped. If you were writing a file, write it in smaller pieces."
)
CONTINUE_EMPTY_REPLY = "Your reply was empty. Go on with the task; if it is done, say what you did."

NextWords = Callable[[], Content | None]  # takes the person's next words, None where there are none


async def run_turn(
    agent: AgentState,
    words: Content | None,
    next_words: NextWords = lambda: None,
    attached_to: AttachedTo = lambda words: (),
    schema: ResultSchema | None = None,
) -> TurnFinished:
    """Run one turn and return how it ended; without `words` go on with the one that was cut.

    Before each call of the model `next_words` is asked for what the person has said meanwhile;
    `attached_to` says what they bring in beside their words; the answer is to fit `schema`.
    Errors of the model and limits end the turn and are named in the result; cancelling the task
    ends it as interrupted. Raises RecordError alone: when nothing can be recorded, nothing may go
    on.
    """
    try:
        try:
            await agent.prepare()
        finally:
            agent.open()
        if words is not None:
            await _hear(agent, words, attached_to)
        agent.token_correction = 1.0  # what a server said once does not close the session
        await agent.look_around()
        await agent.refresh_instructions()
        await agent.skills.refresh()
        agent.plan.record_pending()
        announce_planning(agent)
        record_answers(agent)
        text = await _until_answered(agent, next_words, attached_to, _answer_check(agent, schema))
        unasked = _unasked_denials(agent)
        finished = TurnFinished("denied" if unasked else "ok", text, denial_error(unasked))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        finished = TurnFinished("interrupted", last_text(agent.view.items))
    except RecordError:
        raise
    except Exception as error:  # also a fault of our own must leave the session usable
        finished = _failed(agent, error)
    agent.denials_told = len(agent.denials)
    while agent.turn_rules:
        agent.approval.revoke(agent.turn_rules.pop())
    agent.record(End(status=finished.status, reason=(finished.error or {}).get("message", "")))
    agent.log.sync()
    agent.drift_monitor.turn_ended()
    agent.emit(finished)
    return finished


def _failed(agent: AgentState, error: Exception) -> TurnFinished:
    """Record the error that ended a turn, a fault of our own with its traceback."""
    status: Literal["limit", "error"] = "limit" if isinstance(error, LimitReached) else "error"
    shown = {"type": type(error).__name__, "message": str(error)}
    data: dict[str, Any] = dict(shown)
    if not isinstance(error, CtxagentError):
        shown["message"] = f"internal error: {shown['type']}: {error}"
        data["traceback"] = traceback.format_exception(error)
    note = agent.log.redact(Note(topic="warning", text=shown["message"], data=data))
    agent.record(note)
    shown["message"] = note.text
    return TurnFinished(status, last_text(agent.view.items), shown)


async def _hear(
    agent: AgentState, words: Content, attached_to: AttachedTo, *, mid_turn: bool = False
) -> None:
    """Record the person's words, with what they bring in beside them, and tell of them."""
    words, pictures = split_images(words)
    words = agent.log.redact(User(content=words)).content
    kept, offloaded = await _shortened_words(agent, words)
    agent.record(User(content=kept, mid_turn=mid_turn, offloaded=offloaded))
    agent.emit(UserSaid(content_text(words), mid_turn))
    await attach(agent, [*pictures, *await asyncio.to_thread(attached_to, words)])
    agent.drift_monitor.hear(content_text(words))


async def _shortened_words(agent: AgentState, words: Content) -> tuple[Content, str | None]:
    """Return the message and None, or a reference to a file with the message and that file, when
    the message would fill the window."""
    if not isinstance(words, str) or len(words) < LONG_WORDS_CHARS:
        return words, None
    size, seq = (await agent.window()).size, agent.log.last_seq + 1
    try:
        return demote.demote_words(
            words, size=size, seq=seq, folder=agent.folder, policy=agent.policy
        )
    except OSError as error:
        raise RecordError(f"cannot keep the words in {agent.folder}: {error.strerror}") from error


async def _until_answered(
    agent: AgentState, next_words: NextWords, attached_to: AttachedTo, answers: AnswerCheck
) -> str:
    """Call the model and run its tool calls until it answers; return the answer."""
    odd_replies, turn_start, paused = 0, True, False
    run = RunContinuation(agent.context.cwd, agent.policy.rules)
    while True:
        agent.budget_meter.check()
        while not paused and (words := next_words()) is not None:
            await _hear(agent, words, attached_to, mid_turn=True)
        if not paused and (untold := answers.untold(agent.view)):
            agent.record(User(content=untold, source=NOTICE))
        reply = await _call_model(agent, turn_start=turn_start)
        turn_start, paused = False, reply.stop_reason == PAUSED_STOP_REASON
        raise_if_turn_ends(reply)
        calls = [b for b in reply.content if b.get("type") == "tool_use"]
        notice = None if calls else continuation_prompt(reply)
        final = not calls and notice is None
        drifts = agent.drift_monitor.check_reply(reply.content, final=final)
        if final and (agent.budget_meter.is_spent or not drifts):
            go_on = await _after_answer(agent, run, text_of(reply.content), answers)
            if go_on is None:
                return text_of(reply.content)
            agent.record(User(content=go_on, source=NOTICE))
        if calls:
            run.work()
            await agent.tool_runner().run(calls, reply.broken, reply.stop_reason == "max_tokens")
            agent.plan.record_pending()
            agent.skills.record_requested()
            record_answers(agent)
            plan = agent.plan.take_result()
            if plan and answers.schema is None:
                return plan
            odd_replies = 0
        await agent.drift_monitor.realign(drifts)
        if notice is None:
            continue
        odd_replies += 1
        if odd_replies >= MAX_ODD_REPLIES:
            raise too_many_odd_replies(reply)
        if notice:
            agent.record(User(content=notice, source=NOTICE))


def _answer_check(agent: AgentState, schema: ResultSchema | None) -> AnswerCheck:
    """Return what holds the answers of a turn against a schema."""
    told = agent.log.redact(User(content=schema.told)).content if schema else ""
    return AnswerCheck(schema, content_text(told))


async def _after_answer(
    agent: AgentState, run: RunContinuation, text: str, answers: AnswerCheck
) -> str | None:
    """Return what is said to a final text so that the turn goes on, None where that was the answer.
    Raises ResultError for an answer that does not fit, unless a denial already says why."""
    if not agent.budget_meter.is_spent and (go_on := await _go_on_with_run(agent, run, text)):
        agent.emit(Notice("info", "a run is on: it goes on without asking"))
        return go_on
    try:
        go_on = answers.retry_words(text)
    except ResultError:
        if _unasked_denials(agent):
            return None
        raise
    if go_on is not None:
        agent.emit(Notice("info", "the answer does not fit the schema: asking again"))
    return go_on


def _unasked_denials(agent: AgentState) -> list[Denial]:
    """Return the denials of this turn about which nobody could be asked."""
    return [denial for denial in agent.denials[agent.denials_told :] if not denial.asked]


async def _go_on_with_run(agent: AgentState, run: RunContinuation, text: str) -> str | None:
    """Return what answers a final question after a summary while a run is on. After a denial in
    this turn, the question may be about it, so the user answers."""
    denied = len(agent.denials) > agent.denials_told
    if agent.view.summary is None or agent.approval.mode == "plan" or denied:
        return None
    return await run.answer(text)


async def _call_model(agent: AgentState, *, turn_start: bool) -> Reply:
    """Make the context small enough and ask the model for one reply.

    When the server refuses images, the engine takes them out; when it finds the prompt too long,
    the engine makes it smaller, once. Then the model is asked again.
    """
    await agent.window()
    try:
        await agent.engine.before_call(turn_start=turn_start)
    except LimitReached:
        if agent.learned_window.forget() is None:
            raise  # otherwise only the server can say whether that size was true
    first_size = 0  # tokens of the request that was refused as too long
    while True:
        try:
            return await _send_request(agent)
        except RequestRejected as error:
            if agent.engine.drop_refused_images(error):
                if agent.takes_images():
                    agent.emit(Notice("info", f"asking again without images: {error.message}"))
                continue
            if await agent.web_searches.take_out(error):
                continue
            if not isinstance(error, PromptTooLong):
                raise
            if first_size:
                raise _too_long_again(agent, error, first_size) from error
            first_size = agent.current_window().tokens
            await _make_smaller(agent, error)


async def _send_request(agent: AgentState) -> Reply:
    window = await agent.window()
    request = build_request(
        agent.view,
        model=agent.model.id,
        max_tokens=agent.reply_room(),
        effort=agent.effort,
        stable_before=agent.engine.stable_before(),
    )
    agent.emit(CallStarted(agent.budget_meter.call(), window.tokens))
    reply = await agent.ask_model(request, agent.emit, "turn")
    agent.token_correction = 1.0
    if reply.usage.web_searches:
        return reply  # whose usage counts the prompt several times
    if wrong := agent.learned_window.accept(reply.usage.prompt):
        text = f"a request of {reply.usage.prompt:,} tokens was accepted: the window is no longer "
        agent.emit(Notice("info", f"{text}taken to be {wrong:,} tokens"))
    return reply


async def _make_smaller(agent: AgentState, refusal: PromptTooLong) -> None:
    """Make the context smaller than one that the server refused; believe the window that the
    server names where it can be true, until nothing fits in it. Raises LimitReached when nothing
    could be made smaller."""
    before, size_before = agent.current_window(), agent.view.size
    size, correction = learn_from_refusal(
        before, refusal.tokens, refusal.maximum, least=agent.least_window()
    )
    agent.learned_window.size = size
    agent.token_correction *= correction
    learned = f"the window is {size:,} tokens" if size else "the window is smaller than thought"
    if refusal.maximum and not size:
        learned = f"a window of {refusal.maximum:,} tokens, as the server says, is not believed"
    agent.emit(Notice("info", f"the prompt was too long; {learned}"))
    try:
        await agent.engine.force_fit()
    except LimitReached as error:
        agent.token_correction = 1.0
        if agent.view.size >= size_before:
            raise _too_long_again(agent, refusal, before.tokens) from error
        agent.learned_window.forget()


def _too_long_again(agent: AgentState, refusal: PromptTooLong, first_size: int) -> LimitReached:
    """Return the error for a prompt that is refused as too long as small as it can be. What the
    server said of its window is forgotten, so that the next turn begins afresh."""
    agent.learned_window.forget()
    agent.token_correction = 1.0
    tokens = agent.current_window().tokens
    tried = f"made smaller, from about {first_size:,} tokens to {tokens:,}, it was refused again"
    if tokens >= first_size:
        tried = f"nothing in its {tokens:,} tokens or so could be made smaller"
    return LimitReached(
        f"the server finds the request too long; {tried}. The server said: {refusal.message}",
        limit="context",
        hint="Your next words are tried afresh, and nothing recorded is lost. If they are refused "
        "too: /clear begins with an empty context, /model takes a model with a larger window.",
    )


def continuation_prompt(reply: Reply) -> str | None:
    """Return words that ask for the rest of an unfinished reply.

    None when the reply is an answer, "" to call again as it stands.
    """
    if reply.stop_reason == PAUSED_STOP_REASON:
        return ""
    if reply.stop_reason == "max_tokens":
        return CONTINUE_CUT_REPLY.format(limit=reply.usage.output)
    return None if text_of(reply.content).strip() else CONTINUE_EMPTY_REPLY


def raise_if_turn_ends(reply: Reply) -> None:
    """Raise for a reply that ends the turn whatever else is in it: its calls are not run."""
    if reply.stop_reason == "refusal":
        raise CtxagentError(
            "the model declined to answer (stop reason: refusal)",
            hint="Its reply is in the log but not in the context. Say it in other words.",
        )
    if reply.stop_reason == "model_context_window_exceeded":
        raise LimitReached(
            "the model's context window is full",
            limit="context",
            hint="/compact makes room; everything said stays in the log.",
        )


def too_many_odd_replies(reply: Reply) -> CtxagentError:
    if reply.stop_reason == "max_tokens":
        return LimitReached(
            f"{MAX_ODD_REPLIES} replies in a row were cut off at the output limit",
            limit="output",
            hint="Raise --max-tokens or ask for less at a time.",
        )
    what = "paused" if reply.stop_reason == PAUSED_STOP_REASON else "were empty"
    return CtxagentError(f"{MAX_ODD_REPLIES} replies in a row {what}", hint="Say what to do next.")
