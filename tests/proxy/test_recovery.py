"""What the proxy removed comes back byte for byte, by each way that a client has, and stays until
the model has answered.
"""

import asyncio
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.proxy.session_tools import ServedSessions, session_tools
from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.session.entries import Mask, ToolResult
from ctxagent.tests.support.proxy.checks import messages_of
from ctxagent.tests.support.proxy.clients import PATHS, Called, Client, Turn
from ctxagent.tests.support.proxy.recorder import Answer, recorder
from ctxagent.tests.support.proxy.running import RunningProxy, running_proxy
from ctxagent.tools.base import Context
from ctxagent.tools.recall import MAX_CHARS

EVENTS = {"content-type": "text/event-stream"}
WINDOW = 200_000
SIZES = (1, 4, 8, 12, 16, 20, 24, 30, 60, 120, 240, 400)  # in 1,000 characters
WAYS = ("Read", "shell", "recall")
NAMES = {
    "messages": "mcp__ctxagent__recall", "chat": "ctxagent_recall", "responses": "recall",
    "gemini": "mcp_ctxagent_recall",
}  # fmt: skip
SHELLS = {
    "messages": "Bash", "chat": "run_shell_command", "responses": "exec_command",
    "gemini": "run_shell_command",
}  # fmt: skip


# The cases of `make test`.
FEW = (
    (16, "messages", "recall", "lean"), (30, "messages", "Read", "lean"),
    (60, "chat", "shell", "default"), (400, "responses", "recall", "default"),
    (60, "gemini", "recall", "lean"),
)  # fmt: skip
CASES = [
    pytest.param(*case, marks=[] if case in FEW else [pytest.mark.full])
    for case in product(SIZES, PATHS, WAYS, ("lean", "default"))
]


class Conversation:
    """A client that plays one turn after another through the proxy."""

    def __init__(self, protocol: str, proxy: RunningProxy, server: Any, answers: list[Any]) -> None:
        self.protocol, self.proxy, self.server, self.answers = protocol, proxy, server, answers
        self.turns = [Turn(("Go.",), text="Step.")]

    def send(self, *calls: Called) -> list[str]:
        """Send the newest turn, which the model answers with these calls. Return the results that
        the server got.
        """
        self.turns[-1] = Turn(self.turns[-1].words, text="Step.", calls=calls)
        client = Client(self.protocol, self.turns, odd=False)
        self.answers.append(client.answer(self.turns[-1], len(self.turns)))
        *_, body = client.bodies()
        self.proxy.post(client.path, json.dumps(body).encode())
        self.turns.append(Turn(text="Step."))
        return results_in(json.loads(self.server.requests[-1].body))


def results_in(body: dict[str, Any]) -> list[str]:
    found = []
    for message in messages_of(body):
        found += [
            part["functionResponse"]["response"]["output"]
            for part in message.get("parts", ())
            if "functionResponse" in part
        ]
        if message.get("role") == "tool":
            found.append(message["content"])
        elif message.get("type") == "function_call_output":
            found.append(message["output"])
        elif message.get("role") == "user" and isinstance(message.get("content"), list):
            blocks = (b for b in message["content"] if b["type"] == "tool_result")
            found += [block["content"] for block in blocks]
    return found


def call_of(
    id: str, protocol: str, way: str, file: str, page: str, given: dict[str, Any]
) -> Called:
    if way == "recall":
        return Called(id, NAMES[protocol], given, page)
    if way == "shell":
        return Called(id, SHELLS[protocol], {"command": f"cat '{file}'"}, page)
    return Called(id, "Read", {"file_path": file}, page)


def recalled(proxy: RunningProxy, ref: str, offset: int) -> str:
    """Return what the tool recall of our server returns."""
    tool = session_tools(ServedSessions(proxy.project))["recall"]
    params = tool.Params.model_validate({"ref": ref, "offset": offset})
    return asyncio.run(tool.run(params, Context(Path("/")))).text


