"""Readable colours, terminal capabilities, and terminal answers that are never treated as keys."""

import ast
import re
import unicodedata
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.output.vt100 import _256_colors
from prompt_toolkit.styles import Style
from rich.default_styles import DEFAULT_STYLES
from rich.text import Text

from ctxagent.agent.config.settings import UiSettings
from ctxagent.agent.ui.capabilities import Capabilities, detect, reflows, report_rows
from ctxagent.agent.ui.render import theme
from ctxagent.agent.ui.render.render import render_text
from ctxagent.agent.ui.terminal.input_filter import (
    MAX_DARK_LUMINANCE,
    MIN_LIGHT_LUMINANCE,
    AnswerFilter,
    luminance,
)
from ctxagent.tools.system.unicode import to_ascii_marks

UI = Path(__file__).parents[2] / "agent" / "ui"
MODULES = sorted(UI.rglob("*.py"))
LOOKED_FOR = {"markdown_stream.py": {*"？！。"}}  # ends of sentences, which are never printed

NAMES = "(red|green|yellow|blue|magenta|cyan|gray|black|white)"
COLOUR = re.compile(
    rf"^((bold |dim |on )?(bright_)?{NAMES}( bold| dim)?|(ansi|fg:ansi|bg:ansi)(bright)?{NAMES}.*"
    r"|.*#[0-9a-f]{6}.*|dim italic|ansi_(dark|light))$"
)
BACKGROUNDS = {
    "dark": ["#000000", "#1e1e1e", "#002b36", "#282a36", "#2e3440", "#282828"],
    "light": ["#ffffff", "#fdf6e3", "#fafafa", "#eee8d5", "#fbf1c7"],
}
BACKGROUNDS |= {f"contrast-{name}": colours for name, colours in BACKGROUNDS.items()}
MIN_HIGH_CONTRAST = 6.0


def light(colour: str) -> float:
    return luminance(*(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)))


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def hues() -> list[tuple[str, str]]:
    return [(palette, hue) for palette in BACKGROUNDS for hue in theme.HUES[palette]]  # type: ignore[index]


def test_how_contrast_is_reckoned() -> None:
    """Compared with values from the definition."""
    assert contrast(light("#000000"), light("#ffffff")) == pytest.approx(21)
    assert contrast(light("#777777"), light("#ffffff")) == pytest.approx(4.48, abs=0.01)
    assert contrast(light("#0000ff"), light("#000000")) == pytest.approx(2.44, abs=0.01)


@pytest.mark.parametrize(("palette", "hue"), hues())
def test_every_hue_can_be_read(palette: Any, hue: str) -> None:
    """At least 4.5 to 1 for normal text and 3 to 1 for dim text. This holds on usual backgrounds,
    and on the worst background for which the theme is chosen.
    """
    least = 3.0 if hue == "quiet" else 4.5
    colour = light(theme.HUES[palette][hue])
    worst = MAX_DARK_LUMINANCE if "dark" in palette else MIN_LIGHT_LUMINANCE
    for background in [*map(light, BACKGROUNDS[palette]), worst]:
        assert contrast(colour, background) >= least


@pytest.mark.parametrize("background", ["dark", "light"])
def test_high_contrast_is_higher(background: str) -> None:
    for hue in theme.HUES["dark"]:
        strong = light(theme.HUES[f"contrast-{background}"][hue])  # type: ignore[index]
        usual = light(theme.HUES[background][hue])  # type: ignore[index]
        for behind in map(light, BACKGROUNDS[background]):
            assert contrast(strong, behind) >= MIN_HIGH_CONTRAST, hue
            assert contrast(strong, behind) >= contrast(usual, behind), hue


@pytest.mark.parametrize(("palette", "hue"), hues())
def test_a_hue_is_one_of_the_256_for_rich_and_for_prompt_toolkit(palette: Any, hue: str) -> None:
    colour = theme.HUES[palette][hue]
    shown = render_text([Text("x", style=colour)], width=20, depth="color", palette=palette)
    number = re.search(r"\x1b\[38;5;(\d+)m", shown)
    assert number
    rgb = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    assert _256_colors[rgb] == int(number[1])  # type: ignore[index]


