"""MCP servers over HTTP and over server-sent events: what ends a connection, and what is an answer.

The server has the message shapes of the TypeScript SDK. `test_mcp_of_others.py` uses the real one.
"""

from pathlib import Path

import pytest

from ..support.command import Place
from ..support.mcp.over_http import mcp_over_http
from ..support.server.loopback import Say
from .test_mcp import ALLOW, configure, notes, plain, ran, results, use

ECHO = use("mcp__plain__echo", {"text": "x"})
REFUSE = use("mcp__plain__refuse", {})
DONE = Say("Done.")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("path", "entry"),
    [
        ("/mcp", {"type": "http"}),
        ("/sse", {"type": "sse"}),
        ("/sse", {}),  # a deprecated server that is configured like a new one
    ],
)
def test_a_server_error_is_an_answer(place: Place, path: str, entry: dict[str, str]) -> None:
    with mcp_over_http() as http:
        configure(place, plain={**entry, "url": f"{http.url}{path}"})
        server, done = ran(place, [REFUSE, ECHO, DONE], *ALLOW)
    assert results(server) == ["The MCP server plain answers: rate limited, try later", "x"]
    assert done.stderr == ""
    assert http.calls == ["refuse", "echo"]


def test_a_server_error_over_stdin_is_an_answer(place: Place) -> None:
    configure(place, plain=plain(place, "refuse first"))
    server, done = ran(place, [ECHO, ECHO, DONE], *ALLOW)
    assert results(server) == ["The MCP server plain answers: rate limited, try later", "x"]
    assert done.stderr == ""
    assert len(notes(place, "pid")) == 1


@pytest.mark.parametrize("status", [404, 400])
def test_a_server_that_has_forgotten_the_session_gets_a_new_one(place: Place, status: int) -> None:
    with mcp_over_http(status) as http:
        http.forget_before_call = 2
        configure(place, plain={"type": "http", "url": f"{http.url}/mcp"})
        server, _ = ran(place, [ECHO, ECHO, ECHO, DONE], *ALLOW)
    first, lost, again = results(server)
    assert (first, again) == ("x", "x")
    assert "has ended: it no longer knows this session. It has not run this: call it" in lost
    assert http.calls == ["echo", "echo"]


def test_an_address_without_a_server_is_named_with_its_answer(place: Place) -> None:
    with mcp_over_http() as http:
        configure(place, plain={"url": f"{http.url}/elsewhere"})
        server, done = ran(place, [ECHO, DONE], *ALLOW)
    assert "is not available: HTTP 404 Not Found: <!doctype html>Cannot POST" in results(server)[0]
    assert "HTTP 404" in done.stderr
