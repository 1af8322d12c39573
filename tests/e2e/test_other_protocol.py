"""A session by a wire protocol that is one module and one row of a table: no key of Anthropic's,
calls of tools, a resume, and the check that the requests of the log can be rebuilt."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ..support.chat_protocol import ADDRESS_VAR, NAME
from ..support.command import PATIENCE, Place

START = "from ctxagent.tests.support.chat_protocol import main; main()"
ROW = f"""\
[walrus]
protocol = "{NAME}"
window = 100_000
output = 4_000
input_price = 1
output_price = 2
cache_write_price = 1
"""
Body = dict[str, Any]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    own = tmp_path / "home" / ".config" / "ctxagent"
    own.mkdir(parents=True)
    (own / "models.toml").write_text(ROW)
    return place


@contextmanager
def server(replies: Sequence[Body]) -> Iterator[tuple[str, list[Body]]]:
    """Serve these messages one after another; yield the address and the requests so far."""
    requests: list[Body] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            message = replies[len(requests) - 1]
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            answer = {
                "id": f"chatcmpl-{len(requests)}",
                "choices": [{"message": message, "finish_reason": reason}],
                "usage": {"prompt_tokens": 3_000, "completion_tokens": 20},
            }
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}", requests
        finally:
            serving.shutdown()
            thread.join()


def run(place: Place, url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command that has the protocol, without any key."""
    return subprocess.run(
        [sys.executable, "-P", "-c", START, *arguments],
        cwd=place.project,
        env=place.environ({ADDRESS_VAR: url}),
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        timeout=PATIENCE,
    )


def call(command: str) -> Body:
    function = {"name": "Bash", "arguments": json.dumps({"command": command})}
    return {"content": "Let me look.", "tool_calls": [{"id": "call-1", "function": function}]}


def test_a_session_by_another_protocol(place: Place) -> None:
    (place.project / "notes.txt").write_text("the walrus was here\n")
    replies = [call("cat notes.txt"), {"content": "A walrus."}, {"content": "Yes, a walrus."}]
    with server(replies) as (url, requests):
        first = run(place, url, "--model", "walrus", "-p", "who was here?")
        assert (first.returncode, first.stdout) == (0, "A walrus.\n"), first.stderr
        again = run(place, url, "--model", "walrus", "--continue", "-p", "sure?")
        assert (again.returncode, again.stdout) == (0, "Yes, a walrus.\n"), again.stderr
    roles = [message["role"] for message in requests[-1]["messages"]]
    assert roles[:1] == ["system"]
    assert roles[-4:] == ["assistant", "tool", "assistant", "user"]
    assert "the walrus was here" in requests[1]["messages"][-1]["content"]
    assert requests[2]["messages"][: len(requests[1]["messages"])] == requests[1]["messages"]

    answered = [entry for entry in place.entries() if entry["kind"] == "assistant"]
    assert [entry["request"]["protocol"] for entry in answered] == [NAME] * 3
    assert [entry["cost_usd"] for entry in answered] == [pytest.approx(0.00304)] * 3

    checked = run(place, url, "replay", "--model", "walrus")
    assert checked.returncode == 0, checked.stderr
    assert "Our own sessions: 3 of 3 requests rebuilt to the byte\n" in checked.stdout
    assert "\n! " not in checked.stdout


def test_requests_of_an_unknown_protocol_are_not_rebuilt(place: Place) -> None:
    with server([{"content": "Hello."}]) as (url, _):
        assert run(place, url, "--model", "walrus", "-p", "hello").returncode == 0
    refused = place.run("--model", "walrus", "-p", "hello")
    assert refused.returncode == 2
    assert f"models.toml gives walrus the protocol '{NAME}', which is unknown" in refused.stderr
    checked = place.run("replay", "--model", "claude-opus-5-5")
    assert checked.returncode == 0, checked.stderr
    told = "0 of 0 requests rebuilt to the byte · 1 by a protocol that is unknown here\n"
    assert f"Our own sessions: {told}" in checked.stdout
    assert "\n! " not in checked.stdout
