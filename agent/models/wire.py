"""What a wire protocol consists of: how a request becomes bytes, and events become a reply."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from ..context.request import Request
from ..events import Delta
from ..lazy import dataclass
from .base import Reply
from .gaps import Gap


class StreamError(Exception):
    """An error that a server tells in the middle of a stream; `kind` is its name for it."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind, self.words = kind, words


class Draft(Protocol):
    """A reply under construction."""

    sent: Mapping[str, Any]  # how the request was sent

    @property
    def began(self) -> bool:
        """Whether anything of it has come."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether nothing more of it is to be read."""
        ...

    @property
    def complete(self) -> bool:
        """Whether it would be whole if the stream ended here."""
        ...

    def take(self, event: dict[str, Any]) -> Iterator[Delta]:
        """Add one event of the stream and yield what a front end should see. Raises ValueError for
        one that makes no sense, and StreamError."""
        ...

    def take_whole(self, answer: dict[str, Any]) -> Iterator[Delta]:
        """Add the answer of a server that does not stream. Raises the same."""
        ...

    def reply(self) -> Reply:
        """Return what was gathered. Calls whose arguments were cut off are in `broken`."""
        ...


def encode(body: Mapping[str, Any]) -> bytes:
    """Return a body as bytes, always the same. Raises ValueError for what is not JSON."""
    whole = dict(sorted(body.items()))
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _no_headers(request: Request, body: Mapping[str, Any]) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire protocol."""

    name: str  # that the log has
    title: str  # for people
    path: str  # that requests are sent to, behind the base URL
    models_path: str  # where the server lists its models
    gaps: Mapping[str, Gap]  # what servers may lack, in the order in which they are tried
    parameters: Callable[[Request], dict[str, Any]]  # what a body has in addition to it
    body: Callable[[Request, Mapping[str, Any]], dict[str, Any]]  # the whole, with parameters
    draft: Callable[[Request], Draft]
    headers: Callable[[Request, Mapping[str, Any]], Mapping[str, str]] = _no_headers
    takes_whole: bool = True  # whether a draft takes an answer that is not streamed

    def fitted_body(
        self, request: Request, gaps: Collection[str], given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the body of a request for a server with these gaps. The parameters are those of
        the request, unless others are `given`."""
        out = self.body(request, self.parameters(request) if given is None else given)
        for name in [name for name in self.gaps if name in gaps]:
            out = self.gaps[name].fit(out)
        return out

    def sent_of(self, request: Request, data: bytes, gaps: Collection[str]) -> dict[str, Any]:
        """Return how a request was sent, as the log keeps it: `data` are its bytes."""
        sent = {
            "protocol": self.name,
            "parameters": self.parameters(request),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        return {**sent, "gaps": [*gaps]} if gaps else sent

    def rebuild(self, request: Request, sent: Mapping[str, Any]) -> bytes:
        """Return the bytes of a request that was sent so. See `base.WireProtocol`."""
        gaps = tuple(sent.get("gaps", ()))
        return encode(self.fitted_body(request, gaps, {**sent["parameters"]}))
