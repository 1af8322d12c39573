"""The neutral model: its reply, what it can do, and the wire protocols that models are made of.

Requests and replies have the blocks of the Messages API, which are what the log keeps. Another
protocol translates them where it sends and receives.
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
    from .providers import Endpoint


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished reply."""

    content: list[Block]
    # `end_turn`, `tool_use`, `max_tokens`, `refusal`, `pause_turn` (the model goes on by itself),
    # `model_context_window_exceeded`, or one of this program (`context.view`)
    stop_reason: str | None
    usage: Usage
    model: str
    message_id: str | None = None
    # Raw arguments by tool_use id, of calls whose JSON is broken or cut off; their `input` is {}.
    broken: dict[str, str] = field(default_factory=dict)
    # How the request was sent, as the log keeps it: `protocol`, `sha256` of its bytes, and what the
    # protocol needs to build them again. Empty where the model does not say.
    sent: Mapping[str, Any] = field(default_factory=dict)
    repeats: str = ""  # the text for whose repetition it was stopped


ReplyStream = AsyncGenerator[Delta | Reply, None]


def text_of(blocks: list[dict[str, Any]]) -> str:
    """Return the text of a reply. If the reply searched the web, return the text after the last
    result, unless that is empty."""
    searched = max((n for n, b in enumerate(blocks, 1) if b.get("type") == FOUND), default=0)
    texts = [str(b.get("text", "")) if b.get("type") == "text" else "" for b in blocks]
    behind = "".join(texts[searched:])
    return behind if behind.strip() else "".join(texts)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a model can do, as far as is known."""

    cache: CacheTerms
    images: bool = True
    makes_blocks: bool = False  # summarises a conversation by a compaction block
    takes_blocks: bool = False  # takes such a block in later requests
    # By itself, in the middle of a reply. None: the protocol has it, and the server may not.
    searches_web: bool | None = False
    slots: int = 0  # how many requests its server answers at a time; 0 for many
    binds_thinking: bool = True  # to all that comes before, so that no edit may be made there


def abilities_of(id: str) -> Abilities:
    """Return what a model can do of which only the table of models is known."""
    return Abilities(cache_terms(id))


class Model(Protocol):
    """Something that answers requests."""

    id: str

    @property
    def abilities(self) -> Abilities:
        """What the model can do; changes when its server refuses a part of a request."""
        ...

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield deltas (events) and, last, one `Reply`. Retries by itself, also without a part of
        the request that the server refuses, and raises ModelError when it gives up. Cancelling
        closes the connection."""
        ...

    def assumed_limits(self) -> Limits:
        """Return what `limits` would, from what is known without asking a server."""
        ...

    async def limits(self) -> Limits:
        """Return the model's limits. Called once a session, before its first request."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class ServerAnswer(NamedTuple):
    """What a server was found to take."""

    what: str
    found: str
    ok: bool = True
    note: bool = False  # worth knowing, though nothing is wrong


class ProtocolModule(Protocol):
    """A wire protocol, as far as it is needed next to a model: a module with these functions, which
    imports nothing heavy by itself."""

    def make(self, chosen: "ModelSettings", environ: Mapping[str, str], state: Path) -> Model:
        """Return the model of the settings. What is learned of its server is kept in the directory
        `state`. Raises UsageError."""
        ...

    def find_key(self, endpoint: "Endpoint", environ: Mapping[str, str]) -> str:
        """Return the name of what requests are authenticated with, "" where they need nothing.
        Raises NoCredentials."""
        ...

    def start_import(self) -> None:
        """Start to import what the first request needs, in the background."""
        ...

    def rebuild(self, request: Request, sent: Mapping[str, Any]) -> bytes:
        """Return the bytes of a request that was sent before, by its `Reply.sent`. The parameters
        of `request` are not set. Raises LookupError, TypeError or ValueError where `sent` makes no
        sense."""
        ...
