"""Names from other agents, with the real command. Each one works or gets a hint with the
equivalent. `habits.toml` lists them.
"""

import subprocess
import tomllib
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

MIN_HABITS = 40
Habit = dict[str, Any]
HABITS: dict[str, list[Habit]] = tomllib.loads(
    Path(__file__).with_name("habits.toml").read_text(encoding="utf-8")
)


def each(*kind: str) -> list[Any]:
    """Each habit with exactly these keys in addition to `then`, named after its agent."""
    found = []
    for agent, habits in HABITS.items():
        for habit in habits:
            if habit.keys() - {"then"} == set(kind):
                name = "-".join([agent, *map(str, habit.values())]).encode("ascii", "replace")
                found.append(pytest.param(habit, id=name.decode().replace("/", "")[:60]))
    return found


def play(terminal: Terminal, types: str, shows: str, then: str = "") -> None:
    """Type something, and wait for its answer and for the prompt."""

    def below(text: str) -> str:
        return text.rpartition(f"❯ {types}\n")[2]

    terminal.type(f"{types}\r")
    if then:
        terminal.see(lambda text: shows in below(text))
        terminal.type(then)
        terminal.see(lambda text: shows not in below(text))
    else:  # the next prompt stands below the answer
        terminal.see(lambda text: shows in below(text).rpartition("\n❯")[0])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / "notes.txt").write_text("alpha\n")
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    return place


def test_there_are_enough_of_each_agent() -> None:
    assert {"claude-code", "codex", "opencode", "pi"} <= HABITS.keys()
    assert sum(map(len, HABITS.values())) >= MIN_HABITS
    kinds = [("line", "told"), ("line", "sent"), ("types", "shows"), ("types", "sent"), ("leaves",),
             ("file", "content", "sent"), ("file", "content", "types", "sent")]  # fmt: skip
    assert sum(len(each(*kind)) for kind in kinds) == sum(map(len, HABITS.values()))


@pytest.mark.parametrize("habit", each("line", "told"))
def test_a_command_line_is_told_the_right_way(place: Place, habit: Habit) -> None:
    done = place.run(*habit["line"], env=place.server("http://127.0.0.1:9"))
    assert (done.returncode, done.stdout) == (2, "")
    assert habit["told"] in done.stderr
    assert place.logs() == []


@pytest.mark.parametrize("habit", each("line", "sent"))
def test_a_command_line_works(place: Place, habit: Habit) -> None:
    with Server([Say("Yes.")]) as server:
        done = place.run(*habit["line"], env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert habit["sent"] in str(server.requests[0])


def test_what_is_typed_is_answered_and_begins_no_turn(place: Place) -> None:
    habits = [habit for habits in HABITS.values() for habit in habits if "shows" in habit]
    with Server([Say("Yes.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("hello\r")
        terminal.see("Yes.")
        for habit in habits:
            play(terminal, **habit)
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert len(server.requests) == 1
    assert b"\x1b]52;c;" + b64encode(b"Yes.") + b"\a" in terminal.raw  # what /copy sends


@pytest.mark.parametrize("habit", each("leaves"))
def test_what_is_typed_leaves(place: Place, habit: Habit) -> None:
    terminal = Terminal(cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("❯")
    terminal.type(f"{habit['leaves']}\r")
    assert terminal.leave() == 0


@pytest.mark.parametrize(
    "habit",
    [
        *each("types", "sent"),
        *each("file", "content", "sent"),
        *each("file", "content", "types", "sent"),
    ],
)
def test_what_a_turn_sends(place: Place, habit: Habit) -> None:
    if "file" in habit:
        path = place.project / habit["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(habit["content"])
        place.run("config", "--trust")
    with Server([Say("Yes.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type(f"{habit.get('types', 'hello')}\r")
        terminal.see("Yes.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert habit["sent"] in str(server.requests[0])
