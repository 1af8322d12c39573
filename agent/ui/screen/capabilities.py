"""What a terminal can do, told from the environment and from what the streams are: nothing is sent
to it. Pure, and light, because the first paint waits for it. `survey` looks, `rows` says it to a
person, with the next step wherever something is worse than it could be.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from ...settings import UiSettings

Background = Literal["dark", "light", ""]  # "": not known
Colours = Literal[0, 16, 256]  # more than 256 are not used

_DUMB = ("", "dumb", "unknown")
_CONSOLE = "linux"  # the kernel's own: sixteen colours, a small font, no marks around a paste
_FEW = ("ansi", "cygwin", "eterm", "linux", "rxvt", "screen", "xterm")  # 16, unless they say more
_MANY = ("256color", "alacritty", "contour", "direct", "foot", "ghostty", "kitty", "wezterm")
# Whether lines are wrapped anew when the window gets another width.
_BY_TERM = {
    "alacritty": True, "contour": True, "foot": True, "kitty": True, "linux": False,
    "rxvt-unicode": True, "st": False, "tmux": True, "vt": False, "wezterm": True,
    "xterm-ghostty": True, "xterm-kitty": True,
}  # fmt: skip
_BY_VARIABLE = {
    "ALACRITTY_WINDOW_ID": True, "GHOSTTY_RESOURCES_DIR": True, "KITTY_WINDOW_ID": True,
    "KONSOLE_VERSION": True, "VTE_VERSION": True, "WEZTERM_PANE": True, "WT_SESSION": True,
    "XTERM_VERSION": False,
}  # fmt: skip
_BY_PROGRAM = ("Apple_Terminal", "Hyper", "WarpTerminal", "WezTerm", "ghostty", "iTerm.app",
               "rio", "vscode")  # fmt: skip
# Families of which all members take an unknown question in silence.
_ASKED = ("alacritty", "contour", "foot", "kitty", "rxvt-unicode", "tmux", "wezterm", "xterm")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`plain` says why only lines are written, "" where the screen is painted. `reflows` is None
    where that is not known. `answers` says whether it is safe to ask for the background."""

    term: str
    place: str
    plain: str
    colours: Colours
    colours_from: str
    unicode: bool
    unicode_from: str
    background: Background
    answers: bool
    reflows: bool | None
    pastes: bool


def survey(
    environ: Mapping[str, str], *, plain: bool, reads: bool, writes: bool, encoding: str
) -> Capabilities:
    """`plain` is what the person asked for; `reads` and `writes` tell whether the input and the
    output are a terminal, `encoding` is that of the output."""
    term = environ.get("TERM", "")
    lines = _why_plain(term, plain=plain, reads=reads, writes=writes)
    colours, colours_from = _colours(environ, term)
    unicode, unicode_from = _unicode(environ, term, encoding)
    multiplexed = bool(environ.get("STY")) or "INSIDE_EMACS" in environ
    known = term.startswith(_ASKED) or ("TMUX" in environ and term.startswith("screen"))
    return Capabilities(
        term=term,
        place=_place(environ),
        plain=lines,
        colours=colours,
        colours_from=colours_from,
        unicode=unicode,
        unicode_from=unicode_from,
        background=_background(environ),
        answers=not lines and colours == 256 and known and not multiplexed,
        reflows=reflows(environ),
        pastes=term != _CONSOLE and not term.startswith("vt"),
    )


def of_process(
    ui: "UiSettings", source: TextIO | None = None, target: TextIO | None = None
) -> Capabilities:
    """Those of the terminal that this process has, or of other streams in its place."""
    source, target = source or sys.stdin, target or sys.stdout
    return survey(
        os.environ,
        plain=ui.plain,
        reads=source is not None and source.isatty(),
        writes=target.isatty(),
        encoding=target.encoding or "utf-8",
    )


def reflows(environ: Mapping[str, str]) -> bool | None:
    """Whether the terminal wraps its lines anew when its width changes; None: not known."""
    if environ.get("TMUX"):
        return True
    if environ.get("STY"):
        return False
    term = environ.get("TERM", "")
    for name, verdict in _BY_TERM.items():
        if term == name or term.startswith((f"{name}-", f"{name}1", f"{name}2")):
            return verdict
    if term.startswith("screen"):  # of tmux or of screen, on the other side of a connection
        return None
    verdicts = {verdict for name, verdict in _BY_VARIABLE.items() if environ.get(name)}
    if environ.get("TERM_PROGRAM") in _BY_PROGRAM:
        verdicts.add(True)
    # A terminal that was started from another one has the variables of both.
    return verdicts.pop() if len(verdicts) == 1 else None


