"""Choose the model: the session's own, the one for plan mode, or the fallback during an overload.

A change is recorded before the next request, like a change by `/model`. So a replay can rebuild
each request, and no model gets another model's thinking.
"""

import time
from collections.abc import Callable
from dataclasses import field

from ..errors import ModelUnavailable
from ..lazy import dataclass
from ..models.base import Model
from ..models.catalog import known_model
from ..models.overview import price_and_window
from ..models.providers import resolve_model

FALLBACK_AFTER_S = 20.0  # of an overload or a rate limit
FALLBACK_S = 120.0  # then the first model is tried again


@dataclass
class ModelRoles:
    """The models of a conversation by role. `make` returns the client for a model ID."""

    own: Model  # the session's model
    make: Callable[[str], Model] | None = None
    plan: str = ""  # model ID for plan mode, "" for none
    fallback: str = ""  # model ID for overloads, "" for none
    clock: Callable[[], float] = time.monotonic
    _clients: dict[str, Model] = field(default_factory=dict)
    _overloaded: str = ""  # ID of the model that the fallback replaces
    _since: float = 0.0
    _has_reported: bool = False

    def choose(self, own: Model, *, planning: bool) -> None:
        """Set the session's own model. With `planning`, also use it in plan mode."""
        self.own, self._overloaded = own, ""
        if planning:
            self.plan = ""

    def fallback_after(self, id: str) -> float | None:
        """Return the seconds of overload after which the fallback is used; None for never."""
        return FALLBACK_AFTER_S if self.fallback not in ("", id) else None

    def client(self, id: str, now: Model) -> Model:
        """Return the client for requests to a model; `now` if that client has the same provider."""
        if self.make is None or resolve_model(id).provider == resolve_model(now.id).provider:
            return now
        return self._client(id)

    def due(self, mode: str) -> Model:
        """Return the model that should answer in a permission mode. Raises UsageError."""
        first = self._client(self.plan) if self.plan and mode == "plan" else self.own
        if self._overloaded != first.id or self.clock() - self._since >= FALLBACK_S:
            self._overloaded = ""
        return self._client(self.fallback) if self._overloaded else first

    @property
    def overloaded(self) -> tuple[str, float]:
        """The ID of the overloaded model ("" for none), and the seconds until it is asked again."""
        return self._overloaded, max(0.0, self._since + FALLBACK_S - self.clock())

    def take_over(self, first: str, error: ModelUnavailable) -> tuple[bool, str]:
        """Switch to the fallback for a while if a model is overloaded. Return True if it takes
        over, and the message for the user.
        """
        if not error.is_overload or self.fallback_after(first) is None:
            return False, ""
        self._overloaded, self._since = first, self.clock()
        has_reported, self._has_reported = self._has_reported, True
        row = known_model(self.fallback)
        prices, _ = price_and_window(None, row.price if row else None)
        told = f"{prices} per million tokens in/out/cached" if prices else "price unknown"
        text = f"{first}: {error.reason}. {self.fallback} answers meanwhile ({told})"
        return True, "" if has_reported else text

    def answered(self, id: str) -> None:
        """Note that a model has answered. If it is not the fallback, the next overload is reported
        again.
        """
        self._has_reported = self._has_reported and id == self.fallback

    async def close(self) -> None:
        """Close all clients."""
        clients = [self.own, *self._clients.values()]
        for place, client in enumerate(clients):
            if client not in clients[:place]:
                await client.close()

    def _client(self, id: str) -> Model:
        assert self.make is not None
        if id not in self._clients:
            self._clients[id] = self.make(id)
        return self._clients[id]
