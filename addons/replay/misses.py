"""Find results and inputs that a recorded session needed after they had left the context.

A later call shows the need in one of three ways: it repeats an earlier call and gets the same
result; it recalls a result by its ref, as our own sessions do; or it edits text that only an old
result or an earlier call's input contained. In the last case an agent would have had to read the
text first.
"""

import re
from collections.abc import Callable
from dataclasses import field

from ...api.base import dataclass, regex
from ...api.recordings import TranslatedCall
from ...api.text import strings_in
from .results import NeedKind

MIN_TELLING_LINE_CHARS = 16  # shorter lines occur in many results
_LINE_NUMBER = regex(r"^\s*\d+\s*[→|:\t]\s?", re.MULTILINE)  # line number prefixes of other agents
WRITTEN_ARGUMENTS = ("content", "new_string")
_INCIDENTAL = ("description", "timeout", "timeout_ms", "yield_time_ms", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class NeededResult:
    """A result that was needed after it had left the context."""

    ref: int  # its entry
    how: NeedKind
    text: str


@dataclass(frozen=True, slots=True)
class _Result:
    ref: int
    text: str


@dataclass(slots=True)
class NeedDetector:
    """Detector of the results in one session that a call needs and the context lacks. Each result
    is found at most once, because a repeated call brings it back into the context.
    """

    _results: list[_Result] = field(default_factory=list)
    _newest: dict[tuple[str, str], _Result] = field(default_factory=dict)  # by _key of the call
    _given: dict[str, _Result] = field(default_factory=dict)  # by ref in the recording

    def add(self, ref: int, call: TranslatedCall, text: str, *, recorded: str = "") -> None:
        """Record a result; `recorded` is its ref, or the ref it repeats, in the recording."""
        result = _Result(ref, text)
        self._results.append(result)
        self._newest[_key(call)] = result
        self._given[recorded] = result

    def add_input(self, ref: int, call: TranslatedCall) -> None:
        """Record the input of a call; for a call that changes a file, only the text it wrote."""
        given = [call.input.get(name) for name in WRITTEN_ARGUMENTS] if call.changes else call.input
        if text := "\n".join(strings_in(given)):
            self._results.append(_Result(ref, text))

    def find(
        self,
        call: TranslatedCall,
        text: str,
        is_gone: Callable[[int], bool],
        context: Callable[[], str],
        recalls: str = "",
    ) -> NeededResult | None:
        """Return the result that a call needs although it has left the context, or None.

        `text` is the call's own result. `is_gone` returns True if an entry's text has left the
        context; `context()` returns the whole text of the context. `recalls` is the ref, in the
        recording, of the result that the call reads again.
        """
        if recalls:
            given = self._given.get(recalls)
            if given is None or not is_gone(given.ref):
                return None
            return NeededResult(given.ref, "asked again", given.text)
        same = self._newest.get(_key(call))
        if same is not None and same.text == text and text.strip() and is_gone(same.ref):
            return NeededResult(same.ref, "asked again", same.text)
        line = max((line.strip() for line in call.replaced.splitlines()), key=len, default="")
        if len(line) < MIN_TELLING_LINE_CHARS:
            return None
        shown = (old for old in reversed(self._results) if line in old.text and is_gone(old.ref))
        used = next(shown, None)
        if used is None or line in _LINE_NUMBER.sub("", context()):
            return None
        self._results.remove(used)
        return NeededResult(used.ref, "used", used.text)


def _key(call: TranslatedCall) -> tuple[str, str]:
    """Return a key that is equal for calls with the same request."""
    given = sorted((k, str(v)) for k, v in call.input.items() if k not in _INCIDENTAL)
    return call.name, repr(given)
