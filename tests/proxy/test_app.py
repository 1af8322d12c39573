"""The proxy seen from a client and a server, with real HTTP on both sides."""

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ctxagent.addons.proxy.app import MAX_REFUSAL_BYTES
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.models.http_client import MAX_UNPACKED_BYTES
from ctxagent.agent.session.entries import Assistant
from ctxagent.tests.support.proxy.clients import (
    COUNT_PATHS,
    PATHS,
    Client,
    serialized,
    turns_by_chance,
)
from ctxagent.tests.support.proxy.recorder import Answer, recorder
from ctxagent.tests.support.proxy.running import running_proxy

NOTHING_DUE = replace(DEFAULT, clear_when="off", move_above=None, truncate_at=None)
EVENTS = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "r1"}
OBJECT = {"content-type": "application/json", "x-request-id": "r1"}


def answer_by_chance(rng: random.Random, client: Client, number: int, *, stream: bool) -> Answer:
    """The answer to a turn, split at random positions and randomly compressed."""
    data = client.answer(client.turns[number], number, stream=stream)
    headers = EVENTS if stream else OBJECT
    if rng.random() < 0.3:
        data, headers = gzip.compress(data), {**headers, "content-encoding": "gzip"}
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(6)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return Answer(pieces, 200, headers)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("protocol", PATHS)
def test_unedited_requests_are_forwarded_byte_for_byte(protocol: str, tmp_path: Path) -> None:
    answers: list[Answer] = []
    with (
        recorder(lambda received: answers[-1]) as server,
        running_proxy(tmp_path, server.url, NOTHING_DUE) as proxy,
    ):

        @settings(max_examples=25, phases=[Phase.generate])
        @given(st.integers(0, 2**40))
        def plays(seed: int) -> None:
            rng = random.Random(seed)
            client = Client(protocol, turns_by_chance(rng, 10, f"task {len(answers)}"))
            before = len(proxy.logs())
            for number, body in enumerate(client.bodies()):
                stream = rng.random() < 0.7
                data = serialized(rng, {**body, "stream": stream})
                answers.append(answer_by_chance(rng, client, number, stream=stream))
                got = proxy.post(client.path, data)
                assert server.requests[-1].body == data
                assert (got.status, got.raw) == (200, answers[-1].body)
                assert got.headers["x-request-id"] == "r1"
            assert proxy.reports == []
            assert len(proxy.logs()) == before + 1

        plays()
    assert len(server.requests) >= 200


BLANKS = gzip.compress(b" " * (MAX_UNPACKED_BYTES + (1 << 20)))


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, BLANKS, "an answer of more than 24 MB"),
        (400, BLANKS, "an answer of more than 24 MB"),
        (400, b"x" * (MAX_REFUSAL_BYTES + 1), ""),
    ],
)
def test_an_answer_that_is_too_large_to_read_is_forwarded(
    status: int, body: bytes, told: str, tmp_path: Path
) -> None:
    packed = {"content-encoding": "gzip"} if body is BLANKS else {}
    answer = Answer((body[:500], body[500:]), status, {**OBJECT, **packed})
    client = Client("messages", turns_by_chance(random.Random(1), 4, "t"))
    with (
        recorder(lambda received: answer) as server,
        running_proxy(tmp_path, server.url, NOTHING_DUE) as proxy,
    ):
        data = serialized(random.Random(1), {**next(iter(client.bodies())), "stream": False})
        got = proxy.post(client.path, data)
        assert (got.status, got.raw) == (status, body)
        assert got.headers["x-request-id"] == "r1"
        assert [told in report for report in proxy.reports] == [True] * bool(told)


WRONG = (None, True, 0, -1.5, "", "x", [], [1], [[]], {}, {"type": 7}, {"role": None}, 2**70)


def mutated(rng: random.Random, node: Any) -> Any:
    """A body with one invalid value."""
    if isinstance(node, dict | list) and node and rng.random() < 0.85:
        copy: Any = dict(node) if isinstance(node, dict) else [*node]
        key = rng.choice([*copy] if isinstance(copy, dict) else range(len(copy)))
        if rng.random() < 0.1:
            del copy[key]
        else:
            copy[key] = mutated(rng, copy[key])
        return copy
    return rng.choice(WRONG)


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("protocol", PATHS)
def test_requests_that_are_not_understood_are_forwarded_unchanged(
    protocol: str, tmp_path: Path
) -> None:
    with (
        recorder(lambda received: Answer((b'{"a": 1}',))) as server,
        running_proxy(tmp_path, server.url, NOTHING_DUE) as proxy,
    ):

        @settings(max_examples=150, phases=[Phase.generate])
        @given(st.integers(0, 2**40))
        def passes(seed: int) -> None:
            rng = random.Random(seed)
            body = [*Client(protocol, turns_by_chance(rng, 4, "t")).bodies()][rng.randrange(4)]
            for _ in range(rng.randrange(1, 4)):
                body = mutated(rng, body)
            data = serialized(rng, body)
            if rng.random() < 0.1:
                data = data[: rng.randrange(len(data))] + rng.randbytes(3)
            path = (COUNT_PATHS if rng.random() < 0.1 else PATHS).get(protocol, PATHS[protocol])
            got = proxy.post(path, data)
            assert server.requests[-1].body == data
            assert (got.status, got.raw) == (200, b'{"a": 1}')

        passes()


