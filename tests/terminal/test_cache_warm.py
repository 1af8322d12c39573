"""A pause in which the prompt cache is kept warm: the real command, in a hurry, and a real server.

The command reads the prompt again after a fraction of the cache's life, so that a test need not
wait for minutes; all else is as it is.
"""

import json
import re
import sys
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Fail, Say, Server, Step
from ..support.terminal.screen import Terminal

EAGER = """
from ctxagent.agent.models import cache_warming
cache_warming.WARM_AFTER = {share}
from ctxagent.agent.cli.main import main
main()
"""
PAID = re.compile(r"it was kept warm \d+ times for \$[\d.]+, which has saved nothing so far")
KEPT = ("-c", "cache.keep_warm=30m")
DEAR = """
["claude-sonnet-5-5"]
window = 200_000
output = 32_000
input_price = 2_000
output_price = 10
cache_read_price = 100
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place where a small prompt costs as much as a large one."""
    own = tmp_path / "home" / ".config" / "ctxagent" / "models.toml"
    own.parent.mkdir(parents=True)
    own.write_text(DEAR)
    return Place(tmp_path)


def start(place: Place, server: Server, *arguments: str, share: float = 0.004) -> Terminal:
    code = EAGER.format(share=share)
    terminal = Terminal(
        "-c", code, *arguments, cwd=place.project, env=place.server(server.url),
        command=sys.executable,
    )  # fmt: skip
    terminal.see("❯")
    return terminal


def readings(server: Server) -> list[Body]:
    return [body for body in server.requests if body["max_tokens"] == 0]


def purposes(place: Place) -> list[str]:
    (log,) = place.logs()
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [entry["purpose"] for entry in entries if entry["kind"] == "assistant"]


def test_a_pause_is_seen_paid_and_read_from_the_cache(place: Place) -> None:
    with Server([Say("Here I am."), Say("Still here.")]) as server:
        terminal = start(place, server, *KEPT)
        terminal.type("look around\r")
        terminal.see("Here I am.")
        shown = terminal.see(lambda text: len(readings(server)) >= 3 and "cache warm" in text)
        before = shown.split("cache warm")[0]
        terminal.type("and now\r")
        after = terminal.see("Still here.")
        count = len(readings(server))
        assert after.count("Here I am.") == 1
        assert before.partition("Here I am.")[2].count("\n") < 8, "nothing was printed meanwhile"
        terminal.type("/cost\r")
        terminal.see("cache kept warm")
        terminal.see(lambda text: bool(PAID.search(text)))
        terminal.type("/quit\r")
        terminal.leave()
    assert server.rejected == []
    first, *_, last = [body for body in server.requests if body["max_tokens"]]
    assert readings(server)[0]["messages"] == first["messages"]
    assert len(last["messages"]) == len(first["messages"]) + 2
    made = purposes(place)
    assert made.count("turn") == 2
    assert made.count("warm") >= count


def test_without_the_setting_nothing_is_sent(place: Place) -> None:
    """A second command at the same time, with the setting, is the proof that it would have been."""
    with Server([Say("Here I am.")]) as quiet, Server([Say("Here I am.")]) as kept:
        terminal = start(place, quiet)
        terminal.type("look around\r")
        terminal.see("Here I am.")
        other = start(place, kept, *KEPT)
        other.type("look around\r")
        other.see(lambda text: len(readings(kept)) >= 3)
        for each in (terminal, other):
            each.type("/quit\r")
            each.leave()
    assert readings(quiet) == []
    assert "cache warm" not in terminal.text()


def test_a_server_that_refuses_is_told_of_once_and_never_asked_again(place: Place) -> None:
    refusal = Fail(422, "max_tokens: Input should be greater than or equal to 1")
    steps = [Say("Here I am."), Say("Still here."), Say("Again.")]
    with Server(steps, reading=refusal) as server:
        terminal = start(place, server, *KEPT)
        terminal.type("look around\r")
        terminal.see("the prompt cache is not kept warm: the server takes no requests without an")
        terminal.type("and now\r")
        terminal.see("Still here.")
        terminal.type("/quit\r")
        terminal.leave()
        assert terminal.text().count("is not kept warm") == 1
        second = start(place, server, *KEPT)
        second.type("once more\r")
        second.see("Again.")
        second.type("/quit\r")
        second.leave()
    assert len(readings(server)) == 1


def test_words_do_not_wait_for_a_reading(place: Place) -> None:
    """The server never answers the reading; the turn comes through all the same."""
    with Server([Say("Here I am."), Say("Still here.")], reading=Say(fault="mute")) as server:
        terminal = start(place, server, *KEPT)
        terminal.type("look around\r")
        terminal.see(lambda text: bool(readings(server)))
        terminal.type("and now\r")
        terminal.see("Still here.")
        assert server.hung_up.wait(60)
        terminal.type("/quit\r")
        terminal.leave()
    assert purposes(place) == ["turn", "turn"]


def test_another_session_is_not_warmed_by_the_one_before(place: Place) -> None:
    steps: list[Step] = [Say("Here I am.")]
    with Server(steps) as server:
        terminal = start(place, server, *KEPT)
        terminal.type("look around\r")
        terminal.see(lambda text: bool(readings(server)) and "cache warm" in text)
        terminal.type("/clear\r")
        terminal.see(lambda text: "cache warm" not in "\n".join(terminal.screen.display[-3:]))
        sent = len(readings(server))
        terminal.type("/cost\r")
        terminal.see("calls")
        terminal.type("/quit\r")
        terminal.leave()
        assert len(readings(server)) <= sent + 1


def test_a_kill_in_a_pause_leaves_a_whole_session(place: Place) -> None:
    with Server([Say("Here I am."), Say("Still here.")]) as server:
        terminal = start(place, server, *KEPT)
        terminal.type("look around\r")
        terminal.see(lambda text: len(readings(server)) >= 2 and "cache warm" in text)
        terminal.child.kill(9)
        terminal.child.wait()
        again = start(place, server, *KEPT, "--continue")
        again.type("and now\r")
        again.see("Still here.")
        again.type("/quit\r")
        again.leave()
        assert "was killed" not in again.text()
    assert server.rejected == []
    assert purposes(place).count("turn") == 2


def test_headless_runs_never_do_it(place: Place) -> None:
    with Server([Say("Here I am.")]) as server:
        done = place.run("-p", "look around", *KEPT, env=place.server(server.url))
    assert done.stdout.strip() == "Here I am."
    assert readings(server) == []
