"""The context window and its fill level, used by the status line, JSON and triggers alike."""

from typing import Literal

from ..lazy import dataclass, regex
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
CUT_AFTER_REQUESTS = 3  # growing requests with the same count
MIN_GROWTH = 1.2  # of our estimate over these requests
MIN_EXCESS = 1.2  # of our estimate over the server's count
MAX_FLAT_SPREAD = 0.05  # of the server's counts
SAME_NUMBER_SHARE = 0.02  # difference of two counts of the same prompt
_NUMBER = regex(r"(?<![\w.])(?:\d{4,9}|\d{1,3}(?:,\d{3})+)(?![\w.]*\d)")


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


@dataclass(slots=True)
class CutPrompts:
    """Notices that a server cuts prompts without an error: its count of the prompt stays the same
    while the requests grow.
    """

    first: int = 0  # our estimate of the first request with about this count
    counted: int = 0  # the server's largest count since then
    requests: int = 0
    last: int = 0  # our estimate of the last request

    def add(self, estimate: int, counted: int) -> int | None:
        """Note an accepted prompt. Return the size at which the server cuts, None if it does not
        cut.
        """
        is_flat = abs(counted - self.counted) <= self.counted * MAX_FLAT_SPREAD
        if not (is_flat and estimate > self.last):
            self.first, self.counted, self.requests = estimate, counted, 0
        self.last, self.counted = estimate, max(self.counted, counted)
        self.requests += 1
        has_grown = estimate >= max(self.first * MIN_GROWTH, counted * MIN_EXCESS)
        is_cut = counted and self.requests >= CUT_AFTER_REQUESTS and has_grown
        return self.counted if is_cut else None


def window_named(words: str, least: int, prompt: int) -> int | None:
    """Return the number in a refusal that may be the window of a server that refused `prompt`
    tokens: the largest one below the prompt. A number near `prompt` is the prompt itself.
    """
    numbers = (int(found.replace(",", "")) for found in _NUMBER.findall(words))
    limit = prompt * (1 - SAME_NUMBER_SHARE)
    return max((n for n in numbers if least <= n < limit), default=None)


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
