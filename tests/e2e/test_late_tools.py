"""Tools of MCP servers that are loaded late, against a server that binds thinking to what stands
before it, and one that knows no such messages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal
from .test_mcp import ALLOW, SUMMARY, _uncached, configure, notes, plain, results, use

LATE = ("-c", "mcp.load=late", "--model", "claude-sonnet-5-5", *ALLOW)
ECHO = "mcp__plain__echo"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    configure(found, plain=plain(found))
    return found


def call(text: str = "x") -> Say:
    return Say(tools=[(ECHO, {"text": text})], thinking=f"Say {text}.")


def thinking(say: Say) -> Say:
    return replace(say, thinking="Let me see.")


def added(body: Body) -> list[str]:
    """Return the names of the tools that a request adds."""
    return [
        block["tool"]["definition"]["name"]
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "tool_addition"
    ]


def of_turns(server: Server) -> list[Body]:
    def asked(body: Body) -> str:
        return str(body["messages"][-1]["content"][-1].get("text", ""))

    return [body for body in server.requests if not is_summary_question(asked(body))]


def is_prefix(before: Body, after: Body) -> bool:
    """Whether all that a request says stands at the beginning of the next one."""
    if (before["tools"], before["system"]) != (after["tools"], after["system"]):
        return False
    was, now = (json.dumps(_uncached(each["messages"])) for each in (before, after))
    return now.startswith(was[:-1])


def test_loaded_where_it_is_described_and_then_called_by_its_name(place: Place) -> None:
    steps = [use(query="echo"), use(ECHO), call("one"), call("two"), Say("Done.")]
    with Server(list(map(thinking, steps)), bound=True) as server:
        done = place.run("-p", "go", *LATE, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert server.rejected == []
    assert results(server)[1:] == [f"{ECHO} is loaded: call it by its name.", "one", "two"]
    assert [added(body) for body in server.requests] == [[], [], [ECHO], [ECHO], [ECHO]]
    assert all(map(is_prefix, server.requests, server.requests[1:]))
    assert len(notes(place, "call")) == 2


def test_over_a_resume_a_copy_and_what_was_configured_then(place: Place) -> None:
    steps = list(map(thinking, [use(ECHO), call("one"), Say("Done.")]))
    with Server(steps, bound=True) as server:
        done = place.run("-p", "go", *LATE, env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    for more in ("--continue",), ("--continue", "--fork"):
        with Server([call("two"), Say("Done.")], bound=False) as again:
            done = place.run("-p", "on", *LATE, *more, env=place.server(again.url))
            assert done.returncode == 0, done.stderr
        assert again.rejected == []
        assert results(again)[-1] == "two"
        assert is_prefix(server.requests[-1], again.requests[0])
    configure(place)
    with Server([use(ECHO), Say("Done.")]) as none:
        done = place.run("-p", "on", *LATE, "--continue", env=place.server(none.url))
    assert done.returncode == 0, done.stderr
    assert none.rejected == []
    assert none.requests[0]["tools"] == server.requests[0]["tools"]
    assert "There is no MCP server" in results(none)[-1]


class Caller:
    """Loads a tool once, and calls it until there were so many summaries, with bound thoughts."""

    def __init__(self, summaries: int) -> None:
        self.left, self.summaries, self.calls = summaries, 0, 0

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.summaries += 1
            return Say(SUMMARY)
        if self.summaries >= self.left:
            return Say("All done.", thinking="Done.")
        self.calls += 1
        if self.calls == 1:
            return thinking(use(ECHO))
        return call(f"answer {self.calls}: " + "some words of it " * 400)


def test_over_summaries(place: Place) -> None:
    """It is said again once behind each, and called by its name all the while."""
    caller = Caller(3)
    with Server(caller, bound=True, strict=True, window=24_000) as server:
        window = ("--context-window", "24000")
        done = place.run("-p", "go", *LATE, *window, env=place.server(server.url))
        assert done.returncode == 0, done.stderr
        caller.left = 4
        done = place.run("-p", "on", *LATE, *window, "--continue", env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    assert caller.summaries >= 4
    assert {tuple(added(body)) for body in of_turns(server)[1:]} == {(ECHO,)}


def test_a_server_that_knows_no_such_message(place: Place) -> None:
    """It is told once, and all goes on by way of Mcp; also after a resume."""
    by_mcp = thinking(use(ECHO, {"text": "two"}))
    skipped = Say("what the refused request would have got")
    steps = [thinking(use(ECHO)), skipped, by_mcp, thinking(use("mcp__plain__other")), Say("Done.")]
    with Server(steps, bound=True) as server:
        server.adds_tools = False
        env = place.server(server.url)
        done = place.run("-p", "go", "--verbose", *LATE, env=env)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("this server does not load tools late") == 1
        assert results(server)[1] == "two"
        assert '"properties": {"text"' in results(server)[2]

    with Server([Say("Yes.")]) as again:
        again.adds_tools = False
        done = place.run("-p", "on", *LATE, "--continue", env=place.server(again.url))
        assert done.returncode == 0, done.stderr
    assert [added(body) for body in again.requests] == [[]]
    assert again.rejected == []


def test_without_the_setting_nothing_is_added(place: Place) -> None:
    with Server([use(ECHO), Say("Done.")]) as server:
        done = place.run("-p", "go", *ALLOW, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert added(server.requests[-1]) == []
    assert '"properties": {"text"' in results(server)[0]


def test_context_counts_them(place: Place) -> None:
    with Server([use(ECHO), Say("Done.")]) as server:
        terminal = Terminal(*LATE, cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("Done.")
        terminal.rest()
        terminal.type("/context\r")
        terminal.see("tools: mcp plain")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
