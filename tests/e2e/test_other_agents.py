"""The folder of another agent in a project: which parts are used, and what is shown about them."""

from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

SCOUT = "---\nname: scout\ndescription: finds things\ncolor: blue\ntools: Read, Fly\n---\nLook."
LINE = "from .claude in this project: 2 instruction files, 1 command, 1 subagent (not trusted)"
REST = "not taken: output-styles, settings.json"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    folder = place.project / ".claude"
    put(folder / "agents" / "scout.md", SCOUT)
    put(folder / "commands" / "hello.md", "Say hello.")
    put(folder / "CLAUDE.md", "Be good.")
    put(folder / "rules" / "py.md", "---\npaths: '*.py'\n---\nUse tabs.")
    put(folder / "settings.json", '{"permissions": {"allow": ["Bash"]}}')
    put(folder / "output-styles" / "loud.md", "SHOUT")
    return place


def test_doctor_names_types_and_what_is_ignored_in_their_files(place: Place) -> None:
    env = place.server("http://127.0.0.1:9")
    assert "1 subagent not trusted, so left out" in place.run("doctor", env=env).stdout
    assert place.run("config", "--trust", env=env).returncode == 0
    found = " ".join(place.run("doctor", env=env).stdout.split())
    assert "scout.md: ignored, not supported here: color, tool Fly" in found


def test_first_start_lists_used_parts_once(place: Place) -> None:
    def shown() -> str:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("hello\r")
        terminal.see("Hello.")
        text = " ".join(terminal.text().split())
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
        return text

    with Server([Say("Hello."), Say("Hello.")]) as server:
        first, second = shown(), shown()
    assert f"{LINE} · {REST}" in first
    assert "from .claude in this project" not in second
    assert "from .claude" not in str(server.requests)


def test_without_such_a_folder_nothing_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Server([Say("Hello.")]) as server:
        done = place.run("-p", "hello", "--verbose", env=place.server(server.url))
    assert "from .claude" not in done.stderr
