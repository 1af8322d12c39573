"""Sessions over the Responses API: the real command against a strict server, also as Azure."""

from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.machine import needs
from ..support.of_others import installed
from ..support.server.loopback import Say
from ..support.server.mixture import Mixture
from ..support.server.responses import ResponsesServer
from .test_images import png
from .test_model_of_others import call, mock, say

MODEL, WITH_BREAKPOINTS = "azure/gpt-5.5", ResponsesServer.model


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def env(place: Place, url: str) -> dict[str, str]:
    return place.environ({"AZURE_OPENAI_ENDPOINT": url, "AZURE_OPENAI_API_KEY": "test-key-1"})


def run(place: Place, url: str, *arguments: str, model: str = MODEL) -> str:
    arguments = (*arguments, "--model", model, "--permission-mode", "bypass")
    done = place.run(*arguments, env=env(place, url))
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def rebuilt(place: Place, url: str) -> str:
    """Return what `replay` prints about the requests of the only session."""
    (log,) = place.logs()
    done = place.run("replay", log.parent.name, env=env(place, url))
    return str(done.stdout).strip().splitlines()[-1]


def test_calls_images_and_a_resume(place: Place) -> None:
    """Reasoning is bound to everything before it, and is sent back unchanged."""
    (place.project / "a.png").write_bytes(png(40, 30))
    steps = [
        Say("I look.", thinking="One.\n\nTwo.", tools=[("Read", {"path": "a.png"}),
                                                       ("Bash", {"command": "echo hi"})]),
        Say(thinking="Three.", tools=[("Bash", '{ "command": "false" }')]),
        Say("Black.", thinking="Four."),
        Say("Bye."),
    ]  # fmt: skip
    with ResponsesServer(steps, bound=True) as server:
        assert run(place, server.url, "-p", "look at @a.png") == "Black.\n"
        assert run(place, server.url, "-p", "And now?", "--continue") == "Bye.\n"
        assert (
            rebuilt(place, server.url) == "Our own sessions: 4 of 4 requests rebuilt byte for byte"
        )
    assert server.rejected == []
    sent: list[dict[str, Any]] = server.bodies[-1]["input"]
    assert [item["type"] for item in sent].count("reasoning") == 3
    images = [part for item in sent for part in [*item.get("content", ()), *item.get("output", ())]
              if isinstance(part, dict) and part["type"] == "input_image"]  # fmt: skip
    assert len(images) == 2
    entries = [entry for entry in place.entries() if entry["kind"] == "assistant"]
    assert {entry["model"] for entry in entries} == {MODEL}
    assert entries[-1]["usage"]["cache_read"] > 0


def test_breakpoints_around_a_summary(place: Place) -> None:
    small = ("--context-window", "16000", "--max-tokens", "2000")
    with ResponsesServer(Mixture(24, seed=2)) as server:
        done = run(place, server.url, "-p", "Count.", *small, model=WITH_BREAKPOINTS)
    assert (done, server.rejected) == ("All done.\n", [])
    modes = {
        (body["input"][0]["role"], body["prompt_cache_options"]["mode"]) for body in server.bodies
    }
    assert modes == {("developer", "implicit"), ("user", "explicit")}, "a summary of a part"


@needs("npm")
def test_a_server_of_others(place: Place, pytestconfig: pytest.Config) -> None:
    replies = [
        {**call("Bash", command="echo hi"), "reasoning": "I look."},
        {**say("Hi."), "reasoning": "So."},
        say("Again."),
    ]
    with mock(installed(pytestconfig), replies) as server:
        base = ("-c", f"model.base_url={server.url}/v1")
        assert run(place, server.url, "-p", "go", *base) == "Hi.\n"
        assert run(place, server.url, "-p", "again", "--continue", *base) == "Again.\n"
        assert (
            rebuilt(place, server.url) == "Our own sessions: 3 of 3 requests rebuilt byte for byte"
        )
    thoughts = [
        block["thinking"]
        for entry in place.entries()
        if entry["kind"] == "assistant"
        for block in entry["content"]
        if block["type"] == "thinking"
    ]
    assert thoughts[:2] == ["I look.", "So."]
