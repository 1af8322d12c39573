"""How full the window is, and what room is left. One function feeds status, JSON and triggers."""

from dataclasses import dataclass
from typing import Literal

from .view import CREDIBLE, View

Level = Literal["GREEN", "YELLOW", "ORANGE", "RED", "CRITICAL"]

LEVELS: tuple[tuple[float, Level], ...] = (  # S0 "Context Thresholds"
    (0.25, "GREEN"),
    (0.50, "YELLOW"),
    (0.75, "ORANGE"),
    (0.85, "RED"),
)
MARGIN = 0.02  # of the window, kept free for what an estimate gets wrong
LEAST_OUTPUT = 1_024  # a reply shorter than this is of no use


@dataclass(frozen=True, slots=True)
class Window:
    """`tokens` of context now, of a window of `size` tokens."""

    tokens: int
    size: int

    @property
    def share(self) -> float:
        return self.tokens / self.size

    @property
    def level(self) -> Level:
        return next((name for below, name in LEVELS if self.share < below), "CRITICAL")

    def output(self, wanted: int) -> int:
        """`max_tokens` for the next call: `wanted`, lowered to what fits; 0 when nothing does."""
        room = self.size - self.tokens - int(self.size * MARGIN)
        return min(wanted, room) if room >= min(wanted, LEAST_OUTPUT) else 0


def measure(view: View, size: int) -> Window:
    """The prompt of the next call: the last reply's true usage plus the estimate of all that was
    appended since, or the whole estimate while there is no such base."""
    if view.used is not None and view.size_then is not None:
        grown = max(0, view.size - view.size_then)
        return Window(view.used.total + round(grown * view.ratio), size)
    return Window(round(view.size * view.ratio), size)


def learned(window: Window, tokens: int | None, maximum: int | None) -> tuple[int | None, float]:
    """What a refusal of a prompt as too long teaches: the window's true size, None when it is not
    known, and how many times larger the prompt is than `window` has it. Figures for a prompt that
    ours cannot have been are not believed; without any, it was too much, and no more is known."""
    short = (tokens or 0) / max(window.tokens, 1)
    if not maximum or (tokens and not 1 / CREDIBLE <= short <= CREDIBLE):
        return None, max(1.0, (window.size + 1) / max(window.tokens, 1))
    return maximum, max(1.0, short)
