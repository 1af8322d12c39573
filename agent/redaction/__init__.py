"""What must not be kept: values that are known to be secret, and whatever looks like a key.

Known are the key that the model is asked with, and what other variables hold that look like
secrets; they never reach a disk or a result. What has the shape of a key, a token or a password is
looked for on request, in what tools say and in what the project says of itself; a person's words
stay. Each gives way to `[redacted: KIND]`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from ...tools.environment import is_secret
from ...tools.redacted import mark
from ..record.entries import Entry, Note, ToolResult, User
from .shapes import without_shapes
from .sieve import Sieve, Sink

if TYPE_CHECKING:
    from ...tools.base import Output

__all__ = ["NOTHING", "Redaction", "of"]

_OWN = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_ADDRESS = "ANTHROPIC_BASE_URL"
_SHORTEST, _SHORTEST_OTHER = 8, 16  # characters; what is shorter may be a word like any other
_PLACE = re.compile(r"(?:~|\.{1,2})?/[\w.-]+/|[A-Za-z][\w+.-]*://")
_FOUND = ("environment", "instructions", "shell")  # sources of words that nobody said here
# Blocks that are no text, or must stay as the model wrote them.
_LEFT = ("thinking", "redacted_thinking", "image", "document")

E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Redaction:
    """`known` has values with what each is called; `shapes` says whether shapes are looked for."""

    known: Mapping[str, str] = field(default_factory=dict)
    shapes: bool = False

    def known_in(self, text: str) -> str:
        """The text without the values that are known."""
        for value, name in self.known.items():
            if value in text:
                text = text.replace(value, mark(name))
        return text

    def text(self, text: str) -> str:
        """What a tool says, without what must not be kept of it."""
        text = self.known_in(text)
        return without_shapes(text, mark) if self.shapes else text

    def output(self, output: "Output") -> "Output":
        """The outcome of a tool call, likewise."""
        if not self.known and not self.shapes:
            return output
        return replace(
            output,
            text=self.text(output.text),
            details={name: _each(value, self.text) for name, value in output.details.items()},
            blocks=_each(output.blocks, self.text),
        )

    def entry(self, entry: E) -> E:
        """An entry as it may be recorded, or told elsewhere."""
        found = isinstance(entry, ToolResult | Note) or (
            isinstance(entry, User) and entry.source in _FOUND
        )
        shapes = self.shapes and found
        if not self.known and not shapes:
            return entry
        clear = self.text if shapes else self.known_in
        given = {f.name: getattr(entry, f.name) for f in fields(entry)}
        cleared = {name: _each(value, clear) for name, value in given.items()}
        return entry if cleared == given else replace(entry, **cleared)

    def sieve(self, sink: Sink) -> Sink:
        """A sink that gives to another one what it hears, without what must not be kept of it."""
        if not self.known and not self.shapes:
            return sink
        return Sieve(sink, self.text, tuple(self.known), whole_lines=self.shapes)


NOTHING = Redaction()


def of(environ: Mapping[str, str], *addresses: str | None, shapes: bool = False) -> Redaction:
    """What is known of an environment, and of addresses that may hold a password."""
    known = dict(_known(environ, (*addresses, environ.get(_ADDRESS))))
    longest_first = sorted(known.items(), key=lambda item: -len(item[0]))
    return Redaction(dict(longest_first), shapes)


def _known(
    environ: Mapping[str, str], addresses: tuple[str | None, ...]
) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        shortest = _SHORTEST if name in _OWN else _SHORTEST_OTHER
        if is_secret(name) and not _PLACE.match(value):
            yield from _forms(value.strip(), name, shortest)
    for address in filter(None, addresses):
        try:
            password = urlsplit(address).password or ""
        except ValueError:
            continue
        yield from _forms(password, "password of an address", _SHORTEST)
        yield from _forms(unquote(password), "password of an address", _SHORTEST)


def _forms(value: str, name: str, shortest: int) -> Iterator[tuple[str, str]]:
    """The value, if it is none that a text may hold for other reasons."""
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    if len(value) >= shortest and mixed and not any(c.isspace() for c in value):
        yield value, name


def _each(value: Any, clear: Any) -> Any:
    """The same with every text in it cleared."""
    if isinstance(value, str):
        return clear(value)
    if isinstance(value, list):
        return [_each(each, clear) for each in value]
    if isinstance(value, dict) and value.get("type") not in _LEFT:
        return {name: _each(each, clear) for name, each in value.items()}
    return value
