"""Recall: content that left the context is found by words and read in full by its ref."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.errors import ToolError
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Summary, ToolResult
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.search import INDEX_NAME
from ctxagent.tools.base import Context, Output, Params, Tool
from ctxagent.tools.recall import MAX_CHARS, RecallParams, RecallTool

from ..support.sessions.conversation import Conversation

NASTY = "tab\t, crlf\r\n, nul \x00, lone \ud800, wide 🙂, long " + "z" * 9_000 + "\n\n\x1b[31mred\n"


class Dump(Tool[Params]):
    """A tool that returns a given text."""

    name = "Dump"
    description = "Gives a text."
    effect = "none"
    Params = Params
    text = ""

    async def run(self, params: Params, context: Context) -> Output:
        return Output(self.text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def recall(talk: Conversation, **given: Any) -> Output:
    return asyncio.run(RecallTool().run(RecallParams(**given), talk.agent.context))


def whole(talk: Conversation, ref: int | str, limit: int = MAX_CHARS) -> str:
    """Return the text of a ref, joined from as many calls as necessary."""
    text = ""
    while True:
        output = recall(talk, ref=ref, offset=len(text), limit=limit)
        size = output.details["characters"]
        text += output.text[: min(limit, size - len(text))]
        if len(text) == size:
            return text


@pytest.mark.slow
def test_a_fact_that_stood_once_300_calls_ago(project: Path) -> None:
    steps = [Step(tools=[("Bash", {"command": "echo the staging gateway listens on 48231"})])]
    for n in range(60):
        many = [("Bash", {"command": f"seq -f 'line %g of {n}' 40"}) for _ in range(5)]
        steps.append(Step(tools=many))
    query = {"query": "what port does the staging gateway listen on: 48231?"}
    steps += [Step(text="Counted."), *[Step(tools=[("Recall", query)]), Step(text="48231.")] * 20]
    policy = replace(DEFAULT, summarizer="mechanical", clear_when="off")
    talk = Conversation(project, steps, window=40_000, policy=policy)
    talk.say("go")
    assert talk.of(Summary)
    request = json.dumps(body(talk.model.requests[-1]))  # type: ignore[attr-defined]
    assert "48231" not in request  # it has left the context
    index = talk.agent.log.path.parents[2] / INDEX_NAME
    index.unlink(missing_ok=True)
    talk.say("what was the port?")
    while "ask again" in talk.of(ToolResult)[-1].content:  # a busy machine indexes slowly
        talk.say("what was the port?")
    results = talk.of(ToolResult)
    assert index.is_file()
    fact = results[0]
    assert "the staging gateway listens on 48231" in results[-1].content
    assert f"#{fact.seq} · result of Bash · {fact.at}" in results[-1].content
    assert f"#{fact.seq}" in results[-1].details["recalled"]


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("limit", [MAX_CHARS, 7_001])
def test_every_byte_of_an_offloaded_result_comes_back(project: Path, limit: int) -> None:
    dump = Dump()
    dump.text = NASTY * 30 + "".join(f"row {n}\r\n" for n in range(20_000))
    talk = Conversation(
        project, [Step(tools=[("Dump", {})]), Step(text="ok")], tools=[dump, RecallTool()]
    )
    talk.say("go")
    (result,) = talk.of(ToolResult)
    assert result.offloaded is not None
    assert len(result.content) < len(dump.text) / 10
    for ref in (result.seq, f"#{result.seq}", f"s#{result.seq}", result.offloaded):
        assert whole(talk, ref, limit) == dump.text
    absolute = str(talk.agent.log.path.parent / result.offloaded)
    assert whole(talk, absolute, limit) == dump.text
    found = recall(talk, query="row 19998")
    assert "row 19998\r\n" in found.text
    more = json.loads(found.text.split("(whole: ")[1].split(")")[0])
    assert "row 19998\r\n" in recall(talk, **more).text


def test_the_results_of_a_found_call_follow_it(project: Path) -> None:
    """Models search for a command to get its output."""
    far = "echo kiwi > /dev/null; seq 4000"
    steps = [
        Step(tools=[("Bash", {"command": "echo plum; true harvest"})]),
        Step(tools=[("Bash", {"command": "echo 'one harvest'"})]),
        Step(tools=[("Bash", {"command": far})]),
        Step(text="Done."),
    ]
    talk = Conversation(project, steps)
    talk.say("go")
    plum, one, numbers = talk.of(ToolResult)
    shown = recall(talk, query="harvest").text.split("\n\n")
    (call,) = (each for each in shown if "true harvest" in each)
    assert f"\nresult #{plum.seq}:\nplum\n" in call
    assert f"result #{one.seq}" not in "".join(shown)  # it is found itself
    assert any(each.startswith(f"#{one.seq} · result of Bash") for each in shown)
    (call,) = (each for each in recall(talk, query="kiwi").text.split("\n\n") if far in each)
    assert numbers.offloaded
    assert f"\nresult #{numbers.seq}:\n1\n2\n" in call
    assert "\n[…]\n" in call
    assert "\n3999\n4000\n(whole: " in call


def test_other_sessions_of_the_project(project: Path) -> None:
    talk = Conversation(project, [Step(text="Nothing here.")])
    talk.say("hello")
    sessions = talk.agent.log.path.parents[1]
    for name in ("20250101-000000-abcdef", "s/agents/one"):
        log = Log(sessions / name / "log.jsonl")
        log.append(ToolResult(tool_use_id="x", content=f"the okapi of {name}"))
        log.close()
    assert "Nothing found" in recall(talk, query="elsewhere unknown").text
    own = recall(talk, query="okapi")
    assert own.details["recalled"] == ["s/agents/one#1"]
    assert "result of a tool" in own.text
    both = recall(talk, query="okapi", scope="project").details["recalled"]
    assert sorted(both) == ["20250101-000000-abcdef#1", "s/agents/one#1"]
    for ref in both:
        assert whole(talk, ref) == f"the okapi of {ref.removesuffix('#1')}"
    other = "20250101-000000-abcdef"
    assert recall(talk, query="okapi", session=other).details["recalled"] == [f"{other}#1"]
    assert recall(talk, ref="#1", session=other).text == f"the okapi of {other}"
    assert recall(talk, ref=1, session=other).text == f"the okapi of {other}"
    for id in ("nope", "x" * 5_000, "a\0b", "\ud800", "..", "/etc"):
        unknown = recall(talk, query="okapi", session=id)
        assert f"no session of this project has the id {id[:80]}" in unknown.text
        assert len(unknown.text) < 1_000


def test_nothing_found_says_what_was_searched_and_what_else_there_is(project: Path) -> None:
    talk = Conversation(project, [Step(text="Hello.")])
    talk.say("hello")
    folder = talk.agent.log.path.parent
    said = recall(talk, query="quagga").text
    assert "'quagga'" in said
    assert "this session" in said
    assert f"Grep {folder / 'conversation.md'}" in said
    (folder / "conversation.md").unlink()
    assert f"Grep {folder / 'log.jsonl'}" in recall(talk, query="quagga").text


@pytest.mark.parametrize(
    "ref",
    [
        "#99", 0, -1, "", "#", "x#1", "../s#1", "/etc/passwd", "../../../secret", "out#1",
        "out/log.jsonl", "offloaded", "\x00", "a" * 5_000, "..", "9" * 400, "#" + "9" * 5_000,
        "9" * 5_000, "x" * 5_000 + "#1",
    ],
)  # fmt: skip
def test_refs_that_lead_nowhere_or_out(project: Path, ref: int | str) -> None:
    talk = Conversation(project, [Step(text="Hello.")])
    talk.say("hello")
    sessions = talk.agent.log.path.parents[1]
    outside = Log(project / "log.jsonl")
    outside.append(ToolResult(tool_use_id="x", content="secret"))
    outside.close()
    (sessions / "out").symlink_to(project)
    (project.parent / "secret").write_text("secret")
    with pytest.raises(ToolError):
        recall(talk, ref=ref)


@pytest.mark.parametrize("given", [{}, {"query": ""}])
def test_a_query_or_a_ref(project: Path, given: dict[str, Any]) -> None:
    talk = Conversation(project)
    with pytest.raises(ToolError, match="a query or a ref"):
        recall(talk, **given)


def test_a_query_within_a_ref(project: Path) -> None:
    talk = Conversation(project)
    text = "".join(f"line {n} of the log\n" for n in range(900)) + "port 8123 is in use\n"
    seq = talk.agent.record(ToolResult(tool_use_id="c", content=text)).seq
    output = recall(talk, ref=f"#{seq}", query="port use")
    assert "port 8123 is in use" in output.text
    assert len(output.text) < len(text) / 2


@pytest.mark.slow
def test_what_is_listed_is_bounded(project: Path) -> None:
    talk = Conversation(project)
    for n in range(12):
        talk.agent.record(ToolResult(tool_use_id=f"c{n}", content="gnu " * 30_000))
    output = recall(talk, query="gnu " * 5_000)
    assert len(output.details["recalled"]) == 8
    assert len(output.text) < 8 * 600


def test_a_session_that_is_not_recorded() -> None:
    context = Context(cwd=Path("/"))
    output = asyncio.run(RecallTool().run(RecallParams(query="x"), context))
    assert "not recorded" in output.text
