"""The benchmark of context policies runs on a recording, takes functions and proxies of others, and
says what it cannot use."""

import json
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.formats import load_recording
from ctxagent.addons.replay.player import Terms, play
from ctxagent.agent.compaction.policy import DEFAULT

from ..support.command import PATIENCE
from ..support.sessions.history import words
from ..support.sessions.recorded import claude_call, claude_line, claude_result, lines

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "context" / "run.py"
FIRST_AND_LAST = """
def ends(messages):
    return [messages[0], *messages[-2:]] if len(messages) > 3 else messages

def broken(messages):
    raise RuntimeError("it is broken")
"""


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session of Claude Code's in which a file is read, forgotten by some, and edited late."""
    rows = [claude_line("user", 0, "Mend it.")]
    for n in range(1, 13):
        line = "    total = price_of_all_things(cart)"
        name, given, text = "Bash", {"command": f"make {n}"}, words(400)
        if n == 1:
            name, given, text = "Read", {"file_path": "/a.py"}, f"{line}\n{words(400)}"
        if n == 12:
            given = {"file_path": "/a.py", "old_string": line, "new_string": "pass"}
            name, text = "Edit", "done"
        call = claude_call(f"c{n}", name, given)
        rows += [
            claude_line("assistant", n, [call], id=f"m{n}", stop_reason="tool_use"),
            claude_line("user", n + 0.5, [claude_result(f"c{n}", text)]),
        ]
    path = tmp_path / "session.jsonl"
    path.write_bytes(lines(rows))
    return path


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


def figures(folder: Path, *arguments: object) -> dict[str, dict[str, float]]:
    done = run(folder, *arguments, "--json", folder / "out.json")
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, float]] = json.loads((folder / "out.json").read_text())
    for name in found:
        assert f"| {name} |" in done.stdout
    return found


@pytest.mark.slow
def test_the_policies_that_are_there(tmp_path: Path, session: Path) -> None:
    found = figures(tmp_path, session)
    assert {row["calls"] for row in found.values()} == {12}
    assert found["everything"]["ratio"] == 1
    assert found["everything"]["missed"] == 0
    assert found["last 3 results"]["missed"] == 1, "what the edit replaced was cleared"
    assert found["clear_tool_uses"] == found["everything"], "it is a small session"
    assert found["default"]["missed"] == 0


@pytest.mark.slow
def test_sending_everything_costs_what_replay_says_of_summaries_alone(
    tmp_path: Path, session: Path
) -> None:
    alone = replace(
        DEFAULT,
        clear_when="off",
        move_above=None,
        line_numbers=True,
        truncate_at=None,
        outline=False,
    )
    terms = Terms("alone", alone, "claude-sonnet-5", 200_000, "", (), fills=0)
    sums = play(load_recording(session), terms).sums
    found = figures(tmp_path, session, "--policy", "everything")["everything"]
    assert (found["read"], found["written"]) == (sums.read, sums.written)
    assert found["dollars"] == pytest.approx(sums.dollars)


@pytest.mark.slow
def test_a_function_of_another(tmp_path: Path, session: Path) -> None:
    (tmp_path / "mine.py").write_text(FIRST_AND_LAST)
    found = figures(tmp_path, session, "--policy", "mine:ends")
    assert [*found] == ["everything", "mine:ends"]
    assert found["mine:ends"]["read"] < found["everything"]["read"]
    assert found["mine:ends"]["missed"] == 1
    done = run(tmp_path, session, "--policy", "mine:broken")
    assert done.returncode == 1
    assert "it is broken" in done.stderr


@pytest.mark.slow
def test_a_proxy(tmp_path: Path, session: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with shortening(f"http://127.0.0.1:{port}") as url:
        found = figures(
            tmp_path, session, "--policy", "everything", "--proxy", url, "--listen", port
        )
    assert found[url]["missed"] == 1
    assert found[url]["read"] < found["everything"]["read"]


@pytest.mark.full
def test_what_it_cannot_use(tmp_path: Path, session: Path) -> None:
    for arguments, told in (
        (("--policy", "no_such"), "no policy 'no_such'"),
        (("--policy", "json:no_such"), "no policy 'json:no_such'"),
        (("--proxy", "http://127.0.0.1:1"), "--listen PORT"),
    ):
        done = run(tmp_path, session, *arguments)
        assert done.returncode == 2
        assert told in done.stderr
    (tmp_path / "notes.txt").write_text("no session")
    done = run(tmp_path, tmp_path / "notes.txt", session, "--policy", "everything")
    assert done.returncode == 0
    assert "notes.txt" in done.stderr


@contextmanager
def shortening(model: str) -> Iterator[str]:
    """A proxy that passes on the first message and the newest exchange alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if len(body["messages"]) > 3:
                body["messages"] = [body["messages"][0], *body["messages"][-2:]]
            onward = urllib.request.Request(f"{model}{self.path}", json.dumps(body).encode())
            with urllib.request.urlopen(onward, timeout=PATIENCE) as answer:
                said = answer.read()
            self.send_response(200)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
