"""The pictures in docs/pictures are what the replay gives, and the pages show them all."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ctxagent.addons.replay.player import Terms, play
from ctxagent.agent.compaction.policy import DEFAULT

from ..replay.test_report import CROSSED
from ..support.sessions.workday import workday
from ..support.terminal.browser import Browser, needs_browser
from ..support.terminal.film import SECONDS
from ..support.terminal.pictures import FONTS, MODEL, draw

ROOT = Path(__file__).parents[2]
TYPEFACES = """[...new Set([...document.querySelectorAll("text")]
  .map((each) => getComputedStyle(each).fontFamily))]"""
# The numbers of the frames that a film shows at a time in milliseconds.
SHOWN = """(document.getAnimations().forEach((each) => { each.pause(); each.currentTime = %d; }),
  [...document.querySelectorAll(".cut")]
    .filter((each) => getComputedStyle(each).visibility === "visible")
    .map((each) => each.getAttribute("class").slice(5)))"""
KEPT = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
FILM = ROOT / "docs" / "pictures" / "film.svg"
CHARTS = [path for path in KEPT if path != FILM]
RECORDED = sorted((ROOT / "docs" / "pictures" / "recorded").glob("*.svg"))  # of sessions not here


def told(picture: Path) -> list[str]:
    """What is written in a picture, for a difference that can be read."""
    return re.findall(r"<text[^>]*>([^<]+)</text>", picture.read_text())


@pytest.mark.full
@pytest.mark.slow
def test_the_pictures_are_what_the_replay_gives(tmp_path: Path) -> None:
    draw(tmp_path)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert [path.name for path in KEPT] == [path.name for path in drawn]
    for old, new in zip(KEPT, drawn, strict=True):
        assert told(old) == told(new), f"{old.name} is not what is told now: make pictures"
        assert old.read_bytes() == new.read_bytes(), f"{old.name} looks otherwise: make pictures"


def test_a_picture_is_one_file_that_loads_and_runs_nothing() -> None:
    for path in (*KEPT, *RECORDED):
        for element in ET.parse(path).iter():
            assert element.tag.rpartition("}")[2] in (
                "svg", "g", "title", "style", "rect", "defs", "use", "path", "circle", "line",
                "text",
            )  # fmt: skip
            assert element.get("href", "#").startswith("#")
        assert not re.search(r"url\(|@import|light-dark", path.read_text())


def test_chart_needs_no_style_sheet() -> None:
    for path in (*CHARTS, *RECORDED):
        root = ET.parse(path).getroot()
        above = {child: parent for parent in root.iter() for child in parent}
        for element in root.iter():
            name, classes = element.tag.rpartition("}")[2], element.get("class", "").split()
            assert not any("var(" in value for value in element.attrib.values())
            if name == "style":
                rules = re.sub(r"@media [^{]*\{(?:[^{}]*\{[^{}]*\})*\s*\}", "", element.text or "")
                assert rules.strip() == "", "rules outside @media"
            if name == "text":
                assert element.get("fill") is not None, path.name
                assert element.get("font-size") or above[element].get("font-size"), path.name
            if "line" in classes:
                assert element.get("fill") == "none", path.name
                assert element.get("stroke") is not None, path.name


def test_film_without_motion_is_one_frame() -> None:
    cuts = [each for each in ET.parse(FILM).iter() if "cut" in each.get("class", "").split()]
    shown = [each for each in cuts if each.get("visibility") != "hidden"]
    assert len(cuts) > 8
    assert len(shown) == 1
    text = " ".join(filter(None, (each.text for each in shown[0].iter())))
    assert "old results cleared" in text
    assert "scripted model" in text


@needs_browser
def test_film_shows_one_frame_at_a_time(tmp_path: Path) -> None:
    with Browser(tmp_path / "browser") as browser:
        view = browser.open(FILM, width=970, height=430)
        seen = [view.evaluate(SHOWN % (1_000 * second + 40)) for second in range(SECONDS)]
        assert view.evaluate(SHOWN % (1_000 * SECONDS + 40)) == seen[0], "it begins again"
    assert all(len(each) == 1 for each in seen)
    numbers = [int(each[0]) for each in seen]
    assert numbers == sorted(numbers)
    assert numbers[-1] == len({*numbers}) - 1


@pytest.mark.slow
@needs_browser
def test_no_letter_falls_back_to_serif_and_no_line_crosses_one(tmp_path: Path) -> None:
    with Browser(tmp_path / "browser") as browser:
        for path in CHARTS:
            for width in (400, 800):  # on a phone its letters are larger
                view = browser.open(path, width=width, height=600)
                assert view.evaluate(TYPEFACES) == [FONTS], path.name
                assert view.evaluate(CROSSED) == [], path.name


@pytest.mark.slow
def test_a_replay_gives_the_same_each_time() -> None:
    terms = Terms("default", DEFAULT, MODEL, 200_000, "", (), fills=0)
    runs = [play(workday(2), terms) for _ in range(4)]
    assert [act.layer for act in runs[0].acts].count("demote") == 1  # to a file in a new folder
    assert all(run == runs[0] for run in runs)


def test_the_pages_show_every_picture() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md")]
    texts = [page.read_text() for page in pages]
    shown = {name for text in texts for name in re.findall(r"pictures/([\w/.-]+)\)", text)}
    folder = ROOT / "docs" / "pictures"
    assert shown == {path.relative_to(folder).as_posix() for path in (*KEPT, *RECORDED)}