def rows(can: Capabilities, size: tuple[int, int], theme: str) -> list[tuple[str, str]]:
    """What is looked at and what was found; `theme` is the setting."""
    columns, lines = size
    found = [("terminal", f"{can.term or 'TERM is not set'}{can.place}, {columns}x{lines}")]
    if can.plain:
        found.append(("screen", f"lines only, because {can.plain}"))
        return [*found, ("characters", _characters(can))]
    return [
        *found,
        ("screen", "painted; --plain writes lines only, as a screen reader likes them"),
        ("colours", _colour_row(can)),
        ("theme", _theme_row(can, theme)),
        ("characters", _characters(can)),
        ("resizing", _RESIZING[can.reflows]),
        ("pasting", "as one text" if can.pastes else _LINE_BY_LINE),
    ]


_RESIZING = {
    True: "lines are wrapped anew",
    False: "lines stay as they were written",
    None: "not known of this terminal whether lines are wrapped anew",
}
_LINE_BY_LINE = "each line is sent by itself: put long texts into a file and name it as @path"


def _why_plain(term: str, *, plain: bool, reads: bool, writes: bool) -> str:
    if plain:
        return "--plain or ui.plain says so"
    if not reads or not writes:
        return f"the {'output' if reads else 'input'} is no terminal"
    if term in _DUMB:
        said = f"TERM={term}" if term else "TERM is not set"
        return f"{said}: set it to the name of your terminal, such as xterm-256color"
    return ""


def _colours(environ: Mapping[str, str], term: str) -> tuple[Colours, str]:
    if environ.get("NO_COLOR"):
        return 0, "NO_COLOR"
    if any(name in term for name in _MANY):
        return 256, f"TERM={term}"
    if environ.get("COLORTERM") and term not in (*_DUMB, _CONSOLE):
        return 256, f"COLORTERM={environ['COLORTERM']}"
    return (16 if term.startswith(_FEW) and "-m" not in term else 0), f"TERM={term}"


def _unicode(environ: Mapping[str, str], term: str, encoding: str) -> tuple[bool, str]:
    """Whether marks that are not ASCII can be shown, and what says so."""
    if encoding.replace("-", "").lower() != "utf8":
        return False, f"the output is {encoding}"
    if term == _CONSOLE:
        return False, "the font of the console has few characters"
    names = [name for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)]
    # Python itself sets this where the locale that LANG names is not installed.
    if names[:2] == ["LC_CTYPE", "LANG"] and environ["LC_CTYPE"] == "C.UTF-8":
        del names[0]
    if names and "UTF8" not in environ[names[0]].replace("-", "").upper():
        return False, f"{names[0]}={environ[names[0]]}"
    return True, f"{names[0]}={environ[names[0]]}" if names else encoding


def _background(environ: Mapping[str, str]) -> Background:
    last = environ.get("COLORFGBG", "").rpartition(";")[2]
    if not last.isdecimal() or int(last) > 15:
        return ""
    return "dark" if int(last) in (*range(7), 8) else "light"


def _place(environ: Mapping[str, str]) -> str:
    inside = "tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else ""
    return "".join(
        [
            f" in {inside}" if inside else "",
            " over ssh" if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY") else "",
            " in CI" if environ.get("CI") else "",
        ]
    )


def _colour_row(can: Capabilities) -> str:
    if can.colours == 256:
        return f"256 ({can.colours_from})"
    if can.colours_from == "NO_COLOR":
        return "none, because NO_COLOR is set"
    few = f"{'sixteen' if can.colours else 'none'} ({can.colours_from})"
    step = "; a TERM that ends in -256color brings the themes"
    return few if can.term == _CONSOLE else few + step


def _theme_row(can: Capabilities, theme: str) -> str:
    if can.colours == 0:
        return f"{theme}, of no use without colours"
    if can.colours == 16 or theme == "ansi":
        return f"{theme}: the terminal's own sixteen colours"
    if theme != "auto":
        return theme
    told = f"{can.background} (COLORFGBG)" if can.background else "the terminal's own colours"
    if can.answers:
        return f"auto: the terminal is asked for its background; {told} until it answers"
    return f"auto: {told}" + ("" if can.background else "; ui.theme = dark or light brings more")


def _characters(can: Capabilities) -> str:
    if can.unicode:
        return f"UTF-8 ({can.unicode_from})"
    step = "" if "font" in can.unicode_from else "; LANG=C.UTF-8 brings all"
    return f"marks in ASCII, because {can.unicode_from}{step}"
