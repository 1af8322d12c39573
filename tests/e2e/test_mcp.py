"""MCP servers with the real command: search, description and calls, and every kind of fault."""

import json
import os
import signal
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

from ctxagent.addons.replay.request_check import check_log
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.session.entries import User
from ctxagent.agent.session.log import encode_line, read_log

from ..support.command import PATIENCE, Place, alive, comes, gone
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal

PLAIN = Path(__file__).parents[1] / "support" / "mcp" / "plain.py"
SDK = PLAIN.with_name("sdk.py")
ALLOW = ("--allow", "mcp__plain__*")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def plain(place: Place, behaviour: str = "ok") -> dict[str, Any]:
    """Return the entry of a configuration file for a server that behaves like this."""
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(PLAIN), behaviour, str(place.root / "notes")],
    }


def configure(place: Place, **servers: dict[str, Any]) -> None:
    """Write the servers into the user's own file."""
    path = place.root / "home" / ".config" / "ctxagent" / "mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))


def notes(place: Place, begins: str) -> list[str]:
    """Return the notes of servers that begin with a word, without this word."""
    try:
        lines = (place.root / "notes").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.removeprefix(f"{begins} ") for line in lines if line.startswith(f"{begins} ")]


def use(tool: str | None = None, arguments: Body | None = None, query: str | None = None) -> Say:
    given = {"tool": tool, "arguments": arguments, "query": query}
    return Say(tools=[("Mcp", {k: v for k, v in given.items() if v is not None})])


def results(server: Server) -> list[str]:
    """Return the texts of all results in the newest request."""
    return [
        "".join(part["text"] for part in block["content"])
        if isinstance(block["content"], list)
        else block["content"]
        for message in server.requests[-1]["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def ran(
    place: Place, steps: list[Say], *arguments: str, code: int = 0
) -> tuple[Server, "subprocess.CompletedProcess[str]"]:
    """Run a headless task with these replies."""
    with Server(steps) as server:
        done = place.run("-p", "go", *arguments, env=place.server(server.url))
        assert done.returncode == code, done.stderr
    assert server.rejected == []
    return server, done


def test_search_describe_call(place: Place) -> None:
    configure(place, plain=plain(place))
    steps = [
        use(query="water the garden"),
        use("mcp__plain__other"),
        use("mcp__plain__echo", {"text": "a b"}),
        Say("Done."),
    ]
    server, _ = ran(place, steps, *ALLOW)
    found, described, answer = results(server)
    assert "- mcp__plain__other(text?: string): Waters the garden." in found
    assert "echo" not in found
    assert '"properties": {"text": {"type": "string"}}' in described
    assert answer == "a b"
    assert notes(place, "call") == ['echo {"text": "a b"}']
    assert gone(*map(int, notes(place, "pid")))


def test_the_prefix_is_never_rewritten(place: Place) -> None:
    configure(place, plain=plain(place))
    call = use("mcp__plain__echo", {"text": "x"})
    steps = [use(query="echo"), call, call, Say("Done.")]
    server, _ = ran(place, steps, *ALLOW)
    for before, after in zip(server.requests, server.requests[1:], strict=False):
        assert after["tools"] == before["tools"]
        assert after["system"] == before["system"]
        was, now = (_uncached(r["messages"]) for r in (before, after))
        assert json.dumps(now)[: len(json.dumps(was)) - 1] == json.dumps(was)[:-1]


def _uncached(value: Any) -> Any:
    """Return messages without cache marks."""
    if isinstance(value, dict):
        return {k: _uncached(v) for k, v in value.items() if k != "cache_control"}
    return [_uncached(each) for each in value] if isinstance(value, list) else value


def test_a_call_is_asked_about_unless_a_rule_allows_it(place: Place) -> None:
    configure(place, plain=plain(place))
    call = use("mcp__plain__echo", {"text": "x"})
    server, done = ran(place, [call, Say("No.")], code=3)
    assert "nobody can be asked" in results(server)[0]
    assert "allow it with --allow 'mcp__plain__echo'" in done.stderr
    server, _ = ran(place, [call, Say("No.")], *ALLOW, "--deny", "mcp__plain")
    assert "denied by the rule mcp__plain" in results(server)[0]
    server, _ = ran(place, [call, Say("No.")], *ALLOW, "--permission-mode", "plan")
    assert "plan mode is on" in results(server)[0]
    assert notes(place, "call") == []
    # A search changes nothing, and needs no leave.
    server, _ = ran(place, [use(query="echo"), Say("Yes.")], "--permission-mode", "plan")
    assert "mcp__plain__echo" in results(server)[0]


def test_a_projects_servers_start_only_when_trusted_and_again_after_a_change(place: Place) -> None:
    file = place.project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"plain": plain(place)}}))
    with Server(lambda body: Say("Yes.")) as server:
        env = place.server(server.url)
        done = place.run("-p", "go", env=env)
        assert ".mcp.json is not trusted, so the MCP servers in it are not started" in done.stderr
        assert [t["name"] for t in server.requests[-1]["tools"] if t["name"] == "Mcp"] == []
        assert place.run("config", "--trust", env=env).returncode == 0
        done = place.run("-p", "go", env=env)
        assert done.stderr == ""
        assert server.requests[-1]["tools"][-1]["name"] == "Mcp"
        file.write_text(file.read_text() + "\n")
        done = place.run("-p", "go", env=env)
        assert "is not trusted" in done.stderr
    assert server.rejected == []


