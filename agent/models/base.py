"""The neutral model interface: replies, abilities, and the modules that implement wire protocols.

Requests and replies use the blocks of the Messages API, which are also stored in the log. Other
protocols translate them when they send and receive.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..context.request import Request
from ..events import Delta
from ..lazy import dataclass
from ..session.entries import Block, Usage
from ..session.searches import FOUND
from .catalog import CacheTerms, Limits, cache_terms

if TYPE_CHECKING:
    from ..config.settings import ModelSettings
    from .gaps import ServerGaps
    from .providers import Endpoint


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished reply."""

    content: list[Block]
    # `end_turn`, `tool_use`, `max_tokens`, `refusal`, `pause_turn` (the model wants to continue),
    # `model_context_window_exceeded`, or a reason of this program (see `context.view`)
    stop_reason: str | None
    usage: Usage
    model: str
    message_id: str | None = None
    # Raw arguments by tool_use ID, for calls with broken or truncated JSON. Their `input` is {}.
    broken: dict[str, str] = field(default_factory=dict)
    # How the request was sent, for the log: `protocol`, `sha256` of its bytes, and the data to
    # rebuild the bytes. Empty if unknown.
    sent: Mapping[str, Any] = field(default_factory=dict)
    # How the reply was changed into the form of the API: see `Assistant.dialect`.
    dialect: Mapping[str, Any] = field(default_factory=dict)
    # From a local server: the tokens and seconds of `Assistant.timings`.
    timings: Mapping[str, Any] = field(default_factory=dict)
    repeats: str = ""  # repeated text, if the reply was stopped for repetition


ReplyStream = AsyncGenerator[Delta | Reply, None]


def text_of(blocks: list[dict[str, Any]]) -> str:
    """Return the text of a reply. If the reply searched the web, return only the text after the
    last search result, unless it is empty.
    """
    searched = max((n for n, b in enumerate(blocks, 1) if b.get("type") == FOUND), default=0)
    texts = [str(b.get("text", "")) if b.get("type") == "text" else "" for b in blocks]
    behind = "".join(texts[searched:])
    return behind if behind.strip() else "".join(texts)


@dataclass(frozen=True, slots=True)
class Abilities:
    """The known abilities of a model."""

    cache: CacheTerms
    images: bool = True
    makes_blocks: bool = False  # can summarise a conversation in a compaction block
    takes_blocks: bool = False  # accepts compaction blocks in requests
    # Searches on the server during a reply. None: in the protocol, but maybe not on the server.
    searches_web: bool | None = False
    slots: int = 0  # concurrent requests that its server answers, 0 if unlimited
    binds_thinking: bool = True  # thinking is refused after any edit of earlier content


def abilities_of(id: str) -> Abilities:
    """Return the abilities of a model from the table of models alone."""
    return Abilities(cache_terms(id))


class Model(Protocol):
    """A model that answers requests."""

    id: str

    @property
    def gaps(self) -> "ServerGaps":
        """What the model's server does not accept, as learned."""
        ...

    @property
    def abilities(self) -> Abilities:
        """The model's abilities. They change when the server refuses a part of a request."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield deltas (events) and finally one `Reply`. Retry on errors, also without a part of
        the request that the server refuses. Raise ModelError after the last attempt. Cancelling
        closes the connection.
        """
        ...

    def assumed_limits(self) -> Limits:
        """Return the limits that are known without asking a server."""
        ...

    async def limits(self) -> Limits:
        """Return the model's limits. Called once per session, before the first request."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class FeatureTestResult(NamedTuple):
    """The result of testing one feature of a server."""

    what: str  # the tested feature
    found: str  # the outcome, shown to the user
    ok: bool = True
    note: bool = False  # True for information that is not a problem


class ProtocolModule(Protocol):
    """The functions of a module that implements a wire protocol. The module imports nothing slow at
    import time.
    """

    def make(self, chosen: "ModelSettings", environ: Mapping[str, str], state: Path) -> Model:
        """Return the model from the settings. Findings about its server are stored in the directory
        `state`. Raises UsageError.
        """
        ...

    def find_key(self, endpoint: "Endpoint", environ: Mapping[str, str]) -> str:
        """Return the name of the credentials for requests, "" if the server needs none. Raises
        NoCredentials.
        """
        ...

    def start_import(self, endpoint: "Endpoint", environ: Mapping[str, str]) -> None:
        """Start to import the modules for the first request, in the background."""
        ...

    def rebuild(self, request: Request, sent: Mapping[str, Any]) -> bytes:
        """Return the bytes of an earlier request from its `Reply.sent`. The parameters of `request`
        are ignored. Raises LookupError, TypeError or ValueError if `sent` is invalid.
        """
        ...
