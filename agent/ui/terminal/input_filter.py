"""Queries for the terminal's background and keyboard, and a filter that removes the terminal's
reports from typed input.

The queries are sent after the first paint, and nothing waits for the answers. A terminal may answer
at once, late, wrongly or never, and may report focus changes at any time. So every read is
filtered, and reports and unknown sequences never count as keys. Every terminal answers the last
query, so no answer is expected after the answer to that query.

A terminal with kitty's keyboard protocol distinguishes more keys. Its sequences are replaced by
those of other terminals for the same key. https://sw.kovidgoyal.net/kitty/keyboard-protocol
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress

from ...lazy import regex
from ..capabilities import TerminalBackground
from .window import bytes_waiting

PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"

_SEQUENCE = regex(r"\x1b\[([0-?]*)([ -/]*)(?!\[)([@-~])")  # the console's F1 begins "[["
_MOUSE = regex(r"\x1b\[(?:<?[\d;]+[mM]|M)")
_CURSOR = regex(r"\x1b\[\d+;\d+R")
# A key: its code, its code with Shift, its code on an English keyboard, and modifiers.
_KEY_CODE = regex(r"(\d+)(?::(\d*))?(?::(\d*))?(?:;(\d+)(?::\d+)?)?(?:;[\d:]*)?")
_MODIFIED_KEY = regex(r"27;(\d+);(\d+)")
_FUNCTION_KEY = regex(r"(\d+);(\d+)(?::\d+)?")
_SHIFT, _ALT, _CTRL = 1, 2, 4
_MODIFIERS = _SHIFT | _ALT | _CTRL  # the others are Caps Lock and Num Lock
_ENTER, _TAB, _BACKSPACE = 13, 9, 127
_NEWLINE, _ALT_ENTER = "\n", "\x1b\r"
_KEYPAD = dict(enumerate("0123456789./*-+\r=,", 57399)) | dict(
    enumerate(
        ("\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F",
         "\x1b[2~", "\x1b[3~"), 57417,
    )
)  # fmt: skip
_CONTROLS = {_BACKSPACE: "\x08", ord(" "): "\x00", ord("/"): "\x1f"}  # with Ctrl

BACKGROUND_QUERY = "\x1b]11;?\x1b\\"
KEYBOARD_QUERY = "\x1b[?u"
LAST_QUERY = "\x1b[c"
# Relative luminance; a background in between keeps the terminal's own colours.
MAX_DARK_LUMINANCE, MIN_LIGHT_LUMINANCE = 0.05, 0.8

_END = r"(?:\x07|\x1b\\)"
_COLOUR = r"rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})(?:/[0-9a-fA-F]{1,4})?"
_FOCUS = r"\x1b\[[IO]"
_ANSWER = regex(rf"\x1b\]11;[^\x07\x1b]*{_END}|\]11;{_COLOUR}{_END}|\x1b\[\?[\d;]*[cu]|{_FOCUS}")
_BEGUN = regex(r"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]{0,64}\x1b?)?)?)?|\[[0-?]*[ -/]*)?\Z")
_REST = regex(rf"[0-9a-fA-F/:;]*(?:{_END}|[cu]|\Z)|[0-9a-fA-F/:;]+\x1b\Z")
_NO_KEY = ("\x1b]11;", "\x1b[?")  # beginnings that are never typed, even if incomplete


def normalize_sequences(typed: str) -> str:
    """Replace typed escape sequences by known equivalents; drop unknown ones. Not for pastes."""
    return _SEQUENCE.sub(_known_sequence, typed)


def _known_sequence(found: re.Match[str]) -> str:
    whole, (parameters, between, last) = found[0], found.groups()
    if last == "~" and (other := _MODIFIED_KEY.fullmatch(parameters)) and int(other[2]) == _ENTER:
        return _character(_ENTER, int(other[1]) - 1)
    if whole in ANSI_SEQUENCES or _MOUSE.fullmatch(whole) or _CURSOR.fullmatch(whole):
        return whole
    if last == "u" and not between and (code := _KEY_CODE.fullmatch(parameters)):
        shifted, english = (int(each or 0) for each in code.group(2, 3))
        return _character(int(code[1]), int(code[4] or 1) - 1, shifted, english)
    if (key := _FUNCTION_KEY.fullmatch(parameters)) and not between:
        modifiers = (int(key[2]) - 1 & _MODIFIERS) + 1
        alone = key[1] if last == "~" else ""
        known = f"\x1b[{key[1]};{modifiers}{last}" if modifiers > 1 else f"\x1b[{alone}{last}"
        return known if known in ANSI_SEQUENCES else ""
    return ""


def _character(code: int, modifiers: int, shifted: int = 0, english: int = 0) -> str:
    """Return the input for a key code with modifiers; "" if the code is not a character."""
    if code == _ENTER and modifiers & _MODIFIERS:
        return _NEWLINE if modifiers & _MODIFIERS == _SHIFT else _ALT_ENTER
    if code == _TAB and modifiers & _SHIFT:
        return "\x1b[Z"
    if code in _KEYPAD:
        return _KEYPAD[code]
    if modifiers & (_CTRL | _ALT) and code > _BACKSPACE:  # Ctrl-C must work on any keyboard
        code = english or code
    if code > 0x10FFFF or 0xD800 <= code < 0xF900:  # surrogates, and keys such as Caps Lock
        return ""
    character = chr(code)
    if modifiers & _CTRL:
        controls = chr(code & 0x1F) if 0x40 <= code < _BACKSPACE else character
        character = _CONTROLS.get(code, controls)
    elif modifiers & _SHIFT:
        character = chr(shifted) if shifted else character.upper()
    return ("\x1b" if modifiers & _ALT else "") + character


class AnswerFilter:
    """A filter that removes the terminal's reports from the input, also inside a paste."""

    def __init__(self) -> None:
        self.done = False  # whether all answers have arrived
        self.on_background: Callable[[TerminalBackground], None] = lambda background: None
        self.on_focus: Callable[[bool], None] = lambda focused: None
        # Called with the flags of the keyboard protocol, if supported.
        self.on_keyboard: Callable[[int], None] = lambda flags: None
        self._held = ""  # the buffered beginning of a possible answer
        self._stale = False  # whether the rest of `_held` is late
        self._pasting = False

    def feed(self, data: str) -> str:
        """Return the typed part of the data."""
        text, late = self._held + data, self._stale
        self._held, self._stale = "", False
        if late and not _ANSWER.match(text) and not _REST.match(data):
            text = data  # the buffered answer was never completed
        typed = _ANSWER.sub(self._take, text)
        if begun := _BEGUN.search(typed):
            self._held = begun[0]
            typed = typed[: begun.start()]
        return self._normalized(typed)

    def _normalized(self, typed: str) -> str:
        """Normalize typed escape sequences; leave pastes unchanged."""
        done = ""
        while typed:
            mark = PASTE_END if self._pasting else PASTE_START
            part, found, typed = typed.partition(mark)
            done += (part if self._pasting else normalize_sequences(part)) + found
            self._pasting ^= bool(found)
        return done

    def flush(self) -> str:
        """Return the buffered beginning of a report if it was typed. Called after a pause."""
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
        elif answer[0].endswith("u"):
            self.on_keyboard(int(answer[0][3:-1].partition(";")[0] or 0))
        elif answer[0][-1] in "IO":
            self.on_focus(answer[0].endswith("I"))
        elif colour := re.search(_COLOUR, answer[0]):
            self.on_background(
                background_of(*(int(c, 16) / (16 ** len(c) - 1) for c in colour.groups()))
            )
        return ""


