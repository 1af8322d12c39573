"""The input of a program that controls a run with `--input-format stream-json`.

Each line is a JSON object: a user message (one turn), an answer to a question, an interrupt, or a
request about the context. A message has the form `{"type": "user", "text": "…"}`, or has a Messages
API message in `message`.

A thread reads the lines, so that an interrupt is handled at any time; the event loop does the rest.
Line length and queue size are limited. A rejected line is answered with an `error` line and has no
other effect.
"""

import asyncio
import binascii
import dataclasses
import json
import re
import select
import threading
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ...tools import image as images
from ...tools.system.files import read_next
from ...tools.system.phrasing import shorten
from ..errors import CtxagentError, UsageError
from ..events import AgentStarted, Answer, Event, Question
from ..lazy import dataclass
from ..session.entries import Content
from .context_control import ContextRequest, read_request


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as a JSON object; its type is the event's name in snake case."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    fields = dataclasses.asdict(event)
    if isinstance(event, AgentStarted):
        fields["agent_type"] = fields.pop("type")
    return {"type": name, **fields}


def question_json(question: Question) -> dict[str, Any]:
    """Return a question as a JSON object, without the parts that only this process can use."""
    form = [
        {
            "question": each.text,
            "choices": [{"label": label, "description": more} for label, more in each.choices],
            "multiple": each.multiple,
        }
        for each in question.form
    ]
    return {
        "tool": question.tool,
        "title": question.title,
        "input": dict(question.input),
        "reason": question.reason,
        "effects": list(question.effects),
        "rule": question.rule,
        "offers": list(question.offers),
        "diff": question.diff,
        "agent": question.agent,
        "form": form,
        "plan": question.plan,
        "modes": list(question.modes),
    }


MAX_NAME_CHARS = 60  # of an invalid value shown in an error
TYPES_HINT = (
    'Send {"type": "user", "text": "…"}, {"type": "answer", …}, {"type": "interrupt"} or '
    '{"type": "context", …}.'
)
IMAGE_HINT = (
    'Give an image as {"type": "image", "source": {"type": "base64", "media_type": "image/png", '
    '"data": "…"}}: PNG, JPEG, GIF or WebP.'
)


_ANSWER_TEXTS = ("id", "reason", "rule", "plan", "mode")


