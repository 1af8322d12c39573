"""The agent against third-party servers for each protocol, from the npm package aimock. Skipped
without npm or without a registry.
"""

import http.server
import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.machine import needs
from ..support.of_others import AIMOCK, installed
from ..support.terminal.screen import Terminal
from .test_images import png
from .test_stream_input import talk

MOCK = Path(__file__).parents[1] / "support" / "server" / "aimock.mjs"

pytestmark = [needs("npm"), pytest.mark.full]


class ChatPlace(Place):
    """A place whose settings name a model of Chat Completions."""

    def server(self, url: str) -> dict[str, str]:
        (settings := self.root / "agentrc").write_text('[model]\nid = "openai/walrus"\n')
        key = {"OPENAI_API_KEY": "test-key-1", "CTXAGENT_CONFIG": str(settings)}
        return self.environ({"OPENAI_BASE_URL": f"{url}/v1", **key})


@pytest.fixture(params=[Place, ChatPlace], ids=["messages", "chat"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path)
    return made


@pytest.fixture(scope="module")
def programs(pytestconfig: pytest.Config) -> Path:
    """The folder of the installed servers."""
    return installed(pytestconfig)


class Mock:
    """A running server, and the requests that it got."""

    def __init__(self, url: str) -> None:
        self.url = url

    def told(self) -> str:
        """Return the whole newest request as JSON."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal") as answer:
            paths = ("/v1/messages", "/v1/chat/completions")
            asked = [row for row in json.load(answer) if row.get("path") in paths]
        return json.dumps(asked[-1]["body"], ensure_ascii=False)


@contextmanager
def mock(programs: Path, replies: Sequence[dict[str, Any]]) -> Iterator[Mock]:
    command = ["node", str(MOCK), str(programs / AIMOCK), json.dumps(replies)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Mock(process.stdout.readline().strip())
        process.stdin.close()


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"toolCalls": [{"name": name, "arguments": json.dumps(given)}]}


def say(text: str) -> dict[str, Any]:
    return {"content": text}


PLAN = call("Plan", plan="# A pool\n\nFor the walrus.", steps=["Dig", "Fill it"])
WRITE = call("Write", path="pool.py", content="pool = 1\n")


def test_a_plan_headless(place: Place, programs: Path) -> None:
    with mock(programs, [PLAN]) as server:
        done = place.run(
            "-p", "Build", "--permission-mode", "plan", env=place.server(server.url)
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "# A pool\n\nFor the walrus.\n\n## Steps\n\n1. Dig\n2. Fill it\n"


@pytest.mark.variants
def test_a_plan_and_a_form_in_the_repl(place: Place, programs: Path) -> None:
    asked = {"question": "How deep?", "choices": [{"label": "two metres"}, {"label": "ten"}]}
    replies = [PLAN, WRITE, call("AskUser", questions=[asked]), say("It is dug.")]
    with mock(programs, replies) as server:
        terminal = Terminal(
            "--permission-mode", "plan", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("❯")
        terminal.type("Build a pool\r")
        terminal.keys("[e]dit")
        terminal.type("y")
        terminal.keys("1. two metres")
        terminal.type("2")
        terminal.see("It is dug.")
        said = server.told()
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert (place.project / "pool.py").exists()
    assert "How deep? → ten" in said
    assert "The permission mode is now accept-edits" in said


@pytest.mark.variants
def test_images(place: Place, programs: Path) -> None:
    """An image in the message and an image that is read are accepted, with the text about them. The
    mock stores requests without the images.
    """
    (place.project / "a.png").write_bytes(png(40, 30))
    (place.project / "b.png").write_bytes(png(4_000, 30))
    with mock(programs, [call("Read", path="b.png"), say("Both are black.")]) as server:
        done = place.run("-p", "look at @a.png", env=place.server(server.url))
        said = server.told()
    assert (done.returncode, done.stdout) == (0, "Both are black.\n"), done.stderr
    assert "[a.png: PNG, 40 x 30 pixels" in said
    assert "[b.png: PNG, 4000 x 30 pixels" in said
    assert "shown at 2000 x 15]" in said


@pytest.mark.variants
def test_a_page(place: Place, programs: Path) -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<html><body><h1>Walrus</h1><p>Eats 4711 clams.</p></body></html>"
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        fetch = call("WebFetch", url=f"http://127.0.0.1:{site.server_port}/")
        with mock(programs, [fetch, say("4711.")]) as server:
            done = place.run(
                "-p", "How many?", "--allow", "WebFetch(127.0.0.1)", env=place.server(server.url)
            )
            assert done.returncode == 0, done.stderr
            assert "Eats 4711 clams." in server.told()
        site.shutdown()


def test_an_answer_that_does_not_fit_a_schema_is_tried_again(place: Place, programs: Path) -> None:
    (place.root / "schema.json").write_text('{"required": ["name"]}')
    with mock(programs, [say("A walrus."), say('{"name": "walrus"}')]) as server:
        done = place.run(
            "-p", "go", "--json-schema", "../schema.json", env=place.server(server.url)
        )
    assert (done.returncode, done.stdout) == (0, '{"name": "walrus"}\n'), done.stderr


@pytest.mark.variants
def test_a_program_is_asked_and_gets_each_result(place: Place, programs: Path) -> None:
    replies = [call("Bash", command="touch a"), say("Done."), say("Again.")]
    with mock(programs, replies) as server, talk(place, server.url) as driver:
        driver.say("go")
        question = driver.next("question")
        driver.send({"type": "answer", "id": question["id"], "allow": True})
        assert driver.next("result")["result"] == "Done."
        driver.say("again")
        assert driver.next("result")["result"] == "Again."
        assert driver.end() == 0
    assert (place.project / "a").exists()


@pytest.mark.parametrize("place", [Place], ids=["messages"], indirect=True)
def test_server_that_calls_the_search_as_our_tool(place: Place, programs: Path) -> None:
    """Its model calls the search that only the API's own server can run. The call gets an answer,
    and the turn continues.
    """
    replies = [call("web_search", query="walruses"), say("Done."), say("Yes.")]
    with mock(programs, replies) as server:
        env = place.server(server.url)
        done = place.run("-p", "go", "-c", "web.search=on", env=env)
        assert done.returncode == 0, done.stderr
        assert "leaves the search to the client" in server.told()
        done = place.run("-p", "on", "--continue", env=env)
    assert done.stdout.strip() == "Yes."
