"""Continuing a session of another agent in the terminal: picked at the start, and with the command
while another session is open.
"""

import os
from pathlib import Path

from ..replay.test_places import fill
from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal


def test_a_session_of_another_agent_is_picked(tmp_path: Path) -> None:
    place = Place(tmp_path)
    fill(place.root / "home", os.path.realpath(place.project))
    with Server([Say("It is in a.py."), Say("Still there.")]) as server:
        terminal = Terminal("--from-recording", cwd=place.project, env=place.server(server.url))
        menu = terminal.see(lambda text: "claude-code" in text and "hermes" in text)
        assert menu.count("Find the fault.") > 8
        terminal.type("qwen")
        terminal.see(lambda text: "claude-code" not in text)
        terminal.type("\r")
        terminal.see("continues a session of qwen-code · 3 replies · 3 calls")
        terminal.type("Where?\r")
        terminal.see("It is in a.py.")
        terminal.type("/from-recording\r")
        terminal.see("search:")
        terminal.type("hermes\r")
        terminal.see("continues a session of hermes · 3 replies · 2 calls")
        terminal.type("And now?\r")
        terminal.see("Still there.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
        assert not server.rejected
        assert "Go on, please." in str(server.requests[0])
    assert len(place.logs()) == 2


def test_nothing_is_picked(tmp_path: Path) -> None:
    place = Place(tmp_path)
    terminal = Terminal("--from-recording", cwd=place.project, env=place.environ())
    terminal.see("no session of another agent was found")
    terminal.press("esc")
    assert terminal.leave() == 0
    assert not place.logs()
