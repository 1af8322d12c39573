"""Esc and Ctrl-C stop the work at once, in every phase. No process remains, the text so far is
kept, and the conversation continues. Each command here would run for five minutes, so an earlier
end shows that the interrupt worked.
"""

import json
from pathlib import Path

import pytest

from ..support.command import Place, gone
from ..support.server.loopback import Server
from ..support.server.phases import AGAIN, HERE, PHASES, Played, reach


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.variants
@pytest.mark.parametrize("key", ["esc", "ctrl-c"])
@pytest.mark.parametrize("name", PHASES)
def test_an_interrupt(place: Place, name: str, key: str) -> None:
    phase = PHASES[name]
    with Server(Played(phase)) as server:
        there = reach(phase, place, server)
        terminal = there.terminal
        terminal.press(key)
        terminal.see(phase.said)
        assert gone(*there.pids)
        if name != "import":
            terminal.type(f"{AGAIN}\r")
            terminal.see(HERE)
        terminal.type("/quit\r")
        terminal.leave()
    assert server.rejected == []
    assert phase.kept in json.dumps(place.entries())
