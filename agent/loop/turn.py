"""A turn: from the person's words to the agent's final answer.

1. The words are recorded before anything else.
2. The compaction engine makes the context small enough; the request is made from the view, and the
   model is asked.
3. Its reply is recorded.
4. The tool calls in it are run, each result recorded as it finishes; back to 2.
5. A reply without calls ends the turn.

Whatever ends a turn early (an interrupt, a limit, an error of the model) leaves the log whole and
the agent ready for the next words.
"""

import asyncio
import traceback
from dataclasses import replace
from typing import Any, Literal

from ..compaction.layers import demote
from ..context.request import build_request
from ..context.window import learn_from_refusal
from ..errors import CtxagentError, LimitReached, PromptTooLong, RecordError, RequestRejected
from ..events import CallStarted, Notice, TurnFinished, UserSaid
from ..models.base import Reply
from ..session.entries import Content, End, Note, User
from ..session.store import content_text
from .agent import Agent
from .model_call import last_text, text_of
from .run_state import RunContinuation
from .tool_calls import denial_error

MAX_ODD_REPLIES = 3  # replies in a row that are neither an answer nor a call
LONG_WORDS_CHARS = 4_096  # from here on it matters how large the window is

CONTINUE_CUT_REPLY = (
    "Your reply was cut off at the output limit of {limit:,} tokens. Go on exactly where it \
stopped. If you were writing a file, write it in smaller pieces."
)
CONTINUE_EMPTY_REPLY = "Your reply was empty. Go on with the task; if it is done, say what you did."


async def run_turn(agent: Agent, words: Content) -> TurnFinished:
    """Run one turn and return how it ended.

    Errors of the model and limits end the turn and are named in the result; cancelling the task
    ends it as interrupted. Raises RecordError alone: when nothing can be recorded, nothing may go
    on.
    """
    try:
        agent.open()
        words = agent.log.redact(User(content=words)).content
        agent.record(User(content=await _shortened_words(agent, words)))
        agent.emit(UserSaid(content_text(words)))
        agent.drift_monitor.hear(content_text(words))
        agent.token_correction = 1.0  # what a server said once does not close the session
        await agent.look_around()
        denials_before = len(agent.denials)
        text = await _until_answered(agent)
        unasked = [d for d in agent.denials[denials_before:] if not d.asked]
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
    agent.record(End(status=finished.status, reason=(finished.error or {}).get("message", "")))
    agent.log.sync()
    agent.drift_monitor.turn_ended()
    agent.emit(finished)
    return finished


def _failed(agent: Agent, error: Exception) -> TurnFinished:
    """Record the error that ended a turn, a fault of our own with its traceback."""
    status: Literal["limit", "error"] = "limit" if isinstance(error, LimitReached) else "error"
    shown = {"type": type(error).__name__, "message": str(error)}
    data: dict[str, Any] = dict(shown)
    if not isinstance(error, CtxagentError):
        shown["message"] = f"a fault of ctxagent's own: {shown['type']}: {error}"
        data["traceback"] = traceback.format_exception(error)
    note = agent.log.redact(Note(topic="warning", text=shown["message"], data=data))
    agent.record(note)
    shown["message"] = note.text
    return TurnFinished(status, last_text(agent.view.items), shown)


async def _shortened_words(agent: Agent, words: Content) -> Content:
    """Return the words, or a reference to a file with them when they would fill the window."""
    if not isinstance(words, str) or len(words) < LONG_WORDS_CHARS:
        return words
    size, seq = (await agent.window()).size, agent.log.last_seq + 1
    try:
        return demote.demote_words(
            words, size=size, seq=seq, folder=agent.folder, policy=agent.policy
        )
    except OSError as error:
        raise RecordError(f"cannot keep the words in {agent.folder}: {error.strerror}") from error


async def _until_answered(agent: Agent) -> str:
    """Call the model and run its tool calls until it answers; return the answer."""
    odd_replies, turn_start = 0, True
    run = RunContinuation(agent.context.cwd, agent.policy.rules)
    while True:
        reply = await _call_model(agent, turn_start=turn_start)
        turn_start = False
        raise_if_turn_ends(reply)
        calls = [b for b in reply.content if b.get("type") == "tool_use"]
        notice = None if calls else continuation_prompt(reply)
        final = not calls and notice is None
        drifts = agent.drift_monitor.check_reply(reply.content, final=final)
        if final and agent.budget_meter.is_spent:
            return text_of(reply.content)
        if final and not drifts:
            go_on = await _go_on_with_run(agent, run, text_of(reply.content))
            if go_on is None:
                return text_of(reply.content)
            agent.record(User(content=go_on, source="notice"))
            agent.emit(Notice("info", "a run is on: it goes on without asking"))
        if calls:
            run.work()
            await agent.tool_runner().run(calls, reply.broken, reply.stop_reason == "max_tokens")
            odd_replies = 0
        await agent.drift_monitor.realign(drifts)
        if notice is None:
            continue
        odd_replies += 1
        if odd_replies >= MAX_ODD_REPLIES:
            raise too_many_odd_replies(reply)
        if notice:
            agent.record(User(content=notice, source="notice"))


async def _go_on_with_run(agent: Agent, run: RunContinuation, text: str) -> str | None:
    """Return what answers a final text after a summary that only asks whether a run goes on."""
    if agent.view.summary is None or agent.approval.mode == "plan":
        return None
    return await run.answer(text, [words for _, words in agent.ledger.words])


async def _call_model(agent: Agent, *, turn_start: bool) -> Reply:
    """Make the context small enough and ask the model for one reply.

    When the server refuses images, the engine takes them out; when it finds the prompt too long,
    the engine makes it smaller, once. Then the model is asked again.
    """
    agent.budget_meter.check()
    await agent.window()
    await agent.engine.before_call(turn_start=turn_start)
    forced = False
    while True:
        try:
            return await _send_request(agent)
        except RequestRejected as error:
            if agent.engine.drop_refused_images(error):
                agent.emit(Notice("info", f"asking again without images: {error.message}"))
                continue
            if forced or not isinstance(error, PromptTooLong):
                raise
            _learn_window(agent, error)
            await agent.engine.force_fit()
            forced = True


async def _send_request(agent: Agent) -> Reply:
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
    return reply


def _learn_window(agent: Agent, error: PromptTooLong) -> None:
    """Adopt the server's reported window and token count where they are plausible."""
    size, correction = learn_from_refusal(agent.current_window(), error.tokens, error.maximum)
    if size:
        before = agent.limits or agent.model.assumed_limits()
        agent.limits = replace(before, window=size, source="server")
    agent.token_correction *= correction
    window = f"{size:,} tokens" if size else "smaller than thought"
    agent.emit(Notice("info", f"the prompt was too long; the window is {window}"))


def continuation_prompt(reply: Reply) -> str | None:
    """Return words that ask for the rest of an unfinished reply.

    None when the reply is an answer, "" to call again as it stands.
    """
    if reply.stop_reason == "pause_turn":
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
    what = "paused" if reply.stop_reason == "pause_turn" else "were empty"
    return CtxagentError(f"{MAX_ODD_REPLIES} replies in a row {what}", hint="Say what to do next.")
