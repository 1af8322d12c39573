"""Starting the proxy."""

import asyncio
import socket
from pathlib import Path

import pytest

from ctxagent.addons.proxy.serve import ProxyOptions, serving, upstreams_of
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.errors import UsageError
from ctxagent.agent.session.store import Project


def test_an_upstream_is_given_or_of_the_environment_or_public() -> None:
    public = {
        "messages": "https://api.anthropic.com",
        "openai": "https://api.openai.com/v1",
        "gemini": "https://generativelanguage.googleapis.com",
    }
    assert upstreams_of({}, {}) == public
    environ = {"ANTHROPIC_BASE_URL": "http://a", "OPENAI_BASE_URL": ""}
    assert upstreams_of({}, environ) == {**public, "messages": "http://a"}
    assert upstreams_of({"messages": "http://b"}, environ)["messages"] == "http://b"
    assert upstreams_of({}, {"ANTHROPIC_BASE_URL": " "}) == public
    for wrong in ("localhost:99", "http://", "ftp://a"):
        with pytest.raises(UsageError, match="not an http or https address"):
            upstreams_of({}, {"OPENAI_BASE_URL": wrong})


async def open_and_close(options: ProxyOptions) -> str:
    async with serving(options, {}) as address:
        return address


def test_a_port_is_free_again_at_the_end(tmp_path: Path) -> None:
    options = ProxyOptions(Project(tmp_path / "state", tmp_path), DEFAULT)
    address = asyncio.run(open_and_close(options))
    port = int(address.rpartition(":")[2])
    again = ProxyOptions(Project(tmp_path / "state", tmp_path), DEFAULT, port)
    assert asyncio.run(open_and_close(again)) == address


def test_a_port_that_is_taken_is_wrong_usage(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = ProxyOptions(Project(tmp_path / "state", tmp_path), DEFAULT, port)
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
            asyncio.run(open_and_close(options))
