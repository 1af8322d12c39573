"""Third-party MCP servers from npm and PyPI, with the real command. Skipped without npm or without
a registry.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..support.command import PATIENCE, Place, comes, gone, running
from ..support.machine import needs
from ..support.of_others import AIMOCK, installed
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal
from .test_mcp import configure, ran, results, told, use

MOCK = Path(__file__).parents[1] / "support" / "mcp" / "aimock.mjs"

pytestmark = [needs("npm"), pytest.mark.full]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def programs(pytestconfig: pytest.Config) -> Path:
    """The folder of the installed servers."""
    return installed(pytestconfig)


def servers_of(place: Place, name: str) -> list[int]:
    """Return the processes of a server that run for this place."""
    return [pid for pid in running(name) if Path(f"/proc/{pid}/cwd").resolve() == place.project]


def of_npm(programs: Path, name: str, *arguments: str, **env: str) -> dict[str, Any]:
    program = programs / "node_modules" / ".bin" / f"mcp-{name}"
    return {"command": str(program), "args": list(arguments), "env": env}


@pytest.fixture
def four(place: Place, programs: Path) -> Place:
    """Return a place with four servers."""
    configure(
        place,
        everything=of_npm(programs, "server-everything"),
        files=of_npm(programs, "server-filesystem", str(place.project)),
        memory=of_npm(programs, "server-memory", MEMORY_FILE_PATH=str(place.root / "memory.jsonl")),
        time={"command": str(programs / "python" / "bin" / "mcp-server-time")},
    )
    return place


@pytest.mark.full
def test_a_headless_run_uses_tools_of_each(four: Place) -> None:
    (four.project / "a.txt").write_text("alpha\n")
    entity = {"name": "ctxagent", "entityType": "program", "observations": ["it reads"]}
    convert = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    steps = [
        use(query="read a file"),
        use("mcp__files__read_text_file", {"path": str(four.project / "a.txt")}),
        use("mcp__memory__create_entities", {"entities": [entity]}),
        use("mcp__memory__search_nodes", {"query": "ctxagent"}),
        use("mcp__time__convert_time", convert),
        use("mcp__everything__get-sum", {"a": 2, "b": 40}),
        use("mcp__everything__get-tiny-image", {}),
        use("mcp__everything__gzip-file-as-resource", {"name": "x.gz", "data": "data:,abc"}),
        use("mcp__everything__get-structured-content", {"location": "New York"}),
        use("mcp__everything__echo", {}),
        Say("Done."),
    ]
    with Server(steps) as server:
        done = four.run("-p", "go", "--allow", "Mcp", env=four.server(server.url))
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    found, text, made, nodes, converted, total, image, _, weather, wrong = results(server)
    assert "mcp__files__read_text_file(path: string" in found
    assert "alpha" in text
    assert "ctxagent" in made
    assert "it reads" in nodes
    assert "+9.0h" in converted
    assert "42" in total
    assert "[image/png, " in image
    assert "offloaded" in image
    assert "temperature" in weather
    assert "error" in wrong.lower()
    assert (four.root / "memory.jsonl").exists()


@pytest.mark.full
def test_the_repl_uses_resources_and_prompts_and_survives_a_kill(four: Place) -> None:
    long = use("mcp__everything__trigger-long-running-operation", {"duration": 600, "steps": 2})
    echo = use("mcp__everything__echo", {"message": "again"})
    with Server([Say("One."), Say("Two."), long, echo, Say("Three.")]) as server:
        allowed = {"CTXAGENT_PERMISSIONS_ALLOW": "mcp__everything"}
        terminal = Terminal(cwd=four.project, env=four.server(server.url) | allowed)
        terminal.see("❯")
        terminal.type("see @everything:demo://resource/static/document/features.md\r")
        terminal.see("One.")
        assert "The user attached the resource demo://resource/static" in told(server)
        terminal.type("/everything:args-prompt Tokyo\r")
        terminal.see("Two.")
        assert "Tokyo" in told(server)
        terminal.type("/mcp\r")
        terminal.see("ready")
        terminal.type("go\r")
        assert comes(lambda: len(server.requests) == 3)
        terminal.see("trigger-long-running-operation")
        for pid in servers_of(four, "mcp-server-everything"):
            os.kill(pid, signal.SIGKILL)
        terminal.see("Three.")
        terminal.type("/quit\r")
        terminal.leave()
    killed, again = results(server)
    assert "has ended" in killed
    assert "it was not sent again" in killed
    assert "again" in again
    assert gone(*servers_of(four, "mcp-server-memory"))


def test_one_over_http(place: Place, programs: Path) -> None:
    """Its tools, resources and prompts, and the message if the server is not running."""
    command = ["node", str(MOCK), str(programs / AIMOCK)]
    steps = [
        use(query="weigh"),
        use("mcp__zoo__weigh", {"animal": "walrus"}),
        use("mcp__zoo__read_resource", {"uri": "zoo://map"}),
        Say("Done."),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as mock:
        assert mock.stdin is not None
        assert mock.stdout is not None
        configure(place, zoo={"type": "http", "url": mock.stdout.readline().strip()})
        with Server(steps) as server:
            env = place.server(server.url)
            done = place.run("-p", "see @zoo:zoo://map", "--allow", "mcp__zoo", env=env)
            assert done.returncode == 0, done.stderr
            found, weighed, read = results(server)
        with Server([Say("Hello.")]) as server:
            done = place.run("-p", "/zoo:greet Bob", env=place.server(server.url))
            assert "Greet Bob." in told(server)
        mock.stdin.close()
    assert "mcp__zoo__weigh(" in found
    assert weighed == "walrus weighs 12 kg"
    assert "Walrus: to the left." in read
    with Server([use("mcp__zoo__weigh", {}), Say("It is away.")]) as server:
        done = place.run("-p", "go", "--allow", "mcp__zoo", env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    assert "The MCP server zoo is not available" in results(server)[0]


@contextmanager
def everything(programs: Path, transport: str) -> Iterator[dict[str, Any]]:
    """Run the reference server. Yield its entry in a configuration file."""
    if transport == "stdio":
        yield of_npm(programs, "server-everything")
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(programs / "node_modules" / ".bin" / "mcp-server-everything")
    process = subprocess.Popen(
        [program, transport],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "PORT": str(port)},
    )

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        assert comes(answers, PATIENCE)
        path = "sse" if transport == "sse" else "mcp"
        yield {"url": f"http://127.0.0.1:{port}/{path}"}
    finally:
        process.kill()
        process.wait()


# Each tool of the reference server with its arguments, and a part of its result.
EVERYTHING: tuple[tuple[str, Body, str], ...] = (
    ("echo", {"message": "walrus"}, "Echo: walrus"),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}, "[image/png, "),
    ("get-env", {}, "PATH"),
    ("get-resource-links", {"count": 2}, "[resource demo://resource/"),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}, "demo://resource/"),
    ("get-structured-content", {"location": "New York"}, "temperature"),
    ("get-sum", {"a": 2, "b": 40}, "42"),
    ("get-tiny-image", {}, "[image/png, "),
    ("gzip-file-as-resource", {"name": "x.gz", "data": "data:,abc"}, "[resource "),
    ("toggle-simulated-logging", {}, "logging"),
    ("toggle-subscriber-updates", {}, "updates"),
    ("trigger-long-running-operation", {"duration": 0.1, "steps": 2}, "completed"),
    ("get-roots-list", {}, "file://"),
    ("trigger-elicitation-request", {}, "decline"),
    ("trigger-url-elicitation", {"url": "https://pay.example/1"}, "decline"),
    ("simulate-research-query", {"topic": "walrus"}, "walrus"),
    ("trigger-sampling-request", {"prompt": "Name a bird."}, "A heron."),
    ("read_resource", {"uri": "demo://resource/static/document/features.md"}, "Everything"),
)


@pytest.mark.parametrize("transport", ["stdio", "streamableHttp", "sse"])
def test_all_tools_of_the_reference_server(place: Place, programs: Path, transport: str) -> None:
    calls = [use(f"mcp__every__{name}", arguments) for name, arguments, _ in EVERYTHING]
    steps = [*calls[:-1], Say("A heron."), calls[-1], Say("Done.")]
    allow = ("--allow", "mcp__every", "--allow", "Sampling(every)")
    with everything(programs, transport) as entry:
        configure(place, every=entry)
        listed = place.run("mcp", "get", "every").stdout
        server, _ = ran(place, steps, *allow, code=3)  # nobody answers the questions
    names = {line.split()[0] for line in listed.splitlines()[1:]}
    assert names == {f"mcp__every__{name}" for name, _, _ in EVERYTHING}
    found = results(server)
    for (name, _, part), text in zip(EVERYTHING, found, strict=True):
        assert part in text, (name, text)
