"""Images in the terminal: from the clipboard, and dropped as paths."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ..e2e.test_images import png
from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal

START, END = "\x1b[200~", "\x1b[201~"
READER = """#!{python}
import pathlib, sys
image = pathlib.Path({image!r})
if "--list-types" in sys.argv:
    print("text/plain\\nimage/png" if image.exists() else "text/plain")
elif sys.argv[-1] == "image/png":
    sys.stdout.buffer.write(image.read_bytes())
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def with_clipboard(place: Place, env: dict[str, str]) -> tuple[dict[str, str], Path]:
    """An environment with a Wayland clipboard, and the file that provides its image."""
    folder, image = place.root / "bin", place.root / "clipboard.png"
    folder.mkdir()
    reader = folder / "wl-paste"
    reader.write_text(READER.format(python=sys.executable, image=str(image)))
    reader.chmod(0o755)
    path = f"{folder}:{env['PATH']}"
    return {**env, "PATH": path, "WAYLAND_DISPLAY": "wayland-0"}, image


def images_in(body: Body) -> list[dict[str, Any]]:
    return [b for m in body["messages"] for b in m["content"] if b["type"] == "image"]


def started(place: Place, env: dict[str, str]) -> Terminal:
    # No program is started from where confined commands may write.
    terminal = Terminal("-c", "sandbox.mode=off", cwd=place.project, env=env)
    terminal.see("❯")
    return terminal


def test_an_image_from_the_clipboard(place: Place) -> None:
    with Server([Say("A black one."), Say("Still black.")]) as server:
        env, image = with_clipboard(place, place.server(server.url))
        terminal = started(place, env)
        terminal.type("\x16")
        terminal.see("no image in the clipboard")
        image.write_bytes(data := png(40, 30))
        terminal.type("what is\x16")
        terminal.see(f"what is [image 1, PNG, {len(data)} bytes]")
        terminal.type("here?\r")
        terminal.see("A black one.")
        terminal.rest()
        image.write_bytes(png(50, 30))
        terminal.type(f"{START}{END}")  # what some terminals make of the paste of an image
        terminal.see("[image 2, PNG,")
        terminal.type("\x7f\x7f")  # the blank, then the mark as a whole
        terminal.see(lambda text: text.count("[image 2") == 0)
        terminal.type("and without?\r")
        terminal.see("Still black.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    assert len(images_in(server.requests[0])) == len(images_in(server.requests[1])) == 1
    (kept,) = (place.logs()[0].parent / "offloaded").glob("*.png")
    assert kept.read_bytes() == data
    pasted = place.logs()[0].parents[2] / "pasted"
    assert {path.stat().st_mode & 0o777 for path in pasted.iterdir()} == {0o600}


@pytest.mark.variants
@pytest.mark.parametrize(
    ("drop", "shown"),
    [
        ("{0}/a b.png", '@"a b.png"'),
        ("'{0}/a b.png' ", '@"a b.png"'),
        ("{0}/a\\ b.png {0}/c.png", '@"a b.png" @c.png'),
        ("file://{0}/a%20b.png", '@"a b.png"'),
    ],
)
def test_a_dropped_image_is_attached(place: Place, drop: str, shown: str) -> None:
    for name in ("a b.png", "c.png"):
        (place.project / name).write_bytes(png(40, 30))
    with Server([Say("Seen.")]) as server:
        terminal = started(place, place.server(server.url))
        terminal.type(f"{START}{drop.format(place.project)}{END}")
        terminal.see(shown)
        terminal.type("what is it?\r")
        terminal.see("Seen.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert len(images_in(server.requests[0])) == shown.count("@")


def test_other_pastes_are_text(place: Place) -> None:
    (place.project / "notes.txt").write_text("no image")
    (place.project / "empty.png").write_bytes(b"")
    shutil.copy(place.project / "notes.txt", place.project / "text.png")
    with Server([]) as server:
        terminal = started(place, place.server(server.url))
        for text in (
            f"{place.project}/notes.txt", f"{place.project}/text.png", f"{place.project}/empty.png",
            f"{place.project}/gone.png", "/ 'unclosed", "see /etc",
        ):  # fmt: skip
            terminal.type(f"{START}{text}{END}")
            terminal.see(lambda screen, text=text: text[-20:] in screen.replace("\n", ""))
            assert "@" not in terminal.text().rpartition("❯")[2]
            terminal.press("ctrl-c")
        terminal.rest()
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
