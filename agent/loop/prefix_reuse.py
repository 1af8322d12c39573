"""Notices that a local server reads the whole prompt at every call."""

from collections.abc import Mapping
from typing import Any

from ..lazy import dataclass

MIN_PROMPT_TOKENS = 500  # a smaller prompt costs little
MIN_READ_S = 5.0  # a measured time below this proves nothing
MAX_GROWTH_SHARE = 0.05  # of a prompt whose reading was measured by a clock
SAME_SPEED_SHARE = 0.7  # of the most seconds per token of a prompt so far
CALLS_BEFORE_WARNING = 2  # without reuse, in a row: another client may have used the server once
NO_REUSE = (
    "the server reads the whole prompt again at every call ({seconds:.0f} s for the last one): it "
    "seems to reuse no prefix. llama.cpp: serve with one slot (`-np 1`), and leave cache_prompt "
    "on and context shift off. Ollama: set num_ctx (OLLAMA_CONTEXT_LENGTH) to the whole window, "
    "and keep_alive (OLLAMA_KEEP_ALIVE) to an hour. Let no other program use the same slot"
)


@dataclass(slots=True)
class PrefixReuse:
    """The reuse of prompts by the server of one conversation."""

    calls: int = 0  # in a row without reuse
    prompt: int = 0  # tokens of the newest prompt
    slowest: float = 0.0  # the most seconds per token of a whole prompt

    def add(self, timings: Mapping[str, Any]) -> bool:
        """Add the timings of a reply. Return True if the server seems to reuse no prefix."""
        before, cached = self.prompt, timings.get("cached", 0)
        self.prompt = cached + timings.get("read", 0)
        if self.prompt < MIN_PROMPT_TOKENS:
            return False
        per_token = timings.get("read_s", 0.0) / self.prompt
        if timings.get("by") == "server":
            is_read_again = before >= MIN_PROMPT_TOKENS and not cached
        else:
            growth = self.prompt - before
            is_read_again = (
                not cached
                and 0 <= growth <= MAX_GROWTH_SHARE * self.prompt
                and timings.get("read_s", 0.0) >= MIN_READ_S
                and per_token >= SAME_SPEED_SHARE * self.slowest
            )
        self.slowest = max(self.slowest, per_token)
        self.calls = self.calls + 1 if is_read_again else 0
        return self.calls >= CALLS_BEFORE_WARNING