@pytest.mark.parametrize(
    ("behaviour", "told", "said"),
    [
        ("die", "is not available", "no such database"),
        ("nonsense", "is not available", "Hello! This is no JSON."),
        ("hang", "is not available", "it did not answer in 2 s"),
    ],
)
def test_a_server_that_does_not_start(place: Place, behaviour: str, told: str, said: str) -> None:
    configure(place, plain=plain(place, behaviour))
    call = use("mcp__plain__echo", {"text": "x"})
    setting = ("-c", "mcp.start_timeout=2", "-c", "mcp.needed=plain")
    server, done = ran(place, [call, Say("Without it.")], *ALLOW, *setting)
    assert told in results(server)[0]
    assert said in results(server)[0]
    assert f"the MCP server plain {told}" in done.stderr
    assert notes(place, "call") == []


def test_the_reason_of_a_failed_start_is_shown_and_the_whole_output_is_kept(place: Place) -> None:
    configure(place, plain=plain(place, "die with a stack"))
    done = place.run("mcp", "list")
    assert done.returncode == 1
    file = place.state / "mcp" / "plain.stderr.txt"
    assert "(it said: KeyError: 'no such database')" in done.stdout
    assert f"its whole output: {file}" in done.stdout
    assert file.read_text().startswith("Starting\nTraceback (most recent call last):\n")
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.variants
@pytest.mark.parametrize(
    ("behaviour", "timeout", "said"),
    [
        ("die in call", 60, "has ended: it closed the connection (it said: out of memory)"),
        ("hang in call", 2, "gave no answer in 2 s"),
        ("error without an ID", 2, "in 2 s, only an error without a request ID: too long."),
        ("flood", 60, "it sent more than 10,000 messages in a minute"),
        ("endless", 60, "it sent a message of more than 32 MiB"),
        (
            "broken in call",
            60,
            "answers: its answer cannot be read. Whether it has acted is not known",
        ),
    ],
)
def test_a_call_that_is_not_answered_is_sent_once(
    place: Place, behaviour: str, timeout: int, said: str
) -> None:
    configure(place, plain=plain(place, behaviour))
    call = use("mcp__plain__echo", {"text": "x"})
    server, _ = ran(place, [call, Say("Enough.")], *ALLOW, "-c", f"mcp.call_timeout={timeout}")
    assert said in results(server)[0]
    assert notes(place, "call") == ['echo {"text": "x"}']
    assert gone(*map(int, notes(place, "pid")))


def test_wrong_parts_of_lists_and_results_cost_no_good_part(place: Place) -> None:
    configure(place, plain=plain(place, "wrong parts"))
    steps = [
        use(query="says"),
        use("mcp__plain__bare"),
        use("mcp__plain__echo", {"text": "the words"}),
        use("mcp__plain__bare", {"text": "null"}),
        Say("Done."),
    ]
    server, done = ran(place, steps, *ALLOW)
    found, described, answer, null = results(server)
    assert "- mcp__plain__echo(text?: string)" in found
    assert "- mcp__plain__either(): Says." in found
    assert "any arguments are accepted" in described
    assert answer == (
        "the words\n"
        '[hologram: {"type": "hologram", "z": 1}]\n'
        "[About this answer: content[1]: hologram of this form is unknown; it is shown as JSON]"
    )
    assert null == "[the tool answered nothing]"
    assert done.stderr.splitlines() == [
        "warning: the MCP server plain: protocolVersion: 1999-01-01 is unknown, 2024-11-05 is used",
        "warning: the MCP server plain: tool bare: it has no usable schema, so any arguments are "
        "accepted",
        "warning: the MCP server plain: tools[2]: it has no name and is left out",
    ]
    done = place.run("mcp", "get", "plain")
    assert "note: tools[2]: it has no name and is left out" in done.stdout


