"""The terminal itself: its title, focus, keyboard protocol, notifications and line discipline.

The title is saved on xterm's title stack, and restored whenever another program gets the terminal.
Focus reports (DEC private mode 1004) arrive among the keys; `input_filter` removes them. With
kitty's keyboard protocol, Shift-Enter and other keys are distinguished. Terminals ignore sequences
they do not support. Source: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html

A notification is the terminal's bell, or an OSC sequence in one of three forms:

- 9, of iTerm2: https://iterm2.com/documentation-escape-codes.html
- 777, of rxvt-unicode, also supported by foot and others: https://codeberg.org/dnkl/foot
- 99, of kitty: https://sw.kovidgoyal.net/kitty/desktop-notifications/

Support cannot be detected, so `auto` chooses the form by the terminal's name, or else the bell.
"""

import fcntl
import struct
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .output import BatchedOutput

if TYPE_CHECKING:
    from ...config.settings import NoticeStyle


def bytes_waiting(fd: int) -> int:
    """Return the number of unread input bytes of a terminal; 0 if it has gone."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)


@contextmanager
def without_echo(fd: int) -> Iterator[None]:
    """Hide typed text while the block runs."""
    modes = TtyModes(fd)
    modes.hide()
    try:
        yield
    finally:
        modes.release()


class TtyModes:
    """The modes of one terminal. Does nothing if the descriptor is not a terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._found = self._now()
        self._needed: list[Any] | None = None

    def keep(self) -> None:
        """Save the current modes as the ones that the input needs."""
        self._needed = self._now()

    def hide(self) -> None:
        """Hide typed text from now on."""
        if modes := self._now():
            modes[3] &= ~termios.ECHO
            self._set(modes)

    def repair(self) -> bool:
        """Restore the needed modes if another program changed them; return True if so."""
        changed = self._needed is not None and self._now() not in (self._needed, None)
        if changed:
            self._set(self._needed)
        return changed

    def release(self) -> None:
        """Restore the modes from before the program."""
        self._set(self._found)

    def _now(self) -> list[Any] | None:
        try:
            return termios.tcgetattr(self._fd)
        except termios.error:  # not a terminal, or it has gone
            return None

    def _set(self, modes: list[Any] | None) -> None:
        if modes is not None and self._now() is not None:
            termios.tcsetattr(self._fd, termios.TCSANOW, modes)


SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
FOCUS_REPORTS_ON, FOCUS_REPORTS_OFF = "\x1b[?1004h", "\x1b[?1004l"
# Flags 1 and 4: distinguish ambiguous keys, and report their English keyboard equivalents.
KEYS_APART_FLAGS = 5
KEYS_APART_ON, KEYS_APART_OFF = f"\x1b[>{KEYS_APART_FLAGS}u", "\x1b[<u"
WORKING_MARK, ASKING_MARK = "● ", "? "  # prefix of the title
MAX_TITLE_CHARS = 80


class TerminalWindow:
    """The window of `output`, named after the `project` while the session has no title. `titled`
    means that its title may be set, `reports` that focus reports can be read.
    """

    def __init__(
        self, output: BatchedOutput, *, project: str, titled: bool = False, reports: bool = False
    ) -> None:
        self.focused: bool | None = None  # None if never reported
        self.on_focus: Callable[[bool], None] = lambda focused: None
        self._output = output
        self._project = self.name = project
        self._titled = titled
        self._reports = reports
        self._saved = False
        self._has_key_protocol: bool | None = None  # None if support is not known
        self._shown = ""

    def enter(self) -> None:
        """Start, or continue after another program had the terminal."""
        if self._reports:
            self._output.write_raw(FOCUS_REPORTS_ON)
        if self._titled and not self._saved:
            self._output.write_raw(SAVE_TITLE)
            self._saved = True
        if self._has_key_protocol is not None:
            self.enable_key_protocol()
        self._shown = ""
        if self.focused is not None:  # the terminal was just returned to us
            self.focused = True
        self._output.flush()

    def leave(self) -> None:
        """Restore the window to its original state."""
        if self._reports:
            self._output.write_raw(FOCUS_REPORTS_OFF)
        if self._saved:
            self._output.write_raw(RESTORE_TITLE)
            self._saved = False
        if self._has_key_protocol:
            self._output.write_raw(KEYS_APART_OFF)
            self._has_key_protocol = False
        self._output.flush()

    def enable_key_protocol(self, flags: int = 0) -> None:
        """Enable kitty's keyboard protocol until `leave`. `flags` is the terminal's report. If the
        first report equals our flags, a killed program left the protocol on, and it is reset first.
        """
        left = self._has_key_protocol is None and flags == KEYS_APART_FLAGS
        again = KEYS_APART_OFF if self._has_key_protocol or left else ""
        self._has_key_protocol = True
        self._output.write_raw(again + KEYS_APART_ON)
        self._output.flush()

    def rename(self, name: str) -> None:
        """Set the window's name for the next `show`; "" restores the project's name."""
        self.name = name or self._project

    def show(self, mark: str) -> None:
        """Show a state mark and the name as the title, if it has changed."""
        title = mark + printable(self.name, MAX_TITLE_CHARS)
        if self._saved and title != self._shown:
            self._shown = title
            self._output.write_raw(f"\x1b]2;{title}\a")
            self._output.flush()

    def take_focus(self, focused: bool) -> None:
        """Handle a focus report."""
        self.focused = focused
        self.on_focus(focused)


