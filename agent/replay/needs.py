"""Evicted, then needed: a later call of the recording shows that a result was still wanted that the
context no longer has. Either it asks for the same again and gets the same, or it edits text that
only stood there: then an agent would have had to read it first.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .naming import Known

TELLING = 16  # characters of a line that can be told from others
_NUMBERED = re.compile(r"^\s*\d+\s*[→|:\t]\s?", re.MULTILINE)  # how agents number lines they show


@dataclass(frozen=True, slots=True)
class Missed:
    """A result that was needed: its entry and text, and how that shows."""

    ref: int
    how: str
    text: str


@dataclass(frozen=True, slots=True)
class _Past:
    ref: int
    key: tuple[str, str]
    text: str


@dataclass(slots=True)
class Needs:
    """Gathers the results of one session. Each is needed once at most: what was asked for again
    stands in the context again."""

    _past: list[_Past] = field(default_factory=list)
    _by_key: dict[tuple[str, str], _Past] = field(default_factory=dict)

    def add(self, ref: int, call: Known, text: str) -> None:
        """A result came into the context."""
        past = _Past(ref, _key(call), text)
        self._past.append(past)
        self._by_key[past.key] = past

    def missed(
        self,
        call: Known,
        text: str,
        gone: Callable[[int], bool],
        context: Callable[[], str],
    ) -> Missed | None:
        """What this call needs of what is gone; `text` is its own result. `gone` says whether an
        entry's text has left the context, whose text is `context()`."""
        past = self._by_key.get(_key(call))
        if past is not None and past.text == text and text.strip() and gone(past.ref):
            return Missed(past.ref, "asked again", past.text)
        line = _longest(call.replaced)
        if len(line) < TELLING:
            return None
        past = next((p for p in reversed(self._past) if line in p.text and gone(p.ref)), None)
        if past is None or line in _NUMBERED.sub("", context()):
            return None
        self._past.remove(past)
        return Missed(past.ref, "used", past.text)


def _key(call: Known) -> tuple[str, str]:
    """What a call asks for: the same key asks the same."""
    aside = ("description", "timeout", "timeout_ms", "yield_time_ms", "max_output_tokens")
    given = sorted((k, str(v)) for k, v in call.input.items() if k not in aside)
    return call.name, repr(given)


def _longest(text: str) -> str:
    """The longest line of a text, which tells it best."""
    return max((line.strip() for line in text.splitlines()), key=len, default="")
