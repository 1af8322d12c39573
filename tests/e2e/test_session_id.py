"""`--session-id ID`: a task is done once, however often the command runs, and wherever it was
killed.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Fail, Say, Server, Step

TASK = ("-p", "do it", "--session-id", "nightly-7", "--output-format", "json")
BYPASS = ("--permission-mode", "bypass")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(work) as server:
        yield server


def work(body: Body) -> Step:
    """Return two calls, then the answer."""
    replies = sum(message["role"] == "assistant" for message in body["messages"])
    if replies < 2:
        return Say(f"Step {replies}.", tools=[("Bash", {"command": f"echo {replies} >> done.txt"})])
    return Say("All done.")


def run(place: Place, url: str, *more: str, code: int = 0) -> dict[str, Any]:
    done = place.run(*TASK, *BYPASS, *more, env=place.server(url))
    assert done.returncode == code, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_same_command_repeats_the_result_without_a_request(place: Place, server: Server) -> None:
    first = run(place, server.url)
    log = place.logs()[0].read_bytes()
    again = run(place, server.url)
    assert (first["session_id"], first["result"]) == ("nightly-7", "All done.")
    for name in ("result", "status", "turns", "calls", "tool_calls", "cost_usd", "usage", "log"):
        assert again[name] == first[name], name
    assert len(server.requests) == 3
    assert place.logs()[0].read_bytes() == log


@pytest.mark.variants
@pytest.mark.parametrize("aim", ["Step 0.", "Step 1.", "All done."])
def test_killed_turn_continues(place: Place, server: Server, aim: str) -> None:
    env = place.server(server.url)
    process = place.start(*TASK, *BYPASS, env=env)
    with server.halted_after(aim):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    result = run(place, server.url)
    assert (result["result"], result["turns"]) == ("All done.", 1)
    entries = place.entries()
    assert sum(e["kind"] == "user" and e.get("source") == "person" for e in entries) == 1
    asked = [e["message_id"] for e in entries if e["kind"] == "assistant"]
    assert len(asked) == len(set(asked)) >= 3
    assert len(server.requests) <= 4
    assert server.rejected == []


def test_complete_answer_without_its_end_entry_counts(place: Place, server: Server) -> None:
    first = run(place, server.url)
    (log,) = place.logs()
    kept = [line for line in log.read_text().splitlines(True) if '"kind": "end"' not in line]
    log.write_text("".join(kept))
    assert run(place, server.url)["result"] == first["result"]
    assert len(server.requests) == 3


def test_failed_or_limited_task_continues(place: Place) -> None:
    steps: list[Step] = [
        Fail(401, "no"),
        *(Say("", tools=[("Bash", {"command": "true"})]) for _ in "ab"),
    ]
    with Server([*steps, Say("Done.")]) as server:
        assert run(place, server.url, code=5)["status"] == "error"
        assert run(place, server.url, "--max-turns", "1", code=4)["status"] == "limit"
        result = run(place, server.url)
    assert (result["result"], result["turns"]) == ("Done.", 1)
    assert server.rejected == []


def test_task_with_a_denied_call_runs_again(place: Place) -> None:
    steps = [
        Say("", tools=[("Bash", {"command": "touch a"})]),
        Say("I may not."),
        Say("", tools=[("Bash", {"command": "touch a"})]),
        Say("It ran."),
    ]
    with Server(steps) as server:
        env = place.server(server.url)
        assert place.run(*TASK, env=env).returncode == 3
        assert run(place, server.url)["result"] == "It ran."
    assert server.rejected == []


def test_another_task_and_other_sessions_are_refused(place: Place, server: Server) -> None:
    run(place, server.url)
    env = place.server(server.url)
    other = place.run("-p", "something else", "--session-id", "nightly-7", env=env)
    assert other.returncode == 2
    assert "the session nightly-7 was begun with another task" in other.stderr
    assert "--resume nightly-7" in other.stderr
    for id in ("../x", "", "a" * 65, ".a"):
        assert place.run("-p", "x", "--session-id", id, env=env).returncode == 2
    for more in (["--continue"], ["--resume", "a"], ["--from", "a"]):
        refused = place.run(*TASK, *more, env=env)
        assert (refused.returncode, "--session-id" in refused.stderr + refused.stdout) == (2, True)
    assert len(server.requests) == 3
    assert len(place.logs()) == 1


def test_resume_adds_a_message(place: Place, server: Server) -> None:
    run(place, server.url)
    done = place.run("-p", "thanks", "--resume", "nightly-7", env=place.server(server.url))
    assert (done.returncode, done.stdout) == (0, "All done.\n")
