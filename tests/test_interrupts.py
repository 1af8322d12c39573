"""Esc and Ctrl-C stop what runs, in every phase: at once, with nothing left running and what was
said kept; and the conversation goes on. Whatever runs here would run for a minute: what comes
sooner came by the interrupt."""

import json
import time
from pathlib import Path

import pytest

from .support.command import Place
from .support.phases import AGAIN, HERE, PHASES, Played, gone, reach
from .support.server import Server

BOUND = 10.0  # seconds; the phases take 60, an interrupt less than one


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("key", ["esc", "ctrl-c"])
@pytest.mark.parametrize("name", PHASES)
def test_an_interrupt(place: Place, name: str, key: str) -> None:
    phase = PHASES[name]
    with Server(Played(phase)) as server:
        there = reach(phase, place, server)
        terminal, began = there.terminal, time.monotonic()
        terminal.press(key)
        terminal.see(phase.said)
        while not all(map(gone, there.pids)) and time.monotonic() - began < BOUND:
            time.sleep(0.01)  # a killed process takes a moment to go
        assert all(map(gone, there.pids))
        assert time.monotonic() - began < BOUND
        if name != "import":
            terminal.type(f"{AGAIN}\r")
            terminal.see(HERE)
        terminal.type("/quit\r")
        terminal.leave()
    assert server.rejected == []
    assert phase.kept in json.dumps(place.entries())
