"""The context window and its fill level, used by the status line, JSON and triggers alike."""

from typing import Literal

from ..lazy import dataclass
from .view import MAX_CREDIBLE_FACTOR, View

Level = Literal["GREEN", "YELLOW", "ORANGE", "RED", "CRITICAL"]

LEVELS: tuple[tuple[float, Level], ...] = (  # (upper limit as a share of the window, level)
    (0.25, "GREEN"),
    (0.50, "YELLOW"),
    (0.75, "ORANGE"),
    (0.85, "RED"),
)
MIN_MARGIN_SHARE = 0.02  # of the window, kept free because estimates may be too low
MIN_OUTPUT_TOKENS = 1_024  # the smallest useful reply


@dataclass(frozen=True, slots=True)
class Window:
    """A context window and the tokens in it."""

    tokens: int  # of context now
    size: int  # tokens of the window
    error: int = 0  # possible extra tokens of context, because part of it is estimated

    @property
    def share(self) -> float:
        return self.tokens / self.size

    @property
    def level(self) -> Level:
        return next((name for below, name in LEVELS if self.share < below), "CRITICAL")

    @property
    def reserve(self) -> int:
        """The tokens kept free because estimates may be too low."""
        return max(self.error, int(self.size * MIN_MARGIN_SHARE))

    @property
    def room(self) -> int:
        """The tokens that certainly fit next to the context. Negative if the context itself may be
        too large.
        """
        return self.size - self.tokens - self.reserve

    @property
    def full_at(self) -> int:
        """The tokens of context from which on no useful reply fits."""
        return self.size - self.reserve - MIN_OUTPUT_TOKENS + 1

    @property
    def free(self) -> int:
        """The tokens outside the context and the reserve, as shown to users. The next reply uses
        them.
        """
        return max(0, self.room)

    def max_output(self, wanted: int) -> int:
        """Return `max_tokens` for the next call: `wanted`, lowered to what fits, or 0 if too little
        fits for a useful reply.
        """
        return min(wanted, self.room) if self.room >= min(wanted, MIN_OUTPUT_TOKENS) else 0


def measure(view: View, size: int) -> Window:
    """Return how the next prompt fills a window of `size` tokens, from the last reply's real usage
    and an estimate of later changes.
    """
    tokens, estimated = view.prompt_tokens()
    return Window(tokens, size, round(estimated * view.error))


@dataclass(slots=True)
class LearnedWindow:
    """The size of a model's window as learned from the server's answers."""

    size: int | None = None  # tokens, as named in a refusal; None once disproved
    accepted: int = 0  # tokens of the largest accepted prompt

    def limit(self, size: int) -> int:
        """Return `size`, or the learned size if that is smaller."""
        return min(size, self.size or size)

    def accept(self, tokens: int) -> int | None:
        """Note that the server accepted a prompt. If this disproves the learned size, forget that
        size and return it.
        """
        self.accepted = max(self.accepted, tokens)
        return self.forget() if self.size is not None and tokens > self.size else None

    def forget(self) -> int | None:
        """Forget the learned size and return it."""
        forgotten, self.size = self.size, None
        return forgotten


def learn_from_refusal(
    window: Window, tokens: int | None, maximum: int | None, *, least: int = 0
) -> tuple[int | None, float]:
    """Return what a "prompt too long" refusal teaches, from the figures in it.

    The first value is the window's real size, or None if unknown. The second is the prompt's real
    size divided by the size in `window`. Ignore figures that do not match our prompt, and windows
    below `least` tokens. Without usable figures, assume only that the prompt was larger than the
    window.
    """
    factor = (tokens or 0) / max(window.tokens, 1)
    credible = not tokens or 1 / MAX_CREDIBLE_FACTOR <= factor <= MAX_CREDIBLE_FACTOR
    if not maximum or maximum < least or not credible:
        return None, max(1.0, (window.size + 1) / max(window.tokens, 1))
    return maximum, max(1.0, factor)
