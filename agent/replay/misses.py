"""Results and inputs that a recorded session needed again after they had left the context.

A later call shows the need. It asks for the same again and gets the same, or it recalls the result
by its ref, as our own sessions do. Or it edits text that stood only in the result, or in what an
earlier call had written, so that an agent would have had to read it first.
"""

import re
from collections.abc import Callable
from dataclasses import field

from ...tools.text import strings_in
from ..lazy import dataclass, regex
from .results import NeedKind
from .tool_names import TranslatedCall

MIN_TELLING_LINE_CHARS = 16  # shorter lines stand in many results
_LINE_NUMBER = regex(r"^\s*\d+\s*[→|:\t]\s?", re.MULTILINE)  # as agents number shown lines
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
    """Finds, among the results of one session, those that a call needs and the context lacks. Each
    is needed once at most: what was asked for again stands in the context again."""

    _results: list[_Result] = field(default_factory=list)
    _newest: dict[tuple[str, str], _Result] = field(default_factory=dict)  # by what was asked for
    _given: dict[str, _Result] = field(
        default_factory=dict
    )  # by the id of the call, newest of each

    def add(self, ref: int, call: TranslatedCall, text: str, *, recorded: str = "") -> None:
        """Note a result that came into the context. `recorded` is its ref in the recording, or that
        of the result which it gave again."""
        result = _Result(ref, text)
        self._results.append(result)
        self._newest[_key(call)] = result
        self._given[recorded] = result

    def add_input(self, ref: int, call: TranslatedCall) -> None:
        """Note what a call was given: of one that changes a file, what it wrote."""
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
        """Return the result that a call needs though it is gone, or None.

        `text` is the call's own result. `is_gone` says whether an entry's text has left the
        context, whose whole text is `context()`. `recalls` is the ref in the
        recording of the result that it reads again.
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
    """Return what a call asks for: calls with the same key ask for the same."""
    given = sorted((k, str(v)) for k, v in call.input.items() if k not in _INCIDENTAL)
    return call.name, repr(given)
