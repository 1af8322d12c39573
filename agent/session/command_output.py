"""The output of a command and its signs of success and errors.

Most outputs are never read because the exit code is enough. The output is split into lines only on
demand, because the ledger receives every output in a log.
"""

from collections.abc import Sequence
from dataclasses import field
from itertools import islice

from ..lazy import dataclass, regex
from .entries import ToolResult
from .store import content_text

MAX_ERROR_LINES = 5  # kept of a failed command's output
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
            self._lines = _lines_of(source) if isinstance(source, ToolResult) else source
        return self._lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def has_success_sign(self) -> bool:
        """Return True if the output has a sign of success and no sign of an error."""
        text = self.text.lower()
        if has_error_sign(text) and has_error_sign(_NO_ERRORS.sub("", text)):
            return False
        return bool(_SUCCESS_SIGN.search(text))


def telling_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last MAX_ERROR_LINES lines with a sign of an error, or else the last line. Each
    line is cut to MAX_ERROR_LINE_CHARS.
    """
    text = "\n".join(lines).lower()
    signs = [sign for sign in _SIGNS if sign in text]
    told = (line for line in reversed(lines if signs else ()) if _has_sign(line.lower(), signs))
    telling = [*islice(told, MAX_ERROR_LINES)][::-1]
    last = next((line for line in reversed(lines) if line.strip()), "")
    return tuple(line[:MAX_ERROR_LINE_CHARS] for line in telling or [last] if line)


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


def _lines_of(result: ToolResult) -> list[str]:
    lines = [line.rstrip() for line in content_text(result.content).split("\n")]
    if result.offloaded:
        lines = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    return lines
