"""An overloaded server is waited for with a countdown in the terminal, and a key gives up."""

import re
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Fail, Say, Server
from ..support.terminal.screen import Terminal

COUNTDOWN = re.compile(
    r"◌ the model is overloaded · again in (\d+) s · Esc to give up · for (\d+:\d\d) more"
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (100, 34)])
def test_the_countdown_and_the_key_that_ends_it(place: Place, columns: int, rows: int) -> None:
    steps = [Fail(529, "Overloaded", headers={"retry-after": "300"}), Say("Here I am.")]
    seen: set[str] = set()

    def counts(text: str) -> bool:
        seen.update(found[1] for found in COUNTDOWN.finditer(text))
        return len(seen) >= 3

    with Server(steps) as server:
        env = place.server(server.url)
        terminal = Terminal(cwd=place.project, env=env, columns=columns, rows=rows)
        terminal.see("❯")
        terminal.type("look around\r")
        shown = terminal.see(counts)
        assert len(COUNTDOWN.findall(shown)) == 1, "one line, painted again"
        assert int(COUNTDOWN.findall(shown)[0][1].partition(":")[0]) in (9, 10)
        terminal.press("esc")
        shown = terminal.see('gave up: the model is overloaded; your message is kept, send "go on"')
        assert "◌" not in "\n".join(terminal.screen.display)
        assert shown.count("overloaded") == 1
        assert len(server.requests) == 1
        terminal.type("go on\r")
        terminal.see("Here I am.")
        terminal.type("/quit\r")
        terminal.leave()
    text = str(server.requests[-1]["messages"])
    assert "look around" in text
    assert "go on" in text
    assert server.rejected == []


def test_giving_up_says_what_to_do_and_the_session_goes_on(place: Place) -> None:
    with Server([Fail(529, "Overloaded"), Say("Here I am.")]) as server:
        env = place.server(server.url)
        terminal = Terminal("-c", "model.overload_wait=0", cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("look around\r")
        shown = terminal.see("model.overload_wait").partition("look around")[2]
        assert "the model is overloaded: Overloaded (tried once in 0 s)" in shown
        assert "network" not in shown
        terminal.type("go on\r")
        terminal.see("Here I am.")
        terminal.type("/quit\r")
        terminal.leave()


def test_without_a_live_region_each_try_is_a_line(place: Place) -> None:
    with Server([Fail(529, "Overloaded"), Say("Here I am.")]) as server:
        env = place.server(server.url)
        terminal = Terminal("-c", "ui.plain=true", cwd=place.project, env=env)
        terminal.see("/help\n>")
        terminal.type("look around\r")
        shown = terminal.see("Here I am.")
        assert re.search(r"retry 1 in [01] s, giving up in 600 s: the model is overloaded", shown)
        terminal.type("/quit\r")
        terminal.leave()
