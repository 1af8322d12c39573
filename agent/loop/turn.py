"""A turn: from a user message to the agent's final answer.

1. The message is recorded. Its images become attachments.
2. The context is compacted if needed, and the model is called.
3. Its reply is recorded. A reply that is empty, paused, repeated or cut off is continued, but only
   a few times in a row. A refusal ends the turn.
4. The tool calls of the reply are run, and each result is recorded. Messages that the user has sent
   meanwhile are recorded. Back to 2.
5. A reply without calls ends the turn. It must be an answer (`answers`).

The features (`loop.feature`) are called at each step. If a turn ends early (an interrupt, a limit,
an error of the model), the log stays valid and the agent accepts the next message.

A notice tells the user when a model has sent nothing of its reply for a long time. A server can
keep the connection open with pings, so nothing else would show that the run waits.
"""

import asyncio
import traceback
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from ...tools.system.phrasing import count_of, shorten
from ...tools.system.take_turn import finish_despite_cancel, take_turn
from ..compaction.layers import move
from ..context.request import PAUSED_STOP_REASON, build_request
from ..context.view import REPEATED
from ..errors import (
    CtxagentError,
    KeyRefused,
    LimitReached,
    ModelError,
    ModelUnavailable,
    RecordError,
    RequestRejected,
)
from ..events import CallStarted, Emit, Event, Notice, Retrying, TurnFinished, UserSaid
from ..launch import AttachedData
from ..lazy import dataclass
from ..models.base import Reply, text_of
from ..session.entries import Content, End, Note, User
from ..session.ledger import REFUSED
from ..session.store import content_text
from .agent import AgentState
from .answers import AnswerCheck
from .denials import denial_error
from .dialects import DialectReader
from .interface import IncomingMessage, Turn, Veto
from .ladder import Ladder, refusal_in
from .model_session import last_text
from .permission_mode import announce_mode
from .stuck import end_unless_allowed

QUIET_S = 60.0  # without a part of a reply, until the first notice


@contextmanager
def quiet_notices(emit: Emit) -> Iterator[Emit]:
    """Yield an `emit` for the parts of a reply. Emit a notice after QUIET_S without a part, and
    each time that this time has doubled.
    """
    loop = asyncio.get_running_loop()
    timers = list[asyncio.TimerHandle]()  # one, the newest

    def wait(delay: float, seconds: float) -> None:
        timers[:] = [loop.call_later(delay, tell, seconds)]

    def tell(seconds: float) -> None:
        emit(Notice("info", f"the model has sent nothing for {seconds:g} s, still waiting"))
        wait(seconds, 2 * seconds)

    def heard(event: Event) -> None:
        timers[0].cancel()
        pause = event.seconds if isinstance(event, Retrying) else 0.0
        wait(pause + QUIET_S, QUIET_S)
        emit(event)

    wait(QUIET_S, QUIET_S)
    try:
        yield heard
    finally:
        timers[0].cancel()


LONG_MESSAGE_CHARS = 4_096  # shorter messages are never moved to a file


async def _record_message(agent: AgentState, message: IncomingMessage) -> None:
    """Record a user message and show it. Images become attachments. A message that would fill the
    window is moved to a file, and a reference is recorded. Raises RecordError, and Veto if a
    feature rejects the message.
    """
    typed = message.content
    message = await agent.features.message_received(message)
    content, images = split_images(message.content)
    content = agent.log.redact(User(content=content)).content
    kept, offloaded = content, None
    if isinstance(content, str) and len(content) >= LONG_MESSAGE_CHARS:
        size, seq, folder = (await agent.model.window()).size, agent.log.last_seq + 1, agent.folder
        try:
            kept, offloaded = move.move_message(
                content,
                size=size,
                seq=seq,
                folder=folder,
                policy=agent.policy,
                offered=agent.context.offered,
            )
        except OSError as error:
            text = f"cannot save the message in {folder}: {error.strerror}"
            raise RecordError(text) from error
    details = {}
    if message.content != typed:  # by a feature
        details["typed"] = content_text(agent.log.redact(User(content=typed)).content)
    agent.record(
        User(content=kept, mid_turn=message.mid_turn, details=details, offloaded=offloaded)
    )
    agent.emit(UserSaid(content_text(content), message.mid_turn))
    attached, before = (*images, *message.attached), agent.log.last_seq
    await agent.features.message_recorded(
        IncomingMessage(content, attached, message.verbatim, message.mid_turn)
    )
    if attached and agent.log.last_seq == before:
        text = "the message was sent without its attachments: no active feature handles them"
        agent.emit(Notice("warning", text))