@pytest.mark.parametrize(("kilo", "protocol", "way", "preset"), CASES)
@pytest.mark.slow
def test_a_removed_text_comes_back_whole(
    kilo: int, protocol: str, way: str, preset: str, tmp_path: Path
) -> None:
    lines = "".join(f"     {n}\tline {n} of whales is a text\n" for n in range(1, kilo * 25))
    text = lines[: kilo * 1_000]
    answers: list[bytes] = []
    with (
        recorder(lambda received: Answer([answers[-1]], 200, EVENTS)) as server,
        running_proxy(tmp_path, server.url, PRESETS[preset], WINDOW, summaries=False) as proxy,
    ):
        talk = Conversation(protocol, proxy, server, answers)
        talk.send(Called("call_0", "Bash", {"command": "make"}, text))
        (sent,) = talk.send()
        session = proxy.logs()[0].parent
        (file,) = map(str, (session / "offloaded").iterdir())
        assert (sent == text) == (file not in sent)
        if sent != text and way == "recall":
            assert f"{session.name}#" in sent
        ref = f"{session.name}#{next(e.seq for e in proxy.entries() if isinstance(e, ToolResult))}"
        pages = [text] if way != "recall" else [
            recalled(proxy, ref, at) for at in range(0, len(text), MAX_CHARS)
        ]  # fmt: skip
        given_back = []
        talk.turns[-1] = Turn(("Again.",), text="Step.")
        for number, page in enumerate(pages):
            given = {"ref": ref, "offset": number * MAX_CHARS}
            talk.send(call_of(f"back_{number}", protocol, way, file, page, given))
            given_back.append(page)
            for _ in range(2):  # the answer to the page, and one call more
                talk.send(Called(f"other_{number}_{_}", "Bash", {"command": "true"}, "ok"))
                assert page in results_in(json.loads(server.requests[-1].body))
        if way == "recall":
            plain = [re.sub(r"\A\[\S+#\d+\]\n|\n\[[^\n]* go on with offset=\d+\]\Z", "", page)
                     for page in given_back]  # fmt: skip
            assert "".join(plain) == text
        assert proxy.reports == []
        masked = {
            t["tool_use_id"] for e in proxy.entries() if isinstance(e, Mask) for t in e.targets
        }
        assert not any(id.startswith("back") for id in masked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "is_removed"),
    [("weather", False), ("run_shell_command", True), ("mcp__ctxagent__recall", True)],
)
def test_only_what_can_come_back_leaves(tool: str, is_removed: bool, tmp_path: Path) -> None:
    given = {"tools": [{"name": tool, "description": "d", "input_schema": {"type": "object"}}]}
    text = "".join(f"line {n} of whales\n" for n in range(3_000))
    turns = [Turn(("Go.",), text="I look.", calls=(Called("call_0", "weather", {}, text),)), Turn()]
    client = Client("messages", turns, odd=False, extra=given)
    with (
        recorder(lambda received: Answer([client.answer(turns[0], 0)], 200, EVENTS)) as server,
        running_proxy(tmp_path, server.url, PRESETS["lean"], WINDOW) as proxy,
    ):
        for body in client.bodies():
            proxy.post(client.path, json.dumps(body).encode())
        (sent,) = results_in(json.loads(server.requests[-1].body))
    assert (sent != text) == is_removed


REMINDER = "\n\n<system-reminder>\n14967470 tokens left\n</system-reminder>"


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "is_moved"), [(250, False), (400, True)])
def test_reminders_of_the_client_are_not_the_output(
    lines: int, is_moved: bool, tmp_path: Path
) -> None:
    """They do not move an output to a file, they are not in the file, and the model gets them."""
    text = "".join(f"line {n} of whales is a text of a command\n" for n in range(lines))
    reminders = REMINDER * 30
    answers: list[bytes] = []
    with (
        recorder(lambda received: Answer([answers[-1]], 200, EVENTS)) as server,
        running_proxy(tmp_path, server.url, PRESETS["lean"], WINDOW) as proxy,
    ):
        talk = Conversation("messages", proxy, server, answers)
        talk.send(Called("call_0", "Bash", {"command": "make"}, text + reminders))
        (sent,) = talk.send()
        assert (sent != text + reminders) == is_moved
        assert sent.endswith(reminders)
        (file,) = (proxy.logs()[0].parent / "offloaded").iterdir()
        assert file.read_text() == text
