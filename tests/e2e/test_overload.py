"""An overloaded server: requests are repeated for the configured time, and giving up explains what
to do.
"""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import Request
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step as Reply

from ..compaction.test_engine import RECORD, Player
from ..support.command import Place
from ..support.server.loopback import Body, Fail, Say, Server, Step
from ..support.sessions.conversation import Conversation

BUSY = Fail(529, "Overloaded")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_each_attempt_prints_a_line_before_the_answer(place: Place) -> None:
    soon = Fail(503, headers={"retry-after": "1"})
    with Server([BUSY, soon, Say("Here I am.")]) as server:
        done = place.run("-p", "hi", env=place.server(server.url))
    assert (done.returncode, done.stdout) == (0, "Here I am.\n")
    first, second = done.stderr.splitlines()
    assert re.fullmatch(
        r"retry 1 in [01] s, giving up in 120 s: the model is overloaded: Overloaded", first
    )
    assert re.fullmatch(
        r"retry 2 in 1 s, giving up in 1[12]\d s: the server is overloaded: no", second
    )
    assert server.rejected == []


@pytest.mark.parametrize("status", [503, 529])
def test_giving_up_names_the_overload_the_time_and_the_setting(place: Place, status: int) -> None:
    env = place.server("http://127.0.0.1")
    with Server(lambda body: Fail(status, "Busy")) as server:
        env["ANTHROPIC_BASE_URL"] = server.url
        done = place.run("-p", "hi", "-c", "model.overload_wait=1", env=env)
    assert (done.returncode, done.stdout) == (5, "")
    *tries, message, hint = done.stderr.splitlines()
    assert len(tries) == len(server.requests) - 1 >= 1
    assert re.fullmatch(
        r"ctxagent: the (model|server) is overloaded: Busy \(tried \d+ times in \d+ s\)", message
    )
    assert "model.overload_wait" in hint
    assert not re.search("network|proxy|base.url", done.stderr, re.IGNORECASE)
    text = json.dumps(place.entries())
    assert '"hi"' in text, "the person's words are kept"


def test_events_of_the_attempts(place: Place) -> None:
    with Server([BUSY, Say("Yes.")]) as server:
        done = place.run("-p", "hi", "--output-format", "stream-json", env=place.server(server.url))
    told = [json.loads(line) for line in done.stdout.splitlines()]
    (retrying,) = (event for event in told if event["type"] == "retrying")
    assert (retrying["attempt"], retrying["of"], retrying["left"]) == (1, None, 120.0)
    assert told[-1]["status"] == "ok"


def test_subagent_waits_as_long_as_the_session(place: Place) -> None:
    def step(body: Body) -> Step:
        text = json.dumps(body["messages"])
        if "tool_result" in text:
            return Say("It could not.")
        if "Count the stars" in text and "ask somebody" not in text:
            return BUSY
        task = {"description": "count", "prompt": "Count the stars", "type": "general"}
        return Say("", tools=[("Task", task)])

    with Server(step) as server:
        env = place.server(server.url)
        done = place.run("-p", "ask somebody", "-c", "model.overload_wait=0",
                         "--permission-mode", "bypass", env=env)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "It could not.\n")
    assert len(server.requests) == 3
    assert "the model is overloaded: Overloaded (tried once in 0 s)" in json.dumps(
        server.requests[-1]["messages"]
    )


def test_summary_has_few_attempts(tmp_path: Path) -> None:
    waits: dict[bool, set[float | None]] = {True: set(), False: set()}

    def step(request: Request) -> Reply:
        is_summary = "about to be compressed" in str(request.messages[-1]["content"])
        waits[is_summary].add(request.overload_wait)
        return Reply(text=RECORD) if is_summary else player(request)

    (tmp_path / "project").mkdir()
    player = Player(10, 2_500)
    policy = replace(DEFAULT, clear_when="off", truncate_at=None, prepare_at=None)
    talk = Conversation(tmp_path / "project", step, policy=policy, window=60_000)
    talk.agent.model.overload_wait = 600

    async def run() -> None:
        await run_turn(talk.agent, "count")
        await talk.agent.engine.compact()
        await talk.agent.close()

    asyncio.run(run())
    assert waits == {True: {None}, False: {600}}
