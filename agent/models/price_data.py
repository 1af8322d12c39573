"""Prices and context windows of models that are not in models.toml, from the package genai-prices.

The package is imported at the first lookup of such a model, because its data takes 0.3 s and 20 MB.
Nothing is downloaded.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..lazy import dataclass
from .providers import Provider

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

_KEYS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


@dataclass(frozen=True, slots=True)
class Price:
    """Prices in dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    # (tokens, price): prices of all tokens of a call whose prompt exceeds that size.
    above: "tuple[tuple[int, Price], ...]" = ()

    def at(self, prompt: int) -> "Price":
        """Return the prices for a call with a prompt of this many tokens."""
        return next((price for size, price in reversed(self.above) if prompt > size), self)

    def times(self, factor: float) -> "Price":
        """Return these prices multiplied by a factor."""
        four = (self.input, self.output, self.cache_read, self.cache_write)
        input, output, read, write = (factor * price for price in four)
        return Price(input, output, read, write)


class ListedModel(NamedTuple):
    """A model in the price data."""

    window: int | None  # tokens
    price: Price


def listed_model(provider: Provider, name: str) -> ListedModel | None:
    """Return a provider's model from the price data, with the prices of the current time of day.
    Return None for an unknown model.
    """
    if not provider.prices:
        return None
    name = name.removeprefix("models/")  # in Gemini's list of models
    variant_of = name.partition(":")[0]  # OpenRouter: `:free` has prices, `:nitro` has none
    model = _find(provider.prices, name) or _find(provider.prices, variant_of)
    if model is None:
        return None
    now = model.get_prices(datetime.now(UTC))
    return ListedModel(model.context_window, _price([getattr(now, key) for key in _KEYS], provider))


def listed_names(provider: Provider) -> list[str]:
    """Return the names of a provider's models in the price data."""
    from genai_prices.data_snapshot import get_snapshot

    found = (each for each in get_snapshot().providers if each.id == provider.prices)
    return [model.id for each in found for model in each.models]


@cache
def _find(provider: str, name: str) -> "ModelInfo | None":
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(), name, provider_id=provider).model
    except LookupError:
        return None


def _price(given: Sequence[Any], provider: Provider) -> Price:
    """Return the prices from the values of `_KEYS`: each a number, price tiers, or None."""
    sizes = sorted({tier.start for price in given for tier in getattr(price, "tiers", ())})
    lowest, *above = (_price_above(size, given, provider) for size in (-1, *sizes))
    return replace(lowest, above=tuple(zip(sizes, above, strict=True)))


def _price_above(size: int, given: Sequence[Any], provider: Provider) -> Price:
    """Return the prices for prompts larger than `size` tokens."""
    values = [None if price is None else _dollars(price, size) for price in given]
    input, output, read, write = values[0] or 0.0, values[1] or 0.0, values[2], values[3]
    return Price(
        input,
        output,
        provider.cache_read * input if read is None else read,
        # Some rows contain only the surcharge on the input price.
        max(input, provider.cache_write * input if write is None else write),
    )


def _dollars(price: Any, size: int) -> float:
    reached = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= size]
    return float(reached[-1] if reached else getattr(price, "base", price))
