"""Standard input from a program that controls a run: messages in order, answers,
interrupts.

A thread reads the lines, so that an interrupt is handled at any time; the event loop does the rest.
Line length and queue size are limited. A rejected line is answered with an `error` line and has no
other effect.
"""

import asyncio
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ...tools.system.files import read_next
from ..errors import UsageError
from ..events import Answer, Question
from ..session.entries import Content
from .stream_messages import (
    AnswerMessage,
    BadLine,
    InputMessage,
    InterruptMessage,
    UserMessage,
    read_message,
)

MAX_LINE_BYTES = 32 << 20
MAX_WAITING = 1_000  # messages
MAX_WAITING_BYTES = 128 << 20
READ_BYTES = 1 << 18  # at a time


class StreamInput:
    """The input from file descriptor `number`. `write` sends a line back. `interrupt` ends the
    running turn and returns True if there was one.
    """

    def __init__(
        self, number: int, write: Callable[[dict[str, Any]], None], interrupt: Callable[[], bool]
    ) -> None:
        self._number, self._write, self._interrupt = number, write, interrupt
        self._waiting: deque[UserMessage] = deque()
        self._questions: dict[str, tuple[Question, asyncio.Future[Answer | None]]] = {}
        self._asked = 0
        self._has_ended = False
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Start reading; lines are handled in the running event loop."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True, name="stdin").start()

    def add(self, content: Content) -> None:
        """Add a message that does not come from the program."""
        self._waiting.append(UserMessage(content))
        self._changed.set()

    @property
    def is_over(self) -> bool:
        """Whether the input has ended and no message is queued."""
        return self._has_ended and not self._waiting

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    async def next(self) -> Content | None:
        """Wait for the next message; None at the end."""
        while not self._waiting:
            if self._has_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popleft().content

    def next_mid_turn(self) -> Content | None:
        """Remove and return the next message for the running turn, or None."""
        found = next((each for each in self._waiting if each.steers), None)
        if found is None:
            return None
        self._waiting.remove(found)
        return found.content

    async def ask(self, question: Question) -> Answer | None:
        """Ask the program a question and return its answer; None if its input has ended."""
        if (settled := question.settled()) is not None:
            return settled
        if self._has_ended:
            return None
        self._asked += 1
        id = f"q{self._asked}"
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._questions[id] = (question, answer)
        try:
            self._write(_question_line(id, question))
            return await answer
        finally:
            del self._questions[id]

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop has ended
            for number, line in bounded_lines(self._number):
                found: InputMessage | BadLine
                try:
                    if line is None:
                        raise BadLine(
                            f"it has more than {MAX_LINE_BYTES >> 20} MiB",
                            "Put it into a file, and name that with @ in the message.",
                        )
                    found = read_message(line)
                except BadLine as error:
                    found = error
                loop.call_soon_threadsafe(self._take, number, found)
            loop.call_soon_threadsafe(self._end)

    def _take(self, number: int, found: InputMessage | BadLine) -> None:
        """Handle a line, or report what is wrong with it."""
        try:
            if isinstance(found, BadLine):
                raise found
            if isinstance(found, UserMessage):
                self._queue(found)
            elif isinstance(found, AnswerMessage):
                self._answer(found)
            elif isinstance(found, InterruptMessage) and not self._interrupt():
                raise BadLine("no turn is running", "Send a message first.")
        except BadLine as error:
            told = {"message": str(error), "hint": error.hint}
            self._write({"type": "error", "line": number, **told})

    def _queue(self, message: UserMessage) -> None:
        size = message.size + sum(each.size for each in self._waiting)
        if len(self._waiting) >= MAX_WAITING or size > MAX_WAITING_BYTES:
            raise BadLine("too many messages are queued", "Wait for a result, then send it again.")
        self._waiting.append(message)
        self._changed.set()

    def _answer(self, given: AnswerMessage) -> None:
        if given.id not in self._questions:
            open_ids = ", ".join(self._questions) or "none"
            raise BadLine(
                f"no open question has the id {given.id!r}",
                f"Give the id of a `question` line; open ones: {open_ids}.",
            )
        question, answer = self._questions[given.id]
        if not answer.done():
            answer.set_result(_checked(given, question))
        for other, waiting in self._questions.values():  # the new rule may settle other questions
            if not waiting.done() and (settled := other.settled()) is not None:
                waiting.set_result(settled)

    def _end(self) -> None:
        self._has_ended = True
        self._changed.set()
        for _, answer in self._questions.values():
            if not answer.done():
                answer.set_result(None)


def _checked(given: AnswerMessage, question: Question) -> Answer:
    """Return the answer if it fits the question. Raises BadLine."""
    count = len(question.form)
    if given.allow and len(given.words) != count:
        raise BadLine(
            f"the question needs {count} words, but got {len(given.words)}",
            'Give "words" with a text for each question of the form.'
            if count
            else 'Give "allow" alone.',
        )
    if question.plan and given.allow:
        return _plan_approval(given, question)
    if not (given.allow and given.rule):
        return Answer(given.allow, "" if given.allow else given.reason, words=given.words)
    try:
        question.check(given.rule)
    except UsageError as error:
        raise BadLine(f"the rule cannot be added: {error.message}", error.hint) from None
    return Answer(True, rule=given.rule, where="session")


def _plan_approval(given: AnswerMessage, question: Question) -> Answer:
    """Return the answer that accepts a plan. Raises BadLine."""
    if given.mode and given.mode not in question.modes:
        modes = ", ".join(question.modes)
        raise BadLine(
            f"the plan cannot be carried out in the mode {given.mode}", f"One of {modes}."
        )
    try:
        question.check(given.plan or question.plan)
    except UsageError as error:
        raise BadLine(error.message, error.hint) from None
    return Answer(True, plan=given.plan, mode=given.mode)


def _question_line(id: str, question: Question) -> dict[str, Any]:
    form = [
        {
            "question": each.text,
            "choices": [{"label": label, "description": more} for label, more in each.choices],
            "multiple": each.multiple,
        }
        for each in question.form
    ]
    return {
        "type": "question",
        "id": id,
        "tool": question.tool,
        "title": question.title,
        "input": dict(question.input),
        "reason": question.reason,
        "rule": question.rule,
        "offers": list(question.offers),
        "diff": question.diff,
        "agent": question.agent,
        "form": form,
        "plan": question.plan,
        "modes": list(question.modes),
    }


def bounded_lines(number: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line) for each line that is not blank; None as the line if it is
    too long. Blocks.
    """
    buffer, count, too_long = bytearray(), 1, False
    while True:
        part = read_next(number, READ_BYTES)
        *whole, rest = part.split(b"\n") if part else (b"", b"")
        for each in whole:
            buffer += each
            if too_long or len(buffer) > MAX_LINE_BYTES:
                yield count, None
            elif buffer.strip():
                yield count, bytes(buffer)
            buffer.clear()
            count, too_long = count + 1, False
        if not part:
            return
        buffer += rest
        if len(buffer) > MAX_LINE_BYTES:
            buffer.clear()
            too_long = True


def call_when_reader_goes(number: int, act: Callable[[], None]) -> None:
    """Call `act` in the running event loop once the reader of a pipe or socket is gone."""
    loop, poll = asyncio.get_running_loop(), select.poll()
    poll.register(number, 0)  # 0: errors and hang-ups are always reported

    def wait() -> None:
        poll.poll()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(act)

    threading.Thread(target=wait, daemon=True, name="stdout").start()
