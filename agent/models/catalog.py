"""The windows and prices of known models."""

from dataclasses import dataclass
from typing import NamedTuple

from ..session.entries import Usage

CACHE_READ_FACTOR = 0.1  # of the input price, for most models
CACHE_WRITE_FACTOR = 1.25  # of the input price, for entries that live CACHE_LIFE_S
CACHE_LIFE_S = 300.0  # seconds since the entry was used last
DOLLARS_PER_SEARCH = 0.01  # of the web, by the server
_PRICED_AS = "scripted-as-"  # begins the id of a scripted model that has the prices of another


@dataclass(frozen=True, slots=True)
class Limits:
    """The tokens that a model takes and gives."""

    window: int
    output: int
    source: str  # "setting", "server", "table" or "default"


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    surcharge_above: int | None = None  # tokens of the prompt
    surcharge_factor: float = 1.0  # of all three prices, for a prompt above that


class KnownModel(NamedTuple):
    """A row of the table."""

    limits: Limits
    price: Price


DEFAULT_LIMITS = Limits(200_000, 32_000, "default")  # for a model of which nothing is known
_M, _K200 = Limits(1_000_000, 128_000, "table"), Limits(200_000, 64_000, "table")

# Windows, outputs and prices as published in November 2026; a server that says otherwise wins.
KNOWN_MODELS: dict[str, KnownModel] = {
    "claude-fable-5-1": KnownModel(_M, Price(10, 50, 0.25)),
    "claude-opus-5-5": KnownModel(_M, Price(4, 20, 0.20)),
    "claude-sonnet-5-5": KnownModel(_M, Price(2, 10, 0.10)),
    "claude-haiku-5-5": KnownModel(
        _M, Price(0.10, 0.50, 0.01, surcharge_above=100_000, surcharge_factor=5)
    ),
    "claude-opus-5": KnownModel(_M, Price(5, 25, 0.50)),
    "claude-opus-4-8": KnownModel(_M, Price(5, 25, 0.50)),
    "claude-opus-4-7": KnownModel(_M, Price(5, 25, 0.50)),
    "claude-opus-4-6": KnownModel(_M, Price(5, 25, 0.50)),
    "claude-sonnet-5": KnownModel(_M, Price(2, 10, 0.20)),
    "claude-sonnet-4-6": KnownModel(_M, Price(3, 15, 0.30)),
    "claude-haiku-4-5": KnownModel(_K200, Price(1, 5, 0.10)),
    "claude-sonnet-4-5": KnownModel(_K200, Price(3, 15, 0.30)),
    "claude-opus-4-5": KnownModel(_K200, Price(5, 25, 0.50)),
}


def known_model(model: str) -> KnownModel | None:
    """Return the table's row for a model id, also a dated one (`claude-haiku-4-5-20251001`)."""
    if model in KNOWN_MODELS:
        return KNOWN_MODELS[model]
    base, _, date = model.rpartition("-")
    return KNOWN_MODELS.get(base) if len(date) == 8 and date.isdigit() else None


def model_of_family(name: str) -> str:
    """Return the newest known model of a family (`haiku`), or the name as it is."""
    return next((id for id in KNOWN_MODELS if f"-{name}-" in id), name)


def scripted_id(priced_as: str) -> str:
    """Return an id for a scripted model that has the prices of another, which nobody pays."""
    return f"{_PRICED_AS}{priced_as}"


def priced_as(model: str) -> str | None:
    """Return the model whose prices a scripted one has; None for all others."""
    return model.removeprefix(_PRICED_AS) if model.startswith(_PRICED_AS) else None


def cache_prices(model: str) -> tuple[float, float]:
    """Return the prices of reading and of writing the prompt cache, relative to the input price.
    For a model that is not in the table they are those of most models."""
    row = _priced_row(model)
    read = row.price.cache_read / row.price.input if row else CACHE_READ_FACTOR
    return read, CACHE_WRITE_FACTOR


def price_factor(model: str, prompt: int) -> float:
    """Return by what all of a model's prices are multiplied for a prompt of so many tokens."""
    price = row.price if (row := _priced_row(model)) else None
    if price is None or price.surcharge_above is None or prompt <= price.surcharge_above:
        return 1.0
    return price.surcharge_factor


def cost(model: str, usage: Usage) -> float | None:
    """Return the dollars that one call costs, or None when the model's price is not known."""
    row = _priced_row(model)
    if row is None:
        return None
    price = row.price
    dollars = (
        usage.input * price.input
        + usage.cache_read * price.cache_read
        + usage.cache_creation * price.input * CACHE_WRITE_FACTOR
        + usage.output * price.output
    )
    for_tokens = price_factor(model, usage.prompt) * dollars / 1_000_000
    return for_tokens + usage.web_searches * DOLLARS_PER_SEARCH


def _priced_row(model: str) -> KnownModel | None:
    return known_model(priced_as(model) or model)
