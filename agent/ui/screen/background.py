"""Asking the terminal for its background, and taking the answer out of what is typed.

The question goes out after the first paint and nobody waits. A terminal answers at once, late, with
something else, or never; so each read is sifted, for as long as the program runs, and an answer
never counts as keys; nor does any other sequence that is none (`sequences.py`). After the question
for the colour stands one that every terminal answers: when that answer is there, no other will
come.
"""

import re
from collections.abc import Callable
from typing import TextIO

from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress

from .capabilities import Background
from .sequences import BEGUN, PASTE, PASTED, translated

QUESTION = "\x1b]11;?\x1b\\\x1b[c"
# Relative luminance. What lies between is left to the colours that the person has chosen for it.
DARKEST, LIGHTEST = 0.05, 0.8

_END = r"(?:\x07|\x1b\\)"
_COLOUR = r"rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})(?:/[0-9a-fA-F]{1,4})?"
_ANSWER = re.compile(rf"\x1b\]11;[^\x07\x1b]*{_END}|\]11;{_COLOUR}{_END}|\x1b\[\?[\d;]*c")
_BEGUN = re.compile(rf"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]{{0,64}}\x1b?)?)?)?|{BEGUN})?\Z")
_REST = re.compile(rf"[0-9a-fA-F/:;]*(?:{_END}|c|\Z)|[0-9a-fA-F/:;]+\x1b\Z")
_NO_KEY = ("\x1b]11;", "\x1b[?")  # what begins so was not typed, even if it never ends


class Sieve:
    """Keeps answers back, and passes on what is typed. `told` hears of each background; `done` is
    true once no other is expected."""

    def __init__(self) -> None:
        self.done = False
        self.told: Callable[[Background], None] = lambda background: None
        self._held = ""  # what may be the beginning of an answer
        self._stale = False  # whether the rest of it did not come at once
        self._pasting = False

    def feed(self, data: str) -> str:
        """What of the data is typed."""
        text, late = self._held + data, self._stale
        self._held, self._stale = "", False
        if late and not _ANSWER.match(text) and not _REST.match(data):
            text = data  # what was held back was the beginning of an answer without an end
        typed = _ANSWER.sub(self._take, text)
        if begun := _BEGUN.search(typed):
            self._held = begun[0]
            typed = typed[: begun.start()]
        return self._translated(typed)

    def _translated(self, typed: str) -> str:
        """What is typed in sequences that are known; what is pasted, as it is."""
        done = ""
        while typed:
            mark = PASTED if self._pasting else PASTE
            part, found, typed = typed.partition(mark)
            done += (part if self._pasting else translated(part)) + found
            self._pasting ^= bool(found)
        return done

    def flush(self) -> str:
        """Nothing more has come for a while: what was held back, if it was typed."""
        if self._held.startswith(_NO_KEY):
            self._stale = True
            return ""
        if self._pasting:
            return ""
        typed, self._held = self._held, ""
        return typed

    def _take(self, answer: re.Match[str]) -> str:
        if answer[0].endswith("c"):
            self.done = True
        elif colour := re.search(_COLOUR, answer[0]):
            self.told(background_of(*(int(c, 16) / (16 ** len(c) - 1) for c in colour.groups())))
        return ""


class SiftedInput(Vt100Input):
    """The keys of a terminal without its answers."""

    def __init__(self, stdin: TextIO) -> None:
        super().__init__(stdin)
        self.answers = Sieve()
        self.stdin_reader = _Reader(stdin, self.answers)

    def flush_keys(self) -> list[KeyPress]:
        self.vt100_parser.feed(self.answers.flush())
        return super().flush_keys()


class _Reader(PosixStdinReader):
    def __init__(self, stdin: TextIO, sieve: Sieve) -> None:
        super().__init__(stdin.fileno(), encoding=stdin.encoding)
        self._sieve = sieve

    def read(self, count: int = 1024) -> str:
        return self._sieve.feed(super().read(count))


def background_of(red: float, green: float, blue: float) -> Background:
    """What a colour is as a background, from its shares of red, green and blue."""
    found = luminance(red, green, blue)
    return "dark" if found <= DARKEST else "light" if found >= LIGHTEST else ""


def luminance(red: float, green: float, blue: float) -> float:
    """The relative luminance of a colour, from 0 to 1, as contrast is reckoned with."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
