"""Find facts that a recorded agent wrote although its replayed context no longer contained them.

Facts are names, paths, places in files, values and runs of words from error lines in earlier
entries. A fact in a reply is lost if nothing in the context contains it: no message, result, reply,
summary, stub or prompt. An agent with that context could only have known the fact from memory. A
lost fact is then in the context again, so it counts once until it leaves again.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Literal

from ...api.base import dataclass, regex

FactKind = Literal["path", "name", "place", "value", "error"]

MIN_NAME_CHARS = 8  # shorter names are common words
MAX_FACT_CHARS = 120
ERROR_WORDS = 5  # consecutive words that identify an error
MAX_HOLDERS = 16  # newest entries kept for one fact

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
    """A fact that a reply contains after it had left the context."""

    number: int  # of the call
    kind: FactKind
    text: str
    ref: int  # the newest entry that contained it


_Fact = tuple[FactKind, str]


@dataclass(slots=True)
class FactDetector:
    """Detector of facts in one session that a reply contains and the context lacks."""

    _holders: dict[_Fact, list[int]] = field(default_factory=dict)  # entries, newest last

    def add(self, ref: int, text: str, *, is_result: bool = False) -> None:
        """Record the facts of an entry that came into the context; for a result, also its error
        lines.
        """
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
        """Yield the facts that the reply of call `number` contains and the context lacks. `is_gone`
        returns True if an entry's text has left the context; `context()` returns the whole text of
        the context.
        """
        words, error_refs = "", set[int]()
        for fact in sorted({*facts_in(written), *_errors(written, any_line=True)}):
            holders = self._holders.get(fact)
            if not holders or not all(map(is_gone, reversed(holders))):
                continue
            kind, text = fact
            words = words or " ".join(context().split())
            if _is_in_text(fact, words):
                continue
            if kind == "error":  # one line has several runs of words
                if holders[-1] in error_refs:
                    continue
                error_refs.add(holders[-1])
            yield LostFact(number, kind, text, holders[-1])


def _is_in_text(fact: _Fact, words: str) -> bool:
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
    """Yield runs of ERROR_WORDS words from the lines that describe an error, or from every line."""
    lines: Iterable[str] = (line[: 4 * MAX_FACT_CHARS] for line in text.splitlines())
    for line in lines:
        if any_line or _ERROR_LINE.search(line):
            words = line.split()
            for at in range(len(words) - ERROR_WORDS + 1):
                run = " ".join(words[at : at + ERROR_WORDS])
                if len(run) <= MAX_FACT_CHARS:
                    yield "error", run
