"""Context windows and prices of known models, from `models.toml` or else the package genai-prices.

The package is imported at the first lookup of a model that is not in `models.toml`, because its
data takes 0.3 s and 20 MB. Nothing is downloaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...tools.system.files import read_below
from ..errors import ConfigError, UsageError
from ..lazy import dataclass
from .providers import DEFAULT_PROVIDER, Provider, canonical_id, resolve_model

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

    from ..session.entries import Usage

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
    values = [None if price is None else _listed_dollars(price, size) for price in given]
    input, output, read, write = values[0] or 0.0, values[1] or 0.0, values[2], values[3]
    return Price(
        input,
        output,
        provider.cache_read * input if read is None else read,
        # Some rows contain only the surcharge on the input price.
        max(input, provider.cache_write * input if write is None else write),
    )


def _listed_dollars(price: Any, size: int) -> float:
    reached = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= size]
    return float(reached[-1] if reached else getattr(price, "base", price))


DOLLARS_PER_SEARCH = 0.01  # web search by the server
_PRICED_AS = "scripted-as-"  # prefix of the ID of a scripted model with the prices of another model


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum input and output tokens of a model."""

    window: int
    output: int | None  # None if unknown
    source: str  # "setting", "server", "table" or "default"


@dataclass(frozen=True, slots=True)
class CacheTerms:
    """The prices and the lifetime of a server's prompt cache."""

    read: float  # price of a cache read relative to input, 1.0 without a cache
    write: float  # price of a cache write relative to input
    life: float  # seconds that a prefix stays cached after its last use


class KnownModel(NamedTuple):
    """The known facts about a model."""

    limits: Limits | None  # None: ask the server
    price: Price
    thinking: bool | None = None  # supports adaptive thinking and effort; None if unknown
    cache_life: float | None = None  # seconds, None for the provider's value
    compaction: bool = False  # True if the API can summarise its conversations


FREE = Price(0.0, 0.0, 0.0, 0.0)
DEFAULT_LIMITS = Limits(200_000, None, "default")  # for unknown models
FILE_NAME = "models.toml"
MAX_FILE_BYTES = 1 << 20

_added: dict[str, KnownModel] = {}  # from the user's file
_registered: dict[str, KnownModel] = {}  # registered by programs


@cache
def _built_in() -> dict[str, KnownModel]:
    return _read(Path(__file__).with_name(FILE_NAME).read_bytes())


def known_models() -> dict[str, KnownModel]:
    """Return the known models by ID, those of the user's file first."""
    return {**_added, **{id: row for id, row in _built_in().items() if id not in _added}}


def add_models(path: Path) -> None:
    """Load the models in the user's file, if it exists. Raises ConfigError."""
    try:
        data = read_below(path.parent, path.name, MAX_FILE_BYTES)
    except OSError:
        return
    try:
        found = _read(data)
    except (ValueError, TypeError) as error:
        hint = "Write window, output, input_price and output_price (0 for none) for each model."
        raise ConfigError(f"{error}", where=str(path), hint=hint) from None
    _added.clear()
    _added.update(found)


def add_prices(id: str, price: Price) -> None:
    """Register the price of a program's model. Raises ValueError for an invalid price."""
    for dollars in (price.input, price.output, price.cache_read, price.cache_write):
        _dollars(dollars)
    _registered[canonical_id(id)] = KnownModel(None, price)


def _read(data: bytes) -> dict[str, KnownModel]:
    """Parse a file of models. Raises ValueError and TypeError with the name of the invalid
    model.
    """
    import tomllib

    found = dict[str, KnownModel]()
    for id, row in tomllib.loads(data.decode()).items():
        try:
            found[canonical_id(id)] = _row(id, row)
        except KeyError as missing:
            raise ValueError(f"[{id}] has no {missing.args[0]}") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"[{id}]: {error}") from None
    return found


def _row(id: str, row: Mapping[str, Any]) -> KnownModel:
    given, provider = dict(row), resolve_model(id).provider
    limits = Limits(_tokens(given.pop("window")), _tokens(given.pop("output")), "table")
    price = Price(
        _dollars(first := given.pop("input_price")),
        _dollars(given.pop("output_price")),
        _dollars(given.pop("cache_read_price", provider.cache_read * first)),
        _dollars(given.pop("cache_write_price", provider.cache_write * first)),
    )
    if above := given.pop("surcharge_above", None):
        factor = _dollars(given.pop("surcharge_factor", 1.0))
        price = replace(price, above=((_tokens(above), price.times(factor)),))
    thinking, _ = given.pop("thinking", None), given.pop("date", None)
    given.pop("protocol", None)  # in files of older versions; now a property of the provider
    cache_life = _seconds(life) if (life := given.pop("cache_life", None)) is not None else None
    compaction = bool(given.pop("compaction", False))
    if given:
        raise ValueError(f"unknown keys: {', '.join(given)}")
    return KnownModel(limits, price, thinking, cache_life, compaction)


