"""The windows and prices of known models."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...tools.system.files import read_below
from ..errors import ConfigError, UsageError

if TYPE_CHECKING:
    from ..session.entries import Usage

MESSAGES = "messages"  # the wire protocol of models where no row says otherwise
CACHE_READ_FACTOR = 0.1  # of the input price, where no row says otherwise
CACHE_WRITE_FACTOR = 1.25  # of the input price, where no row says otherwise
CACHE_LIFE_S = 300.0  # since the entry was used last, where no row says otherwise
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
    cache_write: float
    surcharge_above: int | None = None  # tokens of the prompt
    surcharge_factor: float = 1.0  # of all these prices, for a prompt above that


@dataclass(frozen=True, slots=True)
class CacheTerms:
    """What a server's prompt cache costs, and how long it lives."""

    read: float = CACHE_READ_FACTOR  # price, as a share of that of input
    write: float = CACHE_WRITE_FACTOR
    life: float = CACHE_LIFE_S  # seconds that a prefix is kept after its last use


class KnownModel(NamedTuple):
    """A row of the table."""

    limits: Limits
    price: Price
    thinking: bool = False  # whether it takes adaptive thinking and an effort
    cache_life: float = CACHE_LIFE_S  # seconds that the server keeps a prefix after its last use
    compaction: bool = False  # whether the API summarises a conversation of it by itself
    protocol: str = MESSAGES  # its wire protocol, by the name in `factory`


DEFAULT_LIMITS = Limits(200_000, 32_000, "default")  # for a model of which nothing is known
FILE_NAME = "models.toml"
MAX_FILE_BYTES = 1 << 20

_added: dict[str, KnownModel] = {}  # that the person's file has


@cache
def _built_in() -> dict[str, KnownModel]:
    return _read(Path(__file__).with_name(FILE_NAME).read_bytes())


def known_models() -> dict[str, KnownModel]:
    """Return what is known of models, by their ids: the person's own first."""
    return {**_added, **{id: row for id, row in _built_in().items() if id not in _added}}


def add_models(path: Path) -> None:
    """Know from now on what a person's file says of models, if there is one. Raises ConfigError."""
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


def _read(data: bytes) -> dict[str, KnownModel]:
    """Raises ValueError and TypeError, saying which model is wrong."""
    import tomllib

    found = dict[str, KnownModel]()
    for id, row in tomllib.loads(data.decode()).items():
        try:
            found[id] = _row(row)
        except KeyError as missing:
            raise ValueError(f"[{id}] has no {missing.args[0]}") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"[{id}]: {error}") from None
    return found


def _row(row: Mapping[str, Any]) -> KnownModel:
    given = dict(row)
    limits = Limits(_tokens(given.pop("window")), _tokens(given.pop("output")), "table")
    price = Price(
        _dollars(first := given.pop("input_price")),
        _dollars(given.pop("output_price")),
        _dollars(given.pop("cache_read_price", CACHE_READ_FACTOR * first)),
        _dollars(given.pop("cache_write_price", CACHE_WRITE_FACTOR * first)),
        given.pop("surcharge_above", None),
        given.pop("surcharge_factor", 1.0),
    )
    thinking, _ = bool(given.pop("thinking", False)), given.pop("date", None)
    compaction = bool(given.pop("compaction", False))
    cache_life = _seconds(given.pop("cache_life", CACHE_LIFE_S))
    protocol = str(given.pop("protocol", MESSAGES))
    if given:
        raise ValueError(f"{', '.join(given)} is nothing that is known of models")
    return KnownModel(limits, price, thinking, cache_life, compaction, protocol)


def _tokens(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is no number of tokens")
    return value


def _dollars(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e6:
        raise ValueError(f"{value!r} is no price in dollars")
    return float(value)


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < 1e6:
        raise ValueError(f"{value!r} is no number of seconds")
    return float(value)


def known_model(model: str) -> KnownModel | None:
    """Return the table's row for a model id, also a dated one (`claude-haiku-4-5-20251001`)."""
    known = known_models()
    if model in known:
        return known[model]
    base, _, date = model.rpartition("-")
    return known.get(base) if len(date) == 8 and date.isdigit() else None


def check_price(model: str) -> None:
    """Raise UsageError for a model without a known price, which cannot be held to a budget."""
    if known_model(model) is None:
        raise UsageError(
            f"the price of {model} is not known, so a budget in dollars cannot be kept",
            hint="Use --max-turns, or a model with a known price.",
        )


def model_of_family(name: str) -> str:
    """Return the newest known model of a family (`haiku`), or the name as it is."""
    return next((id for id in known_models() if f"-{name}-" in id), name)


def scripted_id(priced_as: str) -> str:
    """Return an id for a scripted model that has the prices of another, which nobody pays."""
    return f"{_PRICED_AS}{priced_as}"


def priced_as(model: str) -> str | None:
    """Return the model whose prices a scripted one has; None for all others."""
    return model.removeprefix(_PRICED_AS) if model.startswith(_PRICED_AS) else None


def cache_terms(model: str) -> CacheTerms:
    """Return the terms of a model's prompt cache. A model that is not in the table has the default
    terms, and so do the prices of a free one."""
    row = _priced_row(model)
    if row is None or not row.price.input:
        return CacheTerms(life=row.cache_life if row else CACHE_LIFE_S)
    price = row.price
    return CacheTerms(
        price.cache_read / price.input, price.cache_write / price.input, row.cache_life
    )


def price_factor(model: str, prompt: int) -> float:
    """Return by what all of a model's prices are multiplied for a prompt of so many tokens."""
    price = row.price if (row := _priced_row(model)) else None
    if price is None or price.surcharge_above is None or prompt <= price.surcharge_above:
        return 1.0
    return price.surcharge_factor


def cost(model: str, usage: "Usage") -> float | None:
    """Return the dollars that one call costs, or None when the model's price is not known."""
    row = _priced_row(model)
    if row is None:
        return None
    price = row.price
    dollars = (
        usage.input * price.input
        + usage.cache_read * price.cache_read
        + usage.cache_creation * price.cache_write
        + usage.output * price.output
    )
    for_tokens = price_factor(model, usage.prompt) * dollars / 1_000_000
    return for_tokens + usage.web_searches * DOLLARS_PER_SEARCH


def _priced_row(model: str) -> KnownModel | None:
    return known_model(priced_as(model) or model)