class FilteredInput(Vt100Input):
    """The keys typed in a terminal, without its reports. Includes keys typed before raw mode.
    `queries` is sent to the terminal.
    """

    def __init__(self, stdin: TextIO, *, queries: str) -> None:
        super().__init__(stdin)
        self.queries = queries
        self.answers = AnswerFilter()
        self.stdin_reader: _Reader = _Reader(stdin, self.answers)

    @contextmanager
    def _raw_mode(self) -> Iterator[None]:
        with super().raw_mode():
            self.stdin_reader.early = bytes_waiting(self.fileno())
            yield

    def raw_mode(self) -> AbstractContextManager[None]:
        return self._raw_mode()

    def flush_keys(self) -> list[KeyPress]:
        self.vt100_parser.feed(self.answers.flush())
        return super().flush_keys()


class _Reader(PosixStdinReader):
    def __init__(self, stdin: TextIO, answers: AnswerFilter) -> None:
        super().__init__(stdin.fileno(), encoding=stdin.encoding)
        self._answers = answers
        self.early = 0  # unread bytes from before raw mode, which have \n for Enter

    def read(self, count: int = 1024) -> str:
        if self.early:
            count = min(count, self.early)
            self.early -= count
            typed = super().read(count).replace("\n", "\r")
        else:
            typed = super().read(count)
        return self._answers.feed(typed)


def background_of(red: float, green: float, blue: float) -> TerminalBackground:
    """Classify a background from its red, green and blue shares: dark, light, or "" in between."""
    found = luminance(red, green, blue)
    return (
        "dark" if found <= MAX_DARK_LUMINANCE else "light" if found >= MIN_LIGHT_LUMINANCE else ""
    )


def luminance(red: float, green: float, blue: float) -> float:
    """Return the relative luminance of a colour (WCAG), from 0 to 1."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
