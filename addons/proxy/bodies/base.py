"""A client's body as pieces of a conversation, and edits of the body.

A body is the client's JSON. Its messages are the items of one list. A piece corresponds to one log
entry: a user message, a reply, or the result of a call. An edit changes only the blocks that it
names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from ....api.base import dataclass
from ....api.models import Draft
from ....api.record import Block, Content, Usage

Json = dict[str, Any]
PieceKind = Literal["words", "reply", "result"]
MARKS = ("cache_control",)  # fields that only control the cache
OTHER_ITEM = "other_item"  # type of a block that wraps an unknown item
_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"
# Starts of texts that clients insert into user messages; the user did not write them.
CLIENT_TEXTS = (
    _REMINDER,
    "<session_context>",
    "<environment_context>",
    "<environment_details>",
    "<user_instructions>",
    "<permissions",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
)


@dataclass(frozen=True, slots=True)
class BodyPlace:
    """The position of a block in a body: the index of the message, not counting the preamble, and
    the index of the block in that message's content (None for the whole content).
    """

    message: int
    block: int | None = None


@dataclass(frozen=True, slots=True)
class BodyPiece:
    """A part of a conversation, as blocks of the log."""

    kind: PieceKind
    content: Content
    places: tuple[BodyPlace, ...]  # one per block
    call: str = ""  # client's ID of the call, for a result
    is_error: bool = False
    by_client: bool = False  # text from the client, not the user

    @property
    def message(self) -> int:
        """The index of the message with the first block."""
        return self.places[0].message

    @property
    def blocks(self) -> list[Block]:
        """The content as blocks."""
        content = self.content
        return [{"type": "text", "text": content}] if isinstance(content, str) else content


@dataclass(frozen=True, slots=True)
class Preamble:
    """The part of a body before the conversation."""

    system: str
    tools: list[Json]
    messages: int = 0  # number of leading messages that belong to it


@dataclass(slots=True)
class Edits:
    """The edits of one body."""

    results: dict[BodyPlace, str] = field(default_factory=dict)  # new contents of results
    # Arguments of calls: old texts with their replacements.
    inputs: dict[BodyPlace, Mapping[str, str]] = field(default_factory=dict)
    dropped: set[BodyPlace] = field(default_factory=set)  # removed blocks
    # Messages before the index `start` are replaced by a user message with the `head`.
    start: int = 0
    head: list[Block] = field(default_factory=list)
    # Index of the message for an additional cache mark, if the protocol allows one more.
    mark: int | None = None

    def __bool__(self) -> bool:
        return bool(self.results or self.inputs or self.dropped or self.head)


@dataclass(frozen=True, slots=True)
class ServerReply:
    """A reply from a server."""

    content: list[Block]
    usage: Usage
    stop_reason: str | None
    message_id: str | None


class BodyFormat(Protocol):
    """The bodies of one wire protocol."""

    @property
    def name(self) -> str:
        """The name of the protocol."""
        ...

    @property
    def upstream(self) -> str:
        """The name of its upstream."""
        ...

    @property
    def paths(self) -> tuple[str, ...]:
        """The ends of the paths of its requests."""
        ...

    @property
    def count_paths(self) -> tuple[str, ...]:
        """The ends of the paths of requests that count the tokens of a body."""
        ...

    @property
    def other_roles(self) -> tuple[str | None, ...]:
        """The roles of messages that are not from the model. None: no role."""
        ...

    def model(self, body: Json, url: str) -> str:
        """Return the name of the model that a request asks."""
        ...

    def messages(self, body: Json) -> list[Json] | None:
        """Return the messages of a body. Return None if the history is on the server or the body is
        not understood.
        """
        ...

    def preamble(self, body: Json) -> Preamble:
        """Return the part of a body before the conversation."""
        ...

    def pieces(self, messages: Sequence[Json], start: int) -> Iterator[BodyPiece]:
        """Yield the pieces of the messages after the preamble, from index `start`. Raises
        ValueError, KeyError and TypeError for messages that are not understood.
        """
        ...

    def edited(self, body: Json, edits: Edits, skip: int) -> Json:
        """Return the edited body. The first `skip` messages are the preamble."""
        ...

    def with_question(self, body: Json, question: str) -> Json:
        """Return the body with a user text appended."""
        ...

    def with_only_texts(self, body: Json, texts: Sequence[str], max_tokens: int) -> Json:
        """Return a body for the same model with only these user texts."""
        ...

    def output_room(self, body: Json) -> int:
        """Return the client's token limit for the reply, 0 if it sets none."""
        ...

    def is_cached(self, body: Json) -> bool:
        """Return True if the server caches this request."""
        ...

    def draft(self, body: Json) -> Draft:
        """Return an empty draft of the reply to a body."""
        ...

    def reply(self, draft: Draft) -> ServerReply:
        """Return the reply from a complete draft."""
        ...


