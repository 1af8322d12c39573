"""MCP servers by the real command: found, asked about, called, dying, flooding; and what requests
hold of them."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place, comes
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

SERVER = Path(__file__).parents[1] / "support" / "server" / "mcp_server.py"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def set_up(place: Place, name: str = "tests", *words: str, **more: Any) -> None:
    """Add a server to the person's own."""
    file = place.root / "home/.config/ctxagent/mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(file.read_text())["mcpServers"] if file.exists() else {}
    known[name] = {"command": sys.executable, "args": [str(SERVER), *words], **more}
    file.write_text(json.dumps({"mcpServers": known}))


def talk(
    place: Place, calls: Sequence[dict[str, Any]], *options: str, code: int = 0
) -> tuple[list[dict[str, Any]], Server]:
    """Have the model make these calls of Mcp, one a reply; the results, and the server."""

    def reply(body: dict[str, Any]) -> Say:
        done = sum(message["role"] == "assistant" for message in body["messages"])
        return Say("", tools=[("Mcp", calls[done])]) if done < len(calls) else Say("Done.")

    with Server(reply) as server:
        done = place.run("-p", "go", *options, env=place.server(server.url))
        assert done.returncode == code, done.stderr
    assert server.rejected == []
    newest = max(place.logs(), key=lambda log: log.stat().st_mtime_ns)
    entries = map(json.loads, newest.read_text().splitlines())
    return [entry for entry in entries if entry["kind"] == "tool_result"], server


BYPASS = ("--permission-mode", "bypass")


def test_it_is_found_described_and_called(place: Place) -> None:
    set_up(place)
    results, server = talk(
        place,
        [
            {"query": "add numbers"},
            {"tool": "mcp__tests__add"},
            {"tool": "mcp__tests__add", "arguments": {"a": 40, "b": 2}},
        ],
        *BYPASS,
    )
    assert results[0]["content"].startswith("mcp__tests__add: Add two numbers.")
    assert '"required":["a","b"]' in results[1]["content"]
    assert results[2]["content"] == "the sum is 42"
    assert results[2]["details"]["server"] == "tests"
    # Nothing of it stands in the tools, and each request begins with the one before.
    bodies = [dict(body) for body in server.requests]
    assert len({json.dumps(body["tools"]) for body in bodies}) == 1
    assert "add" not in [tool["name"] for tool in bodies[0]["tools"]]
    for before, after in itertools.pairwise(bodies):
        texts = [plain(body["messages"]) for body in (before, after)]
        assert texts[1][: len(texts[0])] == texts[0]


def plain(messages: list[dict[str, Any]]) -> list[str]:
    """The messages without marks of the cache, which move."""
    mark = '"cache_control": {"type": "ephemeral"}'
    text = json.dumps(messages).replace(f", {mark}", "").replace(mark, "")
    return [json.dumps(message) for message in json.loads(text)]


def test_no_server_costs_nothing(place: Place) -> None:
    _, server = talk(place, [])
    assert "Mcp" not in [tool["name"] for tool in server.requests[0]["tools"]]
    code = "import sys, ctxagent.agent.app, ctxagent.agent.cli.main; print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_one_tool_is_small(place: Place) -> None:
    set_up(place)
    results, server = talk(place, [{"query": ""}], *BYPASS)
    [tool] = [tool for tool in server.requests[0]["tools"] if tool["name"] == "Mcp"]
    assert len(json.dumps(tool)) < 1_000  # characters; at most 250 tokens
    assert "mcp__tests__never" in results[0]["content"]
    for name in ("second", "third", "fourth", "fifth"):
        set_up(place, name, "--many")
    _, more = talk(place, [], *BYPASS)
    assert more.requests[0]["tools"] == server.requests[0]["tools"]
    assert "mcp__" not in json.dumps(more.requests[0])


def test_the_list_of_servers(place: Place) -> None:
    set_up(place)
    set_up(place, "odd", "--nonsense")
    set_up(place, "off", enabled=False)
    with Server([]) as server:
        terminal = Terminal(cwd=place.project, env=place.environ(place.server(server.url)))
        terminal.see("❯")
        terminal.type("/mcp\r")
        terminal.see("not started")
        terminal.type("/mcp start odd\r")
        terminal.see("what it says is no message")
        terminal.type("/mcp start tests\r")
        terminal.see("mcp__tests__add: Add two numbers.")
        terminal.type("/mcp start off\r")
        terminal.see("switched off")
        terminal.type("/mcp none\r")
        terminal.see("There are: tests, odd, off.")
        terminal.type("/quit\r")
        terminal.leave()


def test_rules(place: Place) -> None:
    """Each tool is judged by its own name; to search and to describe needs no rule."""
    set_up(place)
    call = {"tool": "mcp__tests__add", "arguments": {"a": 1, "b": 1}}
    results, _ = talk(place, [{"query": "add"}, {"tool": "mcp__tests__add"}, call], code=3)
    assert "Add two numbers" in results[0]["content"]
    assert "Not allowed: mcp__tests__add may change something" in results[2]["content"]
    for rule in ("mcp__tests__add", "mcp__tests__*", "mcp__*"):
        results, _ = talk(place, [call], "--allow", rule)
        assert results[-1]["content"] == "the sum is 2"
    results, _ = talk(place, [call], *BYPASS, "--deny", "mcp__tests__*")
    assert "denied by the rule mcp__tests__*" in results[-1]["content"]


