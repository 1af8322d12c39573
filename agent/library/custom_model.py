"""The base class of models that a program supplies."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from ..context.request import Request
from ..events import Delta
from ..models.base import Abilities, Reply, abilities_of
from ..models.catalog import Limits, Price, add_prices
from ..models.gaps import ServerGaps


class CustomModel(ABC):
    """A model of the program. Subclasses define `stream`. `id` is shown and logged; `window` and
    `output` are the largest prompt and reply in tokens.

    Prices are in dollars per million tokens. Without `input_price` and `output_price` the cost is
    unknown, and a budget in dollars is an error. Cache reads and writes cost as much as other input
    by default.
    """

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
        """Raises ValueError for an invalid price. Also raises it if only one of `input_price` and
        `output_price` is given, or another price without both.
        """
        self.id, self.gaps = id, ServerGaps(None, "", id, {})
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
        """Yield the parts of the reply as they arrive, such as TextDelta, and the Reply last. The
        request has `system`, `tools` and `messages` in the format of the Messages API
        (https://platform.claude.com/docs/en/api/messages). A ModelError ends the turn.
        """

    @property
    def abilities(self) -> Abilities:
        """The abilities of the model. Subclasses may override them."""
        return abilities_of(self.id)

    def assumed_limits(self) -> Limits:
        """Return the largest prompt and reply in tokens."""
        return self._limits

    async def limits(self) -> Limits:
        """Return the largest prompt and reply in tokens."""
        return self._limits

    async def close(self) -> None:  # noqa: B027 - most models have no resources
        """Release the resources of the model."""
