"""MCP servers that ask questions during a call, and tools that work as tasks, with the real
command.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place, comes
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal
from .test_mcp import SDK, configure, http_server, notes, ran, results, use

ASKING = Path(__file__).parents[1] / "support" / "mcp" / "asking.py"
ALLOW = ("--allow", "mcp__asking__*")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    configure(place, asking=asking(place))
    return place


def asking(place: Place) -> dict[str, Any]:
    args = ["-I", "-S", str(ASKING), str(place.root / "notes")]
    return {"command": sys.executable, "args": args}


def call(name: str) -> Say:
    return use(f"mcp__asking__{name}", {})


def answers(place: Place) -> list[Any]:
    return [json.loads(line) for line in notes(place, "answer")]


def start(place: Place, server: Server, size: tuple[int, int] = (80, 24)) -> Terminal:
    terminal = Terminal(
        *ALLOW, cwd=place.project, env=place.server(server.url), columns=size[0], rows=size[1]
    )
    terminal.see("❯")
    terminal.type("go\r")
    return terminal


def leave(terminal: Terminal) -> None:
    terminal.see("Done.")
    terminal.press("ctrl-d")
    assert terminal.leave() == 0


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_a_form_is_filled_in_and_checked(place: Place, size: tuple[int, int]) -> None:
    with Server([call("form"), Say("Done.")]) as server:
        terminal = start(place, server, size)
        terminal.see("Name")
        terminal.type("Bo\r")
        terminal.see("age")
        terminal.type("17\r")
        terminal.see("Green")
        terminal.type("2\r")
        terminal.see("Wed")
        terminal.type("1 3\r")
        terminal.see("Send news")
        terminal.type("3\r")  # leave it out
        terminal.see(lambda shown: "at least 3 characters" in " ".join(shown.split()))
        terminal.type("Bob\r")
        terminal.see("at least 18")
        terminal.type("21\r")
        leave(terminal)
    values = {"name": "Bob", "age": 21, "colour": "g", "days": ["Mon", "Wed"]}
    assert answers(place) == [{"action": "accept", "content": values}]
    assert '"Bob"' in results(server)[0]


def test_esc_declines_and_a_question_without_fields_is_one_of_yes_and_no(place: Place) -> None:
    with Server([call("form"), call("confirm"), Say("Done.")]) as server:
        terminal = start(place, server)
        terminal.see("Who are you?")
        terminal.rest()
        terminal.type("\x1b")
        terminal.see("Delete all?")
        terminal.type("1\r")
        leave(terminal)
    assert answers(place) == [{"action": "decline"}, {"action": "accept", "content": {}}]


def test_a_page_is_shown_and_visited_only_if_the_user_agrees(place: Place) -> None:
    steps = [call("page"), call("page"), call("evil"), call("needs_page"), Say("Done.")]
    with Server(steps) as server:
        terminal = start(place, server)
        terminal.see("https://pay.example/1")
        terminal.type("2\r")
        terminal.rest()
        terminal.type("1\r")
        terminal.see("open this address in a browser: https://pay.example/1")
        terminal.rest()
        terminal.type("1\r")
        leave(terminal)
    assert answers(place) == [{"action": "decline"}, {"action": "accept"}, {"action": "decline"}]
    assert "Call it again once they say that this is done." in results(server)[-1]


def test_without_a_terminal_only_given_answers_are_sent(place: Place) -> None:
    _, done = ran(place, [call("form"), call("page"), Say("No.")], *ALLOW, code=3)
    assert answers(place) == [{"action": "decline"}] * 2
    assert "nobody can be asked in this run" in done.stderr
    file = place.root / "answers.json"
    given = {"Name": "Bob", "age": "30", "colour": "Red", "days": ["Tue"], "Send news": "yes"}
    file.write_text(json.dumps(given))
    ran(place, [call("form"), Say("Yes.")], *ALLOW, "--answers", str(file))
    values = {"name": "Bob", "age": 30, "colour": "r", "days": ["Tue"], "news": True}
    assert answers(place)[2:] == [{"action": "accept", "content": values}]
    file.write_text(json.dumps({**given, "age": "young"}))
    ran(place, [call("form"), Say("No.")], *ALLOW, "--answers", str(file))
    assert answers(place)[3:] == [{"action": "decline"}]


def is_sampling(body: Body) -> bool:
    return "Name a bird." in json.dumps(body["messages"][-1])


def test_the_model_answers_a_server_by_a_rule_within_the_budget(place: Place) -> None:
    turn = iter([call("model"), Say("Done.")] * 3)

    def play(body: Body) -> Say:
        return Say("A heron.") if is_sampling(body) else next(turn)

    def run(*arguments: str, code: int = 0) -> Server:
        with Server(play) as server:
            done = place.run("-p", "go", *ALLOW, *arguments, env=place.server(server.url))
            assert done.returncode == code, done.stderr
        assert server.rejected == []
        return server

    server = run(code=3)
    assert not any(map(is_sampling, server.requests))
    assert "Not allowed: Sampling may change something" in answers(place)[0]["message"]
    server = run("--allow", "Sampling(asking)")
    (asked,) = filter(is_sampling, server.requests)
    assert (asked["max_tokens"], asked["system"][0]["text"]) == (50, "Be brief.")
    assert "tools" not in asked
    assert answers(place)[1]["content"] == {"type": "text", "text": "A heron."}
    assert "A heron." in results(server)[0]
    log = max(place.logs(), key=lambda path: path.stat().st_mtime)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    (reply,) = [entry for entry in entries if entry.get("purpose") == "sampling"]
    assert reply["cost_usd"] > 0
    server = run("--allow", "Sampling", "--max-turns", "1", code=4)
    assert not any(map(is_sampling, server.requests))
    assert "the limit of 1 model call has been reached" in answers(place)[2]["message"]


@pytest.mark.full
def test_the_sdks_server_asks_in_rounds_over_http_and_at_once_over_stdio(place: Place) -> None:
    file = place.root / "answers.json"
    file.write_text(json.dumps({"name": "Bob", "age": "30"}))
    with http_server() as url:
        here = {"command": sys.executable, "args": [str(SDK), "stdio"]}
        configure(place, here=here, there={"type": "http", "url": url})
        invite = [use(f"mcp__{name}__invite", {}) for name in ("here", "there")]
        turn = iter([*invite, Say("Done.")])
        with Server(lambda body: Say("A heron.") if is_sampling(body) else next(turn)) as server:
            done = place.run(
                "-p", "go", "--allow", "mcp__*__invite", "--allow", "Sampling",
                "--answers", str(file), env=place.server(server.url),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    assert results(server) == ["Bob, 30, gets A heron."] * 2
    assert server.rejected == []


def test_the_user_sees_what_a_server_asks_of_the_model(place: Place) -> None:
    turn = iter([call("model"), Say("Done.")])
    with Server(lambda body: Say("A heron.") if is_sampling(body) else next(turn)) as server:
        terminal = start(place, server)
        terminal.see("Sampling wants to ask the model for an MCP server")
        terminal.see(lambda text: "Be brief." in text and "Name a bird." in text)
        terminal.type("y\r")
        leave(terminal)
    assert answers(place)[0]["model"] == "claude-sonnet-5-5"


def test_a_tool_that_works_as_a_task(place: Place) -> None:
    server, _ = ran(place, [call("task"), Say("Done.")], *ALLOW)
    assert results(server) == ["the task is done"]
    assert notes(place, "polled") == ["task"] * 3


def test_a_task_that_takes_too_long_is_ended(place: Place) -> None:
    more = ("-c", "mcp.call_timeout=1")
    server, _ = ran(place, [call("endless"), Say("No.")], *ALLOW, *more)
    assert "gave no answer in 1 s." in results(server)[0]
    assert notes(place, "ended") == ["endless"]


def test_an_interrupt_ends_a_task_and_takes_a_question_away(place: Place) -> None:
    with Server([call("endless"), call("form"), Say("Done.")]) as server:
        terminal = start(place, server)
        assert comes(lambda: "endless" in notes(place, "polled"))
        terminal.press("ctrl-c")
        assert comes(lambda: notes(place, "ended") == ["endless"])
        terminal.rest()
        terminal.type("again\r")
        terminal.see("Who are you?")
        terminal.press("ctrl-c")
        terminal.rest()
        terminal.type("and again\r")
        leave(terminal)
    assert server.rejected == []