def split_images(words: Content) -> tuple[Content, list[AttachedData]]:
    """Return a message without its images, and the images as attachments. Attachments are limited
    and cleared like tool results.
    """
    blocks = words if isinstance(words, list) else []
    found = [b["source"] for b in blocks if b.get("type") == "image"]
    if not found:
        return words, []
    texts_only = [str(b.get("text", "")) for b in blocks if b.get("type") == "text"]
    data = [b64decode(str(source.get("data"))) for source in found]
    images = [AttachedData(each, title="an image", name="Image") for each in data]
    return "\n\n".join(texts_only) or f"[{count_of(len(images), 'image')}]", images


MAX_ODD_REPLIES = 3  # consecutive
MAX_REPEATED_CHARS = 300  # of a repeated text, in the notice

CONTINUE_CUT_REPLY = (
    "Your reply was cut off at the output limit of {limit:,} tokens. Go on exactly where it \
stopped. If you were writing a file, write it in smaller pieces."
)
CONTINUE_EMPTY_REPLY = "Your reply was empty. Go on with the task; if it is done, say what you did."
CONTINUE_REPEATED_REPLY = """\
Your reply was stopped because it repeated this text over and over:
{text}
Do not write it again. Go on with the task; if it is done, say what you did."""


@dataclass(slots=True)
class OddReplies:
    """The number of consecutive odd replies."""

    _count: int = 0

    def count(self, reply: Reply, notice: str | None) -> CtxagentError | None:
        """Count a reply that did not end the turn. `notice` is its continuation prompt. After too
        many, reset the count and return the error.
        """
        if any(block.get("type") == "tool_use" for block in reply.content):
            self._count = 0
        elif notice is not None:
            self._count += 1
        if self._count < MAX_ODD_REPLIES:
            return None
        self._count = 0
        if reply.stop_reason == "max_tokens":
            return LimitReached(
                f"{MAX_ODD_REPLIES} replies in a row were cut off at the output limit",
                limit="output",
                hint="Raise --max-tokens or ask for less at a time.",
            )
        if reply.stop_reason == REPEATED:
            return LimitReached(
                f"{MAX_ODD_REPLIES} replies in a row repeated the same text and were stopped",
                limit="loop",
                hint="Say what to do next, or choose another model.",
            )
        what = "were no answers" if text_of(reply.content).strip() else "were empty"
        what = "paused" if reply.stop_reason == PAUSED_STOP_REASON else what
        return CtxagentError(
            f"{MAX_ODD_REPLIES} replies in a row {what}", hint="Say what to do next."
        )


def continuation_prompt(reply: Reply) -> str | None:
    """Return a prompt to continue an unfinished reply. Return None for an answer, and "" to call
    the model again without a prompt.
    """
    if reply.stop_reason == PAUSED_STOP_REASON:
        return ""
    if reply.stop_reason == "max_tokens":
        return CONTINUE_CUT_REPLY.format(limit=reply.usage.output)
    if reply.stop_reason == REPEATED:
        return CONTINUE_REPEATED_REPLY.format(text=shorten(reply.repeats, MAX_REPEATED_CHARS))
    return None if text_of(reply.content).strip() else CONTINUE_EMPTY_REPLY


