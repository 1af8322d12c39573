"""A server that refuses prompts as too long, correctly or not: this never ends a session."""

import json
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Fail, Say, Server, Step, flat
from ..support.terminal.screen import Terminal

WORDS = "prompt is too long: 3843 tokens > 3842 maximum"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Refuser:
    """Answer the user's messages, but refuse the first `times` requests as too long."""

    def __init__(self, times: int, words: str = WORDS) -> None:
        self.times, self.words = times, words
        self.sizes: list[int] = []

    def __call__(self, body: Body) -> Step:
        self.sizes.append(len(json.dumps(body)))
        self.times -= 1
        return Fail(400, self.words) if self.times >= 0 else Say(f"Answer {len(self.sizes)}.")


def test_refusal_of_a_small_request_is_quoted_and_the_session_continues(place: Place) -> None:
    """The request is also refused without its optional parts, and so is a tiny one."""
    with Server(Refuser(3), lenient=True) as server:
        env = place.server(server.url)
        refused = place.run("-p", "hello", env=env)
        again = place.run("--continue", "-p", "and now?", env=env)
    assert refused.returncode == 4
    assert WORDS in refused.stderr
    assert "(estimated) could not be reduced" in refused.stderr
    assert "/model" in refused.stderr
    assert (again.returncode, again.stdout) == (0, "Answer 4.\n")
    assert server.rejected == []


def test_a_server_that_refuses_everything_is_asked_three_times_a_turn(place: Place) -> None:
    with Server(Refuser(99), lenient=True) as server:
        env = place.server(server.url)
        turns = [place.run(*more, "-p", "hello", env=env) for more in ([], ["--continue"])]
    for done in turns:
        assert done.returncode == 4
        assert WORDS in done.stderr
        assert "Traceback" not in done.stderr
    assert len(server.requests) == 6


def test_window_below_an_accepted_size_is_ignored(place: Place) -> None:
    """The refused request is made smaller once. Another model has its own window."""
    asked = 0

    def step(body: Body) -> Step:
        nonlocal asked
        asked += 1
        if asked == 6:
            return Fail(400, "prompt is too long: 30000 tokens > 14000 maximum")
        if "tool_result" in json.dumps(body["messages"][-1]):
            return Say(f"Counted {asked}.")
        return Say(tools=[("Bash", {"command": "seq -f 'item %g' 2500"})])

    with Server(step) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("/help")
        for number in (2, 4):
            terminal.type(f"count for {number}\r")
            terminal.see(f"Counted {number}.")
        terminal.type("count again\r")
        terminal.see("retrying with about")
        terminal.see("Counted 7.")
        terminal.type("/model claude-sonnet-5-5\r")
        terminal.see("tokens, learned from the server")
        terminal.type("/model claude-opus-5\r")
        terminal.see("window 1,000,000 tokens, by table")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    refused, smaller = (json.dumps(server.requests[n]["messages"]) for n in (5, 6))
    assert len(smaller) < len(refused)
    assert server.rejected == []


def test_a_session_goes_on_at_the_next_words_and_with_another_model(place: Place) -> None:
    with Server(Refuser(6), lenient=True) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("/help")
        terminal.type("first words\r")
        terminal.see("(estimated)")
        terminal.type("/model claude-opus-5\r")
        terminal.see("claude-opus-5 · window 1,000,000 tokens, by table")
        terminal.type("second words\r")
        terminal.see(lambda text: text.count("recorded is lost") == 2)
        terminal.type("third words\r")
        terminal.see("Answer 7.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert server.rejected == []


def test_learned_window_in_which_nothing_fits_is_forgotten(place: Place) -> None:
    """The message alone is larger than the window that the server names. It is sent once more,
    because only the server can show whether the size was right.
    """
    said = "prompt is too long: {} tokens > {} maximum"
    long = "word " * 9_000

    def step(body: Body) -> Step:
        if len(server.requests) == 1:
            size = sum(server.size_of(block) for _, block in flat(body))
            fixed = size - server.size_of({"type": "text", "text": long})
            return Fail(400, said.format(size, fixed + 6_000))
        return Say("Short.")

    with Server(step, lenient=True) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url), rows=60)
        terminal.see("/help")
        terminal.type(f"\x1b[200~{long}\x1b[201~\r")
        terminal.see("Short.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert len(server.requests) == 2
    assert server.rejected == []