@pytest.mark.parametrize("palette", theme.HUES)
def test_every_role_is_known_to_both(palette: theme.Palette) -> None:
    styles = theme.rich_theme(palette).styles
    classes = theme.prompt_toolkit_style(palette)
    for role in theme.ROLES:
        fragment = classes.get_attrs_for_style_str(f"class:{role}")
        assert bool(styles[role].bold) == bool(fragment.bold), role
        assert bool(styles[role].dim) == bool(fragment.dim), role
        assert (styles[role].color is None) == (fragment.color in ("", None)), role
    assert isinstance(classes, Style)


def test_what_must_be_read_is_not_dim_within_what_is() -> None:
    for palette in theme.HUES:
        style = theme.prompt_toolkit_style(palette)
        attrs = style.get_attrs_for_style_str("class:status class:level.red")
        assert not attrs.dim
        assert attrs.color in ("ansired", theme.HUES[palette]["red"].lstrip("#"))


def test_each_role_is_of_hues_and_attributes_alone() -> None:
    known = {*theme.HUES["ansi"], "bold", "italic", "underline", "reverse"}
    assert {word for style in theme.ROLES.values() for word in style.split()} <= known
    assert len({frozenset(palette) for palette in theme.HUES.values()}) == 1


def test_the_sixteen_keep_the_terminals_own_dim() -> None:
    assert render_text([Text("x", style="dim")], width=20, depth="color") == "\x1b[2mx\x1b[0m\n"
    assert render_text([Text("x", style="dim")], width=20, depth="mono") == "\x1b[2mx\x1b[0m\n"
    assert "38;5;" in render_text(
        [Text("x", style="dim")], width=20, depth="color", palette="light"
    )


def test_no_colour_of_rich_is_left_in_markdown() -> None:
    for name, style in DEFAULT_STYLES.items():
        if name.startswith("markdown.") and (style.color or style.bgcolor):
            assert name in theme.ROLES, name


def test_colours_are_named_in_the_theme_alone() -> None:
    found = [
        f"{path.relative_to(UI)}: {text}"
        for path in MODULES
        if path.name != "theme.py"
        for text in strings(path)
        if COLOUR.search(text)
    ]
    assert found == []


def test_every_mark_has_a_stand_in() -> None:
    """The ASCII replacement has one cell too. Marks that are only searched for are never shown."""
    marks = set[str]()
    for path in MODULES:
        shown = {mark for text in strings(path) for mark in text if not mark.isascii()}
        marks |= shown - LOOKED_FOR.get(path.name, set())
    assert [mark for mark in marks if len(to_ascii_marks(mark, "ascii")) != 1] == []
    assert [mark for mark in marks if to_ascii_marks(mark, "ascii") == "?"] == []
    assert [mark for mark in marks if unicodedata.east_asian_width(mark) in "WF"] == []


def strings(path: Path) -> list[str]:
    """The strings of a module, without docstrings."""
    tree = ast.parse(path.read_text())
    said = {
        id(node.value) for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    return [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    ]  # fmt: skip


def test_text_for_few_characters_keeps_its_room() -> None:
    assert to_ascii_marks("● Bash ❯ ▰▱ … · ✓", "ascii") == "* Bash > #. ~ - +"
    assert to_ascii_marks("é日e\u0301", "ascii") == "???e"
    assert to_ascii_marks("é ●", "iso-8859-1") == "é *"
    assert to_ascii_marks("日 ●", "utf-8") == "日 *"


# What a terminal can do.


def of(*, reads: bool = True, writes: bool = True, plain: bool = False, encoding: str = "utf-8",
       **environ: str) -> Capabilities:  # fmt: skip
    environ = {"TERM": "xterm-256color", "LANG": "C.UTF-8", **environ}
    return detect(environ, plain=plain, reads=reads, writes=writes, encoding=encoding)


@pytest.mark.parametrize(
    ("environ", "colours"),
    [
        ({}, 256),
        ({"NO_COLOR": "1"}, 0),
        ({"NO_COLOR": ""}, 256),
        ({"TERM": "linux"}, 16),
        ({"TERM": "linux", "COLORTERM": "truecolor"}, 16),
        ({"TERM": "xterm"}, 16),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 256),
        ({"TERM": "xterm-mono"}, 0),
        ({"TERM": "xterm-kitty"}, 256),
        ({"TERM": "xterm-direct"}, 256),
        ({"TERM": "vt220"}, 0),
    ],
)
def test_colours(environ: dict[str, str], colours: int) -> None:
    assert of(**environ).colours == colours


