"""The transport with the SDK: when it is imported, and how it authenticates."""

import socketserver
import subprocess
import sys
import threading

import pytest

from ctxagent.agent.errors import ModelUnavailable
from ctxagent.agent.models.messages.model import MessagesModel
from ctxagent.agent.models.transport import NotConnected

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
