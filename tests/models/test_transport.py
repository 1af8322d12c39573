"""Error answers in all formats, and the transport over HTTP on loopback."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ctxagent.agent.errors import NoCredentials, RequestRejected
from ctxagent.agent.models import local_servers
from ctxagent.agent.models.providers import endpoint_of
from ctxagent.agent.models.transport import (
    ErrorAnswer,
    HttpTransport,
    NotConnected,
    parse_error,
)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"error": {"message": "no", "type": "t", "code": None}}, ("t", "no")),
        ({"error": {"message": "no", "type": "t", "code": "c"}}, ("c", "no")),
        ({"error": {"message": "no", "code": 429}}, ("429", "no")),
        ([{"error": {"message": "no", "status": "S", "code": 400}}], ("S", "no")),
        ({"error": "no"}, ("", "no")),
        ({"object": "error", "message": "no", "type": "t"}, ("t", "no")),
        ({"type": "error", "code": "c", "message": "no"}, ("c", "no")),
        ({"detail": "no"}, ("", "no")),
        ({"detail": [{"loc": ["body"], "msg": "no"}]}, ("", '[{"loc": ["body"], "msg": "no"}]')),
        ({"error": {"other": 1}}, ("", '{"other": 1}')),
        ({"data": []}, None),
        ([], None),
        ("no", None),
    ],
)
def test_an_error_is_read_in_every_form(answer: object, told: tuple[str, str] | None) -> None:
    assert parse_error(answer) == told


@contextmanager
def server(status: int, body: Any, **headers: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Give every request this answer. Yield the base URL and the headers of the requests."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_GET(self) -> None:
            asked.append({name.lower(): value for name, value in self.headers.items()})
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            kind = "text/plain" if isinstance(body, bytes) else "application/json"
            own = {"content-length": str(len(data)), "content-type": kind, **headers}
            self.send_response(status)
            for name, value in own.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}/v1", asked
        finally:
            serving.shutdown()
            thread.join()


def post(url: str, environ: dict[str, str]) -> bytes:
    async def send() -> bytes:
        transport = HttpTransport(endpoint_of("openai/gpt", url, environ), environ)
        try:
            await transport.connect()
            response = await transport.post("/chat/completions", b"{}", {"x-own": "1"})
            return await response.aread()
        finally:
            await transport.close()

    return asyncio.run(send())


def test_a_request_has_the_key_and_its_own_headers() -> None:
    with server(200, {"a": 1}) as (url, asked):
        assert json.loads(post(url, {"OPENAI_API_KEY": "key-1"})) == {"a": 1}
    assert asked[0]["authorization"] == "Bearer key-1"
    assert asked[0]["x-own"] == "1"
    assert asked[0]["content-type"] == "application/json"


def test_an_error_has_its_status_its_name_and_its_words() -> None:
    body = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}
    with (
        server(429, body, **{"retry-after": "3", "x-request-id": "r-1"}) as (url, _),
        pytest.raises(ErrorAnswer) as caught,
    ):
        post(url, {})
    error = caught.value
    assert (error.status, error.kind, error.words) == (429, "rate_limit_exceeded", "slow down")
    assert (error.headers["retry-after"], error.request_id) == ("3", "r-1")


def test_an_error_of_any_length_is_read_within_bounds() -> None:
    with server(500, b"x" * 3_000_000) as (url, _), pytest.raises(ErrorAnswer) as caught:
        post(url, {})
    assert len(caught.value.words) == 1 << 18


def test_a_redirect_is_not_followed() -> None:
    with server(307, {}, location="http://127.0.0.1:9/") as (url, asked):
        with pytest.raises(ErrorAnswer) as caught:
            post(url, {"OPENAI_API_KEY": "key-1"})
        assert (caught.value.status, len(asked)) == (307, 1)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(NotConnected):
        post("http://127.0.0.1:9/v1", {})


def test_an_address_that_is_none() -> None:
    with pytest.raises(RequestRejected, match="not an http or https address"):
        post("http://127.0.0.1:0/v1", {})


def test_a_missing_key_is_told_before_anything_is_sent() -> None:
    with pytest.raises(NoCredentials):
        post("http://models.example/v1", {})


def test_local_servers_are_found_with_their_models() -> None:
    models = {"data": [{"id": "qwen3:8b"}, {"id": "gemma"}]}
    with server(200, models) as (url, asked):
        environ = {"LMSTUDIO_BASE_URL": url, "LM_API_TOKEN": "token-1"}
        environ |= {
            f"{name}_BASE_URL": "http://127.0.0.1:9/v1"
            for name in ("OLLAMA", "LLAMACPP", "VLLM", "LITELLM")
        }
        found = asyncio.run(local_servers.find_local_servers(environ))
        assert [(each.provider.name, each.models) for each in found] == [
            ("lmstudio", ("qwen3:8b", "gemma"))
        ]
        assert asked[0]["authorization"] == "Bearer token-1"
        assert asyncio.run(local_servers.address_of_local(environ)) == url


def test_a_server_that_answers_in_drops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_servers, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(local_servers, "TIMEOUT_S", 60.0)
    left = threading.Event()

    class Dripping(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not left.wait(0.01):
                    self.wfile.write(b" ")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{serving.server_port}/v1"
        names = ("OLLAMA", "LLAMACPP", "VLLM", "LITELLM", "LMSTUDIO")
        environ = {f"{name}_BASE_URL": url for name in names}
        try:
            assert asyncio.run(local_servers.find_local_servers(environ)) == []
        finally:
            left.set()
            serving.shutdown()
            thread.join()


@pytest.mark.parametrize("answer", [{"data": 1}, {"data": [{"name": "x"}]}, [], b"<html>"])
def test_servers_without_models_are_not_found(answer: Any) -> None:
    with server(200, answer) as (url, _):
        environ = {
            f"{name}_BASE_URL": url
            for name in ("OLLAMA", "LLAMACPP", "VLLM", "LITELLM", "LMSTUDIO")
        }
        assert asyncio.run(local_servers.find_local_servers(environ)) == []
