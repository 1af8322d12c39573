"""Terminal capabilities, detected from the environment and the streams. Nothing is sent to the
terminal. The module imports little, because the first paint waits for it.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TextIO

from ..lazy import dataclass

if TYPE_CHECKING:
    from ..config.settings import UiSettings

TerminalBackground = Literal["dark", "light", ""]  # "" if not known
Colours = Literal[0, 16, 256]  # more than 256 are not used

_DUMB_TERMS = ("", "dumb", "unknown")
FULL_SCREEN = "interactive, with menus and a status line"
_LINUX_CONSOLE = "linux"  # sixteen colours, a small font
# TERM names with 16 colours, unless they also contain one of _TERMS_OF_256.
_TERMS_OF_16 = ("ansi", "cygwin", "eterm", "linux", "rxvt", "screen", "xterm")
_TERMS_OF_256 = (
    "256color", "alacritty", "contour", "direct", "foot", "ghostty", "kitty", "wezterm",
)  # fmt: skip
# Whether the terminal rewraps its lines when its width changes.
_REFLOWS_BY_TERM = {
    "alacritty": True, "contour": True, "foot": True, "kitty": True, "linux": False,
    "rxvt-unicode": True, "st": False, "tmux": True, "vt": False, "wezterm": True,
    "xterm-ghostty": True, "xterm-kitty": True,
}  # fmt: skip
_REFLOWS_BY_VARIABLE = {
    "ALACRITTY_WINDOW_ID": True, "GHOSTTY_RESOURCES_DIR": True, "KITTY_WINDOW_ID": True,
    "KONSOLE_VERSION": True, "VTE_VERSION": True, "WEZTERM_PANE": True, "WT_SESSION": True,
    "XTERM_VERSION": False,
}  # fmt: skip
_REFLOWING_PROGRAMS = (
    "Apple_Terminal", "Hyper", "WarpTerminal", "WezTerm", "ghostty", "iTerm.app", "rio", "vscode",
)  # fmt: skip
# Terminal families that ignore an unknown query instead of printing it.
_SAFE_TO_ASK = (
    "alacritty", "contour", "foot", "kitty", "rxvt-unicode", "tmux", "wezterm", "xterm",
)  # fmt: skip
_WITHOUT_TITLE = (_LINUX_CONSOLE, "eterm", "vt")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a terminal, and the source of each."""

    term: str  # $TERM
    place: str  # such as " in tmux over ssh"
    plain: str  # reason for plain line output; "" if the screen is painted
    colours: Colours
    colours_from: str
    unicode: bool  # whether non-ASCII characters can be shown
    unicode_from: str
    background: TerminalBackground
    can_query: bool  # whether it can be queried for its background
    reflows: bool | None  # whether it rewraps lines at a new width; None if not known
    window_title: bool  # whether its title can be set without printing garbage


def detect(
    environ: Mapping[str, str], *, plain: bool, reads: bool, writes: bool, encoding: str
) -> Capabilities:
    """Return the capabilities of the terminal. `plain` is the user's setting for line output.
    `reads` and `writes` are True if input and output are terminals. `encoding` is the output's.
    """
    term = environ.get("TERM", "")
    why_plain = _why_plain(term, plain=plain, reads=reads, writes=writes)
    colours, colours_from = _colours(environ, term)
    unicode, unicode_from = _unicode(environ, term, encoding)
    multiplexed = bool(environ.get("STY")) or "INSIDE_EMACS" in environ
    known = term.startswith(_SAFE_TO_ASK) or ("TMUX" in environ and term.startswith("screen"))
    return Capabilities(
        term=term,
        place=_place(environ),
        plain=why_plain,
        colours=colours,
        colours_from=colours_from,
        unicode=unicode,
        unicode_from=unicode_from,
        background=_background(environ),
        can_query=not why_plain and colours == 256 and known and not multiplexed,
        reflows=reflows(environ),
        window_title=not why_plain and not term.startswith(_WITHOUT_TITLE),
    )


def detect_for_process(
    ui: "UiSettings", source: TextIO | None = None, target: TextIO | None = None
) -> Capabilities:
    """Return the capabilities of the process's terminal, or of the streams given."""
    source, target = source or sys.stdin, target or sys.stdout
    return detect(
        os.environ,
        plain=ui.plain,
        reads=source is not None and source.isatty(),
        writes=target.isatty(),
        encoding=target.encoding or "utf-8",
    )


