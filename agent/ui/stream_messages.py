"""The lines that a program writes to a run with `--input-format stream-json`.

Each line is a JSON object: a user message (one turn), an answer to a question, or an interrupt. A
message has the form `{"type": "user", "text": "…"}`, or has a Messages API message in `message`.
"""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from ...tools import image as images
from ...tools.system.shorten import shorten
from ..lazy import dataclass
from ..session.entries import Content

MAX_NAME_CHARS = 60  # of an invalid value shown in an error
TYPES_HINT = 'Send {"type": "user", "text": "…"}, {"type": "answer", …} or {"type": "interrupt"}.'
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


InputMessage = UserMessage | AnswerMessage | InterruptMessage


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