def raise_if_turn_ends(reply: Reply) -> None:
    """Raise an error for a reply that ends the turn. Its tool calls are not run."""
    if reply.stop_reason == "refusal":
        raise CtxagentError(
            "the model declined to answer (stop reason: refusal)",
            hint="Its reply is in the log but not in the context. Rephrase your message.",
        )


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
        agent.record_model()


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
    agent.emit(CallStarted(agent.model.budget_meter.call(), window.tokens))
    with quiet_notices(agent.emit) as emit:
        repeats = agent.features.reply_streamed
        reply = await agent.model.ask(request, "turn", emit, repeats, read)
    agent.model.token_correction = 1.0
    if not reply.usage.web_searches:  # each search counts the prompt again in the usage
        agent.model.accept(reply.usage.prompt, size)
    return reply


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
                await _record_message(agent, message(said, mid_turn=True))
            except Veto as veto:  # the turn continues without the message
                agent.emit(Notice("warning", f"your message was not sent: {veto.message}"))

    try:
        try:
            await agent.prepare()
        finally:
            agent.open()
        announce_mode(agent, agent.turn_mode)
        agent.turn_mode = agent.approval.mode
        if content is not None:
            await _record_message(agent, message(content, mid_turn=False))
        agent.model.token_correction = 1.0  # the estimate of the last turn may be wrong
        await agent.record_startup()
        agent.record_queued_messages()
        await agent.features.turn_started(Turn(schema))
        dialect = DialectReader(agent, takes_json=schema is None)
        text = await _until_answered(agent, record_next_message, dialect)
        unasked = agent.denials.unasked()
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
    agent.denials.end_turn()
    agent.turn_rules.end()
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
    answer_check = AnswerCheck(agent)
    while True:
        agent.model.budget_meter.check()
        if not is_paused:
            await record_next_message()
            await features.before_call()
        async with agent.edits.lock:
            reply = await ask_for_reply(agent, turn_start=is_first, read=dialect.read)
        is_first, is_paused = False, reply.stop_reason == PAUSED_STOP_REASON
        raise_if_turn_ends(reply)
        calls = [block for block in reply.content if block.get("type") == "tool_use"]
        notice = dialect.notice(reply)
        if not calls and notice is None:
            notice = continuation_prompt(reply)
        if not calls and notice is None:
            notice = answer_check.notice(reply)
        is_final = not calls and notice is None
        go_on = await features.reply_received(reply, is_final=is_final)
        if is_final and go_on is None:
            dialect.check_answer()
            answer_check.check(reply)
            return text_of(reply.content)
        if calls:
            await agent.runner.run(calls, reply.broken, cut=reply.stop_reason == "max_tokens")
            agent.record_queued_messages()
        if not is_final and (answer := await features.step_finished()) is not None:
            return answer
        if too_many := odd.count(reply, notice):
            await end_unless_allowed(agent, too_many)
        if told := go_on or notice:
            agent.record(User(content=told, source="notice"))


def _failed(agent: AgentState, error: Exception) -> TurnFinished:
    """Record the error that ended a turn. Internal errors are recorded with their traceback."""
    status: Literal["limit", "error"] = "limit" if isinstance(error, LimitReached) else "error"
    shown: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    data = dict(shown)
    is_full = isinstance(error, LimitReached) and error.limit == "context"
    if is_full or (isinstance(error, RequestRejected) and not isinstance(error, KeyRefused)):
        data[REFUSED] = True
    if not isinstance(error, CtxagentError | Veto):
        shown["message"] = f"internal error: {shown['type']}: {error}"
        data["traceback"] = traceback.format_exception(error)
    note = agent.log.redact(Note(topic="warning", text=shown["message"], data=data))
    agent.record(note)
    shown["message"] = note.text
    if isinstance(error, LimitReached):
        shown |= {"limit": error.limit, "value": error.value}
    return TurnFinished(status, last_text(agent.view.items), shown)
