"""`ctxagent mcp-server` with the client of the SDK: it reads sessions, and changes nothing."""

import asyncio
import base64
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, ImageContent, TextContent, Tool
from PIL import Image

from ctxagent.agent.session.archive import offload
from ctxagent.agent.session.entries import Assistant, Entry, Session, Summary, ToolResult, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.store import Project
from ctxagent.tools.recall import MAX_CHARS

from ..support.command import COMMAND, Place, alive, gone

NASTY = "tab\t, crlf\r\n, nul \x00, lone \ud800, wide 🙂, long " + "z" * 9_000 + "\n\n\x1b[31mred\n"
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def record(place: Place, id: str, *entries: Entry, hold: bool = False) -> Log:
    """Record a session of the project. With `hold` it stays open, as in a running process."""
    log = Log(Project(place.state, place.project).folder / "sessions" / id / "log.jsonl")
    log.append(Session(id=id, cwd=str(place.project), version="0", model="m"))
    for entry in entries:
        log.append(entry)
    if not hold:
        log.close()
    return log


def said(text: str) -> User:
    return User(content=text)


class Client:
    """A client that is connected to the command."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def result(self, tool: str, **arguments: Any) -> CallToolResult:
        return await self.session.call_tool(tool, arguments)

    async def ask(self, tool: str, **arguments: Any) -> str:
        """Return the text of an answer that is no error."""
        result = await self.result(tool, **arguments)
        assert not result.is_error, result.content
        return text_of(result)

    async def error(self, tool: str, **arguments: Any) -> str:
        result = await self.result(tool, **arguments)
        assert result.is_error
        return text_of(result)


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def serve(
    place: Place,
    act: Callable[[Client], Awaitable[None]],
    *arguments: str,
    cwd: Path | None = None,
    more: dict[str, str] | None = None,
) -> None:
    """Start the server, and run a client."""
    command = StdioServerParameters(
        command=COMMAND,
        args=["mcp-server", *arguments],
        cwd=cwd or place.project,
        env=place.environ(more),
    )

    async def run() -> None:
        async with stdio_client(command) as streams, ClientSession(*streams) as session:
            await session.initialize()
            await act(Client(session))

    asyncio.run(run())


def test_three_tools_that_only_read(place: Place) -> None:
    found = list[Tool]()

    async def act(client: Client) -> None:
        found.extend((await client.session.list_tools()).tools)

    serve(place, act)
    assert [tool.name for tool in found] == ["recall", "search", "session_intent"]
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in found)


def test_a_text_is_recalled_in_pieces_as_it_was(place: Place) -> None:
    text = "".join(f"{number}: {NASTY}" for number in range(5))
    log = record(place, "one", said("go"), hold=True)
    file = "offloaded/long.txt"
    offload(log.path.parent / file, text)
    log.append(ToolResult(tool_use_id="a", content="in a file", offloaded=file))
    log.close()
    expected = text.replace("\ud800", "?")  # JSON has no half of a character

    async def act(client: Client) -> None:
        whole = ""
        while len(whole) < len(text):
            answer = await client.ask("recall", ref="#3", offset=len(whole), limit=7_001)
            head, _, part = answer.partition("\n")
            assert head == "[one#3]"
            whole += part[: min(7_001, len(text) - len(whole))]
        assert whole == expected
        assert f"go on with offset={MAX_CHARS}]" in await client.ask("recall", ref=3)
        assert expected.startswith(
            (await client.ask("recall", ref=file, limit=100)).split("\n", 1)[1][:100]
        )

    serve(place, act)


def test_a_pattern_finds_places_in_a_long_text(place: Place) -> None:
    lines = [f"line {number} has {'🙂' * (number % 7)} number {number}" for number in range(9_000)]
    text = "\n".join(lines) + "\nthe port is 48231, " + "x" * 50_000
    record(place, "one", ToolResult(tool_use_id="a", content=text))

    async def act(client: Client) -> None:
        head, match = (await client.ask("recall", ref="#2", pattern=r"port is \d+")).split("\n")
        offset, _, excerpt = match.partition(": ")
        assert head == "[one#2, offset: match]"
        assert int(offset) == text.index("port is")
        assert excerpt.startswith("the port is 48231, xxx")
        assert len(excerpt) <= 300
        answer = await client.ask("recall", ref="#2", offset=int(offset), limit=13)
        assert answer.split("\n")[1] == "port is 48231"
        *many, end = (await client.ask("recall", ref="#2", pattern="line")).split("\n")
        assert len(many) == 51
        assert end.startswith("[more matches after offset ")
        assert "No match of" in await client.ask("recall", ref="#2", pattern="no such thing")

    serve(place, act)


def test_the_newest_session_is_meant_unless_one_is_named(place: Place) -> None:
    first = record(place, "one", said("the first task"))

    async def act(client: Client) -> None:
        assert "the first task" in await client.ask("recall", ref="#2")
        os.utime(first.path, (0, 0))
        record(place, "two", said("the second task"))
        assert "the second task" in await client.ask("recall", ref="#2")
        assert "the first task" in await client.ask("recall", ref="#2", session="one")
        assert "the first task" in await client.ask("recall", ref="one#2")
        assert "the second task" in await client.ask("session_intent")
        assert "the first task" in await client.ask("session_intent", session="one")
        found = await client.ask("search", query="task")
        assert found.index('"two#2"') < found.index('"one#2"')
        found = await client.ask("search", query="task", session="one")
        assert '"one#2"' in found
        assert "two#2" not in found

    async def act_on_one(client: Client) -> None:
        assert "the first task" in await client.ask("recall", ref="#2")
        assert "the first task" in await client.ask("session_intent")

    serve(place, act)
    serve(place, act_on_one, "--session", "one")
    done = place.run("mcp-server", "--session", "none", stdin="")
    assert done.returncode == 2
    assert "there is no session 'none'" in done.stderr


def test_the_project_is_that_of_the_directory(place: Place) -> None:
    record(place, "one", said("the task of another project"))

    async def act(client: Client) -> None:
        for tool, more in (("recall", {"ref": "#2"}), ("session_intent", {})):
            assert "is recorded yet" in await client.error(tool, **more)
        assert "has no session 'one'" in await client.error("recall", ref="one#2")
        assert "has no session '../project" in await client.error("recall", ref="../project#2")

    async def act_there(client: Client) -> None:
        assert "another project" in await client.ask("recall", ref="#2")

    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    serve(place, act, cwd=elsewhere)
    command = StdioServerParameters(
        command=COMMAND,
        args=["--cwd", str(place.project), "mcp-server"],
        cwd=elsewhere,
        env=place.environ(),
    )

    async def run() -> None:
        async with stdio_client(command) as streams, ClientSession(*streams) as session:
            await session.initialize()
            await act_there(Client(session))

    asyncio.run(run())


def test_the_intent_has_messages_the_summary_and_changed_files(place: Place) -> None:
    document = {"intent": "Make the parser fast."}
    edit = {"type": "tool_use", "id": "a", "name": "Edit", "input": {"path": "parser.py"}}
    details = {"path": "parser.py", "added": 3, "removed": 1}
    record(
        place,
        "one",
        said("Make it fast.\nAnd keep the tests."),
        Assistant(content=[edit], usage={}, stop_reason="tool_use", model="m"),
        ToolResult(tool_use_id="a", content="Edited.", details=details),
        Summary(document=document, text="…", covers=[2, 4], keep_from=5),
    )

    async def act(client: Client) -> None:
        text = await client.ask("session_intent")
        assert text.startswith("[session one]\n")
        assert "summary #5 states it\nMake the parser fast." in text
        assert "Make it fast.\nAnd keep the tests." in text
        assert "- parser.py: modified, +3 -1 lines, #4" in text

    serve(place, act)


def test_what_cannot_be_answered_is_an_error_with_the_next_step(place: Place) -> None:
    async def act(client: Client) -> None:
        assert "nothing to read" in await client.error("recall", ref="#2")
        assert "nothing to read" in await client.error("search", query="x")
        record(place, "one", said("go"))
        told = await client.error("recall", ref="#99")
        assert "one#99" in told
        assert "#1 to #2" in told
        assert "`search`" in told
        assert "has 2 characters" in await client.error("recall", ref="#2", offset=5)
        assert "has no session 'nix'" in await client.error("search", query="x", session="nix")
        assert "ref: Field required" in await client.error("recall")
        assert "less than or equal to" in await client.error("recall", ref="#2", limit=10**6)
        assert "There is no tool 'write'" in await client.error("write")
        assert "refuses the pattern '(('" in await client.error("recall", ref="#2", pattern="((")
        assert "null byte" in await client.error("recall", ref="#2", pattern="\0")
        assert "Nothing found for 'xyzzy'" in await client.ask("search", query="xyzzy")
        assert (await client.ask("recall", ref="#2")).endswith("\ngo")  # it goes on

    serve(place, act)


def test_a_session_in_use_is_read_and_stays_as_it_is(place: Place) -> None:
    log = record(place, "one", said("the task"), hold=True)

    def files() -> dict[str, str]:
        paths = sorted(path for path in log.path.parent.rglob("*") if path.is_file())
        return {path.name: sha256(path.read_bytes()).hexdigest() for path in paths}

    before = files()

    async def act(client: Client) -> None:
        assert "the task" in await client.ask("recall", ref="#2")
        assert "the task" in await client.ask("session_intent")
        assert "the task" in await client.ask("search", query="task")
        assert files() == before
        log.append(said("more of it"))
        assert "more of it" in await client.ask("recall", ref="#3")
        assert "more of it" in await client.ask("search", query="more")

    serve(place, act)
    assert log.append(said("the end")).seq == 4
    log.close()


def test_a_secret_is_redacted(place: Place) -> None:
    key = "k7Jq2mX9vB4nT6wZ1pL8"
    record(place, "one", said(f"curl -H {key} host"))

    async def act(client: Client) -> None:
        for tool, more in (("recall", {"ref": "#2"}), ("session_intent", {})):
            answer = await client.ask(tool, **more)
            assert key not in answer
            assert "[redacted: SERVICE_TOKEN]" in answer

    serve(place, act, more={"SERVICE_TOKEN": key})


def test_an_image_is_an_image(place: Place) -> None:
    data = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(data, "PNG")
    encoded = base64.b64encode(data.getvalue()).decode()
    source = {"type": "base64", "media_type": "image/png", "data": encoded}
    picture = {"type": "image", "source": source}
    record(place, "one", ToolResult(tool_use_id="a", content=[picture]))

    async def act(client: Client) -> None:
        text, image = (await client.result("recall", ref="#2")).content
        assert isinstance(text, TextContent)
        assert "64 x 48 pixels" in text.text
        assert isinstance(image, ImageContent)
        assert (image.mime_type, image.data) == ("image/png", encoded)

    serve(place, act)


def test_our_own_client_uses_it_like_any_server(place: Place) -> None:
    record(place, "one", said("the task"))
    assert place.run("mcp", "add", "sessions", "--", COMMAND, "mcp-server").returncode == 0
    done = place.run("mcp", "get", "sessions")
    assert done.returncode == 0, done.stdout
    assert "sessions: ready · 3 tools" in done.stdout
    for tool in ("recall", "search", "session_intent"):
        assert f"  mcp__sessions__{tool} (" in done.stdout


def test_it_ends_with_its_input_and_prints_nothing_but_the_protocol(place: Place) -> None:
    done = place.run("mcp-server", stdin="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = place.run("mcp-server", stdin=f"no message\n{json.dumps(INITIALIZE)}\n")
    assert done.returncode == 0
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    assert messages[-1]["result"]["serverInfo"]["name"] == "ctxagent"


def test_closed_output_ends_the_mcp_server(place: Place) -> None:
    with place.start(
        "mcp-server", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(f"{json.dumps(INITIALIZE)}\n")
        process.stdin.close()
        assert process.wait() == 0
        assert process.stderr.read() == ""


def test_endless_call_does_not_keep_the_mcp_server_running(place: Place) -> None:
    record(place, "one", said("go"))
    program = (
        "import sys, threading\n"
        "from ctxagent.agent.cli.main import main\n"
        "from ctxagent.addons.proxy import session_tools\n"
        "def wait(entries):\n"
        "    print('waits', file=sys.stderr, flush=True)\n"
        "    threading.Event().wait()\n"
        "session_tools.session_intent = wait\n"
        "main()\n"
    )
    call = {
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "session_intent", "arguments": {}},
    }  # fmt: skip
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    with place.start(
        "mcp-server", command=(sys.executable, "-c", program),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stderr
        process.stdin.write("".join(f"{json.dumps(each)}\n" for each in (INITIALIZE, ready, call)))
        process.stdin.flush()
        assert process.stderr.readline() == "waits\n"
        process.stdin.close()
        assert process.wait() == 0


def test_a_client_that_is_killed_leaves_no_process(place: Place) -> None:
    client = (
        "import subprocess, sys\n"
        "given, *command = sys.argv[1:]\n"
        "pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}\n"
        "server = subprocess.Popen(command, text=True, **pipes)\n"
        "print(given, file=server.stdin, flush=True)\n"
        "server.stdout.readline()\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", client, json.dumps(INITIALIZE), COMMAND, "mcp-server"]
    with subprocess.Popen(
        argv, cwd=place.project, env=place.environ(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        pid = int(process.stdout.readline())
        assert alive(pid)
        process.kill()
    assert gone(pid)


def test_a_terminal_is_no_client(place: Place) -> None:
    ours, theirs = pty.openpty()
    done = place.run("mcp-server", stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2
    assert "other agents, which start it with pipes" in done.stderr
