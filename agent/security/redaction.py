"""Redaction of secrets in stored and shown text: known values, and texts that look like a key.

Known values are the model's API key and the values of other variables that look like secrets. They
never reach the disk or a tool result. Shapes of keys, tokens and passwords are redacted on request,
in tool results and project files but not in the user's messages. Each secret is replaced by
`[redacted: KIND]`.

A model's reply is filtered too, since a server may return the API key it received. Streamed text is
filtered before it is displayed. A possible beginning of a secret is held back until the rest
arrives, even across deltas.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from ...tools.redaction_marks import mark
from ...tools.system.environment import secrets_in
from ..context.items import COMPACTION
from ..events import Retrying, TextDelta, ThinkingDelta, ToolFinished, ToolStarted
from ..lazy import dataclass, regex
from ..models.base import Reply, ReplyStream
from ..models.providers import providers, variables
from ..session.entries import (
    ATTACHMENT,
    HOOK,
    MEMORY,
    SKILL,
    SKILL_LIST,
    Entry,
    Note,
    ToolResult,
    User,
    altered_thinking,
)
from .secret_shapes import MAX_PRIVATE_KEY_CHARS, is_mixed, open_private_key, without_shapes

if TYPE_CHECKING:
    from ...tools.base import Output
    from ...tools.system.capture import Sink

MAX_HELD_LINE_BYTES = 65_536  # a longer unfinished line is passed on, except for its end
OVERLAP_BYTES = 8_192  # the length of that end: no shape is longer
# Shorter values may be ordinary words.
_MIN_KEY_CHARS = 8
_MIN_SECRET_CHARS = 16
_PATH_OR_URL = regex(r"(?:~|\.{1,2})?/[\w.-]+/|[A-Za-z][\w+.-]*://")
# Sources of messages that the user did not write.
_PROJECT_SOURCES = (
    "environment", "instructions", SKILL_LIST, SKILL, MEMORY, HOOK, "shell", ATTACHMENT,
)  # fmt: skip
# Block types without text, or that must stay as the model wrote them.
_UNTOUCHED_BLOCKS = ("thinking", "redacted_thinking", "image", "document")

E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Redaction:
    """The secrets that a session redacts."""

    known: Mapping[str, str] = field(default_factory=dict)  # secret value to its name
    shapes: bool = False  # whether to look for shapes of secrets, too

    def without_known(self, text: str) -> str:
        """Replace the known values in a text."""
        for value, name in self.known.items():
            if value in text:
                text = text.replace(value, mark(name))
        return text

    def clean_text(self, text: str) -> str:
        """Redact a tool's text."""
        text = self.without_known(text)
        return without_shapes(text, mark) if self.shapes else text

    def clean_output(self, output: "Output") -> "Output":
        """Redact the output of a tool call."""
        if not self.known and not self.shapes:
            return output
        return replace(
            output,
            text=self.clean_text(output.text),
            whole=self.clean_text(output.whole),
            details={
                name: _map_texts(value, self.clean_text) for name, value in output.details.items()
            },
            blocks=_map_texts(output.blocks, self.clean_text),
        )

    def clean_entry(self, entry: E) -> E:
        """Redact a log entry before it is recorded or sent elsewhere."""
        is_found = isinstance(entry, ToolResult | Note) or (
            isinstance(entry, User) and entry.source in _PROJECT_SOURCES
        )
        if not self.known and not (self.shapes and is_found):
            return entry
        clean = self.clean_text if is_found else self.without_known
        values = {f.name: getattr(entry, f.name) for f in fields(entry)}
        cleaned = {name: _map_texts(value, clean) for name, value in values.items()}
        return entry if cleaned == values else replace(entry, **cleaned)

    def clean_blocks(self, content: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replace the known values in the blocks of a reply."""
        cleaned: list[dict[str, Any]] = _map_texts(content, self.without_known)
        return cleaned

    def filtered_sink(self, sink: "Sink") -> "Sink":
        """Return a sink that passes redacted data on to `sink`."""
        if not self.known and not self.shapes:
            return sink
        return SecretFilter(sink, self.clean_text, tuple(self.known), whole_lines=self.shapes)


def redaction_for(
    environ: Mapping[str, str], *addresses: str | None, shapes: bool = False
) -> Redaction:
    """Return the redaction of the secrets in an environment and of the passwords in URLs."""
    named = [environ.get(name) for name in variables()]
    known = dict(_known_secrets(environ, (*addresses, *named)))
    longest_first = sorted(known.items(), key=lambda item: -len(item[0]))
    return Redaction(dict(longest_first), shapes)


def _known_secrets(
    environ: Mapping[str, str], addresses: tuple[str | None, ...]
) -> Iterator[tuple[str, str]]:
    """Yield each secret value with its name."""
    keys = {*variables()}
    for name, value in environ.items():
        min_chars = _MIN_KEY_CHARS if name in keys else _MIN_SECRET_CHARS
        for secret in secrets_in(name, value):
            if not _PATH_OR_URL.match(value) and _is_distinctive(secret, min_chars):
                yield secret, name
    in_headers = (key for provider in providers().values() for key in provider.written_keys())
    for name, value in in_headers:
        if _is_distinctive(value.strip(), _MIN_KEY_CHARS):
            yield value.strip(), name
    for address in filter(None, addresses):
        with suppress(ValueError):
            written = urlsplit(address).password or ""
            for password in (written, unquote(written)):
                if _is_distinctive(password, _MIN_KEY_CHARS):
                    yield password, "password of an address"


def _is_distinctive(value: str, min_chars: int) -> bool:
    """Return True if a value is unlikely to occur in a text by chance."""
    return len(value) >= min_chars and is_mixed(value) and not any(map(str.isspace, value))


def _map_texts(value: Any, clean: Any) -> Any:
    """Clean every text in a nested value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_map_texts(each, clean) for each in value]
    if isinstance(value, dict) and isinstance(thought := value.get("thinking"), str):
        # A changed text invalidates the signature, so the block is left out of requests. In some
        # protocols the signature contains text, too.
        said, signature = clean(thought), str(value.get("signature", ""))
        intact = said == thought and clean(signature) == signature
        return value if intact else altered_thinking(said)
    if isinstance(value, dict) and value.get("type") == COMPACTION:
        # A changed text invalidates the signature, so a plain summary replaces the block.
        said = _map_texts(value.get("content"), clean)
        return value if said == value.get("content") else {"type": COMPACTION, "content": said}
    if isinstance(value, dict) and value.get("type") not in _UNTOUCHED_BLOCKS:
        return {name: _map_texts(each, clean) for name, each in value.items()}
    return value


