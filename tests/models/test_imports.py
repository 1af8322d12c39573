"""Imports of the real command: users of one provider do not pay for the imports of others."""

import re
import sys
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.chat import ChatServer
from ..support.server.loopback import Say, Server
from ..support.server.responses import ResponsesServer

PROTOCOLS = {"chat", "messages", "responses"}
# The SDK takes 0.2 s of CPU, the whole of it a second; genai-prices 0.3 s; a cloud's client 0.6 s.
UNNEEDED = {"anthropic", "boto3", "botocore", "google"}
_LINE = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", re.M)


def imported(place: Place, *arguments: str, **env: str) -> set[str]:
    """The modules that a run of the command imports."""
    command = (sys.executable, "-X", "importtime", "-m", "ctxagent")
    done = place.run(*arguments, env=place.environ(env), command=command)
    assert done.returncode == 0, done.stderr
    return set(_LINE.findall(done.stderr))


def packages(modules: set[str]) -> set[str]:
    """The modules and their parent packages."""
    parts = [name.split(".") for name in modules]
    return {".".join(each[:n]) for each in parts for n in range(1, len(each) + 1)}


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "kind", "address", "protocol"),
    [
        ("claude-sonnet-5-5", Server, "ANTHROPIC_BASE_URL={}", "messages"),
        ("azure/gpt-5.5", ResponsesServer, "AZURE_OPENAI_ENDPOINT={}", "responses"),
        ("openai/gpt-5.5", ChatServer, "OPENAI_BASE_URL={}/v1", "chat"),
        ("ollama/qwen3", ChatServer, "OLLAMA_BASE_URL={}/v1", "chat"),
    ],
)
def test_a_run_imports_what_its_own_provider_needs(
    tmp_path: Path, model: str, kind: type[Server], address: str, protocol: str
) -> None:
    with kind([Say("Yes.")]) as server:
        variable, _, url = address.format(server.url).partition("=")
        keys = {f"{name}_API_KEY": "k-1" for name in ("ANTHROPIC", "AZURE_OPENAI", "OPENAI")}
        keys |= {variable: url, "OLLAMA_API_KEY": "k-1"}
        found = packages(imported(Place(tmp_path), "-p", "hi", "--model", model, **keys))
    assert len(server.requests) == 1
    assert "httpx2" in found
    own = {each for each in PROTOCOLS if f"ctxagent.agent.models.{each}" in found}
    assert own == {protocol}
    assert not UNNEEDED & found


@pytest.mark.slow
def test_the_version_is_said_without_any_of_it(tmp_path: Path) -> None:
    found = packages(imported(Place(tmp_path), "--version"))
    assert "ctxagent.agent.version" in found
    assert not {"anthropic", "httpx2", "genai_prices", "ctxagent.agent.models"} & found