def reflows(environ: Mapping[str, str]) -> bool | None:
    """Return whether the terminal rewraps its lines when its width changes; None if not known."""
    if environ.get("TMUX"):
        return True
    if environ.get("STY"):
        return False
    term = environ.get("TERM", "")
    for name, verdict in _REFLOWS_BY_TERM.items():
        if term == name or term.startswith((f"{name}-", f"{name}1", f"{name}2")):
            return verdict
    if term.startswith("screen"):  # tmux or screen on a remote host
        return None
    verdicts = {verdict for name, verdict in _REFLOWS_BY_VARIABLE.items() if environ.get(name)}
    if environ.get("TERM_PROGRAM") in _REFLOWING_PROGRAMS:
        verdicts.add(True)
    # A terminal started from another terminal has the variables of both.
    return verdicts.pop() if len(verdicts) == 1 else None


def report_rows(can: Capabilities, size: tuple[int, int], theme: str) -> list[tuple[str, str]]:
    """Return (label, value) rows for the user. A row about limited support names the fix."""
    columns, lines = size
    colours = f"{can.colours or 'none'} ({can.colours_from}), theme {theme}"
    if can.colours < 256 and can.colours_from != "NO_COLOR":
        colours += "; a TERM that ends in -256color enables the themes"
    characters = f"UTF-8 ({can.unicode_from})"
    if not can.unicode:
        characters = f"ASCII, because {can.unicode_from}; LANG=C.UTF-8 may enable all of them"
    return [
        ("terminal", f"{can.term or 'TERM is not set'}{can.place}, {columns}x{lines}"),
        ("screen", f"plain lines, because {can.plain}" if can.plain else FULL_SCREEN),
        ("colours", colours),
        ("characters", characters),
    ]


def _why_plain(term: str, *, plain: bool, reads: bool, writes: bool) -> str:
    if plain:
        return "--plain or ui.plain is set"
    if not reads or not writes:
        return f"the {'output' if reads else 'input'} is not a terminal"
    if term in _DUMB_TERMS:
        found = f"TERM={term}" if term else "TERM is not set"
        return f"{found}: set it to the name of your terminal, such as xterm-256color"
    return ""


def _colours(environ: Mapping[str, str], term: str) -> tuple[Colours, str]:
    if environ.get("NO_COLOR"):
        return 0, "NO_COLOR"
    if any(name in term for name in _TERMS_OF_256):
        return 256, f"TERM={term}"
    if environ.get("COLORTERM") and term not in (*_DUMB_TERMS, _LINUX_CONSOLE):
        return 256, f"COLORTERM={environ['COLORTERM']}"
    return (16 if term.startswith(_TERMS_OF_16) and "-m" not in term else 0), f"TERM={term}"


def _unicode(environ: Mapping[str, str], term: str, encoding: str) -> tuple[bool, str]:
    """Return whether non-ASCII characters can be shown, and the source of that answer."""
    if encoding.replace("-", "").lower() != "utf8":
        return False, f"the output is {encoding}"
    if term == _LINUX_CONSOLE:
        return False, "the font of the console has few characters"
    names = [name for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)]
    # Python sets this itself if the locale in LANG is not installed.
    if names[:2] == ["LC_CTYPE", "LANG"] and environ["LC_CTYPE"] == "C.UTF-8":
        del names[0]
    if names and "UTF8" not in environ[names[0]].replace("-", "").upper():
        return False, f"{names[0]}={environ[names[0]]}"
    return True, f"{names[0]}={environ[names[0]]}" if names else encoding


def _background(environ: Mapping[str, str]) -> TerminalBackground:
    last = environ.get("COLORFGBG", "").rpartition(";")[2]
    if not last.isdecimal() or int(last) > 15:
        return ""
    return "dark" if int(last) in (*range(7), 8) else "light"


def _place(environ: Mapping[str, str]) -> str:
    inside = " in tmux" if environ.get("TMUX") else " in screen" if environ.get("STY") else ""
    ssh = " over ssh" if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY") else ""
    return inside + ssh + (" in CI" if environ.get("CI") else "")
