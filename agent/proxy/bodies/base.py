"""A client's body as pieces of a conversation, and the edits of it.

A body is JSON as the client made it. Its messages are the items of one list. A piece is what the
session's log has an entry for: words, a reply, or the result of a call. An edit changes the blocks
that it names and leaves everything else as it came.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from ...lazy import dataclass
from ...models.wire import Draft
from ...session.entries import Block, Content, Usage

Json = dict[str, Any]
PieceKind = Literal["words", "reply", "result"]
MARKS = ("cache_control",)  # fields that only say what the server is to cache
# What clients write into messages of the user. Such a text is not what the user wrote.
CLIENT_TEXTS = (
    "<system-reminder>",
    "<environment_context>",
    "<environment_details>",
    "<user_instructions>",
    "<permissions",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
)


@dataclass(frozen=True, slots=True)
class BodyPlace:
    """Where a block is in a body: the index of its message behind the preamble, and its own index
    in the content of that message. None stands for the whole content."""

    message: int
    block: int | None = None


@dataclass(frozen=True, slots=True)
class BodyPiece:
    """A part of a conversation, in the blocks of the log."""

    kind: PieceKind
    content: Content
    places: tuple[BodyPlace, ...]  # of each block
    call: str = ""  # the client's ID of the call that a result answers
    is_error: bool = False
    by_client: bool = False  # words that the client wrote, not the user

    @property
    def message(self) -> int:
        """The index of the message that it begins in."""
        return self.places[0].message

    @property
    def blocks(self) -> list[Block]:
        """The content as blocks."""
        content = self.content
        return [{"type": "text", "text": content}] if isinstance(content, str) else content


@dataclass(frozen=True, slots=True)
class Preamble:
    """What a body has before the conversation."""

    system: str
    tools: list[Json]
    messages: int = 0  # how many messages at the beginning belong to it


@dataclass(slots=True)
class Edits:
    """The changes of one body."""

    results: dict[BodyPlace, str] = field(
        default_factory=dict
    )  # in place of the content of a result
    # Of the arguments of a call: texts, and what takes their places.
    inputs: dict[BodyPlace, Mapping[str, str]] = field(default_factory=dict)
    dropped: set[BodyPlace] = field(default_factory=set)  # blocks that are left out
    # Messages before the index `start` are left out, and a message of the user has the `head`.
    start: int = 0
    head: list[Block] = field(default_factory=list)
    # The message that gets one more cache mark, if the protocol has marks and one is left.
    mark: int | None = None

    def __bool__(self) -> bool:
        return bool(self.results or self.inputs or self.dropped or self.head)


@dataclass(frozen=True, slots=True)
class ServerReply:
    """A reply as a server sent it."""

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
    def path(self) -> str:
        """The path of its requests behind the base URL."""
        ...

    def messages(self, body: Json) -> list[Json] | None:
        """Return the messages of a body; None for a body whose history is not in it, or that is not
        understood."""
        ...

    def preamble(self, body: Json) -> Preamble:
        """Return what a body has before the conversation."""
        ...

    def pieces(self, messages: Sequence[Json], start: int) -> Iterator[BodyPiece]:
        """Yield the pieces of the messages behind the preamble, from the index `start` on. Raises
        ValueError, KeyError and TypeError for messages that are not understood."""
        ...

    def edited(self, body: Json, edits: Edits, skip: int) -> Json:
        """Return the body with these edits; `skip` messages at the beginning are the preamble."""
        ...

    def with_question(self, body: Json, question: str) -> Json:
        """Return a body with one more text of the user at its end."""
        ...

    def alone(self, body: Json, texts: Sequence[str], max_tokens: int) -> Json:
        """Return a body for the same model with these texts of the user alone."""
        ...

    def output_room(self, body: Json) -> int:
        """Return how many tokens the client allows for the reply; 0 if it does not say."""
        ...

    def has_marks(self, body: Json) -> bool:
        """Return True if the server caches this request."""
        ...

    def draft(self, body: Json) -> Draft:
        """Return the draft of the reply to a body, which takes the events of the stream."""
        ...

    def reply(self, draft: Draft) -> ServerReply:
        """Return the reply that a complete draft has gathered."""
        ...


def unmarked(value: Any) -> Any:
    """Return a message without cache marks."""
    if isinstance(value, dict):
        return {name: unmarked(each) for name, each in value.items() if name not in MARKS}
    if isinstance(value, list):
        return [unmarked(each) for each in value]
    return value


def plain(message: Json) -> Json:
    """Return a message in the one form that all of its forms have: without cache marks, and with
    its content as blocks. Clients send a text as a block only while it has a mark."""
    out: Json = unmarked(message)
    if isinstance(content := out.get("content"), str):
        out["content"] = [{"type": "text", "text": content}]
    return out


def is_same(one: Json, other: Json) -> bool:
    """Return True if two messages say the same."""
    return one == other or plain(one) == plain(other)


def is_client_text(text: str) -> bool:
    """Return True for a text that clients write into messages of the user."""
    return text.lstrip().startswith(CLIENT_TEXTS)


def text_blocks(content: Any) -> Iterator[Block]:
    """Yield the blocks of the log for the parts of a content of OpenAI's protocols."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield {"type": "text", "text": part["text"]}
        elif isinstance(part, dict):
            yield _image_block(part.get("image_url")) or {"type": "text", "text": "[attachment]"}


def words(content: Any, index: int, *, by_client: bool) -> BodyPiece:
    """Return the piece of a message with words, in OpenAI's protocols."""
    given = content if isinstance(content, str) else [*text_blocks(content)]
    places = 1 if isinstance(given, str) else max(1, len(given))
    return BodyPiece("words", given, (BodyPlace(index),) * places, by_client=by_client)


def _image_block(given: Any) -> Block | None:
    """Return an image block of the log for an image with a data URL; None for another one."""
    url = given.get("url") if isinstance(given, dict) else given
    if not isinstance(url, str) or not url.startswith("data:image/"):
        return None
    media, _, data = url.removeprefix("data:").partition(";base64,")
    source = {"type": "base64", "media_type": media, "data": data}
    return {"type": "image", "source": source} if data else None


def text_of(content: Any) -> str:
    """Return the text of a content of OpenAI's protocols."""
    if isinstance(content, str):
        return content
    return "\n\n".join(str(block.get("text", "")) for block in text_blocks(content))


def replaced_inputs(given: Any, texts: Mapping[str, str]) -> Any:
    """Return arguments in which each string that is a key of `texts` is replaced by its value."""
    if isinstance(given, str):
        return texts.get(given, given)
    if isinstance(given, dict):
        return {name: replaced_inputs(each, texts) for name, each in given.items()}
    if isinstance(given, list):
        return [replaced_inputs(each, texts) for each in given]
    return given