@pytest.mark.slow
def test_an_answer_with_an_error_passes_as_it_is(tmp_path: Path) -> None:
    answers: list[Answer] = []
    with (
        recorder(lambda received: answers[-1]) as server,
        running_proxy(tmp_path, server.url) as proxy,
    ):
        client = Client("messages", turns_by_chance(random.Random(1), 1, "t"))
        data = json.dumps(next(client.bodies())).encode()
        for status in (400, 401, 403, 404, 413, 429, 500, 529):
            error = {"type": "error", "error": {"type": "x", "message": f"no {status}"}}
            headers = {**OBJECT, "retry-after": "7", "x-should-retry": "true"}
            answers.append(Answer((json.dumps(error).encode(),), status, headers))
            got = proxy.post(client.path, data)
            assert (got.status, got.raw) == (status, answers[-1].body)
            assert (got.headers["retry-after"], got.headers["x-should-retry"]) == ("7", "true")
        assert [received.body for received in server.requests] == [data] * 8
        assert len(proxy.logs()) == 1


@pytest.mark.slow
def test_a_client_that_goes_away_ends_the_request_of_the_server(tmp_path: Path) -> None:
    endless = Answer((b"event: ping\ndata: {}\n\n",), 200, EVENTS, endless=True)
    with (
        recorder(lambda received: endless) as server,
        running_proxy(tmp_path, server.url) as proxy,
    ):
        body = next(Client("chat", turns_by_chance(random.Random(1), 1, "t")).bodies())
        with proxy.client.stream("POST", PATHS["chat"], json=body) as answer:
            assert next(answer.iter_raw()).startswith(b"event: ping")
        assert server.hung_up.wait(30)
        assert proxy.reports == []


@pytest.mark.slow
def test_a_client_that_does_not_wait_for_an_answer_ends_the_request(tmp_path: Path) -> None:
    with (
        recorder(lambda received: Answer(mute=True)) as server,
        running_proxy(tmp_path, server.url) as proxy,
    ):
        body = next(Client("chat", turns_by_chance(random.Random(1), 1, "t")).bodies())
        with pytest.raises(httpx2.ReadTimeout):
            proxy.client.post(PATHS["chat"], json=body, timeout=1)
        assert server.hung_up.wait(30)
        assert proxy.reports == []


@pytest.mark.slow
def test_a_server_that_is_not_there_is_a_502(tmp_path: Path) -> None:
    with running_proxy(tmp_path, "http://127.0.0.1:9") as proxy:
        got = proxy.send("GET", "/v1/models?key=secret-1")
        assert got.status == 502
        assert b"cannot reach http://127.0.0.1:9/v1/models" in got.raw
        (report,) = proxy.reports
        assert "secret-1" not in report + got.raw.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-mode": "cors"}, 200),
    ],
)
def test_only_programs_of_this_machine_are_served(
    headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    with recorder() as server, running_proxy(tmp_path, server.url) as proxy:
        assert proxy.send("POST", "/v1/messages", b"{}", headers).status == status
        assert proxy.send("GET", "/v1/models", None, headers).status == status
        assert len(server.requests) == (2 if status == 200 else 0)


@pytest.mark.slow
def test_a_websocket_is_refused_at_once(tmp_path: Path) -> None:
    with recorder() as server, running_proxy(tmp_path, server.url) as proxy:
        upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
        assert proxy.send("GET", "/v1/responses", None, upgrade).status == 426
        assert server.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("protocol", PATHS)
def test_a_client_may_hang_up_at_the_last_event(
    protocol: str, is_complete: bool, tmp_path: Path
) -> None:
    client = Client(protocol, turns_by_chance(random.Random(1), 2, "t"))
    data = client.answer(client.turns[0], 0)
    sent = data if is_complete else data[: len(data) // 2]
    answer = Answer((sent, b": still here\n\n"), 200, EVENTS, endless=True)
    with (
        recorder(lambda received: answer) as server,
        running_proxy(tmp_path, server.url, NOTHING_DUE) as proxy,
    ):
        first = serialized(random.Random(1), {**next(client.bodies()), "stream": True})
        with proxy.client.stream("POST", client.path, content=first) as got:
            seen = b""
            for piece in got.iter_raw():
                seen += piece
                if len(seen) > len(sent):
                    break
        assert server.hung_up.wait(60)
    replies = [entry for entry in proxy.entries() if isinstance(entry, Assistant)]
    assert [bool(entry.message_id) for entry in replies] == [True] * is_complete
    assert proxy.reports == []
