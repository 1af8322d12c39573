"""The messages of a client in a log, and their comparison with the history in a request.

Clients also change their own history: they replace old outputs with short texts. Such a history is
still that of the session.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ...api.base import dataclass
from ...api.record import Assistant, Block, Content, Entry, Note, ToolResult, User, content_text
from .bodies.base import BodyFormat, BodyPiece, Json, is_same, plain

PROXY_TOPIC = "proxy"  # topic of notes
SHORTENED = "shortened"  # key in the data of a note: new digests, by the index of the message
DIGEST_CHARS = 16
_SEPARATOR = "."  # of the parts of a digest
Likeness = Literal["same", "shortened", "other"]


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of a message, independent of cache marks. For a message with results also the
    digest of everything else in it, and the length of the results.
    """

    whole: str
    frame: str = ""
    length: int = 0

    @classmethod
    def parse(cls, text: str) -> "Digest":
        """Return the digest in a log. Older logs have only the first part."""
        whole, *rest = text.split(_SEPARATOR)
        return cls(whole, rest[0], int(rest[1])) if len(rest) == 2 else cls(whole)

    def __str__(self) -> str:
        parts = [self.whole, self.frame, str(self.length)] if self.frame else [self.whole]
        return _SEPARATOR.join(parts)

    def likeness(self, other: "Digest") -> Likeness:
        """Return how another message compares with this one."""
        if self.whole == other.whole:
            return "same"
        is_frame = self.frame and self.frame == other.frame
        return "shortened" if is_frame and other.length < self.length else "other"


class Digests:
    """The digests of a client's messages, computed lazily."""

    def __init__(self, format: BodyFormat, messages: Sequence[Json]) -> None:
        self.format, self.messages = format, messages
        self._made: dict[int, Digest] = {}

    def of(self, index: int) -> Digest:
        if index not in self._made:
            self._made[index] = digest_of(self.format, self.messages[index])
        return self._made[index]


def digest_of(format: BodyFormat, message: Json) -> Digest:
    """Return the digest of a message."""
    whole = _hashed(plain(message))
    try:
        pieces = [*format.pieces([message], 0)]
    except (ValueError, KeyError, TypeError):  # not understood
        return Digest(whole)
    results = [piece.content for piece in pieces if piece.kind == "result"]
    if not results:
        return Digest(whole)
    frame = [(p.kind, p.call, p.content if p.kind != "result" else "") for p in pieces]
    return Digest(whole, _hashed(frame), sum(map(_length, results)))


def _hashed(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


def _length(content: Content) -> int:
    text = text_of_result(content)
    return len(json.dumps(content) if text is None else text)


@dataclass(slots=True)
class KnownMessage:
    """A message of the client that is in the log."""

    digest: Digest
    # As last sent; None if the client's message was another one when the session was opened.
    message: Json | None = None

    def likeness(self, digests: Digests, index: int) -> Likeness:
        """Return how a message of a request compares with this one."""
        if self.message is not None:
            if is_same(self.message, digests.messages[index]):
                return "same"
            if not self.digest.frame:
                return "other"
        return self.digest.likeness(digests.of(index))


def count_common(
    likenesses: Iterable[Likeness], digests: Digests, pending: Assistant | None
) -> int:
    """Return the number of leading messages that a request shares with a session. `pending` is the
    session's reply that the client has not sent back yet.

    A shortened result counts only if the same reply follows it. Otherwise a call was repeated after
    a rewind, and its result is another one.
    """
    format, messages = digests.format, digests.messages
    compared = common = 0
    for likeness in likenesses:
        if likeness == "other":
            return common
        compared += 1
        is_certain = likeness == "same" and (
            common == compared - 1 or _is_reply(format, messages[compared - 1])
        )
        common = compared if is_certain else common
    if common < compared and pending and is_sent_back(format, messages, compared, pending):
        return compared
    return common


def _is_reply(format: BodyFormat, message: Json) -> bool:
    first = next(format.pieces([message], 0), None)
    return first is not None and first.kind == "reply"


def is_sent_back(
    format: BodyFormat, messages: Sequence[Json], start: int, reply: Assistant
) -> bool:
    """Return True if the message at `start` is a reply that the client sends back."""
    first = next(format.pieces(messages, start), None)
    return first is not None and first.kind == "reply" and _is_echo(first, reply)


def _is_echo(piece: BodyPiece, reply: Assistant) -> bool:
    """Return True if a piece has the content of a reply. Ignore thinking and blanks."""
    return comparable(piece.blocks) == comparable(reply.content)


def comparable(blocks: Sequence[Block]) -> tuple[str, int]:
    """Return the part of a reply that clients send back unchanged."""
    text = "".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")
    return "".join(text.split()), sum(b.get("type") == "tool_use" for b in blocks)


def text_of_result(content: Content) -> str | None:
    """Return the text of a result, None if it contains more than text."""
    if isinstance(content, str):
        return content
    if all(block.get("type") == "text" for block in content):
        return content_text(content)
    return None


# The log


@dataclass(slots=True)
class Batch:
    """The entries recorded for the new messages of one request."""

    digests: list[Digest]
    entries: list[Entry]
    before: int  # seq of the entry before the batch


def batches_of(entries: Iterable[Entry]) -> tuple[list[Batch], Assistant | None]:
    """Return the batches of a session's log, and the reply that no batch contains yet."""
    batches: list[Batch] = []
    pending: Assistant | None = None
    for entry in entries:
        client = _client_of(entry)
        if client is not None and "messages" in client:
            begun = [pending] if pending else list[Entry]()
            digests = [Digest.parse(text) for text in client["messages"]]
            batches.append(Batch(digests, [*begun, entry], (begun or [entry])[0].seq - 1))
            pending = None
        elif isinstance(entry, Assistant) and client is not None and "saved" in entry.request:
            pending = entry
        elif client is not None and batches:
            batches[-1].entries.append(entry)
        elif isinstance(entry, Note) and entry.topic == PROXY_TOPIC:
            _replace_digests(batches, entry.data.get(SHORTENED, {}))
    return batches, pending


def _replace_digests(batches: Sequence[Batch], changed: Mapping[str, str]) -> None:
    start = 0
    for batch in batches if changed else ():
        for place in range(len(batch.digests)):
            if text := changed.get(str(start + place)):
                batch.digests[place] = Digest.parse(text)
        start += len(batch.digests)


def common_batches(
    batches: Sequence[Batch], digests: Digests, pending: Assistant | None
) -> list[Batch]:
    """Return the leading batches whose messages a request shares."""
    known = (digest for batch in batches for digest in batch.digests)
    indexes = range(len(digests.messages))
    likenesses = (one.likeness(digests.of(n)) for one, n in zip(known, indexes, strict=False))
    left, found = count_common(likenesses, digests, pending), list[Batch]()
    for batch in batches:
        left -= len(batch.digests)
        if left < 0:
            break
        found.append(batch)
    return found


def _client_of(entry: Entry) -> dict[str, Any] | None:
    """Return the record of the client's messages in an entry, None if it was not made from them."""
    if isinstance(entry, User | ToolResult):
        found = entry.details.get("client")
    elif isinstance(entry, Assistant) and entry.purpose == "turn":
        found = entry.request.get("client")
    else:
        return None
    return found if isinstance(found, dict) else None
