"""Sessions over Chat Completions: the real command against strict servers of each dialect."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.chat import DIALECTS, ChatServer
from ..support.server.loopback import Fail, Say
from .test_images import png

MODEL = "openai/walrus"
ROW = f"""\
["{MODEL}"]
window = 100_000
output = 4_000
input_price = 1
output_price = 2
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    own = tmp_path / "home" / ".config" / "ctxagent"
    own.mkdir(parents=True)
    (own / "models.toml").write_text(ROW)
    return place


def env(place: Place, server: ChatServer) -> dict[str, str]:
    return place.environ({"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "test-key-1"})


def run(place: Place, server: ChatServer, *arguments: str) -> Any:
    return place.run("--model", MODEL, *arguments, env=env(place, server))


def bash(*commands: str, **more: Any) -> Say:
    return Say("", tools=[("Bash", {"command": each}) for each in commands], **more)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session(place: Place, dialect: str) -> None:
    """Parallel calls, reasoning, a resume: nothing is refused that a server of the kind takes, what
    it does not take is learned once, and every request is rebuilt to the byte."""
    (place.project / "notes.txt").write_text("the walrus was here\n")
    steps = [
        bash("cat notes.txt", "pwd", thinking="Who was it? Let me look."),
        bash("ls", thinking="And now?"),
        Say("A walrus.", thinking="It says so."),
        bash("cat notes.txt", thinking="Once more."),
        Say("Yes, a walrus."),
    ]
    with ChatServer(Script(steps), dialect=dialect) as server:
        first = run(place, server, "-p", "who was here?")
        assert (first.returncode, first.stdout) == (0, "A walrus.\n"), first.stderr
        refused = len(server.refused)
        again = run(place, server, "--continue", "-p", "sure?")
        assert (again.returncode, again.stdout) == (0, "Yes, a walrus.\n"), again.stderr
    assert server.rejected == []
    assert len(server.refused) == refused, "learned in the first process"
    requests = server.requests
    assert len(requests) == 5
    for earlier, later in zip(requests, requests[1:], strict=False):
        assert later["messages"][: len(earlier["messages"])] == earlier["messages"]
        assert (later["system"], later["tools"]) == (earlier["system"], earlier["tools"])
    results = [b["content"][0]["text"] for b in requests[1]["messages"][-1]["content"]]
    assert "the walrus was here" in results[0]
    assert str(place.project) in results[1]

    answered = [entry for entry in place.entries() if entry["kind"] == "assistant"]
    assert [entry["request"]["protocol"] for entry in answered] == ["chat"] * 5
    assert [entry["model"] for entry in answered] == [MODEL] * 5
    assert answered[1]["usage"]["cache_read"] > 0
    checked = run(place, server, "replay")
    assert checked.returncode == 0, checked.stderr
    assert "Our own sessions: 5 of 5 requests rebuilt to the byte" in checked.stdout
    assert "\n! " not in checked.stdout


class Script:
    """Steps that a refused request does not use up."""

    def __init__(self, steps: list[Say | Fail]) -> None:
        self.steps = iter(steps)

    def __call__(self, body: dict[str, Any]) -> Say | Fail:
        return next(self.steps)