def test_a_tool_that_the_server_has_just_added_is_called(place: Place) -> None:
    configure(place, plain=plain(place, "adds a tool"))
    steps = [use("mcp__plain__echo", {}), use("mcp__plain__late", {"text": "x"}), Say("Done.")]
    server, _ = ran(place, steps, *ALLOW)
    assert results(server)[1] == "x"


def test_a_server_gets_the_working_directory_as_its_root(place: Place) -> None:
    configure(place, plain=plain(place, "asks for roots"))
    ran(place, [use("mcp__plain__echo", {}), Say("Done.")], *ALLOW)
    (root,) = json.loads(notes(place, "roots")[0])
    assert root == {"uri": place.project.as_uri(), "name": place.project.name}


def test_a_server_that_has_ended_is_started_again_by_the_next_call(place: Place) -> None:
    configure(place, plain=plain(place, "die in call"))
    call = use("mcp__plain__echo", {"text": "x"})
    server, done = ran(place, [call, call, Say("Enough.")], *ALLOW)
    assert len(notes(place, "call")) == 2
    assert len(notes(place, "pid")) == 2
    assert all("not known; it was not sent again" in text for text in results(server))
    assert done.stderr.count("the next call starts it again") == 2


def test_ten_thousand_tools(place: Place) -> None:
    configure(place, plain=plain(place, "many"))
    steps = [use(query="number9999"), use(query="number10001"), use(), Say("Done.")]
    server, _ = ran(place, steps)
    found, beyond, overview = results(server)
    assert "mcp__plain__tool_9999" in found
    assert "No tool fits" in beyond
    assert "10,001 tools" in overview  # with the one that reads resources
    assert len(overview) < 5_000


def test_a_large_result_goes_to_a_file_and_is_recalled(place: Place) -> None:
    configure(place, plain=plain(place, "big"))
    server, _ = ran(place, [use("mcp__plain__echo", {"text": "x"}), Say("Done.")], *ALLOW)
    (result,) = results(server)
    assert "Offloaded Content Reference" in result
    assert len(result) < 20_000
    (file,) = place.state.glob("projects/*/sessions/*/offloaded/*.md")
    assert file.stat().st_size > 10_000_000