def test_why_only_lines() -> None:
    assert of().plain == ""
    assert "TERM=dumb" in of(TERM="dumb").plain
    assert "TERM is not set" in of(TERM="").plain
    assert "input" in of(reads=False).plain
    assert "output" in of(writes=False).plain
    assert "--plain" in of(plain=True).plain


@pytest.mark.parametrize(
    ("environ", "encoding", "unicode"),
    [
        ({}, "utf-8", True),
        ({"LANG": ""}, "UTF-8", True),
        ({"LC_ALL": "C"}, "utf-8", False),
        ({"LC_ALL": "POSIX"}, "utf-8", False),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "C"}, "utf-8", True),
        ({"LANG": "en_US.ISO-8859-1"}, "iso-8859-1", False),
        # As Python leaves it where that locale is not installed.
        ({"LC_CTYPE": "C.UTF-8", "LANG": "en_US.ISO-8859-1"}, "utf-8", False),
        ({"LC_CTYPE": "UTF-8", "LANG": ""}, "utf-8", True),
        ({"TERM": "linux"}, "utf-8", False),
    ],
)
def test_characters(environ: dict[str, str], encoding: str, unicode: bool) -> None:
    assert of(encoding=encoding, **environ).unicode is unicode


@pytest.mark.parametrize(
    ("environ", "verdict"),
    [
        ({}, None),
        ({"TMUX": "/tmp/tmux,1,0"}, True),
        ({"TMUX": "/tmp/tmux,1,0", "TERM": "screen", "XTERM_VERSION": "XTerm(379)"}, True),
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "screen-256color"}, None),
        ({"TERM": "screen", "STY": "1.pts"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "vt220"}, False),
        ({"TERM": "st-256color"}, False),
        ({"TERM": "sterm"}, None),
        ({"TERM": "foot"}, True),
        ({"TERM": "xterm-kitty", "XTERM_VERSION": "XTerm(379)"}, True),
        ({"VTE_VERSION": "7600"}, True),
        ({"XTERM_VERSION": "XTerm(379)"}, False),
        ({"XTERM_VERSION": "XTerm(379)", "VTE_VERSION": "7600"}, None),
        ({"TERM_PROGRAM": "iTerm.app"}, True),
        ({"WT_SESSION": "x"}, True),
    ],
)
def test_which_terminals_rewrap_lines(environ: dict[str, str], verdict: bool | None) -> None:
    assert reflows({"TERM": "xterm-256color", **environ}) is verdict


@pytest.mark.parametrize(
    ("value", "background"),
    [("15;0", "dark"), ("0;15", "light"), ("0;default;15", "light"), ("12;8", "dark"),
     ("0;7", "light"), ("", ""), ("0;default", ""), ("1;999", "")],
)  # fmt: skip
def test_the_background_that_a_variable_tells(value: str, background: str) -> None:
    assert of(COLORFGBG=value).background == background


def test_which_terminals_can_be_queried() -> None:
    assert of().can_query
    assert of(TERM="screen-256color", TMUX="x").can_query
    for name, value in (
        ("TERM", "screen-256color"), ("STY", "1.pts"), ("TERM", "linux"), ("NO_COLOR", "1"),
        ("TERM", "dumb"), ("INSIDE_EMACS", "29.1,vterm"),
    ):  # fmt: skip
        assert not of(**{name: value}).can_query, name


def test_what_doctor_says_names_the_next_step() -> None:
    def said(can: Capabilities, setting: str = "auto") -> dict[str, str]:
        return dict(report_rows(can, (80, 24), setting))

    best = said(of(TMUX="x", SSH_TTY="x"))
    assert best["terminal"] == "xterm-256color in tmux over ssh, 80x24"
    assert best["screen"] == "interactive, with menus and a status line"
    assert best["colours"].endswith(", theme auto")
    assert "TERM=dumb" in said(of(TERM="dumb"))["screen"]
    assert said(of(NO_COLOR="1"))["colours"] == "none (NO_COLOR), theme auto"
    assert "-256color" in said(of(TERM="xterm"))["colours"]
    assert "LANG=C.UTF-8" in said(of(LC_ALL="C"))["characters"]


