"""Requests and answers are forwarded unchanged."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from ctxagent.addons.proxy.forward import decoded, read_ahead, request_headers, upstream_of, url_at
from ctxagent.tests.support.proxy.recorder import Answer, Recorder, recorder
from ctxagent.tests.support.proxy.running import RunningProxy, running_proxy


@pytest.fixture
def server() -> Iterator[Recorder]:
    headers = {"content-type": "text/plain", "set-cookie": "a=secret", "x-limit": "7"}
    with recorder(lambda received: Answer((b"yes",), 203, headers)) as server:
        yield server


@pytest.fixture
def proxy(server: Recorder, tmp_path: Path) -> Iterator[RunningProxy]:
    with running_proxy(tmp_path, server.url) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("base", "path", "query", "url"),
    [
        ("https://a.b", "/v1/messages", "", "https://a.b/v1/messages"),
        ("https://a.b/", "/v1/messages", "beta=true", "https://a.b/v1/messages?beta=true"),
        ("https://a.b/v1", "/v1/responses", "", "https://a.b/v1/responses"),
        ("https://a.b/v1/", "/responses", "", "https://a.b/v1/responses"),
        ("https://a.b/v1", "/v1", "", "https://a.b/v1"),
        ("https://a.b/v1beta", "/v1beta/models/m:x", "", "https://a.b/v1beta/models/m:x"),
        ("https://a.b/v1", "/v1beta/models/m:x", "", "https://a.b/v1/v1beta/models/m:x"),
        ("https://a.b/v1", "/v10/x", "", "https://a.b/v1/v10/x"),
        ("https://a.b/anthropic", "/v1/messages", "", "https://a.b/anthropic/v1/messages"),
    ],
)
def test_the_version_is_there_once(base: str, path: str, query: str, url: str) -> None:
    assert url_at(base, path, query) == url


@pytest.mark.parametrize(
    ("headers", "path", "name"),
    [
        ({"x-api-key": "k"}, "/v1/models", "messages"),
        ({"x-goog-api-key": "k"}, "/upload/v1beta/files", "gemini"),
        ({"authorization": "k"}, "/v1beta/models", "gemini"),
        ({"authorization": "k"}, "/v1/models", "openai"),
    ],
)
def test_headers_and_paths_name_the_upstream(headers: dict[str, str], path: str, name: str) -> None:
    assert upstream_of(headers, path) == name


def test_only_readable_encodings_are_asked_for() -> None:
    given = [("Accept-Encoding", "gzip, br;q=0.5, zstd"), ("Connection", "x"), ("X-A", "1")]
    kept = [("Accept-Encoding", "gzip"), ("X-A", "1")]
    assert request_headers(given, is_read=True) == kept
    assert request_headers(given, is_read=False) == [given[0], given[2]]
    none = request_headers([("accept-encoding", "br")], is_read=True)
    assert none == [("accept-encoding", "identity")]


def test_an_answer_that_cannot_be_read_is_no_answer() -> None:
    with pytest.raises(ValueError, match="encoding 'br'"):
        asyncio.run(decoded(b"x", {"content-encoding": "br"}))
    with pytest.raises(ValueError, match="not valid gzip"):
        asyncio.run(decoded(b"no such data", {"content-encoding": "gzip"}))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS"])
def test_a_request_without_a_body_has_none(
    server: Recorder, proxy: RunningProxy, method: str
) -> None:
    got = proxy.send(method, "/v1/models?after_id=x", headers={"x-api-key": "k"})
    (received,) = server.requests
    assert (received.method, received.path, received.body) == (method, "/v1/models?after_id=x", b"")
    assert received.header("transfer-encoding") is None
    assert (got.status, got.headers["x-limit"]) == (203, "7")
    assert got.raw == (b"" if method == "HEAD" else b"yes")


@pytest.mark.slow
def test_a_body_that_is_not_read_keeps_its_length(server: Recorder, proxy: RunningProxy) -> None:
    proxy.send("PUT", "/v1/files/a%2Fb%20c%3Fd", b"\x00\xff" * 9)
    (received,) = server.requests
    assert received.path == "/v1/files/a%2Fb%20c%3Fd"
    assert received.body == b"\x00\xff" * 9
    assert received.header("content-length") == "18"
    assert received.header("transfer-encoding") is None


@pytest.mark.slow
def test_a_cookie_of_an_answer_is_the_clients_alone(server: Recorder, proxy: RunningProxy) -> None:
    got = proxy.send("GET", "/v1/models")
    assert got.headers["set-cookie"] == "a=secret"
    for _ in range(2):
        proxy.client.cookies.clear()
        proxy.post("/v1/messages", b"{}")
    assert [received.header("cookie") for received in server.requests] == [None] * 3


@pytest.mark.slow
def test_headers_of_all_kinds_pass(server: Recorder, proxy: RunningProxy) -> None:
    host, _, port = proxy.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(
            f"GET /v1/x HTTP/1.1\r\nHost: {host}:{port}\r\nX-Name: gr".encode()
            + b"\xfc\xc3\xbc\r\nX-A: 1\r\nX-A: 2\r\nConnection: close\r\n\r\n"
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 203")
    (received,) = server.requests
    assert received.header("x-name") == "gr\xfc\xc3\xbc"
    assert [value for name, value in received.headers if name.lower() == "x-a"] == ["1", "2"]


@pytest.mark.parametrize("limit", [2, 5, 6, 7, 100])
def test_a_body_is_read_ahead_up_to_a_limit(limit: int) -> None:
    closed = []

    async def source() -> AsyncGenerator[bytes, None]:
        try:
            for part in (b"abc", b"", b"def"):
                yield part
        finally:
            closed.append(True)

    async def read() -> bytes:
        start, rest = await read_ahead(source(), limit)
        assert (rest is None) == (limit >= 6)
        return start if rest is None else b"".join([chunk async for chunk in rest])

    assert asyncio.run(read()) == b"abcdef"
    assert closed
