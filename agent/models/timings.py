"""The timings of a reply, as a local server reports them or as measured here.

llama.cpp adds `timings` to the last chunk, with milliseconds. Ollama has durations in nanoseconds.
For other local servers, the time to the first token and the time of the rest are measured.
"""

import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..events import Accepted, Delta
from ..lazy import dataclass
from ..session.entries import Usage

_MAX_CREDIBLE = 1e15  # of any of these numbers; nanoseconds of ten days
_LLAMA = ("cache_n", "prompt_n", "predicted_n", "prompt_ms", "predicted_ms")
_OLLAMA = ("prompt_eval_count", "eval_count", "prompt_eval_duration", "eval_duration")


def server_timings(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the timings in a chunk of a reply; an empty dict if it has none. `cached` is left out
    if the server does not report it.
    """
    given = event.get("timings")
    if isinstance(given, Mapping):
        cached, read, written, read_ms, written_ms = (_number(given, key) for key in _LLAMA)
        found = _row(read, written, read_ms, written_ms, 1e-3)
        return found if cached is None or not found else {"cached": int(cached), **found}
    read, written, read_ns, written_ns = (_number(event, key) for key in _OLLAMA)
    return _row(read, written, read_ns, written_ns, 1e-9)


def cached_tokens(timings: Mapping[str, Any], prompt: int) -> int:
    """Return how many tokens of the prompt the server read from its cache, by its timings."""
    cached = timings.get("cached", prompt - timings["read"] if timings.get("read") else 0)
    return max(0, min(prompt, int(cached)))


def _row(
    read: float | None,
    written: float | None,
    reading: float | None,
    writing: float | None,
    unit: float,
) -> dict[str, Any]:
    if read is None or written is None or reading is None or writing is None:
        return {}
    seconds = {"read_s": round(reading * unit, 4), "written_s": round(writing * unit, 4)}
    return {"read": int(read), "written": int(written), **seconds, "by": "server"}


def _number(given: Mapping[str, Any], key: str) -> float | None:
    value = given.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if 0 <= value < _MAX_CREDIBLE else None


@dataclass(slots=True)
class Stopwatch:
    """Measures one reply."""

    started: float = field(default_factory=time.monotonic)
    first: float | None = None  # time of the first token

    def note(self, delta: Delta) -> None:
        """Note that a part of the reply has arrived."""
        if self.first is None and not isinstance(delta, Accepted):
            self.first = time.monotonic()

    def timings(self, usage: Usage) -> dict[str, Any]:
        """Return the timings of the finished reply; an empty dict if it was not streamed."""
        if self.first is None or not usage.prompt:
            return {}
        cached = {"cached": usage.cache_read} if usage.cache_read else {}
        return {
            **cached,
            "read": usage.prompt - usage.cache_read,
            "written": usage.output,
            "read_s": round(self.first - self.started, 4),
            "written_s": round(time.monotonic() - self.first, 4),
            "by": "clock",
        }
