"""The tool Context: off by default; with it, the model lists, drops and asks for a summary."""

import re
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context.tokens import count_word_classes

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server

RECORD = (
    "## Session Intent\nCount.\n\n## Key Decisions\n1. Count.\n\n"
    "## Current State\nPhase: counting\n\n## Next Steps\n1. Go on.\n"
)
WITH_TOOL = ("--permission-mode", "bypass", "-c", "context.tool=true")
BIG = ("Bash", {"command": "seq -f 'the words of number %g' 400"})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def names(body: Body) -> list[str]:
    return [tool["name"] for tool in body.get("tools", ())]


def results(body: Body) -> list[str]:
    blocks = (block for message in body["messages"] for block in message["content"])
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


class Model:
    """Plays steps. "REF" in refs is the ref of the largest item in the newest list."""

    def __init__(self, *steps: Any) -> None:
        self.steps, self.questions = list(steps), 0

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.questions += 1
            return Say(RECORD)
        step = self.steps.pop(0)
        return step(body) if callable(step) else step


def context(**given: Any) -> Say:
    return Say(tools=[("Context", given)])


def drop_first(body: Body) -> Say:
    found = re.search(r"#(\d+) result", results(body)[-1])
    assert found
    return context(action="drop", refs=[int(found[1])])


def run(place: Place, *steps: Any, options: tuple[str, ...] = WITH_TOOL) -> Any:
    with Server(Model(*steps), bound=True) as server:
        done = place.run("-p", "count", *options, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert server.rejected == []
    return server


def test_without_the_setting_there_is_no_tool(place: Place) -> None:
    server = run(place, Say("Done."), options=("--permission-mode", "bypass"))
    assert "Context" not in names(server.requests[0])


def test_the_model_lists_and_drops_a_result_and_the_user_undoes_it(place: Place) -> None:
    server = run(place, Say(tools=[BIG]), context(action="list"), drop_first, Say("Done."))
    tool = next(each for each in server.requests[0]["tools"] if each["name"] == "Context")
    assert count_word_classes(str(tool)) <= 150
    listed, dropped = results(server.requests[-1])[-2:]
    assert re.match(r"\d+% of the window is used: [\d,]+ of [\d,]+ tokens\.", listed)
    assert re.search(r"#\d+ result, [\d,]+ tokens, 1 call ago: Bash seq -f", listed)
    assert re.match(r"1 item dropped: 2,\d+ tokens less\.", dropped)
    assert "number 200" in str(server.requests[-2]["messages"])
    assert "number 200" not in str(server.requests[-1]["messages"])
    assert "dropped by the model · full text: #" in results(server.requests[-1])[0]
    (mask,) = [entry for entry in place.entries() if entry["kind"] == "mask"]
    assert (mask["layer"], mask["trigger"]) == ("drop", "by the model")
    undone = place.run("compact", "--undo")
    assert undone.returncode == 0, undone.stderr
    with Server([Say("Done.")]) as after:
        place.run("-p", "more", "--continue", *WITH_TOOL, env=place.server(after.url))
    assert "number 200" in str(after.requests[-1]["messages"])


def test_what_the_user_wrote_cannot_be_dropped(place: Place) -> None:
    (place.project / "AGENTS.md").write_text("Count slowly.\n")
    refs: list[int] = []

    def drop_each(body: Body) -> Say:
        of_user = [e for e in place.entries() if e["kind"] == "user"]
        assert {e["source"] for e in of_user} >= {"person", "environment", "instructions"}
        refs.extend(entry["seq"] for entry in of_user)
        return Say(tools=[("Context", {"action": "drop", "refs": [ref]}) for ref in refs])

    server = run(place, drop_each, Say("Done."))
    assert results(server.requests[-1]) == [
        f"#{ref} is the user's; only the user can drop it" for ref in refs
    ]
    assert not [entry for entry in place.entries() if entry["kind"] == "mask"]


def test_the_model_asks_for_a_summary_between_two_tasks(place: Place) -> None:
    keep_little = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1")
    more = ("-c", "move.above=off", "-c", "clear.when=off", *keep_little)
    bash = [Say(tools=[("Bash", {"command": f"seq -f 'words of {n} %g' 700"})]) for n in range(5)]
    asks = context(action="compact")
    server = run(place, *bash, asks, asks, Say("Done."), options=(*WITH_TOOL, *more))
    (summary,) = [entry for entry in place.entries() if entry["kind"] == "summary"]
    assert summary["trigger"] == "task boundary: the model asked for it"
    last = str(server.requests[-1]["messages"])
    assert "words of 0 300" not in last
    assert "[No summary was made: a summary is not worth it" in last