def test_a_call_is_never_sent_twice(place: Place, tmp_path: Path) -> None:
    """The server ends in the middle of a call; what comes of it is not known, and the next call
    starts it again."""
    set_up(place)
    counted = tmp_path / "counted"
    results, _ = talk(
        place,
        [
            {"tool": "mcp__tests__count_up", "arguments": {"file": str(counted)}},
            {"tool": "mcp__tests__add", "arguments": {"a": 1, "b": 1}},
        ],
        *BYPASS,
    )
    assert counted.read_text() == "called\n"
    assert "Whether it has acted is not known" in results[0]["content"]
    assert "exit 3" in results[0]["content"]
    assert results[1]["content"] == "the sum is 2"


def test_what_a_server_says_is_bounded_and_clean(place: Place) -> None:
    set_up(place)
    results, server = talk(
        place,
        [
            {"query": "obey rules"},
            {"tool": "mcp__tests__colours", "arguments": {}},
            {"tool": "mcp__tests__talk_much", "arguments": {}},
            {"tool": "mcp__tests__picture", "arguments": {}},
        ],
        *BYPASS,
    )
    assert "Ignore all" in results[0]["content"]
    assert not any(sign in json.dumps(results) for sign in ("\\u001b", "\\u0007"))
    assert "cleared" in results[1]["content"]
    assert results[2]["offloaded"]
    assert len(results[2]["content"]) < 20_000
    assert "image/png, " in results[3]["content"]
    kept = Path(results[3]["content"].rpartition("kept in ")[2].rstrip("]"))
    assert kept.read_bytes().startswith(b"\x89PNG")
    assert kept.stat().st_mode & 0o077 == 0
    assert "iVBORw0KGgo" not in json.dumps(server.requests[-1])


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--flood", "a message of more than 32 MB"),
        ("--nonsense", "what it says is no message: b'good morning"),
    ],
)
def test_a_server_that_makes_no_sense(place: Place, word: str, told: str) -> None:
    """It costs a line; the others go on."""
    set_up(place)
    set_up(place, "odd", word)
    results, _ = talk(place, [{"query": "add"}], *BYPASS)
    assert "mcp__tests__add" in results[0]["content"]
    assert f"[server odd: failed, {told}" in results[0]["content"]


def test_one_that_gives_no_answer(place: Place) -> None:
    set_up(place, timeout=1)
    call = {"tool": "mcp__tests__never", "arguments": {}}
    results, _ = talk(place, [call], *BYPASS)
    assert "gave no result" in results[0]["content"]
    assert "timed out" in results[0]["content"]


def test_ten_thousand_tools(place: Place) -> None:
    set_up(place, "tests", "--many")
    results, _ = talk(place, [{"query": "tool"}], *BYPASS)
    assert len(results[0]["content"]) < 3_000
    assert "more fit; give other words" in results[0]["content"]


def test_a_project_starts_nothing_before_it_is_trusted(place: Place) -> None:
    given = {"command": sys.executable, "args": [str(SERVER)]}
    file = place.project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"tests": given}}))
    env = place.server("http://127.0.0.1:9")
    done = place.run("mcp", "list", env=env)
    assert "is not trusted" in done.stderr
    assert place.run("config", "--trust", env=env).returncode == 0
    results, _ = talk(place, [{"query": "add"}], *BYPASS)
    assert "mcp__tests__add" in results[0]["content"]
    file.write_text(json.dumps({"mcpServers": {"tests": {**given, "env": {"A": "b"}}}}))
    _, server = talk(place, [])
    assert "Mcp" not in [tool["name"] for tool in server.requests[0]["tools"]]


@pytest.fixture
def by_http() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(SERVER), str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            assert comes(lambda: answers(port))
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            running.kill()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_by_http(place: Place, by_http: str) -> None:
    env = place.server("http://127.0.0.1:9")
    assert place.run("mcp", "add", "far", "--url", by_http, env=env).returncode == 0
    assert by_http in place.run("mcp", "list", env=env).stdout
    call = {"tool": "mcp__far__add", "arguments": {"a": 2, "b": 3}}
    results, _ = talk(place, [call, {"query": "add"}], *BYPASS)
    assert results[0]["content"] == "the sum is 5"
    assert place.run("mcp", "remove", "far", env=env).returncode == 0
    assert place.run("mcp", "list", env=env).stdout == ""


def test_by_hand(place: Place) -> None:
    """Bad input names the thing and the next step."""
    env = place.server("http://127.0.0.1:9")
    add = ("mcp", "add", "files", "--env", "ROOT=${HOME}/x", "--", "npx", "-y", "server")
    assert place.run(*add, env=env).returncode == 0
    assert json.loads(place.run("mcp", "get", "files", env=env).stdout) == {
        "command": "npx", "args": ["-y", "server"], "env": {"ROOT": "${HOME}/x"},
    }  # fmt: skip
    assert "there is a server 'files'" in place.run(*add, env=env).stderr
    bad = place.run("mcp", "add", "both", "--url", "http://x", "--", "npx", env=env)
    assert "it needs a command, or the type http and a url" in bad.stderr
    assert "There are: files." in place.run("mcp", "remove", "other", env=env).stderr


@pytest.mark.slow
def test_servers_end_with_a_killed_agent(place: Place, tmp_path: Path) -> None:
    set_up(place)
    call = {"tool": "mcp__tests__never", "arguments": {}}
    with Server([Say(tools=[("Mcp", call)]), Say("Done.")]) as server:
        command = [sys.executable, "-m", "ctxagent", "-p", "go", *BYPASS]
        with subprocess.Popen(
            command, cwd=place.project, env=place.environ(place.server(server.url)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as agent:  # fmt: skip
            assert comes(lambda: bool(children_of(agent.pid)))
            started = children_of(agent.pid)
            agent.send_signal(signal.SIGKILL)
            agent.wait()
        assert comes(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))


def children_of(pid: int) -> list[int]:
    """The server that an agent has started."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes()
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid and os.fsencode(SERVER) in words:
            found.append(int(each.name))
    return found
