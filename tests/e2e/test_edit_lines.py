"""Edit with `lines` in the real command: over a resume, with a question, and undone."""

from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

TEXT = "def area(a, b):\n    # in metres\n    return a + b\n\n\nprint(area(2, 3))\n"
FIXED = "def area(a, b):\n    return a * b\n\n\nprint(area(2, 3))\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / "a.py").write_text(TEXT)
    return place


def edit(lines: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "Edit", {"path": "a.py", "lines": lines, "old_string": old, "new_string": new}


def results(place: Place) -> list[dict[str, Any]]:
    return [entry for entry in place.entries() if entry["kind"] == "tool_result"]


def test_numbers_hold_over_a_resume_and_not_after_a_change(place: Place) -> None:
    read = ("Read", {"path": "a.py"})
    body = edit("2-3", "    # in metres\n    return a + b", "    return a * b\n")
    end = Say("Done.")
    with Server(
        [Say(tools=[read]), end, Say(tools=[body, body]), end, Say(tools=[body]), end]
    ) as server:
        env = place.server(server.url)
        mode = ("--permission-mode", "bypass")
        assert place.run("-p", "read it", *mode, env=env).returncode == 0
        assert place.run("--continue", "-p", "fix it", *mode, env=env).returncode == 0
        assert server.rejected == []
        assert (place.project / "a.py").read_text() == FIXED
        _, first, again = results(place)
        assert first["content"].startswith("Edited a.py (+1 -2):")
        assert again["is_error"]
        assert "Lines 2-3 of a.py differ from old_string" in again["content"]
        assert "2\t    return a * b\n3\t" in again["content"]
        (place.project / "a.py").write_text(TEXT)
        assert place.run("--continue", "-p", "again", *mode, env=env).returncode == 0
    assert "has changed on disk since you saw it" in results(place)[-1]["content"]
    assert (place.project / "a.py").read_text() == TEXT


def test_the_question_shows_the_change_and_rewind_undoes_it(place: Place) -> None:
    body = edit("2-3", "    # in metres\n    return a + b", "    return a * b")
    with Server(
        [Say(tools=[("Read", {"path": "a.py"})]), Say(tools=[body]), Say("Fixed.")]
    ) as server:
        terminal = Terminal("fix it", cwd=place.project, env=place.server(server.url))
        terminal.see("a.py:2-3")
        terminal.see("return a * b")
        terminal.keys("[y]es")
        terminal.type("y")
        terminal.see("Fixed.")
        assert (place.project / "a.py").read_text() == FIXED
        terminal.type("/rewind 1 files\r")
        terminal.keys("[y]es, restore the files")
        terminal.type("y")
        terminal.see("to undo this: /rewind")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
        assert server.rejected == []
    assert (place.project / "a.py").read_text() == TEXT
