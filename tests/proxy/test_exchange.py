"""Refusals of the server: the request that is sent next, and when editing stops."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.proxy.bodies import BODY_FORMATS, format_at
from ctxagent.addons.proxy.bodies.base import BodyFormat
from ctxagent.addons.proxy.exchange import PHRASES, dumps, model_id, read_reply
from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.session.entries import Assistant, Mask, Note
from ctxagent.tests.support.proxy.clients import PATHS, Client, session_of
from ctxagent.tests.support.proxy.recorder import Answer, Received, Recorder, recorder
from ctxagent.tests.support.proxy.running import RunningProxy, running_proxy

EVENTS = {"content-type": "text/event-stream"}
WINDOW = 30_000
STUB = b"tokens compacted"
# Clears all but the newest three results at each call.
EAGER = replace(PRESETS["default"], clear_when="every-call")


def play(
    proxy: RunningProxy, server: Recorder, client: Client, refuses: Callable[[bytes], str | None]
) -> list[int]:
    """Run a client against a server that refuses some bodies with a message. Return the
    statuses.
    """
    number = 0

    def answer(received: Received) -> Answer:
        if (why := refuses(received.body)) is not None:
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": why}}
            return Answer((json.dumps(error).encode(),), 400)
        return Answer((client.answer(client.turns[number], number),), 200, EVENTS)

    server.answer = answer
    statuses = []
    for place, body in enumerate(client.bodies()):
        number = place
        statuses.append(proxy.post(client.path, json.dumps(body).encode()).status)
    return statuses


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PATHS)
def test_a_refused_edit_is_sent_again_unchanged_once(protocol: str, tmp_path: Path) -> None:
    client = session_of(protocol, 12)
    bodies = [json.dumps(body).encode() for body in client.bodies()]
    with recorder() as server:
        with running_proxy(tmp_path, server.url, EAGER) as proxy:
            first = replace(client, turns=client.turns[:10])
            refused = play(proxy, server, first, lambda body: "no" if STUB in body else None)
            assert refused == [200] * 10
            edited = [received.body for received in server.requests if STUB in received.body]
            assert len(edited) == 1
            unchanged = [received.body for received in server.requests if STUB not in received.body]
            assert unchanged == bodies[:10]
            (report,) = proxy.reports
            assert report.startswith("resending an edited request unchanged: ")
            (note,) = [e for e in proxy.entries() if isinstance(e, Note)]
            assert "left alone" in note.text
        server.requests.clear()
        with running_proxy(tmp_path, server.url, EAGER) as proxy:  # also in another process
            for number in (10, 11):
                data = client.answer(client.turns[number], number)
                server.answer = lambda received, data=data: Answer((data,), 200, EVENTS)
                assert proxy.post(client.path, bodies[number]).status == 200
            assert [received.body for received in server.requests] == bodies[10:]
            assert len(proxy.logs()) == 1


@pytest.mark.slow
def test_a_mistake_of_the_client_leaves_its_edits(tmp_path: Path) -> None:
    client = session_of("messages", 12)
    with recorder() as server, running_proxy(tmp_path, server.url, EAGER) as proxy:
        play(proxy, server, client, lambda body: None)
        wrong = {**[*client.bodies()][-1], "temperature": 7}
        server.answer = lambda received: Answer((b'{"error": {"message": "no 7"}}',), 400)
        server.requests.clear()
        got = proxy.post(client.path, json.dumps(wrong).encode())
        assert (got.status, got.raw) == (400, b'{"error": {"message": "no 7"}}')
        assert [STUB in received.body for received in server.requests] == [True, False]
        assert not any("left alone" in str(entry) for entry in proxy.entries())


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PATHS)
def test_a_request_that_is_too_long_is_made_shorter(protocol: str, tmp_path: Path) -> None:
    longest = 40_000  # bytes
    client = session_of(protocol, 14)

    def refuses(body: bytes) -> str | None:
        tokens, maximum = len(body) // 3, longest // 3
        too_long = f"prompt is too long: {tokens} tokens > {maximum} maximum"
        return too_long if len(body) > longest else None

    off = replace(PRESETS["default"], clear_when="off", truncate_at=None)
    with recorder() as server, running_proxy(tmp_path, server.url, off) as proxy:
        assert play(proxy, server, client, refuses) == [200] * 14
        assert any(isinstance(entry, Mask) for entry in proxy.entries())
        too_long = [received for received in server.requests if len(received.body) > longest]
        assert 0 < len(too_long) < 6


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["messages", "chat"])
@pytest.mark.parametrize("phrase", PHRASES)
def test_a_summary_by_the_client_reads_its_history_from_the_cache(
    protocol: str, phrase: str, tmp_path: Path
) -> None:
    client = session_of(protocol, 12)
    with recorder() as server, running_proxy(tmp_path, server.url, EAGER) as proxy:
        play(proxy, server, client, lambda body: None)
        before, main = proxy.entries(), json.loads(server.requests[-1].body)["messages"]
        assert STUB in server.requests[-1].body
        body = [*client.bodies()][-1]
        asked = {"role": "user", "content": f"Now {phrase}."}
        proxy.post(
            client.path, json.dumps({**body, "messages": [*body["messages"], asked]}).encode()
        )
        assert json.loads(server.requests[-1].body)["messages"] == [*main, asked]
        assert proxy.entries() == before


@pytest.mark.slow
def test_tokens_are_counted_of_what_the_server_would_get(tmp_path: Path) -> None:
    client = session_of("messages", 12)
    with recorder() as server, running_proxy(tmp_path, server.url, EAGER) as proxy:
        play(proxy, server, client, lambda body: None)
        before = proxy.entries()
        sent = json.loads(server.requests[-1].body)
        server.answer = lambda received: Answer((b'{"input_tokens": 1}',))
        body = [*client.bodies()][-1]
        del body["stream"]
        got = proxy.post(f"{client.path}/count_tokens", json.dumps(body).encode())
        assert got.raw == b'{"input_tokens": 1}'
        counted = json.loads(server.requests[-1].body)
        assert counted["messages"] == sent["messages"]
        assert proxy.entries() == before


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", PATHS)
def test_a_reply_is_recorded_when_it_ends(protocol: str, stream: bool, tmp_path: Path) -> None:
    client = session_of(protocol, 1)
    data = client.answer(client.turns[0], 0, stream=stream)
    headers = EVENTS if stream else {"content-type": "application/json"}
    with (
        recorder(lambda received: Answer((data,), 200, headers)) as server,
        running_proxy(tmp_path, server.url) as proxy,
    ):
        body = {**next(client.bodies()), "stream": stream}
        proxy.post(client.path, json.dumps(body).encode())
        (reply,) = [entry for entry in proxy.entries() if isinstance(entry, Assistant)]
        assert [block["type"] for block in reply.content] == ["text", "tool_use"]
        assert (reply.stop_reason, reply.usage["output"]) == ("tool_use", 5)


@pytest.mark.parametrize("value", ["Grüße 🐋", "\ud800", float("1e-7"), 2**70])
def test_a_body_is_valid_json_in_utf_8(value: Any) -> None:
    data = dumps({"b": value, "a": 1})
    assert json.loads(data.decode()) == {"b": value, "a": 1}
    assert data.startswith(b'{"b":')


def test_a_model_is_named_by_who_serves_it() -> None:
    messages, chat, gemini = map(
        format_at, ("/messages", "/chat/completions", "/m:generateContent")
    )
    assert messages is not None
    assert chat is not None
    assert gemini is not None
    assert model_id("claude-x", messages, "http://127.0.0.1:1/v1/messages") == "claude-x"
    assert model_id("gpt-5", chat, "http://127.0.0.1:1/v1/chat/completions") == "openai/gpt-5"
    url = "https://openrouter.ai/api/v1/chat/completions"
    assert model_id("a/b", chat, url) == "openrouter/a/b"
    url = "https://aiplatform.example/v1/publishers/google/models/gemini-x:generateContent"
    assert model_id(gemini.model({}, url), gemini, url) == "gemini/gemini-x"


@pytest.mark.parametrize("format", BODY_FORMATS, ids=lambda format: format.name)
def test_an_incomplete_reply_is_an_error(format: BodyFormat) -> None:
    client = session_of(format.name, 1)
    data = client.answer(client.turns[0], 0)
    with pytest.raises(ValueError, match=r"the reply is incomplete|Unterminated"):
        asyncio.run(read_reply(format, {}, data[: len(data) // 3], EVENTS))
