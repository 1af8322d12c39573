"""Notifications to the user: the terminal's bell, or a desktop notification.

A desktop notification is an OSC sequence in one of three forms:

- 9, of iTerm2: https://iterm2.com/documentation-escape-codes.html
- 777, of rxvt-unicode, also supported by foot and others: https://codeberg.org/dnkl/foot
- 99, of kitty: https://sw.kovidgoyal.net/kitty/desktop-notifications/

Support cannot be detected, so `auto` chooses the form by the terminal's name, or else
the bell.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .window import TerminalWindow, printable

if TYPE_CHECKING:
    from ...config.settings import NoticeStyle

PROGRAM = "ctxagent"
MAX_TITLE_CHARS, MAX_TEXT_CHARS = 80, 200
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
    title, text = printable(title, MAX_TITLE_CHARS), printable(text, MAX_TEXT_CHARS)
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
