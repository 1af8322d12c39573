"""The way to a server by the SDK: what it is imported for, and what it authenticates with."""

import subprocess
import sys

import pytest

from ctxagent.agent.models.messages.model import MessagesModel
from ctxagent.agent.models.transport import NotConnected

from ..support.server.loopback import Say, Server
from .test_model import KNOWN, connect, play


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


def test_nothing_is_sent_before_it_is_connected() -> None:
    transport = connect("http://127.0.0.1:9").access.transport
    with pytest.raises(NotConnected):
        transport.post("/v1/messages", b"{}", {}).send(None)
