"""Sessions over the Responses API: the real command against a strict server, as one of Azure."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.of_others import installed
from ..support.server.faults import Faults
from ..support.server.loopback import Say, uneven
from ..support.server.mixture import Mixture
from ..support.server.responses import ResponsesServer
from .test_images import png
from .test_model_of_others import call, mock, say

MODEL = ("--model", "azure/gpt-5.5", "--permission-mode", "bypass")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def env(place: Place, url: str) -> dict[str, str]:
    return place.environ({"AZURE_OPENAI_ENDPOINT": url, "AZURE_OPENAI_API_KEY": "test-key-1"})


def run(place: Place, url: str, *arguments: str) -> str:
    done = place.run(*arguments, *MODEL, env=env(place, url))
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def rebuilt(place: Place, url: str) -> str:
    """What `replay` says of the requests of the only session."""
    (log,) = place.logs()
    done = place.run("replay", log.parent.name, env=env(place, url))
    return str(done.stdout).strip().splitlines()[-1]


def test_calls_images_and_a_resume(place: Place) -> None:
    """Reasoning is bound to all that stands before it, and comes back exactly."""
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
        assert rebuilt(place, server.url) == "Our own sessions: 4 of 4 requests rebuilt to the byte"
    assert server.rejected == []
    sent: list[dict[str, Any]] = server.bodies[-1]["input"]
    assert [item["type"] for item in sent].count("reasoning") == 3
    images = [part for item in sent for part in [*item.get("content", ()), *item.get("output", ())]
              if isinstance(part, dict) and part["type"] == "input_image"]  # fmt: skip
    assert len(images) == 2
    entries = [entry for entry in place.entries() if entry["kind"] == "assistant"]
    assert {entry["model"] for entry in entries} == {"azure/gpt-5.5"}
    assert entries[-1]["usage"]["cache_read"] > 0


def test_a_long_session_with_summaries_and_faults(place: Place) -> None:
    steps = Faults(Mixture(40, seed=2), rate=0.15, seed=2)
    small = ("--context-window", "24000", "--max-tokens", "2000")
    with ResponsesServer(steps, bound=True, window=24_000, size_of=uneven(0.4)) as server:
        done = run(place, server.url, "-p", "Count.", "--output-format", "json", *small)
        said = rebuilt(place, server.url)
    assert server.rejected == []
    told = json.loads(done)
    assert (told["result"], told["compaction"]["summaries"] > 0) == ("All done.", True)
    assert steps.count.total() > 0
    calls = told["calls"]
    assert said == f"Our own sessions: {calls} of {calls} requests rebuilt to the byte"


@pytest.mark.skipif(not shutil.which("npm"), reason="there is no npm")
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
        assert rebuilt(place, server.url) == "Our own sessions: 3 of 3 requests rebuilt to the byte"
    thoughts = [
        block["thinking"]
        for entry in place.entries()
        if entry["kind"] == "assistant"
        for block in entry["content"]
        if block["type"] == "thinking"
    ]
    assert thoughts[:2] == ["I look.", "So."]
