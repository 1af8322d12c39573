"""The context window and how full it is. One function feeds the status line, JSON and triggers."""

from typing import Literal

from ..lazy import dataclass
from .view import MAX_CREDIBLE_FACTOR, View

Level = Literal["GREEN", "YELLOW", "ORANGE", "RED", "CRITICAL"]

LEVELS: tuple[tuple[float, Level], ...] = (  # each with the share of the window that it ends at
    (0.25, "GREEN"),
    (0.50, "YELLOW"),
    (0.75, "ORANGE"),
    (0.85, "RED"),
)
MIN_MARGIN_SHARE = 0.02  # of the window, kept free for the error of estimates
MIN_OUTPUT_TOKENS = 1_024  # a reply shorter than this is of no use


@dataclass(frozen=True, slots=True)
class Window:
    """A context window and what fills it."""

    tokens: int  # of context now
    size: int  # tokens that the window holds
    error: int = 0  # how many more tokens the context may have, for what of it is estimated

    @property
    def share(self) -> float:
        return self.tokens / self.size

    @property
    def level(self) -> Level:
        return next((name for below, name in LEVELS if self.share < below), "CRITICAL")

    @property
    def reserve(self) -> int:
        """Return the tokens that stay free, since the estimates may fall short."""
        return max(self.error, int(self.size * MIN_MARGIN_SHARE))

    @property
    def room(self) -> int:
        """Return the tokens that surely fit next to the context; below 0 where it may be too large
        itself."""
        return self.size - self.tokens - self.reserve

    @property
    def full_at(self) -> int:
        """Return the tokens of context from which on there is no room for a reply of any use."""
        return self.size - self.reserve - MIN_OUTPUT_TOKENS + 1

    @property
    def free(self) -> int:
        """Return the tokens that are neither in use nor in the reserve: the free room that people
        are told about. The next reply takes of it."""
        return max(0, self.room)

    def max_output(self, wanted: int) -> int:
        """Return `max_tokens` for the next call: `wanted`, lowered to what fits, or 0 if that is
        too little to be of use."""
        return min(wanted, self.room) if self.room >= min(wanted, MIN_OUTPUT_TOKENS) else 0


def measure(view: View, size: int) -> Window:
    """Return how the next call's prompt fills a window of `size` tokens, from the last reply's true
    usage and an estimate of what changed since."""
    tokens, estimated = view.prompt_tokens()
    return Window(tokens, size, round(estimated * view.error))


@dataclass(slots=True)
class LearnedWindow:
    """What a server's answers show of one model's window, next to what else is known of it."""

    size: int | None = None  # that it named when it refused a prompt, as long as that is believed
    accepted: int = 0  # tokens of the largest prompt that it took

    def limit(self, size: int) -> int:
        """Return a window of `size` tokens, or the believed one where that is smaller."""
        return min(size, self.size or size)

    def accept(self, tokens: int) -> int | None:
        """Note that a prompt was taken. Return the believed size if this proves it wrong, which is
        then forgotten."""
        self.accepted = max(self.accepted, tokens)
        return self.forget() if self.size is not None and tokens > self.size else None

    def forget(self) -> int | None:
        """Believe no size any more, and return the one that was believed."""
        forgotten, self.size = self.size, None
        return forgotten


def learn_from_refusal(
    window: Window, tokens: int | None, maximum: int | None, *, least: int = 0
) -> tuple[int | None, float]:
    """Return what the refusal of a prompt as too long teaches, from the figures it names.

    The first value is the window's true size, or None when it is not known; the second how many
    times larger the prompt is than `window` has it. Figures that cannot be true of our prompt are
    not believed, and no window below `least` tokens. Without any, all that is known is that the
    prompt was larger than the window.
    """
    factor = (tokens or 0) / max(window.tokens, 1)
    credible = not tokens or 1 / MAX_CREDIBLE_FACTOR <= factor <= MAX_CREDIBLE_FACTOR
    if not maximum or maximum < least or not credible:
        return None, max(1.0, (window.size + 1) / max(window.tokens, 1))
    return maximum, max(1.0, factor)
