"""The transports to a Messages API server: when the SDK is used, and how they authenticate."""

import asyncio
import socketserver
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ctxagent.agent.errors import ModelUnavailable
from ctxagent.agent.models.http_client import Timeouts
from ctxagent.agent.models.messages.key_transport import KeyTransport
from ctxagent.agent.models.messages.model import MessagesModel
from ctxagent.agent.models.messages.sdk_transport import SdkTransport
from ctxagent.agent.models.providers import endpoint_of
from ctxagent.agent.models.transport import ErrorAnswer, NotConnected

from ..support.server.loopback import Say, Server
from .test_model import KNOWN, QUICK, ask, connect, play


@pytest.mark.slow
def test_no_key_is_told_without_importing_the_sdk() -> None:
    script = """
import asyncio, sys
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import NoCredentials
from ctxagent.agent.models.messages.model import MessagesModel

async def main():
    model = MessagesModel("claude-sonnet-5-5", environ={"ANTHROPIC_API_KEY": ""})
    try:
        [_ async for _ in model.stream(Request("m", [], [], [], 10))]
    except NoCredentials as error:
        print(error)

asyncio.run(main())
assert "anthropic" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ctxagent models"):
        assert name in done.stdout
    assert "ctxagent demo" in done.stdout


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({"ANTHROPIC_API_KEY": "k1"}, "k1"),
        ({"ANTHROPIC_AUTH_TOKEN": "t1"}, "t1"),
        ({"ANTHROPIC_API_KEY": "k1", "ANTHROPIC_AUTH_TOKEN": "t1"}, "k1"),
    ],
)
def test_the_key_of_the_environment_is_sent(environ: dict[str, str], sent: str) -> None:
    with Server([Say("Yes.")]) as server:
        play(MessagesModel(KNOWN, base_url=server.url, environ=environ))
    headers = server.headers[0]
    assert headers.get("x-api-key", headers.get("authorization", "")).endswith(sent)


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({"ANTHROPIC_API_KEY": "k1", "ANTHROPIC_CUSTOM_HEADERS": "x-team: blue"}, "blue"),
        ({"ANTHROPIC_API_KEY": "k1"}, None),
    ],
)
def test_the_sdk_sends_what_it_alone_reads(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], sent: str | None
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with Server([Say("Yes.")]) as server:
        model = MessagesModel(KNOWN, base_url=server.url, environ=environ)
        play(model)
    assert isinstance(model.access.transport, SdkTransport) == (sent is not None)
    assert server.headers[0].get("x-team") == sent


def test_both_transports_send_the_same_headers() -> None:
    """Except those that describe the client."""

    async def ask(kind: type[SdkTransport | KeyTransport], url: str) -> None:
        environ = {"ANTHROPIC_API_KEY": "k1"}
        transport = kind(endpoint_of(KNOWN, url, environ), environ, Timeouts())
        await transport.connect()
        with suppress(ErrorAnswer):  # the request is empty
            await transport.post("/v1/messages", b"{}", {})
        await transport.close()

    with Server([]) as server:
        for kind in (SdkTransport, KeyTransport):
            asyncio.run(ask(kind, server.url))
    of_client = ("x-stainless-", "user-agent", "connection", "host", "accept-encoding")
    sdk, ours = (
        {name: value for name, value in each.items() if not name.startswith(of_client)}
        for each in server.headers
    )
    assert sdk == ours


@pytest.mark.parametrize(
    "body",
    [
        '{"error": {"type": "api_error", "message": "It broke."}}',
        '{"detail": {"why": "It broke."}}',
        '{"why": "It broke."}',
        '["It broke."]',
        "<html><p>It broke.</p></html>",
        " It broke. ",
        "",
    ],
)
def test_both_transports_word_an_error_alike(body: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(418)
            self.send_header("content-type", "text/html" if body[:1] == "<" else "text/plain")
            self.send_header("request-id", "req_1")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    async def refusal(kind: type[SdkTransport | KeyTransport], url: str) -> ErrorAnswer:
        environ = {"ANTHROPIC_API_KEY": "k1"}
        transport = kind(endpoint_of(KNOWN, url, environ), environ, Timeouts())
        await transport.connect()
        with pytest.raises(ErrorAnswer) as raised:
            await transport.post("/v1/messages", b"{}", {})
        await transport.close()
        return raised.value

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        found = [asyncio.run(refusal(kind, url)) for kind in (SdkTransport, KeyTransport)]
        server.shutdown()
    told = [(each.status, each.kind, each.words, each.request_id) for each in found]
    assert told[0] == told[1]
    assert told[0][0] == 418
    assert told[0][3] == "req_1"


@pytest.mark.parametrize("blank", ["", " "])
@pytest.mark.parametrize(
    ("id", "variable", "host"),
    [
        (KNOWN, "ANTHROPIC_BASE_URL", "api.anthropic.com"),
        (
            "bedrock/anthropic.claude-sonnet-5",
            "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
            "bedrock-mantle.us-east-1.api.aws",
        ),
        (
            "vertex/claude-sonnet-4-5@20250929",
            "ANTHROPIC_VERTEX_BASE_URL",
            "aiplatform.googleapis.com",
        ),
    ],
)
def test_an_empty_address_counts_as_not_set(
    monkeypatch: pytest.MonkeyPatch, id: str, variable: str, host: str, blank: str
) -> None:
    """A proxy on loopback records where the request goes."""
    asked: list[bytes] = []

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline())
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.server_address[1]}")
        monkeypatch.setenv(variable, blank)
        environ = {
            variable: blank,
            "ANTHROPIC_API_KEY": "k1",
            "AWS_BEARER_TOKEN_BEDROCK": "k1",
            "AWS_REGION": "us-east-1",
            "GOOGLE_OAUTH_ACCESS_TOKEN": "k1",
            "CLOUD_ML_REGION": "global",
            "GOOGLE_CLOUD_PROJECT": "project-1",
        }
        with pytest.raises(ModelUnavailable):
            play(MessagesModel(id, environ=environ, retry=QUICK), ask(id))
        proxy.shutdown()
    assert asked[0].startswith(f"CONNECT {host}:443 ".encode())


def test_nothing_is_sent_before_it_is_connected() -> None:
    transport = connect("http://127.0.0.1:9").access.transport
    with pytest.raises(NotConnected):
        transport.post("/v1/messages", b"{}", {}).send(None)
