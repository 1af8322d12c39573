"""The pictures in docs/screens match the program's output, and the guide shows all of them."""

import re
from html import unescape
from pathlib import Path

import pytest

from ctxagent.agent.config.keyboard import DEFAULT_KEYS
from ctxagent.agent.ui.commands.help import key_rows

from ..support.terminal.browser import Browser, View, needs_browser
from ..support.terminal.picture import DARK, HEIGHT, WIDTH, Frame, Ink
from ..support.terminal.scenes import draw

DOCS = Path(__file__).parents[2] / "docs"
# Of each element: its row, its text, and where a browser puts each character that it shows.
DRAWN = """[...document.querySelectorAll("text")].map(text => [
  +text.getAttribute("y"), text.textContent, +text.getAttribute("x"),
  Array.from({length: text.getNumberOfChars()}, (_, i) => text.getStartPositionOfChar(i).x),
])"""


def told(picture: Path) -> str:
    """The text of a screen, for a readable diff."""
    rows = re.findall(r"<text[^>]*>(.*?)</text>", picture.read_text(), re.DOTALL)
    return "\n".join(unescape(re.sub(r"<[^>]+>", "", row)) for row in rows)


@pytest.mark.full
def test_the_screens_are_what_is_shown(tmp_path: Path) -> None:
    draw(tmp_path, DOCS / "screens")
    kept, drawn = (sorted(folder.glob("*.svg")) for folder in (DOCS / "screens", tmp_path))
    assert [path.name for path in kept] == [path.name for path in drawn]
    for old, new in zip(kept, drawn, strict=True):
        assert told(old) == told(new), f"{old.name} is not what is shown now: make screens"
        assert old.read_bytes() == new.read_bytes(), f"{old.name} looks otherwise: make screens"


def test_the_guide_shows_every_screen() -> None:
    names = ("repl", "first-steps", "security")
    pages = "".join((DOCS / "guide" / f"{name}.md").read_text() for name in names)
    shown = re.findall(r"\(\.\./screens/([\w.-]+)\)", pages)
    assert sorted(shown) == sorted(path.name for path in (DOCS / "screens").glob("*.svg"))


def test_the_page_has_every_key_of_the_help() -> None:
    page = (DOCS / "guide" / "repl.md").read_text()
    table = page[page.index("| key |") : page.index("`/vim` switches")]
    told = {
        key.strip() for row in re.findall(r"^\| (.+?) \|", table, re.M) for key in row.split(",")
    }
    assert {key for keys, _ in key_rows(DEFAULT_KEYS) for key in keys.split("  ")} <= told


def read(view: View) -> str:
    """The rows of text as a browser shows them, with each character in its cell."""
    rows: dict[int, dict[int, str]] = {}
    for base, text, start, places in view.evaluate(DRAWN):
        assert len(places) == len(text), f"{text!r}: characters are not shown"
        for number, (character, place) in enumerate(zip(text, places, strict=True)):
            assert abs(place - start - number * WIDTH) < WIDTH / 3, f"{text!r} is stretched"
            rows.setdefault(int(base) // HEIGHT, {})[round(place / WIDTH)] = character
    lines = []
    for row in range(max(rows) + 1):
        cells = rows.get(row, {})
        lines.append("".join(cells.get(x, " ") for x in range(max(cells, default=-1) + 1)))
    return "\n".join(lines).replace("\xa0", " ")


@needs_browser
def test_a_browser_shows_what_was_written(tmp_path: Path) -> None:
    """Tables, lines, and underlined spaces, each character in its own cell."""
    rows = ["items  tokens   share", "  tools      9   4,026", "├──  ━━  ▌   a &  <b>   ·  end"]
    plain = [tuple(Ink(character) for character in f"{row:<40}") for row in rows]
    lined = tuple(Ink(character, underscore=True) for character in f"{'a   link  here':<40}")
    frame = Frame(40, (*plain, lined))
    (tmp_path / "table.svg").write_text(frame.svg(DARK, title="table"))
    with Browser(tmp_path / "browser") as browser:
        shown = read(browser.open(tmp_path / "table.svg", width=600, height=200))
    assert [line.rstrip() for line in shown.splitlines()] == [*rows, "a   link  here"]


@needs_browser
def test_a_browser_shows_every_screen_as_it_was(tmp_path: Path) -> None:
    with Browser(tmp_path / "browser") as browser:
        for picture in sorted((DOCS / "screens").glob("*.svg")):
            shown = read(browser.open(picture, width=900, height=1000))
            words = re.sub(r"\s+", "", shown)
            assert words == re.sub(r"\s+", "", told(picture).replace("\xa0", "")), picture.name