def _tokens(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a number of tokens")
    return value


def _dollars(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e6:
        raise ValueError(f"{value!r} is not a price in dollars")
    return float(value)


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < 1e6:
        raise ValueError(f"{value!r} is not a number of seconds")
    return float(value)


def known_model(model: str) -> KnownModel | None:
    """Return the known facts about a model. An ID may end with a date
    (`claude-haiku-4-5-20251001`). The user's file and the table win over the price data. A local
    model is free.
    """
    id = canonical_id(model)
    base, _, date = id.rpartition("-")
    names = (id, base) if len(date) == 8 and date.isdigit() else (id,)
    for name in names:
        for rows in (_registered, _added, _built_in()):
            if row := rows.get(name):
                return row
    provider, name = resolve_model(id)
    if provider.local and not provider.prices:
        return KnownModel(None, FREE)
    if provider.name == DEFAULT_PROVIDER and "claude" not in name:
        return None  # a model of a server at another address
    if (listed := listed_model(provider, name)) is None:
        return None
    return KnownModel(Limits(listed.window, None, "table") if listed.window else None, listed.price)


def known_limits(model: str) -> Limits | None:
    """Return the limits of a model that are known without asking a server, None if unknown."""
    row = known_model(model)
    return row.limits if row else None


def check_price(model: str) -> None:
    """Raise UsageError for a model without a known price, because a budget cannot be enforced for
    it.
    """
    if known_model(model) is None:
        raise UsageError(
            f"the price of {model} is not known, so a budget in dollars cannot be enforced",
            hint="Use --max-turns, or give its prices in models.toml.",
        )


def model_of_family(name: str, own: str) -> str:
    """Return the newest known model of a family (`haiku`), or `name` if there is none. Families
    belong to the default provider. For a session with a scripted model or another provider, there
    may be no key for them, so return the session's `own` model.
    """
    found = next((id for id in known_models() if f"-{name}-" in id), "")
    if found and (
        own.startswith("scripted") or resolve_model(own).provider.name != DEFAULT_PROVIDER
    ):
        return own
    return found or name


def scripted_id(priced_as: str) -> str:
    """Return the ID of a scripted model with the prices of another model. Nothing is paid."""
    return f"{_PRICED_AS}{priced_as}"


def priced_as(model: str) -> str | None:
    """Return the model whose prices a scripted model uses, None for other models."""
    return model.removeprefix(_PRICED_AS) if model.startswith(_PRICED_AS) else None


def cache_terms(model: str) -> CacheTerms:
    """Return the terms of a model's prompt cache. Use the provider's terms if the model's price is
    unknown or zero. A cache write costs at least as much as input, a cache read at most as much.
    """
    row, provider = _priced_row(model), resolve_model(priced_as(model) or model).provider
    life = row.cache_life if row and row.cache_life else provider.cache_life
    if row is None or not row.price.input:
        return CacheTerms(provider.cache_read, provider.cache_write, life)
    price = row.price
    read, write = price.cache_read / price.input, price.cache_write / price.input
    return CacheTerms(min(read, 1.0), max(write, 1.0), life)


def price_factor(model: str, prompt: int) -> float:
    """Return the factor on a model's input price for a prompt of this many tokens."""
    price = row.price if (row := _priced_row(model)) else FREE
    return price.at(prompt).input / price.input if price.input else 1.0


def cost(model: str, usage: "Usage") -> float | None:
    """Return the cost of one call in dollars, None if the model's price is unknown."""
    row = _priced_row(model)
    if row is None:
        return None
    price = row.price.at(usage.prompt)
    for_tokens = (
        usage.input * price.input
        + usage.cache_read * price.cache_read
        + usage.cache_creation * price.cache_write
        + usage.output * price.output
    )
    return for_tokens / 1_000_000 + usage.web_searches * DOLLARS_PER_SEARCH


def _priced_row(model: str) -> KnownModel | None:
    return known_model(priced_as(model) or model)
