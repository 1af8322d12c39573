"""`ctxagent proxy status` and the page, for a session of a real client, and what the client gets
after the undo of an edit.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import httpx2
import pytest

from ..support.command import Place, comes
from ..support.server.loopback import Body, Say, Server

CALLS = 6
AS_IT_IS = ("clear.when", "truncate.at", "compact.mode", "move.above")
CLIENT = ("--permission-mode", "bypass", *(f"-c{key}=off" for key in AS_IT_IS))
EAGER = ("-cclear.when=every-call", "-cclear.keep=1")


def step(body: Body) -> Say:
    """Return one command after another, then an answer to each message of the user."""
    done = sum(
        isinstance(block, dict) and block.get("type") == "tool_result"
        for message in body["messages"]
        for block in message["content"]
    )
    if done == CALLS:
        return Say("Done.")
    return Say(tools=[("Bash", {"command": f"seq {done}000 {done}900"})])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(step) as it:
        yield it
    assert it.rejected == []


def results(request: dict[str, Any]) -> str:
    return json.dumps([m for m in request["messages"] if "tool_result" in json.dumps(m)])


def test_status_shows_a_session_and_an_undone_edit(tmp_path: Path, server: Server) -> None:
    own, clients = Place(tmp_path / "proxy"), Place(tmp_path / "client")
    upstream = f"messages={server.url}"
    started = own.start(*EAGER, "proxy", "--port", "0", "--upstream", upstream, stdout=PIPE)
    with started as process:
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            environ = clients.server(found[0])
            assert clients.run("-p", "count", *CLIENT, env=environ).returncode == 0
            assert "2500" not in results(server.requests[-1])  # cleared

            shown = own.run("proxy", "status")
            assert shown.returncode == 0
            head, row, warning, _, sums = shown.stdout.splitlines()
            assert head.split()[:3] == ["session", "client", "calls"]
            (log,) = own.logs()
            assert row.split()[0] == log.parent.name
            assert warning.startswith(f"! {log.parent.name}: the client offers no tool `recall`")
            assert "the client offers no tool" in httpx2.get(found[0]).text
            assert row.split()[2] == str(CALLS + 1)
            assert "count" in row
            assert re.fullmatch(r"\$[\d.]+ instead of \$[\d.]+: \S+ (saved|more)", sums)
            assert found[0] in shown.stderr

            (session,) = told(own)["sessions"]
            contexts = session["context"]
            assert contexts["without"][-1] > 2 * contexts["with"][-1]
            spent = sum(each.get("cost_usd") or 0 for each in own.entries())
            assert session["dollars"]["with"] == pytest.approx(spent)

            for edit in session["edits"]:
                answer = httpx2.post(
                    f"{found[0]}/.ctxagent/undo",
                    json={"session": session["id"], "seq": edit["seq"]},
                    headers={"x-ctxagent": "undo"},
                )
                assert answer.status_code == 200, answer.text
            more = clients.run("--continue", "-p", "and now?", *CLIENT, env=environ)
            assert more.returncode == 0
            assert "2500" in results(server.requests[-1])
            assert "4500" in results(server.requests[-1])
            (session,) = told(own)["sessions"]
            assert {edit["is_undone"] for edit in session["edits"]} == {True}
            assert session["context"]["without"][-1] == session["context"]["with"][-1]
        finally:
            process.terminate()
    assert told(own)["address"] is None
    assert not [*own.state.glob("projects/*/proxy.json")]
    assert told(own)["sessions"] == [session]


def test_a_proxy_that_was_killed_does_not_run(tmp_path: Path) -> None:
    own = Place(tmp_path)
    with own.start("proxy", "--port", "0", stdout=PIPE) as process:
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address
        assert comes(lambda: told(own)["address"] == address[0])
        process.kill()
    assert told(own) == {
        "sessions": [],
        "dollars": {"with": 0, "without": 0},
        "left_out": 0,
        "address": None,
    }
    said = own.run("proxy", "status")
    assert (said.returncode, said.stdout) == (0, "")
    assert "No session of the proxy." in said.stderr
    assert "No proxy of this directory runs" in said.stderr


def test_status_all_shows_sessions_of_every_directory(tmp_path: Path, server: Server) -> None:
    own, clients = Place(tmp_path / "proxy"), Place(tmp_path / "client")
    upstream = f"messages={server.url}"
    with own.start("proxy", "--port", "0", "--upstream", upstream, stdout=PIPE) as process:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        clients.run("-p", "count", *CLIENT, env=clients.server(found[0]))
        process.terminate()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert told(own, cwd=elsewhere)["sessions"] == []
    assert len(told(own, "--all", cwd=elsewhere)["sessions"]) == 1


def told(place: Place, *more: str, **options: Any) -> dict[str, Any]:
    """Return the output of `ctxagent proxy status --json`."""
    found: dict[str, Any] = json.loads(
        place.run("proxy", "status", "--json", *more, **options).stdout
    )
    return found
