"""The parts of a wire protocol: requests to bytes, and events to a reply.

Tool names and IDs from a server have a maximum length, and are shortened for protocols with lower
limits.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from ..context.request import Request
from ..events import Delta
from ..lazy import dataclass
from .base import Reply
from .gaps import Gap

MAX_NAME_CHARS = 64  # of a tool, from OpenAI's documentation
_MAX_FOREIGN_CHARS = 256  # of a name or an ID from a server, to protect the context
_DIGEST_CHARS = 32


def cut_name(value: object) -> str:
    """Cut a name or an ID from a server to a safe length; return "" for anything but text."""
    return value[:_MAX_FOREIGN_CHARS] if isinstance(value, str) else ""


def shorten_name(name: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return a name of at most `limit` characters (40 or more). Equal names give equal results."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: limit - _DIGEST_CHARS - 1]}_{digest}"


class StreamError(Exception):
    """An error in the middle of a stream. `kind` is the server's name for it."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind, self.words = kind, words


class Draft(Protocol):
    """A reply under construction."""

    sent: Mapping[str, Any]  # how the request was sent

    @property
    def began(self) -> bool:
        """True if any part of the reply has arrived."""
        ...

    @property
    def stopped(self) -> bool:
        """True if nothing more needs to be read."""
        ...

    @property
    def complete(self) -> bool:
        """True if the reply is complete even if the stream ends now."""
        ...

    def take(self, event: dict[str, Any]) -> Iterator[Delta]:
        """Add an event of the stream and yield its deltas for front ends. Raises StreamError, and
        ValueError for an invalid event.
        """
        ...

    def take_unstreamed(self, answer: dict[str, Any]) -> Iterator[Delta]:
        """Add the answer of a server that does not stream. Raises the same errors as `take`."""
        ...

    def reply(self) -> Reply:
        """Return the collected reply. Calls with truncated arguments are in `broken`."""
        ...


def encode(body: Mapping[str, Any]) -> bytes:
    """Return a body as bytes. Equal bodies give equal bytes. Raises ValueError for values that are
    not JSON.
    """
    whole = dict(sorted(body.items()))
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _no_headers(request: Request, body: Mapping[str, Any]) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire protocol."""

    name: str  # in the log
    title: str  # for messages
    path: str  # path for requests after the base URL
    models_path: str  # path of the list of models
    gaps: Mapping[str, Gap]  # features that servers may lack, in the order to try
    parameters: Callable[[Request], dict[str, Any]]  # parameters of a body
    body: Callable[[Request, Mapping[str, Any]], dict[str, Any]]  # complete body
    draft: Callable[[Request], Draft]
    headers: Callable[[Request, Mapping[str, Any]], Mapping[str, str]] = _no_headers
    takes_unstreamed: bool = True  # True if non-streamed answers are supported

    def fitted_body(
        self, request: Request, gaps: Collection[str], given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the body of a request without the features in `gaps`. Use the parameters of the
        request unless `given` is set.
        """
        out = self.body(request, self.parameters(request) if given is None else given)
        for name in [name for name in self.gaps if name in gaps]:
            out = self.gaps[name].fit(out)
        return out

    def sent_of(self, request: Request, data: bytes, gaps: Collection[str]) -> dict[str, Any]:
        """Return the log's record of how a request was sent. `data` are its bytes."""
        sent = {
            "protocol": self.name,
            "parameters": self.parameters(request),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        return {**sent, "gaps": [*gaps]} if gaps else sent

    def rebuild(self, request: Request, sent: Mapping[str, Any]) -> bytes:
        """Return the bytes of an earlier request. See `base.ProtocolModule`."""
        gaps = tuple(sent.get("gaps", ()))
        return encode(self.fitted_body(request, gaps, {**sent["parameters"]}))
