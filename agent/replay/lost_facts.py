"""Facts that a recorded agent wrote though its context, as it is replayed, no longer had them.

Names, paths, places in files, values and words of errors that stood in earlier entries are noted.
A later reply may write one of them when it stands nowhere in the context any more: neither in
messages, results and replies nor in summaries, stubs and the prompt. An agent with that context
could not have written it, or only from memory of its own. A fact is counted once until it is gone
again: the reply that wrote it has it from then on.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Literal

from ..lazy import dataclass, regex

FactKind = Literal["path", "name", "place", "value", "error"]

MIN_NAME_CHARS = 8  # shorter names are common words
MAX_FACT_CHARS = 120
ERROR_WORDS = 5  # words of an error in a row that are taken for the same error
MAX_HOLDERS = 16  # newest entries that are remembered of one fact

_WORD = regex(r"[A-Za-z0-9_./~@:-]*[A-Za-z0-9_][A-Za-z0-9_./~@:-]*")
_PATH = regex(r"[^:]*/[^:]*")
_IN_PATH = regex(r"\w\.\w|/\w[^/]*/")
_PLACE = regex(r"([\w./~@-]*\.\w+):(\d+)(?::\d+)?")
_FRAME = regex(r'File "([^"\n]+)", line (\d+)')  # of a Python traceback
_VALUE = regex(r"v?\d+(?:\.\d+)+|\d{4,}|(?=[a-f]*\d)[0-9a-f]{7,40}")
_NAME = regex(
    r"_*[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+"  # snake_case
    r"|_*[a-z]+[0-9]*(?:[A-Z][A-Za-z0-9]*)+|[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+"  # camelCase
)
_ERROR_LINE = regex(r"error|exception|\bfail|\bfatal|\bpanic|denied|not found|no such", re.I)


@dataclass(frozen=True, slots=True)
class LostFact:
    """A fact that a reply wrote after it had left the context."""

    number: int  # of the call
    kind: FactKind
    text: str
    ref: int  # the newest entry that it stood in


_Fact = tuple[FactKind, str]


@dataclass(slots=True)
class FactDetector:
    """Finds the facts of one session that a reply writes and the context lacks."""

    _holders: dict[_Fact, list[int]] = field(default_factory=dict)  # entries, the newest last

    def add(self, ref: int, text: str, *, is_result: bool = False) -> None:
        """Note what came into the context with an entry; of results also words of errors."""
        for fact in {*facts_in(text), *(_errors(text) if is_result else ())}:
            holders = self._holders.setdefault(fact, [])
            if not holders or holders[-1] != ref:
                holders.append(ref)
                del holders[:-MAX_HOLDERS]

    def find(
        self,
        number: int,
        written: str,
        is_gone: Callable[[int], bool],
        context: Callable[[], str],
    ) -> Iterator[LostFact]:
        """Yield what the reply of call `number` wrote and the context lacks. `is_gone` says whether
        an entry's text has left the context, whose whole text is `context()`."""
        words, error_refs = "", set[int]()
        for fact in sorted({*facts_in(written), *_errors(written, any_line=True)}):
            holders = self._holders.get(fact)
            if not holders or not all(map(is_gone, reversed(holders))):
                continue
            kind, text = fact
            words = words or " ".join(context().split())
            if _stands_in(fact, words):
                continue
            if kind == "error":  # one line has several runs of words
                if holders[-1] in error_refs:
                    continue
                error_refs.add(holders[-1])
            yield LostFact(number, kind, text, holders[-1])


def _stands_in(fact: _Fact, words: str) -> bool:
    kind, text = fact
    if kind != "place":
        return text in words
    name, _, line = text.rpartition(":")
    return text in words or f'{name}", line {line}' in words


def facts_in(text: str) -> Iterator[_Fact]:
    """Yield the paths, places, values and names in a text."""
    for path, line in _FRAME.findall(text):
        yield "place", f"{path.rpartition('/')[2]}:{line}"
    for match in _WORD.finditer(text):
        word = match[0].strip(".:/-~@")
        if not MAX_FACT_CHARS >= len(word) > 3:
            continue
        if place := _PLACE.fullmatch(word):
            yield "place", f"{place[1].rpartition('/')[2]}:{place[2]}"
            word = place[1]
        if _PATH.fullmatch(word) and _IN_PATH.search(word):
            yield "path", word
            continue
        for part in re.split(r"[/:.@~-]+", word) if not _VALUE.fullmatch(word) else [word]:
            if _VALUE.fullmatch(part):
                yield "value", part
            elif len(part) >= MIN_NAME_CHARS and _NAME.fullmatch(part):
                yield "name", part


def _errors(text: str, *, any_line: bool = False) -> Iterator[_Fact]:
    """Yield the runs of words in the lines that describe an error, or in any line."""
    lines: Iterable[str] = (line[: 4 * MAX_FACT_CHARS] for line in text.splitlines())
    for line in lines:
        if any_line or _ERROR_LINE.search(line):
            words = line.split()
            for at in range(len(words) - ERROR_WORDS + 1):
                run = " ".join(words[at : at + ERROR_WORDS])
                if len(run) <= MAX_FACT_CHARS:
                    yield "error", run
