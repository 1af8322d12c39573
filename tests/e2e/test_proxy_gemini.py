"""A client of Gemini's protocol with a strict server, through `ctxagent proxy`."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ctxagent.tests.support.command import Place
from ctxagent.tests.support.proxy.command import proxy_command
from ctxagent.tests.support.server.gemini import GeminiServer
from ctxagent.tests.support.server.loopback import Body, Say

Json = dict[str, Any]
CALLS = 16
FUNCTION = {"name": "run_shell_command", "description": "Run.", "parameters": {"type": "OBJECT"}}


def answer(body: Body) -> Say:
    """Call the tool CALLS times for each task."""
    number = json.dumps(body["messages"]).count("Step ")
    is_task = body["messages"][-1]["content"][-1]["type"] == "text"
    if number % CALLS == 0 and not is_task:
        return Say("All done.")
    command = f"look {number}"
    return Say(f"Step {number}.", "Hm.", [("run_shell_command", {"command": command})])


def ask(url: str, action: str, contents: list[Json]) -> list[Json]:
    """Send a request with the key, and return the chunks of its answer."""
    body = {
        "contents": contents,
        "systemInstruction": {"parts": [{"text": "You count."}]},
        "tools": [{"functionDeclarations": [FUNCTION]}],
        "generationConfig": {"maxOutputTokens": 4096},
    }
    path = f"{url}/v1beta/models/gemini-2.5-pro:{action}"
    got = httpx2.post(path, json=body, headers={"x-goog-api-key": "test-key-1"}, timeout=60)
    assert got.status_code == 200, got.text
    if "alt=sse" not in action:
        return [got.json()]
    lines = [line for line in got.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def play(url: str, contents: list[Json], action: str) -> None:
    """Do a task: send the history, append the reply as it came and the results of its calls."""
    contents.append({"role": "user", "parts": [{"text": "Run the commands."}]})
    while True:
        replies = [chunk["candidates"][0]["content"] for chunk in ask(url, action, contents)]
        contents += replies
        parts = [part for reply in replies for part in reply["parts"]]
        names = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        if not names:
            return
        text = "".join(f"{len(contents)}.{line}: a line of the output\n" for line in range(400))
        results = [{"functionResponse": {"name": n, "response": {"output": text}}} for n in names]
        contents.append({"role": "user", "parts": results})


@pytest.mark.variants
@pytest.mark.parametrize("action", ["streamGenerateContent?alt=sse", "generateContent"])
def test_a_client_works_on_while_its_old_results_leave(tmp_path: Path, action: str) -> None:
    place, contents = Place(tmp_path), list[Json]()
    with GeminiServer(answer) as server, proxy_command(place, server.url) as proxy:
        play(proxy.url, contents, action)
        play(proxy.url, contents, action)
        assert server.rejected == []
        assert proxy.errors.read_text() == ""
        sent = server.bodies[-1]["contents"]
        ask(proxy.url, action, [*contents, {"role": "user", "parts": [{"text": "Go on."}]}])
        assert proxy.stop() == 0  # the last reply is recorded
    assert len(json.dumps(sent)) < len(json.dumps(contents)) / 4
    signed = [
        part["thoughtSignature"] for c in sent for part in c["parts"] if "functionCall" in part
    ]
    assert len(signed) == 2 * CALLS
    assert len(place.logs()) == 1
    replies = [e for e in place.entries() if e["kind"] == "assistant"]
    assert len(replies) == 2 * CALLS + 3
    assert all(reply["usage"]["output"] for reply in replies)
