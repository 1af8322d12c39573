"""The geometry of a session's chart: a bar per model call with the height of its prompt, and a mark
per compaction between calls. Horizontal lengths are percentages of the width, so that letters keep
their size on any screen.
"""

from collections.abc import Callable, Iterator, Sequence

from ...api.base import dataclass
from ...api.context import done_by
from ...api.pages import round_up
from ...api.record import Assistant, Entry, Mask, Revert, Summary, Usage, reverted_seqs
from ...api.text import count_of

TOP, BOTTOM = 24, 224  # of the plot, in pixels; the marks are above it
_MIN_SLOTS = 12  # minimum number of slots across the width
_MAX_LONG_MASK_MARKS = 30
_MIN_WINDOW_SHARE = 0.25  # below this peak, the chart is scaled to the peak, not to the window
_LEGEND = {"mask": "results cleared or inputs truncated", "summary": "summary", "revert": "undone"}


@dataclass(frozen=True, slots=True)
class WindowScale:
    """The context window that prompts are compared with."""

    window: int  # tokens
    levels: Sequence[tuple[float, str]] = ()  # (upper bound as a share of the window, name)

    @property
    def names(self) -> list[str]:
        return [*(name.lower() for _, name in self.levels), "critical"]

    def level(self, tokens: int) -> str:
        return self.names[sum(tokens >= below * self.window for below, _ in self.levels)]


@dataclass
class SessionChart:
    """The chart of a session with at least one call, for the template `chart.svg.j2`."""

    entries: Sequence[Entry]
    scale: WindowScale | None
    find: Callable[[int], str | None]  # the address of an entry in the page

    def __post_init__(self) -> None:
        self.calls = [entry for entry in self.entries if isinstance(entry, Assistant)]
        self.reverted = reverted_seqs(self.entries)
        self.many_masks = sum(isinstance(e, Mask) for e in self.entries) > _MAX_LONG_MASK_MARKS
        self._slots = max(len(self.calls), _MIN_SLOTS)
        self.gap = 0.1 if self._slots <= 100 else 0.0  # next to a bar, as a share of its slot
        peak = max(map(prompt_tokens, self.calls))
        self._by_window = self.scale is not None and peak >= _MIN_WINDOW_SHARE * self.scale.window
        by_window = self.scale if self._by_window else None
        self._grid_tokens = by_window.window if by_window else 4 * round_up(max(peak, 4) / 4)
        self._top_tokens = max(peak, self._grid_tokens)

    def y(self, tokens: int) -> str:
        share = min(tokens, self._top_tokens) / self._top_tokens
        return f"{TOP + (BOTTOM - TOP) * (1 - share):.1f}"

    def x(self, calls: float) -> str:
        return f"{100 * calls / self._slots:.4g}%"

    def grid(self) -> Iterator[tuple[int, str]]:
        """Yield the tokens and the kind of each horizontal line: the ground, and the quarters of
        the window or of a round number.
        """
        yield 0, "ground"
        for quarter in range(1, 5):
            is_window = self._by_window and quarter == 4
            yield round(self._grid_tokens * quarter / 4), "window" if is_window else ""

    def level(self, call: Assistant) -> str:
        return self.scale.level(prompt_tokens(call)) if self.scale else "green"

    def bar_height(self, call: Assistant) -> str:
        return f"{max(1.0, BOTTOM - float(self.y(prompt_tokens(call)))):.1f}"

    def call_title(self, number: int, call: Assistant) -> str:
        usage = Usage.from_json(call.usage)
        share = f" ({usage.prompt / self.scale.window:.0%} of the window)" if self.scale else ""
        purpose = "" if call.purpose == "turn" else f" · {call.purpose}"
        cached = f", {usage.cache_read:,} of them cached" if usage.cache_read else ""
        return f"Call {number:,} · #{call.seq}{purpose}\n{usage.prompt:,} tokens{share}{cached}"

    def compactions(self) -> Iterator[tuple[Mask | Summary | Revert, str]]:
        """Yield each mask, summary and revert with its horizontal position between the calls."""
        calls = between = 0
        for entry in self.entries:
            if isinstance(entry, Assistant):
                calls, between = calls + 1, 0
            elif isinstance(entry, Mask | Summary | Revert):
                yield entry, self.x(calls + min(0.25 * between, 0.75))
                between += 1

    def compaction_title(self, act: Mask | Summary | Revert) -> str:
        if isinstance(act, Revert):
            title = f"#{act.seq} · #{act.target} undone"
        elif isinstance(act, Mask):
            title = f"#{act.seq} · {done_by(act.layer, len(act.targets))}"
        else:
            title = f"#{act.seq} · summary of {act.span}"
        if not isinstance(act, Revert):
            title += f"\n{act.tokens_before:,} to {act.tokens_after:,} tokens"
        return f"{title}\nundone later" if act.seq in self.reverted else title

    def caption(self) -> str:
        sizes = list(map(prompt_tokens, self.calls))
        window = f"; the window has {self.scale.window:,}" if self.scale else ""
        count = count_of(len(sizes), "call")
        span = f"{max(sizes):,} tokens at most, {sizes[-1]:,} at the last"
        acts = sum(isinstance(entry, Mask | Summary) for entry in self.entries)
        shrunk = f"; compacted {count_of(acts, 'time')}" if acts else ""
        return f"Context at each call of the model: {count}, {span}{window}{shrunk}."

    def legend(self) -> Iterator[tuple[str, str]]:
        """Yield the class and the label of each colour in the chart."""
        if self.scale:
            levels = {self.level(call) for call in self.calls}
            yield from ((level, level) for level in self.scale.names if level in levels)
        kinds = {act.kind for act, _ in self.compactions()}
        yield from ((kind, label) for kind, label in _LEGEND.items() if kind in kinds)


def prompt_tokens(call: Assistant) -> int:
    return Usage.from_json(call.usage).prompt