class SecretFilter:
    """A sink that redacts the data it passes on. Bytes that are not UTF-8 stay unchanged.

    It holds back a possible beginning of a secret until the rest arrives: a prefix of a known value
    and, if shapes are redacted, an unfinished line or private key.
    """

    def __init__(
        self, sink: "Sink", clean: Callable[[str], str], known: Sequence[str], *, whole_lines: bool
    ) -> None:
        self._sink = sink
        self._clean = clean
        self._known = [value.encode() for value in known]
        self._whole_lines = whole_lines
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data
        find_end = self._end_of_whole_lines if self._whole_lines else self._end_of_certain_text
        self._pass_on(find_end())

    def close(self) -> None:
        self._pass_on(len(self._held))
        self._sink.close()

    def _pass_on(self, end: int) -> None:
        if end > 0:
            text = bytes(self._held[:end]).decode("utf-8", "surrogateescape")
            del self._held[:end]
            self._sink.feed(self._clean(text).encode("utf-8", "surrogateescape"))

    def _end_of_certain_text(self) -> int:
        """Return the offset from which the data may be the beginning of a known value."""
        held, end = self._held, len(self._held)
        for value in self._known:
            for length in range(min(len(value) - 1, len(held)), 0, -1):
                if held.endswith(value[:length]):
                    end = min(end, len(held) - length)
                    break
        for value in self._known:  # the end of a value may be the beginning of another
            place = held.find(value, max(0, end - len(value) + 1), end + len(value) - 1)
            end = place if 0 <= place < end else end
        return end

    def _end_of_whole_lines(self) -> int:
        """Return the offset after the last whole line, or of an unfinished private key there."""
        held = self._held
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        if len(held) - end > MAX_HELD_LINE_BYTES:
            end = _word_boundary_before(held, len(held) - OVERLAP_BYTES)
        key = open_private_key(held, end)
        return end if key < 0 or len(held) - key > MAX_PRIVATE_KEY_CHARS else key


def _word_boundary_before(held: bytearray, end: int) -> int:
    """Return the nearest word boundary at or before `end`; `end` if there is none close enough."""
    for place in range(end, max(end - OVERLAP_BYTES, 0), -1):
        if held[place - 1] in b" \t,;\"'<>(){}[]":
            return place
    return end


def reply_filter(redaction: Redaction) -> Callable[[ReplyStream], ReplyStream]:
    """Return a function that removes known secrets from a stream of deltas and the reply."""
    return lambda stream: _filtered(stream, redaction) if redaction.known else stream


async def _filtered(stream: ReplyStream, redaction: Redaction) -> ReplyStream:
    text, thinking = _Held(redaction), _Held(redaction)
    async with aclosing(stream):
        async for delta in stream:
            if isinstance(delta, Retrying):
                text, thinking = _Held(redaction), _Held(redaction)
            if not isinstance(delta, ThinkingDelta) and (rest := thinking.rest()):
                yield ThinkingDelta(rest)
            if not isinstance(delta, TextDelta) and (rest := text.rest()):
                yield TextDelta(rest)
            if isinstance(delta, TextDelta):
                if shown := text.add(delta.text):
                    yield TextDelta(shown)
            elif isinstance(delta, ThinkingDelta):
                if shown := thinking.add(delta.text):
                    yield ThinkingDelta(shown)
            elif isinstance(delta, ToolStarted):
                title = redaction.without_known(delta.title)
                yield replace(delta, title=title, input={"query": title})
            elif isinstance(delta, ToolFinished):
                title, said = map(redaction.without_known, (delta.title, delta.text))
                yield replace(delta, title=title, text=said)
            elif isinstance(delta, Reply):
                content = redaction.clean_blocks(delta.content)
                broken = {id: redaction.without_known(raw) for id, raw in delta.broken.items()}
                yield replace(delta, content=content, broken=broken)
            else:
                yield delta


class _Held:
    """Filtered text of one kind of delta, and a `Sink` for the filter's output."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._out = bytearray()
        self._begin()

    def _begin(self) -> None:
        known = tuple(self._redaction.known)
        self._filter = SecretFilter(self, self._redaction.without_known, known, whole_lines=False)

    def add(self, text: str) -> str:
        """Add text. Return the new text that is certain to contain no part of a secret."""
        self._filter.feed(text.encode("utf-8", "surrogatepass"))
        return self._take()

    def rest(self) -> str:
        """Return the text held back, since no more text follows."""
        self._filter.close()
        self._begin()
        return self._take()

    def _take(self) -> str:
        out = self._out.decode("utf-8", "surrogatepass")
        self._out.clear()
        return out

    def feed(self, data: bytes) -> None:
        self._out += data

    def close(self) -> None:
        pass
