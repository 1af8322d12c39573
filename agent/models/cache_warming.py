"""When it pays to keep a prompt in the server's cache through a pause.

Whoever comes back after the cache has ended pays for writing the whole prompt again: a *miss*. A
request that has the prompt read once more keeps it for another while, at the price of reading it.
Nobody knows when, or whether, a person comes back, so this is the question of who may rent or buy
skis: the readings go on only until they have cost together what the miss would. Then the worst case
is twice the price of doing the right thing from the start.
"""

from collections.abc import Iterator

from ..session.entries import Usage
from .catalog import cache_life, cache_prices, cost

WARM_AFTER = 0.9  # of the cache's life since the prompt was read last
LEAST_MISS_USD = 0.05  # a miss that costs less is not worth the requests


def warming_times(model: str, read_at: float, until: float) -> Iterator[float]:
    """Yield when to have a prompt read again that was read last at `read_at`: none after `until`,
    and none with which they would cost as much as a miss. All in seconds."""
    read, write = cache_prices(model)
    at, spent = read_at, read
    while (at := at + WARM_AFTER * cache_life(model)) <= until and spent < write - read:
        yield at
        spent += read


def miss_usd(model: str, prompt: int) -> float | None:
    """Return what it costs to write a prompt to the cache instead of reading it there; None where
    the price is not known."""
    written, read = cost(model, Usage(cache_creation=prompt)), reading_usd(model, prompt)
    return None if written is None or read is None else written - read


def reading_usd(model: str, prompt: int) -> float | None:
    """Return what it costs to read a prompt from the cache; None where the price is not known."""
    return cost(model, Usage(cache_read=prompt))
