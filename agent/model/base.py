"""Models behind one protocol, and what is known of them beforehand: windows and prices."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from ..context.wire import Request
from ..events import Delta
from ..record.entries import Block, Usage

__all__ = [
    "DEFAULT_MODEL",
    "Limits",
    "Model",
    "Price",
    "Reply",
    "Request",
    "Usage",
    "cost",
    "known",
]

DEFAULT_MODEL = "claude-sonnet-5-5"


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished reply: `content` as the API gave it.

    `broken` has the raw arguments, by tool_use id, of calls whose JSON did not parse or was cut
    off; such a block's `input` is {}. `sent` is the sha256 of the bytes of the request, in hex, ""
    where the model does not tell.
    """

    content: list[Block]
    stop_reason: str | None
    usage: Usage
    model: str
    message_id: str | None = None
    broken: dict[str, str] = field(default_factory=dict)
    sent: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens a model takes and gives. `source`: setting, server, table or default."""

    window: int
    output: int
    source: str


class Model(Protocol):
    """Something that answers requests.

    `stream` yields deltas (events) and, last, one `Reply`. It retries by itself and raises
    `ModelError` when it gives up. Cancelling it closes the connection.
    """

    id: str

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]: ...

    def supposed(self) -> Limits:
        """As `limits`, from what is known without asking."""
        ...

    async def limits(self) -> Limits:
        """Asked once a session, at the first call."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. Above `step_at` tokens of prompt all are `step` times as much."""

    input: float
    output: float
    cache_read: float
    step_at: int | None = None
    step: float = 1.0


CACHE_READ = 0.1  # of the input price, for most models
CACHE_WRITE = 1.25  # of the input price, for
CACHE_LIFE = 300.0  # seconds since it was used last
_M, _K200 = Limits(1_000_000, 128_000, "table"), Limits(200_000, 64_000, "table")
UNKNOWN = Limits(200_000, 32_000, "default")

# Windows, outputs and prices as published in November 2026; a server that says otherwise wins.
MODELS: dict[str, tuple[Limits, Price]] = {
    "claude-fable-5-1": (_M, Price(10, 50, 0.25)),
    "claude-opus-5-5": (_M, Price(4, 20, 0.20)),
    "claude-sonnet-5-5": (_M, Price(2, 10, 0.10)),
    "claude-haiku-5-5": (_M, Price(0.10, 0.50, 0.01, step_at=100_000, step=5)),
    "claude-opus-5": (_M, Price(5, 25, 0.50)),
    "claude-opus-4-8": (_M, Price(5, 25, 0.50)),
    "claude-opus-4-7": (_M, Price(5, 25, 0.50)),
    "claude-opus-4-6": (_M, Price(5, 25, 0.50)),
    "claude-sonnet-5": (_M, Price(2, 10, 0.20)),
    "claude-sonnet-4-6": (_M, Price(3, 15, 0.30)),
    "claude-haiku-4-5": (_K200, Price(1, 5, 0.10)),
    "claude-sonnet-4-5": (_K200, Price(3, 15, 0.30)),
    "claude-opus-4-5": (_K200, Price(5, 25, 0.50)),
}


def known(model: str) -> tuple[Limits, Price] | None:
    """The table's row for a model id, a dated one (`claude-haiku-4-5-20251001`) included."""
    if model in MODELS:
        return MODELS[model]
    base, _, date = model.rpartition("-")
    return MODELS.get(base) if len(date) == 8 and date.isdigit() else None


def cache_prices(model: str) -> tuple[float, float]:
    """Of reading and writing the prompt cache, relative to the input price; of a model that is not
    in the table, as for most."""
    row = known(model)
    return (row[1].cache_read / row[1].input if row else CACHE_READ), CACHE_WRITE


def cost(model: str, usage: Usage) -> float | None:
    """Dollars for one call; None when the model's price is not known."""
    row = known(model)
    if row is None:
        return None
    price = row[1]
    factor = price.step if price.step_at and usage.prompt > price.step_at else 1.0
    dollars = (
        usage.input * price.input
        + usage.cache_read * price.cache_read
        + usage.cache_creation * price.input * CACHE_WRITE
        + usage.output * price.output
    )
    return factor * dollars / 1_000_000
