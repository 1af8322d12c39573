"""The protocol of a model and its reply."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..context.request import Request
from ..events import Delta
from ..session.entries import Block, Usage
from .catalog import Limits


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished reply."""

    content: list[Block]  # as the API gave it
    stop_reason: str | None
    usage: Usage
    model: str
    message_id: str | None = None
    # Raw arguments by tool_use id, of calls whose JSON is broken or cut off; their `input` is {}.
    broken: dict[str, str] = field(default_factory=dict)
    sent: str = ""  # sha256 of the request's bytes in hex, "" where the model does not tell


ReplyStream = AsyncGenerator[Delta | Reply, None]


class Model(Protocol):
    """Something that answers requests."""

    id: str
    gaps: Any  # what its server does not take

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield deltas (events) and, last, one `Reply`. Retries by itself and raises ModelError
        when it gives up. Cancelling closes the connection."""
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
