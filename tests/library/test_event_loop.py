"""What the library does in the thread of the event loop: no agent may stall it for the others."""

import asyncio
import gc
import os
import selectors
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ctxagent import Agent
from ctxagent.agent import app
from ctxagent.agent.library import agent as agent_module
from ctxagent.agent.models.scripted import ScriptedModel, Step

from ..support.command import Place

# Each of them releases the interpreter, and a busy thread may keep it for 5 ms.
MODULES = ("posix", "io", "_io", "fcntl")
MAX_CALLS = 120  # in one turn of the loop; before commands were enclosed in threads, 575
OLD = "x = 1\n" * 20
STEPS = (
    Step(tools=[("Bash", {"command": "echo one; touch made"})]),
    Step(tools=[("Read", {"path": "a.py"}), ("Grep", {"pattern": "x", "path": "."})]),
    Step(tools=[("Write", {"path": "b.py", "content": OLD})]),
    Step(tools=[("Edit", {"path": "b.py", "old_string": OLD, "new_string": "y = 2\n"})]),
    Step(text="Done."),
)


class CountingSelector(selectors.DefaultSelector):
    """Counts the file system calls between two waits, which are a turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Counter[str]] = [Counter()]

    def heed(self, frame: FrameType, event: str, function: Any) -> None:
        is_call = event == "c_call" and getattr(function, "__module__", "") in MODULES
        if is_call and function is not os.fspath:
            self.turns[-1][function.__name__] += 1

    def select(self, timeout: float | None = None) -> Any:
        self.turns.append(Counter())
        return super().select(timeout)


async def play(project: Path, environ: dict[str, str]) -> str:
    model, settings = ScriptedModel(STEPS), {"permissions.mode": "bypass"}
    async with Agent(project, model=model, environ=environ, settings=settings) as agent:
        return (await agent.run("Do it.")).status


@pytest.fixture
def turns(tmp_path: Path) -> list[Counter[str]]:
    """The file system calls of each turn of the loop in which an agent did all of its steps."""
    place, selector = Place(tmp_path), CountingSelector()
    (place.project / "a.py").write_text("x = 1\n" * 50)
    before = sys.getprofile()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert runner.run(play(place.project, place.environ())) == "ok"  # what imports modules
        selector.turns[:] = [Counter()]
        (place.project / "b.py").unlink()
        sys.setprofile(selector.heed)
        try:
            assert runner.run(play(place.project, place.environ())) == "ok"
        finally:
            sys.setprofile(before)
    return selector.turns


def test_the_loop_never_waits_for_the_disk(turns: list[Counter[str]]) -> None:
    assert sum(turn["fsync"] for turn in turns) == 0


def test_no_turn_of_the_loop_makes_many_file_system_calls(turns: list[Counter[str]]) -> None:
    assert sum(map(Counter.total, turns)) > 100  # they are counted
    worst = max(turns, key=Counter.total)
    assert worst.total() <= MAX_CALLS, worst


def test_agents_open_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, opening, most, open_agent = Place(tmp_path), 0, 0, app.open_agent

    def counted(*args: Any, **named: Any) -> Any:
        nonlocal opening, most
        opening += 1
        most = max(most, opening)
        try:
            return open_agent(*args, **named)
        finally:
            opening -= 1

    async def play_all() -> list[str]:
        return await asyncio.gather(*(play(place.project, place.environ()) for _ in range(3)))

    frozen: list[None] = []
    monkeypatch.setattr(app, "open_agent", counted)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    agent_module._freeze_modules.cache_clear()
    (place.project / "a.py").write_text("x = 1\n")
    assert asyncio.run(play_all()) == ["ok"] * 3
    assert most == 1
    assert len(frozen) == 1  # by the first of them