def printable(text: str, most: int) -> str:
    """Return at most `most` characters of a text, without control characters."""
    return "".join(c for c in text if c.isprintable())[:most]


PROGRAM = "ctxagent"
MAX_NOTICE_TITLE_CHARS, MAX_TEXT_CHARS = 80, 200
QUESTION_TEXT = "a question is waiting for your answer"
TURN_TEXT = "the turn has ended after {}"
# By prefix of TERM or TERM_PROGRAM.
_STYLES: "dict[str, NoticeStyle]" = {
    "xterm-kitty": "osc99", "kitty": "osc99", "rxvt": "osc777", "foot": "osc777",
    "xterm-ghostty": "osc9", "ghostty": "osc9", "wezterm": "osc9", "WezTerm": "osc9",
    "iTerm": "osc9",
}  # fmt: skip


def notice_style(wish: "NoticeStyle", environ: Mapping[str, str]) -> "NoticeStyle":
    """Return this terminal's notification form, never "auto". Multiplexers only pass on
    the bell.
    """
    if wish != "auto":
        return wish
    if not (environ.get("TMUX") or environ.get("STY")):
        for variable in ("TERM", "TERM_PROGRAM"):
            for name, style in _STYLES.items():
                if environ.get(variable, "").startswith(name):
                    return style
    return "bell"


def notice_sequence(style: "NoticeStyle", title: str, text: str) -> str:
    """Return the escape sequence for a notification, "" for "off". Control characters in the title
    and text are removed.
    """
    title, text = printable(title, MAX_NOTICE_TITLE_CHARS), printable(text, MAX_TEXT_CHARS)
    if style == "bell":
        return "\a"
    if style == "osc9":  # the prefix avoids a text that reads as another OSC 9 command
        return f"\x1b]9;{PROGRAM}: {title}: {text}\a"
    if style == "osc777":
        return f"\x1b]777;notify;{title.replace(';', ',')};{text}\x1b\\"
    if style == "osc99":
        parts = (f"d=0:p=title;{title}", f"p=body;{text}")
        return "".join(f"\x1b]99;i={PROGRAM}:{part}\x1b\\" for part in parts)
    return ""


class Notices:
    """The rules for notifying the user. If the terminal has no focus, a notification is sent when a
    turn of more than `after_s` seconds ends and when a question is open. If the terminal never
    reported its focus, only the end of such a turn is notified, because the user is probably
    looking at the question.
    """

    def __init__(
        self, window: TerminalWindow, send: Callable[[str], None], *, after_s: float
    ) -> None:
        self._window = window
        self._send = send
        self._after_s = after_s
        self._question_pending = False  # whether an open question has not been notified
        window.on_focus = self._focus_changed

    def turn_ended(self, seconds: float) -> None:
        """Handle the end of a turn that was not interrupted, after this many seconds."""
        if seconds > self._after_s and not self._window.focused:
            from ..render.render import duration

            self._send(TURN_TEXT.format(duration(seconds)))

    def question_waits(self) -> None:
        self._question_pending = True
        if self._window.focused is not None:
            self._focus_changed(self._window.focused)

    def question_is_over(self) -> None:
        self._question_pending = False

    def _focus_changed(self, focused: bool) -> None:
        if self._question_pending and not focused:
            self._question_pending = False
            self._send(QUESTION_TEXT)
