"""The output of a shell command, with its signs of success and errors.

Most outputs are never read because the exit code is enough. The output is split into lines only on
demand, because the ledger receives every output in a log.
"""

from collections.abc import Sequence
from dataclasses import field
from itertools import islice

from ..lazy import dataclass, regex
from .entries import ToolResult
from .store import content_text

MAX_ERROR_LINES = 6  # kept of a failed command's output
LAST_LINES_DIVISOR = 3  # this part of them are the last lines, and this part named ones
MAX_ERROR_LINE_CHARS = 300  # characters kept of each

# Compared with the output in lower case, like the other signs.
_ERROR_SIGNS = (
    "error", "exception", "traceback", "assert", "denied", "refused", "undefined", "not found",
    "no such", "timed out",
)  # fmt: skip
_ERROR_WORD_BEGINNINGS = ("err!", "fail", "fatal", "panic")
_SIGNS = (*_ERROR_SIGNS, *_ERROR_WORD_BEGINNINGS)
_ERROR_WORD = regex(rf"\b(?:{'|'.join(_ERROR_WORD_BEGINNINGS)})")
_NO_ERRORS = regex(r"\b(?:0|no) (?:errors?|failures?|failed|failing)\b")
_SUCCESS_SIGN = regex(
    r"\b(?:done|ok|pass|passed|success|successful|successfully|succeeded|built|compiled|complete"
    r"|completed|finished)\b|✓|✔|\b(?:0|no) (?:errors?|failures?)\b"
)


_HAS_TEXT = regex(r"\w")
_NOTE = regex(r"\[.*\]")
_FIRST_NAME = regex(r"([\w.+-]+): ")
_WORD = regex(r"[\w.+-]+")


@dataclass(slots=True)
class CommandOutput:
    """The output of a command: the result of its call, or lines."""

    source: ToolResult | Sequence[str]  # a call's result, or lines
    _lines: Sequence[str] | None = field(default=None, init=False)

    @property
    def lines(self) -> Sequence[str]:
        """The lines of the output. For an offloaded output, the lines of its preview."""
        if self._lines is None:
            source = self.source
            if isinstance(source, ToolResult):
                text = content_text(source.content)
                source = lines_of(text, is_preview=bool(source.offloaded))
            self._lines = source
        return self._lines

    def has_success_sign(self) -> bool:
        """Return True if the output has a sign of success and no sign of an error."""
        text = "\n".join(self.lines).lower()
        return not _tells_error(text) and bool(_SUCCESS_SIGN.search(text))

    def ends_with_error(self) -> bool:
        """Return True if the last line that the program printed has a sign of an error."""
        return any(_tells_error(line.lower()) for line in printed_lines(self.lines, 0)[-1:])


def telling_lines(
    lines: Sequence[str],
    exit_code: int | None = None,
    command: str = "",
    count: int = MAX_ERROR_LINES,
) -> tuple[str, ...]:
    """Return the `count` lines that tell most about a failure, in order: the last lines that the
    program printed, the last lines that begin with the name of a program in `command`, and the last
    lines with a sign of an error.

    Each line is cut to MAX_ERROR_LINE_CHARS. Every output has telling lines, in any language: names
    and signs only decide which lines come before the last ones.
    """
    printed = printed_lines(lines, exit_code)
    text = "\n".join(printed).lower()
    signs = [sign for sign in _SIGNS if sign in text]
    places, share = range(len(printed) - 1, -1, -1), count // LAST_LINES_DIVISOR
    names = set(_WORD.findall(command)) if command else ()
    named = (n for n in places if names and (m := _FIRST_NAME.match(printed[n])) and m[1] in names)
    signed = (n for n in places if signs and _has_sign(printed[n].lower(), signs))
    first = (*places[:share], *islice(named, share))
    order = dict.fromkeys((*first, *islice(signed, count), *places[:count]))
    chosen = sorted(islice(order, count))
    return tuple(printed[n][:MAX_ERROR_LINE_CHARS] for n in chosen)


def printed_lines(lines: Sequence[str], exit_code: int | None) -> list[str]:
    """Return the lines that a program printed, without blank lines and lines of punctuation.

    The notes of the Bash tool are left out: the lines in brackets from `[exit N]` on. So is the
    first or last line of another agent's result, if it only repeats the exit code in words.
    """
    shown = [line for line in lines if _HAS_TEXT.search(line)]
    notes = len(shown)
    while notes and _NOTE.fullmatch(shown[notes - 1].strip()):
        notes -= 1
    if exit_code is None:
        return shown
    repeats = regex(rf"[\[(<]*(?:[^\W\d_]+:? ){{1,6}}{exit_code}(?: \([^()]*\))?[\])>.]*")
    for place in range(notes, len(shown)):
        if exit_code < 0 or repeats.fullmatch(shown[place]):
            return shown[:place]
    for place in (0, -1):
        if len(shown) > 1 and repeats.fullmatch(shown[place]):
            del shown[place]
            break
    return shown


def _tells_error(text: str) -> bool:
    """Return True if a text in lower case has a sign of an error, other than a count of zero."""
    return has_error_sign(text) and has_error_sign(_NO_ERRORS.sub("", text))


def has_error_sign(text: str) -> bool:
    """Return True if a text has a sign of an error."""
    return _has_sign(text.lower(), _SIGNS)


def _has_sign(text: str, signs: Sequence[str]) -> bool:
    """Return True if a text contains one of these signs. Separate searches take a tenth of the time
    of one regular expression with all signs.
    """
    for sign in signs:
        if sign in text and (sign in _ERROR_SIGNS or _ERROR_WORD.search(text)):
            return True
    return False


def lines_of(text: str, *, is_preview: bool) -> list[str]:
    """Return the lines of an output. `is_preview` means that the output went to a file, so that the
    text quotes only some of its lines.
    """
    lines = [line.rstrip() for line in text.split("\n")]
    if is_preview:
        lines = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    return lines
