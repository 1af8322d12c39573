"""Which session a request continues, and when a new session starts."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.session.conversation import CONVERSATION_NAME
from ctxagent.agent.session.entries import Assistant, Entry, ToolResult
from ctxagent.agent.session.log import Entries
from ctxagent.tests.support.proxy.clients import PATHS, Client, Turn, session_of
from ctxagent.tests.support.proxy.recorder import Answer, Received, Recorder, recorder
from ctxagent.tests.support.proxy.running import RunningProxy, running_proxy

from .test_exchange import EAGER, EVENTS, STUB

Json = dict[str, Any]


@pytest.fixture(params=PATHS)
def client(request: pytest.FixtureRequest) -> Client:
    return session_of(request.param, 6)


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as server:
        yield server


def ask(proxy: RunningProxy, server: Recorder, client: Client, number: int) -> None:
    """Send request `number`, counted from 0, and return its reply."""
    body = [*replace(client, turns=client.turns[: number + 1]).bodies()][-1]
    data = client.answer(client.turns[number], number)
    server.answer = lambda received: Answer((data,), 200, EVENTS)
    assert proxy.post(client.path, json.dumps(body).encode()).status == 200


def entries_of(log: Path) -> list[Entry]:
    return [*Entries(log)]


def results_of(log: Path) -> int:
    return sum(isinstance(entry, ToolResult) for entry in entries_of(log))


@pytest.mark.variants
@pytest.mark.slow
def test_a_session_is_one_over_restarts(client: Client, server: Recorder, tmp_path: Path) -> None:
    for number in range(6):
        with running_proxy(tmp_path, server.url) as proxy:
            ask(proxy, server, client, number)
    assert proxy.reports == []
    (log,) = proxy.logs()
    replies = [entry for entry in entries_of(log) if isinstance(entry, Assistant)]
    assert (len(replies), results_of(log)) == (6, 5)
    assert all(reply.usage["output"] == 5 for reply in replies)


@pytest.mark.slow
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_repeated_request_makes_no_session(
    client: Client, server: Recorder, tmp_path: Path, is_restarted: bool
) -> None:
    with running_proxy(tmp_path, server.url) as proxy:
        for number in range(4):
            ask(proxy, server, client, number)
        if not is_restarted:
            ask(proxy, server, client, 3)
            ask(proxy, server, client, 2)
    with running_proxy(tmp_path, server.url) as proxy:
        ask(proxy, server, client, 3)
        ask(proxy, server, client, 4)
    assert proxy.reports == []
    (log,) = proxy.logs()
    assert results_of(log) == 4
    replies = [e for e in entries_of(log) if isinstance(e, Assistant) and e.purpose == "turn"]
    assert len(replies) == 5


@pytest.mark.slow
def test_a_rewind_is_a_fork(client: Client, server: Recorder, tmp_path: Path) -> None:
    with running_proxy(tmp_path, server.url) as proxy:
        for number in range(5):
            ask(proxy, server, client, number)
        (whole,) = proxy.logs()
        turns = [*client.turns[:2], Turn(("Another way.",), text="Yes."), Turn(("Go on.",))]
        turns[1] = replace(turns[1], calls=(), text="Stop.")
        other = replace(client, turns=turns)
        ask(proxy, server, other, 2)
        ask(proxy, server, other, 3)
        (fork,) = {*proxy.logs()} - {whole}
        assert proxy.reports == []
        assert (results_of(whole), results_of(fork)) == (4, 1)
        ask(proxy, server, client, 5)  # continues the first branch
        assert {*proxy.logs()} == {whole, fork}
        assert results_of(whole) == 5


@pytest.mark.slow
def test_another_prompt_or_task_is_another_session(
    client: Client, server: Recorder, tmp_path: Path
) -> None:
    with running_proxy(tmp_path, server.url) as proxy:
        ask(proxy, server, client, 0)
        data = client.answer(client.turns[0], 0)
        server.answer = lambda received: Answer((data,), 200, EVENTS)
        body = next(client.bodies())
        text = json.dumps(body)
        for old, new in (("a coding agent", "a subagent"), ("Count the whales", "Find the bug")):
            proxy.post(client.path, text.replace(old, new).encode())
        assert len(proxy.logs()) == 3


@pytest.mark.slow
def test_requests_at_the_same_time_are_recorded_once(
    client: Client, server: Recorder, tmp_path: Path
) -> None:
    with running_proxy(tmp_path, server.url) as proxy:
        for number in range(3):
            ask(proxy, server, client, number)
        both = threading.Barrier(2)
        data = client.answer(client.turns[3], 3)

        def answer(received: Received) -> Answer:
            both.wait(30)
            return Answer((data,), 200, EVENTS)

        server.answer = answer
        body = json.dumps([*replace(client, turns=client.turns[:4]).bodies()][-1]).encode()
        with ThreadPoolExecutor(2) as pool:
            got = [*pool.map(lambda _: proxy.post(client.path, body), range(2))]
        assert [each.raw for each in got] == [data] * 2
        ask(proxy, server, client, 4)
        (log,) = proxy.logs()
        assert results_of(log) == 4


@pytest.mark.slow
def test_branches_at_the_same_time_stay_apart(
    client: Client, server: Recorder, tmp_path: Path
) -> None:
    plain = replace(client.turns[1], calls=(), text="Done.")
    with running_proxy(tmp_path, server.url) as proxy:
        ask(proxy, server, client, 0)
        ask(proxy, server, replace(client, turns=[client.turns[0], plain]), 1)
        server.answer = lambda received: Answer((client.answer(plain, 1),), 200, EVENTS)
        branches = [
            replace(client, turns=[client.turns[0], plain, Turn((f"Way {n}.",))]) for n in range(5)
        ]
        bodies = [json.dumps([*branch.bodies()][-1]).encode() for branch in branches]
        with ThreadPoolExecutor(5) as pool:
            got = [*pool.map(lambda body: proxy.post(client.path, body), bodies)]
        assert [each.status for each in got] == [200] * 5
        assert proxy.reports == []
        texts = [[str(entry) for entry in entries_of(log)] for log in proxy.logs()]
        for number in range(5):
            assert sum(any(f"Way {number}." in t for t in log) for log in texts) == 1
        for log in texts:
            assert sum("'Way " in text for text in log) == 1


@pytest.mark.variants
@pytest.mark.slow
def test_a_torn_batch_is_completed(client: Client, server: Recorder, tmp_path: Path) -> None:
    """A kill can leave a batch incomplete after any of its entries."""
    with running_proxy(tmp_path, server.url, EAGER) as proxy:
        for number in range(5):
            ask(proxy, server, client, number)
        (log,) = proxy.logs()
    lines = log.read_bytes().splitlines(keepends=True)
    before = len(lines)
    while len(lines) > 4:  # up to the first reply
        log.write_bytes(b"".join(lines))
        log.with_name(CONVERSATION_NAME).unlink()  # a kill leaves nothing that the log lacks
        with running_proxy(tmp_path, server.url, EAGER) as proxy:
            server.requests.clear()
            ask(proxy, server, client, 5)
            assert proxy.reports == []
            assert len(proxy.logs()) == 1, len(lines)
            assert results_of(log) == 5
            assert STUB in server.requests[-1].body
        lines.pop()
    assert before > 10


@pytest.mark.slow
def test_a_damaged_log_is_left_for_a_new_session(
    client: Client, server: Recorder, tmp_path: Path
) -> None:
    with running_proxy(tmp_path, server.url) as proxy:
        for number in range(4):
            ask(proxy, server, client, number)
        (log,) = proxy.logs()
    lines = log.read_bytes().splitlines(keepends=True)
    damaged = next(n for n, line in enumerate(lines) if b'"tool_result"' in line) - 1
    log.write_bytes(b"".join([*lines[: damaged - 1], *lines[damaged:]]))
    for number in (4, 5):
        with running_proxy(tmp_path, server.url) as proxy:
            ask(proxy, server, client, number)
            assert proxy.reports == []
            assert len(proxy.logs()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("thinking", ["", "Hm."])
def test_a_reply_that_says_nothing_is_not_waited_for(
    server: Recorder, tmp_path: Path, thinking: str
) -> None:
    client = session_of("chat", 2)
    with running_proxy(tmp_path, server.url) as proxy:
        ask(proxy, server, client, 0)
        data = client.answer(Turn(thinking=thinking), 1)
        server.answer = lambda received: Answer((data,), 200, EVENTS)
        body = [*client.bodies()][-1]
        proxy.post(client.path, json.dumps(body).encode())
        body["messages"].append({"role": "user", "content": "Go on."})
        proxy.post(client.path, json.dumps(body).encode())
        assert proxy.reports == []
        (log,) = proxy.logs()
        assert "Go on." in str(entries_of(log))
