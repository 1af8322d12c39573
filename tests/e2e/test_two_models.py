"""Several models in one session, each strict about its own signed thinking: no model gets the
thinking of another, and a model that is used again finds its earlier requests unchanged.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.chat import ChatServer
from ..support.server.loopback import Body, Say, Server, flat
from ..support.server.responses import ResponsesServer

FIRST, SECOND = "claude-opus-5-5", "claude-sonnet-5-5"
CHAT, RESPONSES = ChatServer.model, ResponsesServer.model
NAMES = {FIRST: "Opus", SECOND: "Sonnet", "gpt-5.5": "Walrus", "gpt-5.6": "Seal"}


def dated(events: list[Body]) -> Sequence[Body | str]:
    """Return the events with a longer model name than the requested one."""
    for event in events:
        named = event.get("message", event)
        if "model" in named:
            named["model"] += "-20261101"
    return events


def work(body: Body) -> Say:
    """Think, call one tool in each turn, think again."""
    name = NAMES[body["model"]]
    last = body["messages"][-1]["content"][-1]
    number = len(body["messages"])
    if last["type"] == "tool_result":
        return Say(f"{name} is done.", f"{name} saw it, {number}.", edit=dated)
    tools = [("Bash", {"command": f"echo {name} {number}"})]
    return Say("A look.", f"{name} wonders, {number}.", tools=tools, edit=dated)


def thoughts(body: Body) -> set[str]:
    """Return the models whose thinking is in a request."""
    said = [b["thinking"] for m in body["messages"] for b in m["content"] if "thinking" in b]
    return {text.partition(" ")[0] for text in said}


def cached(place: Place) -> list[tuple[str, int]]:
    """Return the requested model of each reply, and the tokens that it read from its cache."""
    replies = [entry for entry in place.entries() if entry["kind"] == "assistant"]
    return [
        (entry["request"]["parameters"]["model"], entry["usage"]["cache_read"]) for entry in replies
    ]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_model_used_again_gets_its_prefix_and_its_thinking(place: Place) -> None:
    with Server(work, bound=True) as server:
        for number, model in enumerate([FIRST, SECOND, FIRST, SECOND]):
            options = ["--continue"] if number else []
            done = place.run(
                *options, "--model", model, "--permission-mode", "bypass", "-p", f"turn {number}",
                env=place.server(server.url),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    assert server.rejected == []
    asked: dict[str, list[Body]] = {FIRST: [], SECOND: []}
    for body in server.requests:
        before = asked[body["model"]]
        if before:  # all of its own last request stands at the beginning
            told = [*flat(before[-1])]
            assert [*flat(body)][: len(told)] == told
        before.append(body)
    assert [len(bodies) for bodies in asked.values()] == [4, 4]
    assert [thoughts(body) for body in asked[FIRST]] == [set(), {"Opus"}, {"Opus"}, {"Opus"}]
    assert thoughts(asked[SECOND][-1]) == {"Sonnet"}
    (*_, (model, read)) = cached(place)
    assert model == SECOND
    assert read > 0

    checked = place.run("replay", "--model", FIRST)
    assert "Our own sessions: 8 of 8 requests rebuilt byte for byte\n" in checked.stdout, checked
    examined = place.run("doctor", env=place.server(server.url))
    assert examined.returncode == 0, examined.stdout


def test_three_protocols_in_one_session(place: Place) -> None:
    """Each server refuses thinking of others. The chat server requires its own thinking."""
    with (
        Server(work, bound=True) as claude,
        ChatServer(work, dialect="deepseek") as walrus,
        ResponsesServer(work) as seal,
    ):
        env = place.environ({**claude.variables, **walrus.variables, **seal.variables})
        for number, model in enumerate([FIRST, CHAT, RESPONSES, FIRST, RESPONSES, CHAT, FIRST]):
            options = ["--continue"] if number else []
            done = place.run(
                *options, "--model", model, "--permission-mode", "bypass", "-p", f"turn {number}",
                env=env,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    assert len(walrus.refused) <= 1, "it says once that all calls need a thought"
    for server, count in ((claude, 6), (walrus, 4), (seal, 4)):
        assert server.rejected == []
        assert len(server.requests) == count
        for before, after in pairwise(server.requests):
            told = [*flat(before)]
            assert [*flat(after)][: len(told)] == told
    assert thoughts(claude.requests[-1]) == {"Opus"}
    assert thoughts(seal.requests[-1]) == {"Seal"}
    said = [m.get("reasoning_content", "").strip() for m in walrus.bodies[-1]["messages"]]
    assert {text.partition(" ")[0] for text in said if text} == {"Walrus"}

    checked = place.run("replay", "--model", FIRST, env=env)
    assert "Our own sessions: 14 of 14 requests rebuilt byte for byte\n" in checked.stdout, checked
