"""The base of models that a program brings itself."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from ..context.request import Request
from ..events import Delta
from ..models.base import Abilities, Reply, abilities_of
from ..models.catalog import Limits, add_prices
from ..models.price_data import Price


class CustomModel(ABC):
    """A model of a program's own: subclasses write `stream`. `id` is shown and recorded; `window`
    and `output` are the tokens that it takes and gives in one call.

    The prices are in dollars per million tokens. Without `input_price` and `output_price` the cost
    is not known, and no budget in dollars can be kept. What the server's prompt cache reads and
    writes costs as much as other input if no price is given."""

    def __init__(
        self,
        id: str,
        *,
        window: int = 200_000,
        output: int = 32_000,
        input_price: float | None = None,
        output_price: float | None = None,
        cache_read_price: float | None = None,
        cache_write_price: float | None = None,
    ) -> None:
        """Raises ValueError for prices of which some are missing or impossible."""
        self.id = id
        self._limits = Limits(window, output, "setting")
        given = (input_price, output_price, cache_read_price, cache_write_price)
        if input_price is not None and output_price is not None:
            read = input_price if cache_read_price is None else cache_read_price
            write = input_price if cache_write_price is None else cache_write_price
            add_prices(id, Price(input_price, output_price, read, write))
        elif given != (None,) * len(given):
            raise ValueError("input_price and output_price go together")

    @abstractmethod
    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield what the reply says as it comes, such as TextDelta, if anything, and last the one
        Reply. The request has `system`, `tools` and `messages` as the Messages API has them
        (https://platform.claude.com/docs/en/api/messages). A ModelError ends the turn."""

    @property
    def abilities(self) -> Abilities:
        """What the model can do; a subclass may say otherwise."""
        return abilities_of(self.id)

    def assumed_limits(self) -> Limits:
        """Return the tokens that the model takes and gives."""
        return self._limits

    async def limits(self) -> Limits:
        """Return the tokens that the model takes and gives."""
        return self._limits

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of what the model holds."""
