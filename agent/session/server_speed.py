"""The speed of a model's server, from the timings of its replies in a log.

A prompt token takes a fixed time and a time for each token before it (attention); so does a token
of a reply. Both are fitted to the recorded timings. A replay of the log gives the same figures.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..lazy import dataclass
from .entries import Assistant

MIN_READ_TOKENS = 32  # a shorter prompt measures the overhead of a request
MIN_WRITTEN_TOKENS = 4


@dataclass(frozen=True, slots=True)
class TokenSeconds:
    """The seconds per token of a server, and the use of a call so far."""

    prefill: float  # a prompt token that is not in the cache
    prefill_behind: float  # in addition, for each token before it
    output: float  # a token of a reply
    output_behind: float  # in addition, for each token before it
    read_per_call: float  # average prompt tokens that were not in the cache
    written_per_call: float  # average tokens of a reply

    def prefill_at(self, context: int) -> float:
        """Return the seconds to read a token behind `context` tokens."""
        return self.prefill + self.prefill_behind * context

    def output_at(self, context: int) -> float:
        """Return the seconds to write a token behind `context` tokens."""
        return self.output + self.output_behind * context

    def kept(self) -> float:
        """Return the seconds that a token in the cache adds to each call."""
        behind = self.prefill_behind * self.read_per_call
        return behind + self.output_behind * self.written_per_call

    def seconds(self, cached: int, read: int, written: int) -> float:
        """Return the seconds of a call."""
        reading = read * self.prefill_at(cached + read // 2)
        return reading + written * self.output_at(cached + read + written // 2)


@dataclass(slots=True)
class _Fit:
    """Least squares of seconds per token over the tokens before it, with weights by tokens."""

    tokens: float = 0.0
    before: float = 0.0  # sums from here on, weighted by tokens
    squares: float = 0.0
    seconds: float = 0.0
    products: float = 0.0

    def add(self, tokens: int, before: float, seconds: float) -> None:
        """Add a measurement of `tokens` tokens, on average behind `before` tokens."""
        self.tokens += tokens
        self.before += tokens * before
        self.squares += tokens * before * before
        self.seconds += seconds
        self.products += seconds * before

    def result(self) -> tuple[float, float]:
        """Return the seconds per token, and in addition per token before it.

        Short reads cost more per token, which looks like an effect of the tokens before them. So at
        least half of the mean counts as independent of them: it is never zero.
        """
        mean, before = self.seconds / self.tokens, self.before / self.tokens
        spread = self.squares / self.tokens - before * before
        slope = (self.products / self.tokens - mean * before) / spread if spread > 1 else 0.0
        slope = min(max(0.0, slope), mean / before / 2 if before else 0.0)
        return mean - slope * before, slope


@dataclass(slots=True)
class ServerSpeed:
    """The speed of one model's server, from all replies so far."""

    calls: int = 0
    _prompt: int = 0  # tokens of the newest prompt and its reply; 0 after an edit of the history
    _read: _Fit = field(default_factory=_Fit)
    _written: _Fit = field(default_factory=_Fit)

    def add(self, entry: Assistant) -> None:
        """Add the timings of a reply, if it has any."""
        given, known = entry.timings, self._prompt
        cached, read, seconds = (_number(given, key) for key in ("cached", "read", "read_s"))
        written, writing = _number(given, "written"), _number(given, "written_s")
        self._prompt = int(cached + read + written)
        if given.get("by") != "server" and "cached" not in given:
            # Only the growth of the prompt was read, if the server reuses the prefix.
            cached, read = (known, read - known) if known else (0, 0)
        if read >= MIN_READ_TOKENS and seconds:
            self._read.add(int(read), cached + read / 2, seconds)
        if written >= MIN_WRITTEN_TOKENS and writing:
            self._written.add(int(written), cached + read + written / 2, writing)
        self.calls += bool(seconds or writing)

    def note_edit(self) -> None:
        """Note that the history was edited: the growth of the next prompt is unknown."""
        self._prompt = 0

    def per_token(self) -> TokenSeconds | None:
        """Return the seconds per token; None until both speeds are measured."""
        if not (self._read.tokens and self._written.tokens):
            return None
        calls = max(1, self.calls)
        used = self._read.tokens / calls, self._written.tokens / calls
        return TokenSeconds(*self._read.result(), *self._written.result(), *used)


def _number(given: Mapping[str, Any], key: str) -> float:
    value = given.get(key, 0)
    return value if type(value) in (int, float) and value > 0 else 0