def unmarked(value: Any) -> Any:
    """Return a message without cache marks."""
    if isinstance(value, dict):
        return {name: unmarked(each) for name, each in value.items() if name not in MARKS}
    if isinstance(value, list):
        return [unmarked(each) for each in value]
    return value


def plain(message: Json) -> Json:
    """Return a message in a canonical form: without cache marks, and with its content as blocks.
    Clients send a text as a block only while it has a cache mark.
    """
    out: Json = unmarked(message)
    if isinstance(content := out.get("content"), str):
        out["content"] = [{"type": "text", "text": content}]
    return out


def is_same(one: Json, other: Json) -> bool:
    """Return True if two messages are equal in their canonical form."""
    return one == other or plain(one) == plain(other)


def is_client_text(text: str) -> bool:
    """Return True for a text that a client inserted into a user message."""
    return text.lstrip().startswith(CLIENT_TEXTS)


def split_reminders(text: str) -> tuple[str, str]:
    """Return a result's own text, and the reminders that the client appended to it."""
    own = text
    while (end := own.rstrip()).endswith(_REMINDER_END):
        start = end.rfind(_REMINDER)
        if start < 0:
            break
        own = own[:start].removesuffix("\n\n")
    return own, text[len(own) :]


def text_blocks(content: Any) -> Iterator[Block]:
    """Yield the parts of a content in OpenAI's protocols as blocks of the log."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield {"type": "text", "text": part["text"]}
        elif isinstance(part, dict):
            yield _image_block(part.get("image_url")) or {"type": "text", "text": "[attachment]"}


def words(content: Any, index: int, *, by_client: bool) -> BodyPiece:
    """Return the piece for a user or system message in OpenAI's protocols."""
    given = content if isinstance(content, str) else [*text_blocks(content)]
    places = 1 if isinstance(given, str) else max(1, len(given))
    return BodyPiece("words", given, (BodyPlace(index),) * places, by_client=by_client)


def _image_block(given: Any) -> Block | None:
    """Return an image with a data URL as a block of the log, None for other images."""
    url = given.get("url") if isinstance(given, dict) else given
    if not isinstance(url, str) or not url.startswith("data:image/"):
        return None
    media, _, data = url.removeprefix("data:").partition(";base64,")
    source = {"type": "base64", "media_type": media, "data": data}
    return {"type": "image", "source": source} if data else None


def text_of(content: Any) -> str:
    """Return the text of a content in OpenAI's protocols."""
    if isinstance(content, str):
        return content
    return "\n\n".join(str(block.get("text", "")) for block in text_blocks(content))


def replaced_inputs(given: Any, texts: Mapping[str, str]) -> Any:
    """Return arguments with each string that is a key of `texts` replaced by its value."""
    if isinstance(given, str):
        return texts.get(given, given)
    if isinstance(given, dict):
        return {name: replaced_inputs(each, texts) for name, each in given.items()}
    if isinstance(given, list):
        return [replaced_inputs(each, texts) for each in given]
    return given
