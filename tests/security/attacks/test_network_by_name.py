"""Network by name: a sandboxed command reaches hosts through the proxy only."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import Answer
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.security.name_proxy import MAX_ASKED
from ctxagent.agent.security.sandbox import Sandbox
from ctxagent.agent.session.entries import ToolResult
from ctxagent.tools.bash import BashParams, BashTool
from ctxagent.tools.job import end_all

from ...support.command import Place
from ...support.machine import needs, needs_bwrap
from ...support.server.loopback import Say, Server
from ...support.sessions.conversation import Conversation, answering
from ..test_sandbox import WHO, Field, as_user, place  # noqa: F401

pytestmark = needs("curl")
PLAIN_PYTHON = "/usr/bin/python3"  # ours may be in a folder that an ordinary user cannot access
FETCH = "curl -sS -m 20 http://{host}:{port}/{path}"
TUNNEL = "curl -sS -m 20 -p http://{host}:{port}/{path}"  # by CONNECT, as for https


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"served {self.path} {'Proxy-Connection' in self.headers}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"got {len(self.rfile.read(size))}\n".encode())

    def log_message(self, *words: Any) -> None: ...


@contextmanager
def web() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def not_named(host: str) -> str:
    return "not named"


def run(
    who: str,
    place: Field,  # noqa: F811
    *commands: str,
    names: tuple[str, ...],
    decide: Callable[[str], str] = not_named,
) -> list[str]:
    """The output of commands with these hosts allowed."""
    if who != "us" and not Path(PLAIN_PYTHON).exists():
        pytest.skip("there is no Python that a plain user can run")
    place.network = False
    python = sys.executable if who == "us" else PLAIN_PYTHON
    texts: list[str] = as_user(who, place.root, run_by, python, place, names, decide, *commands)
    return texts


def run_by(
    python: str,
    place: Field,  # noqa: F811
    names: tuple[str, ...],
    decide: Callable[[str], str],
    *commands: str,
) -> list[str]:
    """The output of the commands, with this Python as the proxy's interpreter."""

    async def decided(host: str) -> str:
        return decide(host)

    async def scene() -> list[str]:
        context = place.context(names=names, decide=decided)
        tool = BashTool()
        try:
            return [(await tool.run(BashParams(command=each), context)).text for each in commands]
        finally:
            await end_all(context.jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", python)
        return asyncio.run(scene())


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
def test_named_hosts_are_reached(place: Field, who: str) -> None:  # noqa: F811
    with web() as port:
        there = {"host": "localhost", "port": port, "path": "a?b=c"}
        texts = run(
            who,
            place,
            f"NO_PROXY= no_proxy= {FETCH.format(**there)}",
            f"NO_PROXY= no_proxy= {TUNNEL.format(**there)}",
            f"head -c 300000 /dev/zero | NO_PROXY= no_proxy= "
            f"curl -sS --data-binary @- http://localhost:{port}/",
            names=("localhost",),
        )
    assert texts == ["served /a?b=c False", "served /a?b=c False", "got 300000"]


ATTEMPTS = {
    "another name": FETCH,
    "by CONNECT": TUNNEL,
    "past the proxy": f"NO_PROXY='*' no_proxy='*' {FETCH}",
    "another name in the header": "curl -sS -m 20 -H 'Host: named.test' http://{host}:{port}/{path}",
    "an address": "curl -sS -m 20 http://127.0.0.1:{port}/{path}",
    "an address as a number": "curl -sS -m 20 http://2130706433:{port}/{path}",
    "an address of the sixth version": "curl -sS -m 20 'http://[::ffff:127.0.0.1]:{port}/{path}'",
    "a name within the name": "curl -sS -m 20 http://named.test@{host}:{port}/{path}",
    "a name that only ends so": "curl -sS -m 20 http://evilnamed.test:{port}/{path}",
    "a second request": "printf 'GET http://named.test/ HTTP/1.1\\r\\n\\r\\nGET http://{host}:{port}/"
    "{path} HTTP/1.1\\r\\n\\r\\n' | timeout 5 python3 -c \"import socket, sys; "
    "s = socket.create_connection(('127.0.0.1', 3128)); s.sendall(sys.stdin.buffer.read()); "
    's.shutdown(1); print(s.makefile().read())"',
    "another method": "curl -sS -m 20 --request-target http://{host}:{port}/{path} -X DELETE "
    "http://127.0.0.1:3128",
    "a relative address": "curl -sS -m 20 --noproxy '*' -H 'Host: {host}:{port}' "
    "http://127.0.0.1:3128/{path}",
}


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
def test_nothing_else_is_reached(place: Field, who: str) -> None:  # noqa: F811
    """The attempts that bypass the proxy succeed without a sandbox."""
    with web() as port:
        filled = {"host": "localhost", "port": port, "path": "secret"}
        commands = [
            f"export NO_PROXY= no_proxy=; {attempt.format(**filled)}"
            for attempt in ATTEMPTS.values()
        ]
        texts = run(who, place, *commands, names=("named.test", "*.named.test"))
        told = dict(zip(ATTEMPTS, texts, strict=True))
        reached = {
            name
            for name, command in zip(ATTEMPTS, commands, strict=True)
            if "served"
            in subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout
        }
    assert reached >= {
        "another name", "by CONNECT", "past the proxy", "another name in the header",
        "an address", "an address as a number", "a name within the name",
    }  # fmt: skip
    assert {name: text for name, text in told.items() if "served" in text} == {}
    assert "localhost may not be reached: not named" in told["another name"]
    assert "[not reached, as nobody has allowed it: localhost]" in told["another name"]


@pytest.mark.slow
@needs_bwrap
def test_a_pattern_does_not_allow_private_addresses(place: Field) -> None:  # noqa: F811
    """Anybody can point a name below their domain to any address."""
    with web() as port:
        command = f"NO_PROXY= no_proxy= curl -sS http://localhost:{port}/x"
        [text] = run("us", place, command, names=("localhos*",))
    assert "has no public address" in text


@pytest.mark.slow
@needs_bwrap
def test_a_person_is_asked_once_for_each_name(place: Field) -> None:  # noqa: F811
    """The number of names to ask about is limited."""
    asked: list[str] = []

    def decide(host: str) -> str:
        asked.append(host)
        return "no"

    thrice, many = run(
        "us",
        place,
        "for i in 1 2 3; do curl -sS http://new.test/; done",
        "for i in $(seq 30); do curl -sS http://new$i.test/; done",
        names=(),
        decide=decide,
    )
    assert asked == ["new.test", *(f"new{number}.test" for number in range(1, MAX_ASKED + 1))]
    assert thrice.count("new.test may not be reached: no") == 3
    assert many.count("hosts have been asked about for this command") == 30 - MAX_ASKED


@pytest.mark.slow
@needs_bwrap
def test_the_question(place: Field) -> None:  # noqa: F811
    command = {"command": "NO_PROXY= no_proxy= curl -sS http://localhost:{port}/x"}
    ask, questions = answering(
        Answer(False, "not that"),
        Answer(True),
        Answer(True, rule="Network(localhost)", where="session"),
    )
    with web() as port:
        call = {"command": command["command"].replace("{port}", str(port))}
        steps = [*(Step(tools=[("Bash", call)]) for _ in range(4)), Step(text="done")]
        talk = Conversation(place.cwd, steps, mode="sandboxed", ask=ask)
        place.network = False
        sandbox = place.context(names=()).sandbox
        assert isinstance(sandbox, Sandbox)
        sandbox.decide = lambda host: talk.agent.runner.gate.network_refusal(host)
        talk.agent.context.sandbox = talk.agent.approval.sandbox = sandbox
        talk.agent.context.env = place.environ
        assert talk.say("go").status in ("ok", "denied"), talk.events[-3:]
    assert [question.rule for question in questions] == ["Network(localhost)"] * 3
    assert questions[0].reason == "a command wants to reach localhost"
    assert questions[0].offers == ("Network(localhost)", "Network")
    told = [result.content for result in talk.of(ToolResult)]
    assert "The user declined" in told[0]
    # It has only a private address, and is not in the settings.
    assert all("has no public address" in text for text in told[1:])


@pytest.mark.slow
@needs_bwrap
def test_by_the_command(tmp_path: Path) -> None:
    """In a headless run, hosts in the settings are allowed and others are denied."""
    place = Place(tmp_path)  # noqa: F811
    with web() as port:
        fetch = f"NO_PROXY= no_proxy= curl -sS http://localhost:{port}/x"
        calls = [("Bash", {"command": fetch}), ("Bash", {"command": "curl -sS http://new.test/"})]

        def reply(body: dict[str, Any]) -> Say:
            done = sum(message["role"] == "assistant" for message in body["messages"])
            return Say("", tools=[calls[done]]) if done < len(calls) else Say("Done.")

        with Server(reply) as server:
            done = place.run(
                "-p", "go", "--permission-mode", "sandboxed", "-c", 'sandbox.network=["localhost"]',
                env=place.server(server.url),
            )  # fmt: skip
            assert done.returncode == 3, done.stderr
            said = json.dumps(server.requests[-1])
    assert "served /x False" in said
    assert "new.test may not be reached: Not allowed: a command wants to reach new.test" in said