def test_the_palette() -> None:
    settings = ("auto", "dark", "light", "ansi")
    for setting, colours in product(settings, (0, 16)):
        assert theme.choose_palette(setting, colours, "light") == "ansi"  # type: ignore[arg-type]
    assert [theme.choose_palette(s, 256, "") for s in settings] == ["ansi", "dark", "light", "ansi"]  # type: ignore[arg-type]
    assert [theme.choose_palette(s, 256, "light") for s in settings] == [
        "light",
        "dark",
        "light",
        "ansi",
    ]  # type: ignore[arg-type]
    assert {UiSettings(theme=s).theme for s in settings} == set(settings)  # type: ignore[arg-type]
    assert theme.choose_palette("high-contrast", 256, "dark") == "contrast-dark"
    assert theme.choose_palette("high-contrast", 256, "light") == "contrast-light"
    for colours, background in ((256, ""), (16, "dark"), (0, "light")):
        assert theme.choose_palette("high-contrast", colours, background) == "none"  # type: ignore[arg-type]
        assert theme.choose_palette("none", colours, background) == "none"  # type: ignore[arg-type]


# The answer of the terminal.

DARK = "\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\"
LIGHT = "\x1b]11;rgb:ff/ff/ff\x07"
ATTRIBUTES = "\x1b[?62;22c"


class Sifted:
    def __init__(self) -> None:
        self.sieve, self.told = AnswerFilter(), list[str]()
        self.sieve.on_background = self.told.append

    def read(self, *parts: str) -> str:
        """The text that counts as typed when the parts arrive one after another."""
        return "".join(map(self.sieve.feed, parts)) + self.sieve.flush()


def test_an_answer_is_no_key() -> None:
    sifted = Sifted()
    assert sifted.read(f"ab{DARK}{ATTRIBUTES}cd") == "abcd"
    assert (sifted.told, sifted.sieve.done) == (["dark"], True)
    assert sifted.read(f"{LIGHT}x") == "x", "an answer that comes after the end is none either"
    assert sifted.told == ["dark", "light"]


@given(st.sampled_from([DARK, LIGHT]), st.lists(st.integers(0, 40), max_size=6))
def test_an_answer_in_pieces(answer: str, cuts: list[int]) -> None:
    text = f"a{answer}{ATTRIBUTES}\x1b[Ab"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    sifted = Sifted()
    parts = [text[a:b] for a, b in pairwise(edges)]
    assert sifted.read(*parts) == "a\x1b[Ab"
    assert sifted.told == ["dark" if answer == DARK else "light"]


def test_keys_are_passed_on_at_once() -> None:
    sifted = Sifted()
    for keys in ("a", "日本", "\x1b[A", "\x1b[Z", "\x1b\r", "\x1b[200~a]11;b\x1b[201~", "\r"):
        assert sifted.sieve.feed(keys) == keys
        assert sifted.sieve.flush() == ""
    for keys in ("\x1b", "\x1b]", "\x1b]1", "\x1b["):
        assert sifted.sieve.feed(keys) == ""
        assert sifted.sieve.flush() == keys
    assert sifted.told == []


@pytest.mark.parametrize("garbage", ["\x1b]11;no colour", "\x1b]11;", "\x1b]11;rgb:ff", "\x1b[?6"])
def test_an_answer_without_an_end_costs_no_key(garbage: str) -> None:
    sifted = Sifted()
    assert sifted.read(garbage) == ""
    assert sifted.read("hello\r") == "hello\r"
    assert sifted.told == []


def test_an_answer_that_is_late_in_its_middle() -> None:
    sifted = Sifted()
    assert sifted.read(DARK[:12]) == ""
    assert sifted.read(DARK[12:-1]) == ""
    assert sifted.read(DARK[-1:] + "a") == "a"
    assert sifted.told == ["dark"]
    assert sifted.read(LIGHT[:1]) == "\x1b", "a lone escape is the key of that name"
    assert sifted.read(LIGHT[1:]) == ""
    assert sifted.told == ["dark", "light"]


@given(st.text(st.sampled_from("\x1b]1;rgb:/0f\x07\\[?62cA~"), max_size=60))
def test_the_filter_never_keeps_input_forever(text: str) -> None:
    sifted = Sifted()
    sifted.read(text)
    assert sifted.read("\r").endswith("\r")


def test_colours_in_between_are_left_to_the_terminal() -> None:
    sifted = Sifted()
    sifted.read("\x1b]11;rgb:8080/8080/8080\x07")
    assert sifted.told == [""]
