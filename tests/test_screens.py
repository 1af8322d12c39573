"""The pictures in docs/screens are what the program shows, and the page about it shows them all."""

import re
from pathlib import Path

from ctxagent.agent.ui.commands.session import KEYS

from .support.scenes import draw

DOCS = Path(__file__).parent.parent / "docs"


def told(picture: Path) -> str:
    """What stands on a screen, for a difference that can be read."""
    rows = re.findall(r"<text[^>]*>(.*?)</text>", picture.read_text(), re.DOTALL)
    return "\n".join(re.sub(r"<[^>]+>", "", row) for row in rows)


def test_the_screens_are_what_is_shown(tmp_path: Path) -> None:
    draw(tmp_path, DOCS / "screens")
    kept, drawn = (sorted(folder.glob("*.svg")) for folder in (DOCS / "screens", tmp_path))
    assert [path.name for path in kept] == [path.name for path in drawn]
    for old, new in zip(kept, drawn, strict=True):
        assert told(old) == told(new), f"{old.name} is not what is shown now: make screens"
        assert old.read_bytes() == new.read_bytes(), f"{old.name} looks otherwise: make screens"


def test_the_page_shows_every_screen() -> None:
    shown = re.findall(r"\(screens/([\w.]+)\)", (DOCS / "repl.md").read_text())
    assert sorted(shown) == sorted(path.name for path in (DOCS / "screens").glob("*.svg"))


def test_the_page_has_every_key_of_the_help() -> None:
    page = (DOCS / "repl.md").read_text()
    table = page[page.index("| key |") : page.index("`-c ui.editing_mode=vi`")]
    told = {
        key.strip() for row in re.findall(r"^\| (.+?) \|", table, re.M) for key in row.split(",")
    }
    assert {key for keys, _ in KEYS for key in keys.split("  ")} <= told