class BadLine(ValueError):
    """An invalid line; `hint` is the next step."""

    def __init__(self, message: str, hint: str = TYPES_HINT) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A user message: a new turn, or with `steers` an addition to the running turn, if any."""

    content: Content
    steers: bool = False
    size: int = 0  # bytes of its line


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """An answer to the question `id`."""

    id: str
    allow: bool
    reason: str = ""  # sent to the model with a refusal
    rule: str = ""  # permission rule to allow for the rest of the session
    words: tuple[str, ...] = ()  # one answer per question of a form
    plan: str = ""  # the accepted plan; "" for the proposed one
    mode: str = ""  # permission mode for the plan; "" for the current one


@dataclass(frozen=True, slots=True)
class InterruptMessage:
    """A request to end the running turn."""


InputMessage = UserMessage | AnswerMessage | InterruptMessage | ContextRequest


def read_message(line: bytes) -> InputMessage:
    """Parse a line. Raises BadLine."""
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise BadLine(f"it is not JSON: {shorten(str(error), 200)}") from None
    if not isinstance(found, dict):
        raise BadLine("it is not a JSON object")
    kind = found.get("type")
    if kind == "user":
        return UserMessage(_content(found), _flag(found, "steer"), len(line))
    if kind == "answer":
        return _answer(found)
    if kind == "interrupt":
        return InterruptMessage()
    if kind == "context":
        try:
            return read_request(found)
        except UsageError as error:
            raise BadLine(error.message, error.hint) from None
    raise BadLine(f"unknown type {_shown(kind)}")


def _answer(found: Mapping[str, Any]) -> AnswerMessage:
    words = found.get("words", [])
    if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
        hint = 'For example {"type": "answer", "id": "q1", "words": ["red"]}.'
        raise BadLine("words is not a list of strings", hint)
    allow = _flag(found, "allow", default=bool(words) or None)
    texts = {name: _text(found.get(name, ""), name) for name in _ANSWER_TEXTS}
    return AnswerMessage(
        allow=allow, words=tuple(_without_surrogates(each) for each in words), **texts
    )


def _flag(found: Mapping[str, Any], name: str, *, default: bool | None = False) -> bool:
    value = found.get(name, default)
    if not isinstance(value, bool):
        raise BadLine(f"{name} is not true or false", f'Give "{name}": true or false.')
    return value


def _content(found: Mapping[str, Any]) -> Content:
    """Return the text of a message, or its blocks if it has images."""
    if "message" not in found:
        return _words(_text(found.get("text"), "text"))
    message = found["message"]
    if not isinstance(message, dict) or message.get("role", "user") != "user":
        hint = 'For example {"type": "user", "message": {"role": "user", "content": "…"}}.'
        raise BadLine("message is not an object with the role user", hint)
    content = message.get("content")
    if not isinstance(content, list):
        return _words(_text(content, "content"))
    blocks = [block for each in content for block in _blocks(each)]
    if any(block["type"] == "image" for block in blocks):
        return blocks
    return _words("\n\n".join(block["text"] for block in blocks))


def _blocks(block: Any) -> list[dict[str, Any]]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return [{"type": "text", "text": _words(_text(block.get("text"), "text"))}]
    if kind == "image":
        return _image(block.get("source"))
    hint = f"Give blocks of the types text and image. {IMAGE_HINT}"
    raise BadLine(f"a block of the type {_shown(kind)} is not supported", hint)


def _image(source: Any) -> list[dict[str, Any]]:
    given = source if isinstance(source, dict) else {}
    if given.get("type") != "base64":
        raise BadLine("the source of an image is not base64", IMAGE_HINT)
    try:
        data = b64decode(_text(given.get("data"), "data"), validate=True)
    except (binascii.Error, ValueError):
        raise BadLine("the data of an image is not base64", IMAGE_HINT) from None
    if not images.format_of(data):
        raise BadLine("the data of an image has no supported format", IMAGE_HINT)
    return [{"type": "image", "source": {**given, "data": b64encode(data).decode("ascii")}}]


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadLine(f"{name} is missing or not a string")
    return _without_surrogates(value)


def _without_surrogates(text: str) -> str:
    """Return a text without lone surrogates, which are valid in JSON but not in UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _words(text: str) -> str:
    if not text.strip():
        raise BadLine("the message is empty")
    return text


def _shown(value: Any) -> str:
    return shorten(repr(value), MAX_NAME_CHARS)


MAX_LINE_BYTES = 32 << 20
MAX_WAITING = 1_000  # messages
MAX_WAITING_BYTES = 128 << 20
READ_BYTES = 1 << 18  # at a time


class StreamInput:
    """The input from file descriptor `number`. `write` sends a line back. `interrupt` ends the
    running turn and returns True if there was one. `edit` answers a request about the context.
    """

    def __init__(
        self,
        number: int,
        write: Callable[[dict[str, Any]], None],
        interrupt: Callable[[], bool],
        edit: Callable[[ContextRequest], Awaitable[dict[str, Any]]],
    ) -> None:
        self._number, self._write, self._interrupt, self._edit = number, write, interrupt, edit
        self._edits = set[asyncio.Task[None]]()  # in progress
        self.has_edited = False  # a request about the context was answered
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
            self._write({"type": "question", "id": id, **question_json(question)})
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
            elif isinstance(found, ContextRequest):
                task = asyncio.ensure_future(self._answer_edit(number, found))
                self._edits.add(task)
                task.add_done_callback(self._edits.discard)
            elif not self._interrupt():
                raise BadLine("no turn is running", "Send a message first.")
        except BadLine as error:
            self._reject(number, str(error), error.hint)

    def _reject(self, number: int, message: str, hint: str) -> None:
        self._write({"type": "error", "line": number, "message": message, "hint": hint})

    async def _answer_edit(self, number: int, request: ContextRequest) -> None:
        """Answer a request about the context."""
        try:
            self._write(await self._edit(request))
            self.has_edited = True
        except CtxagentError as error:
            self._reject(number, error.message, error.hint)

    async def edits_done(self) -> None:
        """Wait until all requests about the context so far are answered."""
        while self._edits:
            await asyncio.wait(self._edits)

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