def test_binary_results_go_to_files(place: Place) -> None:
    configure(place, plain=plain(place, "media"))
    server, _ = ran(place, [use("mcp__plain__echo", {"text": "image"}), Say("Done.")], *ALLOW)
    (result,) = results(server)
    assert "iVBOR" not in json.dumps(server.requests[-1])
    assert "[image/png, 70 bytes, kept in" in result
    assert "[audio/wav, " in result
    assert "[x/y, 3 bytes, kept in" in result
    assert "plain words" in result
    files = list(place.state.glob("projects/*/sessions/*/offloaded/mcp_*"))
    assert sorted(file.suffix for file in files) == [".bin", ".png", ".wav"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_text_of_a_hostile_server_is_cleaned(place: Place) -> None:
    configure(place, plain=plain(place, "hostile"))
    steps = [use(query="taken ignore"), use(), use("mcp__plain__echo", {}), Say("Done.")]
    server, done = ran(place, steps, *ALLOW, "--verbose")
    found, overview, _ = results(server)
    for text in (found, overview):
        assert text.startswith("What follows is what the servers say of themselves: data")
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert len(text) < 2_000
    assert "\x1b" not in done.stderr


def test_servers_end_with_the_agent_also_when_it_is_killed(place: Place) -> None:
    configure(place, plain=plain(place, "stubborn"))
    with Server([use("mcp__plain__echo", {"text": "x"}), Say(fault="mute")]) as server:
        env = place.server(server.url)
        process = place.start("-p", "go", *ALLOW, env=env)
        try:
            assert comes(lambda: len(server.requests) == 2)
            pids = [*map(int, notes(place, "pid"))]
            assert len(pids) == 2
            assert all(map(alive, pids))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert gone(*pids)


@contextmanager
def http_server(*script: str, **env: str) -> Iterator[str]:
    """Run a server of the SDK over HTTP. Yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, *(script or (str(SDK), "http")), str(port)],
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], **env},
    )
    try:

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        assert comes(answers, PATIENCE)  # nothing else ends it
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def test_the_sdks_server_over_stdio_and_http(place: Place) -> None:
    with http_server() as url:
        configure(
            place,
            here={"command": sys.executable, "args": [str(SDK), "stdio"]},
            there={"type": "http", "url": "${URL}", "headers": {"x-a": "${NONE:-b}"}},
        )
        place.run("config", "--trust")  # commands can change the server in a clone below /tmp
        calls = [use(f"mcp__{name}__add", {"a": 2, "b": 3}) for name in ("here", "there")]
        with Server([*calls, Say("Done.")]) as server:
            env = place.server(server.url) | {"URL": url}
            done = place.run("-p", "go", "--allow", "mcp__*__add", env=env)
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
    assert server.rejected == []
    assert results(server) == ["5", "5"]


def test_tools_that_are_loaded_at_the_start_stay_as_they_were_recorded(place: Place) -> None:
    configure(place, plain=plain(place))
    call = Say(tools=[("mcp__plain__echo", {"text": "x"})])
    load = ("-c", "mcp.load_at_start=plain")
    server, _ = ran(place, [call, Say("Done.")], *ALLOW, *load)
    assert results(server) == ["x"]
    names = [tool["name"] for tool in server.requests[0]["tools"]]
    loaded = ["mcp__plain__echo", "mcp__plain__other", "mcp__plain__read_resource"]
    assert names[-4:] == ["Mcp", *loaded]
    configure(place, plain=plain(place, "die"))
    again, _ = ran(place, [Say("Yes.")], "--continue", *load)
    assert again.requests[0]["tools"] == server.requests[0]["tools"]


def test_a_resumed_session_keeps_the_tool_without_any_server(place: Place) -> None:
    configure(place, plain=plain(place))
    server, _ = ran(place, [use("mcp__plain__echo"), Say("Done.")], *ALLOW)
    configure(place)
    again, _ = ran(place, [use("mcp__plain__echo"), Say("Done.")], *ALLOW, "--continue")
    assert again.requests[0]["tools"] == server.requests[0]["tools"]
    assert "There is no MCP server" in results(again)[-1]


def test_a_session_of_an_older_log_that_loaded_tools_late_goes_on(place: Place) -> None:
    """Its requests keep the original definitions. A call by a tool's own name gets an answer that
    says how to call it now.
    """
    configure(place, plain=plain(place))
    ran(place, [use("mcp__plain__echo"), Say("Done.")], *ALLOW)
    (log,) = place.logs()
    tool = {"name": "mcp__plain__echo", "description": "Says.", "input_schema": {"type": "object"}}
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}}
    last = read_log(log).entries[-1].seq
    loaded = User(seq=last + 1, content=[added], source="loaded tools")
    log.write_bytes(log.read_bytes() + encode_line(loaded))
    steps = [
        Say(tools=[("mcp__plain__echo", {"text": "x"})]),
        use("mcp__plain__echo", {"text": "x"}),
        Say("Done."),
    ]
    server, _ = ran(place, steps, *ALLOW, "--continue")
    for sent in server.requests:
        (system,) = [each for each in sent["messages"] if each["role"] == "system"]
        assert _uncached(system["content"]) == [added]
    unknown, answer = results(server)[-2:]
    assert unknown.startswith("There is no tool 'mcp__plain__echo'. The tools: ")
    assert "Mcp" in unknown
    assert answer == "x"
    assert check_log(log).holds


def test_no_start_without_servers_imports_the_sdk(place: Place) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\n@', *{m.split('.')[0] for m in sys.modules}))\n"
        "from ctxagent.agent.cli.main import main\n"
        "sys.argv = ['ctxagent', '-p', 'go']\n"
        "main()\n"
    )

    def loaded() -> set[str]:
        with Server([Say("Yes.")]) as server:
            env = place.server(server.url)
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=place.project, env=env, capture_output=True,
                text=True, stdin=subprocess.DEVNULL, check=True,
            )  # fmt: skip
        return set(done.stdout.rpartition("@")[2].split())

    assert "mcp" not in loaded()
    configure(place, plain=plain(place))
    assert "mcp" in loaded()


def told(server: Server) -> str:
    """Return all texts of the newest request."""
    return "\n".join(
        str(block.get("text", ""))
        for message in server.requests[-1]["messages"]
        for block in message["content"]
    )


def test_resources_and_prompts(place: Place) -> None:
    configure(place, plain=plain(place))
    read = use("mcp__plain__read_resource", {"uri": "note://two"})
    with Server([Say("Read."), read, Say("Greeted."), Say("Nothing.")]) as server:
        env = place.server(server.url)
        done = place.run("-p", "look at @plain:note://one, please", env=env)
        assert done.returncode == 0, done.stderr
        assert (
            "[The user attached the resource note://one of the MCP server plain:]\n"
            "the words of the note"
        ) in told(server)
        done = place.run("-p", "/plain:greet Bob", *ALLOW, env=env)
        assert done.returncode == 0, done.stderr
        assert "[/plain:greet Bob, a command from the MCP server plain:]" in told(server)
        assert "Say hello to Bob." in told(server)
        assert results(server) == ["the words of the note"]
        done = place.run("-p", "/plain:greet", env=env)
        assert done.returncode == 1
        assert "/plain:greet needs who." in done.stderr
        done = place.run("-p", "see @plain:note://one", "--deny", "mcp__plain", env=env)
        assert "@plain:note://one: not attached" in done.stderr
    assert server.rejected == []


def test_servers_are_added_listed_and_removed(place: Place) -> None:
    command = [sys.executable, *plain(place)["args"]]
    done = place.run("mcp", "add", "plain", "--env", "A=${B:-c}", "--", *command)
    assert done.returncode == 0, done.stderr
    own = place.root / "home" / ".config" / "ctxagent" / "mcp.json"
    assert own.stat().st_mode & 0o777 == 0o600
    entry = json.loads(own.read_text())["mcpServers"]["plain"]
    assert entry == {"command": command[0], "args": command[1:], "env": {"A": "${B:-c}"}}
    assert place.run("mcp", "add", "plain", "x").returncode == 2
    done = place.run("mcp", "list")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("plain: ready · 3 tools (")
    done = place.run("mcp", "get", "plain")
    assert "mcp__plain__other" in done.stdout
    assert "Waters the garden." in done.stdout
    # What the person adds to the project is trusted; what somebody else adds is not.
    done = place.run("mcp", "add", "--project", "gone", "-H", "x: ${KEY}", "http://127.0.0.1:9/")
    assert done.returncode == 2
    assert "the variable KEY is not set" in done.stderr
    done = place.run("mcp", "add", "--project", "gone", "http://127.0.0.1:9/mcp")
    assert done.returncode == 0, done.stderr
    done = place.run("mcp", "list", "--json")
    assert done.returncode == 1
    assert {row["name"]: row["state"] for row in json.loads(done.stdout)} == {
        "plain": "ready",
        "gone": "failed",
    }
    done = place.run("doctor")
    assert "MCP server: gone: http://127.0.0.1:9/mcp" in done.stdout
    assert place.run("mcp", "remove", "plain").returncode == 0
    assert place.run("mcp", "remove", "--project", "gone").returncode == 0
    assert "no MCP server is configured" in place.run("mcp", "list").stdout
    assert place.run("mcp", "remove", "plain").returncode == 2


URL = "http://127.0.0.1:9/mcp"


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        (["--transport", "http", "n", URL], {"type": "http", "url": URL}),
        (["-t", "sse", "n", URL], {"type": "sse", "url": URL}),
        (
            ["n", "--transport", "http", URL, "--header", "A: b"],
            {"type": "http", "url": URL, "headers": {"A": "b"}},
        ),
        (
            ["--transport", "stdio", "-e", "A=1", "-e", "B=2", "n", "--", "npx", "-y", "-t", "x"],
            {"command": "npx", "args": ["-y", "-t", "x"], "env": {"A": "1", "B": "2"}},
        ),
        (["--scope", "user", "n", "true"], {"command": "true", "args": []}),
        (["n", "--url", URL], {"type": "http", "url": URL}),
        (
            ["n", "--url", URL, "--bearer-token-env-var", "LANG"],
            {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${LANG}"}},
        ),
        (
            ["-t", "http", "--client-id", "a", "--callback-port", "8080", "n", URL],
            {"type": "http", "url": URL, "oauth": {"clientId": "a", "callbackPort": 8080}},
        ),
    ],
)
def test_servers_are_added_in_the_forms_of_other_agents(
    place: Place, words: list[str], entry: dict[str, Any]
) -> None:
    done = place.run("mcp", "add", *words)
    assert done.returncode == 0, done.stderr
    own = place.root / "home" / ".config" / "ctxagent" / "mcp.json"
    assert json.loads(own.read_text())["mcpServers"] == {"n": entry}
    assert place.run("mcp", "remove", "n", "-s", "project").returncode == 2
    assert place.run("mcp", "remove", "n", "-s", "user").returncode == 0


def test_servers_are_added_as_json(place: Place) -> None:
    entry = {"type": "sse", "url": URL, "disabled": True}
    done = place.run("mcp", "add-json", "--scope", "project", "n", json.dumps(entry))
    assert done.returncode == 0, done.stderr
    assert json.loads((place.project / ".mcp.json").read_text()) == {"mcpServers": {"n": entry}}
    assert "no MCP server is configured" in place.run("mcp", "list").stdout
    for words, why in (("{", "it is not JSON"), ("[]", "not an object"), ("{}", "neither")):
        done = place.run("mcp", "add-json", "m", words)
        assert done.returncode == 2
        assert why in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-t", "http", "n", "npx"], "--transport http needs an http:// or https:// address"),
        (["-t", "stdio", "n", URL], "--transport stdio needs a command"),
        (["-s", "local", "n", URL], "'local' is not one of 'user', 'project'"),
        (["n", "--socket", "a", "npx"], "there is no option --socket"),
        (["n", "-e", "A=1", "B=2", "--", "npx"], "'B' is a variable, not a command"),
        (["n", "--url", URL, "npx"], "--url and 'npx' are two servers"),
        (["n", "--client-id", "a", "npx"], "headers and logins are for an address"),
        (["n"], "neither a COMMAND nor an address"),
    ],
)
def test_a_form_that_does_not_fit_is_refused(place: Place, words: list[str], why: str) -> None:
    done = place.run("mcp", "add", *words)
    assert done.returncode == 2
    assert why in done.stderr


@pytest.mark.parametrize("name", ["", "a b", "-x", "a\x1b[31m\n", "x" * 70])
def test_invalid_server_names_are_refused(place: Place, name: str) -> None:
    done = place.run("mcp", "add", "--", name, "true")
    assert done.returncode == 2
    assert "cannot be a server's name" in done.stderr
    assert "\x1b" not in done.stderr


def test_unusual_server_names_in_files(place: Place) -> None:
    configure(place, **{"a b": plain(place)})
    for name in ("a b", "a_b"):
        assert "a_b: ready" in place.run("mcp", "get", name).stdout
    assert place.run("mcp", "remove", "a_b").returncode == 0
    assert "no MCP server" in place.run("mcp", "list").stdout
    done = place.run("mcp", "add", "ftp", "ftp://x.y/z")
    assert done.returncode == 2
    assert "url is not an http" in done.stderr


def test_the_repl_shows_servers_and_asks_about_calls(place: Place) -> None:
    configure(place, plain=plain(place), gone=plain(place, "die"))
    call = use("mcp__plain__echo", {"text": "a \x1b[2J b"})
    with Server([use(query="echo"), call, Say("Done."), Say("Hello.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        shown = terminal.see("[y]es")
        assert "mcp__plain__echo wants to" in shown
        assert "the MCP server gone is not available" in shown
        assert "no such database" in shown
        terminal.type("a")
        terminal.see("mcp__plain__echo")
        terminal.type("\r")
        terminal.see("Done.")
        terminal.type("/mcp\r")
        terminal.see("ready")
        terminal.type("/mcp plain\r")
        terminal.see("Waters the garden.")
        terminal.type("/context report\r")
        terminal.see("results: mcp plain")
        terminal.type("/plain:greet Bob\r")
        terminal.see("Hello.")
        terminal.type("/quit\r")
        terminal.leave()
    assert server.rejected == []
    assert "Say hello to Bob." in told(server)
    assert gone(*map(int, notes(place, "pid")))


SUMMARY = """## Session Intent
Call it again and again.
## Key Decisions
1. One after another.
## Current State
Phase: running
- Done: the first ones
## Next Steps
1. Call it again.
"""


class Caller:
    """Call a tool repeatedly, with thinking that is bound to everything before it."""

    def __init__(self, calls: int) -> None:
        self.left, self.summaries = calls, 0

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.summaries += 1
            return Say(SUMMARY)
        self.left -= 1
        if self.left < 0:
            return Say("All done.")
        text = f"answer {self.left}: " + "some words of it " * 400
        used = use("mcp__plain__echo", {"text": text}) if self.left % 9 else use(query="echo")
        return replace(used, thinking=f"Thought {self.left}.")


def test_no_request_is_refused_over_summaries_and_a_resume(place: Place) -> None:
    """This is also true for a server that binds thinking to everything before it."""
    configure(place, plain=plain(place), loaded=plain(place))
    caller = Caller(24)
    with Server(caller, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url) | {"CTXAGENT_MCP_LOAD_AT_START": "loaded"}
        limits = ("--context-window", "24000", "--model", "claude-sonnet-5-5")
        done = place.run("-p", "go", *ALLOW, *limits, env=env)
        assert done.returncode == 0, done.stderr
        caller.left = 6
        done = place.run("-p", "go on", *ALLOW, *limits, "--continue", env=env)
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    assert caller.summaries
    of_turns = [request["tools"] for request in server.requests if "tools" in request]
    assert len({json.dumps(tools) for tools in of_turns}) == 1
    assert "MCP servers, whose tools Mcp finds and calls: plain, loaded" in told(server)


def test_results_are_redacted_hooked_and_recalled(place: Place) -> None:
    configure(place, plain=plain(place))
    secret = "sk-ant-" + "a1B2" * 12
    hooks = place.root / "hooks"
    steps = [
        use("mcp__plain__echo", {"text": "the walrus of MY_KEY"}),
        Say(tools=[("Recall", {"query": "walrus"})]),
        Say("Done."),
    ]
    config = place.root / "home" / ".config" / "ctxagent" / "agentrc"
    config.write_text(f'[hooks]\nbefore_tool = ["cat >> {hooks}; echo >> {hooks}"]\n')
    with Server(steps) as server:
        env = place.server(server.url) | {"MY_KEY": secret}
        steps[0] = use("mcp__plain__echo", {"text": f"the walrus of {secret}"})
        done = place.run("-p", "go", *ALLOW, env=env)
        assert done.returncode == 0, done.stderr
    kept, recalled = results(server)
    assert secret not in kept
    assert "walrus" in kept
    assert "walrus" in recalled
    first = json.loads(hooks.read_text().splitlines()[0])
    assert first["tool"] == "mcp__plain__echo"
    assert "walrus" in first["input"]["text"]


def test_a_redirect_to_another_place_is_not_followed(place: Place) -> None:
    asked = list[str]()

    class Redirecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(307)
            self.send_header("location", f"http://localhost:{self.server.server_port}/private")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        configure(place, plain={"type": "http", "url": f"http://127.0.0.1:{http.server_port}/mcp"})
        call = use("mcp__plain__echo", {"text": "x"})
        server, done = ran(place, [call, Say("Without it.")], *ALLOW)
        http.shutdown()
    assert "not followed" in done.stderr
    assert "not followed" in results(server)[0]
    assert set(asked) == {"/mcp"}


@pytest.mark.variants
@pytest.mark.parametrize("lifetime", ["3600", "31"])  # 31: it is refreshed for every request
def test_a_login(place: Place, lifetime: str) -> None:
    with http_server(str(SDK.with_name("oauth.py")), LIFETIME=lifetime) as url:
        configure(place, guarded={"type": "http", "url": url})
        call = use("mcp__guarded__add", {"a": 2, "b": 3})
        allow = ("--allow", "mcp__guarded")
        server, done = ran(place, [call, Say("Without it.")], *allow)
        assert "it requires a login: `ctxagent mcp login guarded`" in done.stderr
        assert "it requires a login" in results(server)[0]
        process = place.start("mcp", "login", "guarded", stdout=subprocess.PIPE)
        assert process.stdout is not None
        address = next(line for line in process.stdout if line.startswith("http"))
        with urllib.request.urlopen(address.strip()) as page:  # goes by a redirect to ours
            assert b"You can close this page" in page.read()
        assert "guarded: ready" in process.stdout.read()
        assert process.wait() == 0
        (kept,) = place.state.glob("mcp/*.json")
        assert kept.stat().st_mode & 0o777 == 0o600
        server, done = ran(place, [call, call, Say("Done.")], *allow)
        assert done.stderr == ""
        assert results(server) == ["5", "5"]
