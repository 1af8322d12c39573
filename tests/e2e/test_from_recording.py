"""`ctxagent --from-recording` in a terminal and in a script: it continues a session of another
agent, and a later start continues the new session like any other.
"""

import json
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say
from ..support.server.wires import Wire, over_each_wire
from ..support.sessions.recorded import CODE, MORE
from ..support.sessions.stories import STORY


@pytest.mark.variants
@over_each_wire
def test_a_task_goes_on_and_then_another(tmp_path: Path, wire: Wire) -> None:
    place, file = Place(tmp_path), tmp_path / "recording"
    file.write_bytes(STORY["codex"]())
    calls = [("Recall", {"query": "def f"})]
    with wire([Say(tools=calls), Say("It is in a.py."), Say("Yes.")]) as server:
        env = place.environ(server.variables)
        first = place.run("--from-recording", str(file), "-p", "Where?", env=env)
        assert (first.returncode, first.stdout) == (0, "It is in a.py.\n"), first.stderr
        assert "continues a session of codex · 3 replies · 3 calls" in first.stderr
        second = place.run("--continue", "-p", "Sure?", env=env)
        assert second.stdout == "Yes.\n"
        assert not server.rejected
        assert MORE in str(server.requests[0])
        assert "Where?" in str(server.requests[2])
    results = [e for e in place.entries() if e["kind"] == "tool_result"]
    assert CODE.splitlines()[0] in json.dumps(results[-1])  # what Recall has found
    kinds = [e["kind"] for e in place.entries()]
    assert kinds[0] == "session"
    assert len(place.logs()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--continue"], "--from-recording starts a new session"),
        (["--fork"], "--fork needs a session"),
        ([], "is not a recorded session in a known format"),
    ],
)
def test_refused_recordings(tmp_path: Path, options: list[str], words: str) -> None:
    place, file = Place(tmp_path), tmp_path / "recording"
    file.write_text("# Notes\n")
    run = place.run("--from-recording", str(file), *options, "-p", "go")
    assert (run.returncode, run.stdout) == (2, "")
    assert words in run.stderr
    assert not place.logs()


def test_headless_run_needs_a_file(tmp_path: Path) -> None:
    run = Place(tmp_path).run("-p", "go", "--from-recording")
    assert run.returncode == 2
    assert "--from-recording FILE" in run.stderr


def test_without_a_task_no_session_is_made(tmp_path: Path) -> None:
    place, file = Place(tmp_path), tmp_path / "recording"
    file.write_bytes(STORY["codex"]())
    run = place.run("--from-recording", str(file))
    assert (run.returncode, run.stdout) == (2, "")
    assert "there is no task" in run.stderr
    assert not place.logs()
