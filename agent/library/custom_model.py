"""The base of models that a program brings itself."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from ..context.request import Request
from ..events import Delta
from ..models.base import Abilities, Reply, abilities_of
from ..models.catalog import Limits


class CustomModel(ABC):
    """A model of a program's own: subclasses write `stream`. `id` is shown and recorded; `window`
    and `output` are the tokens that it takes and gives in one call."""

    def __init__(self, id: str, *, window: int = 200_000, output: int = 32_000) -> None:
        self.id = id
        self._limits = Limits(window, output, "setting")

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
