"""Calls of a reply: which run in parallel, what is recorded, and what an interrupt leaves."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import (
    Notice,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from ctxagent.agent.loop.interface import Feature, ToolCall
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, ToolResult
from ctxagent.tools.base import Context, Output, Params, Tool
from ctxagent.tools.bash import BashParams, BashTool
from ctxagent.tools.system import orphans
from ctxagent.tools.system.process import TREE_VARIABLE

from ..support.command import gone
from ..support.sessions.conversation import Conversation


class Meet(Tool[Params]):
    """Returns only when several of its calls run at the same time."""

    name, description, effect, Params = "Meet", "Meets.", "read", Params

    def __init__(self, several: int) -> None:
        self.barrier = asyncio.Barrier(several)

    async def run(self, params: Params, context: Context) -> Output:
        async with asyncio.timeout(100):
            place = await self.barrier.wait()
        return Output(f"met as {place}")


def test_read_only_calls_run_side_by_side(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Meet", {})] * 4), Step(text="ok")], tools=[Meet(4)])
    assert talk.say("meet").status == "ok"
    assert [r.is_error for r in talk.of(ToolResult)] == [False] * 4


def test_calls_that_change_something_run_one_after_another(project: Path) -> None:
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", {"command": f"echo {n} >> order; cat order"}) for n in range(4)]),
            Step(text="ok"),
        ],
    )
    talk.say("go")
    assert talk.of(ToolResult)[-1].content.split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("Nope", {}), "There is no tool 'Nope'. The tools: Bash, Job, Read"),
        (("Read", '{"path": "a'), "not valid JSON"),
        (("Read", "[1]"), "not a JSON object"),
        (("Read", {}), "- path: Field required"),
        (("Read", {"path": "x", "lines": 3}), "- lines: Extra inputs are not permitted"),
        (("Edit", {"path": 3, "old_string": "a", "new_string": "b"}), "- path: Input should be"),
    ],
)
def test_a_bad_call_is_answered_and_the_work_goes_on(
    project: Path, call: tuple[str, dict[str, object] | str], told: str
) -> None:
    talk = Conversation(project, [Step(tools=[call]), Step(text="I see.")])
    assert talk.say("go").status == "ok"
    result = talk.of(ToolResult)[0]
    assert result.is_error
    assert told in result.content


class Faulty(Tool[Params]):
    name, description, effect, Params = "Faulty", "Fails.", "read", Params

    async def run(self, params: Params, context: Context) -> Output:
        raise ZeroDivisionError("by zero")


def test_a_tools_own_fault_does_not_end_the_session(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Faulty", {})]), Step(text="ok")], tools=[Faulty()])
    assert talk.say("go").status == "ok"
    assert "ZeroDivisionError: by zero" in talk.of(ToolResult)[0].content


def test_a_call_cut_off_at_the_output_limit_is_not_run(project: Path) -> None:
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", '{"command": "touch made')], stop_reason="max_tokens"),
            Step(text="ok"),
        ],
    )
    assert talk.say("go").status == "ok"
    assert "output limit cut them off" in talk.of(ToolResult)[0].content
    assert list(project.iterdir()) == []


def test_an_oversize_result_goes_to_a_file_before_it_is_sent(project: Path) -> None:
    lines = "".join(f"line {n} of it\n" for n in range(9_000))
    (project / "big.txt").write_text(lines)
    talk = Conversation(
        project, [Step(tools=[("Bash", {"command": "cat big.txt"})]), Step(text="ok")]
    )
    talk.say("go")
    result = talk.of(ToolResult)[0]
    file = talk.agent.log.path.parent / result.offloaded
    assert file.read_text() == lines.rstrip("\n") or file.read_text() == lines
    assert file.name.endswith(f"_Bash_{result.seq}.md")
    assert file.stat().st_mode & 0o777 == 0o600
    assert str(file) in result.content
    assert "line 0 of it" in result.content
    assert "line 8999 of it" in result.content
    assert len(result.content) < 5_000
    assert result.details["gate"] == "HOOK-CTX-001"
    assert talk.agent.totals.all.compaction["demoted"] == 1
    assert talk.agent.totals.all.compaction["tokens_saved"] > 30_000


@pytest.mark.slow
def test_interrupting_a_tool_keeps_its_output_and_leaves_no_child(project: Path) -> None:
    sleeper = "echo $$ > pid; sleep 300 & echo $! > child; echo begun; wait"
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", {"command": sleeper}), ("Bash", {"command": "touch never"})]),
            Step(text="fine"),
        ],
    )
    finished = talk.interrupted_at("go", lambda e: isinstance(e, ToolOutput))
    assert finished.status == "interrupted"
    first, second = talk.of(ToolResult)
    assert "begun" in first.content
    assert "interrupted by the user" in first.content
    assert "not run" in second.content
    assert gone(*(int((project / name).read_text()) for name in ("pid", "child")))
    assert not (project / "never").exists()
    assert talk.say("go on") == TurnFinished("ok", "fine")


def test_interrupting_side_by_side_calls_answers_each(project: Path) -> None:
    talk = Conversation(
        project, [Step(tools=[("Meet", {})] * 3), Step(text="fine")], tools=[Meet(9)]
    )
    started: list[object] = []

    def all_started(event: object) -> bool:
        started.extend([event] if isinstance(event, ToolStarted) else [])
        return len(started) == 3

    assert talk.interrupted_at("go", all_started).status == "interrupted"
    assert len(talk.of(ToolResult)) == 3
    assert talk.say("go on").text == "fine"


def test_results_are_recorded_as_they_finish(project: Path) -> None:
    class Ordered(Tool[Params]):
        name, description, effect, Params = "Second", "x", "read", Params

        async def run(self, params: Params, context: Context) -> Output:
            await gate.wait()
            return Output("second")

    class First(Tool[Params]):
        name, description, effect, Params = "First", "x", "read", Params

        async def run(self, params: Params, context: Context) -> Output:
            return Output("first")

    gate = asyncio.Event()
    talk = Conversation(
        project,
        [Step(tools=[("Second", {}), ("First", {})]), Step(text="ok")],
        tools=[Ordered(), First()],
    )

    def emit(event: object) -> None:
        if isinstance(event, ToolFinished) and event.name == "First":
            assert [r.content for r in talk.of(ToolResult)] == ["first"]  # on disk already
            gate.set()

    talk.agent.emit = emit
    assert talk.say("go").status == "ok"
    sent = talk.model.requests[-1].messages[-1]["content"]  # type: ignore[attr-defined]
    assert [b["content"] for b in sent] == ["second", "first"]  # in the order of the calls


class Changing(Feature):
    """Changes calls and outputs, and stores what it gets."""

    name = "changing"

    def __init__(self, talk: Conversation, given: Mapping[str, Any] | None = None) -> None:
        super().__init__(talk.agent)
        self.given, self.heard = given, list[tuple[str, Mapping[str, Any], str]]()
        talk.agent.features.add(self)

    async def before_tool(self, call: ToolCall) -> Mapping[str, Any] | None:
        return self.given

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output:
        self.heard.append(("after", call.arguments, output.text))
        return Output(f"{output.text}, says the walrus", output.details)

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        self.heard.append(("finished", call.arguments, output.text))


def test_features_change_the_arguments_and_the_output_of_a_call(project: Path) -> None:
    steps = [Step(tools=[("Bash", {"command": "echo a"})]), Step(text="ok")]
    talk = Conversation(project, steps)
    given = {"command": "echo b"}
    feature = Changing(talk, given)
    assert talk.say("go").status == "ok"
    (result,) = talk.of(ToolResult)
    assert result.content == "b, says the walrus"
    assert result.details["arguments"] == given
    (started,), (finished,) = talk.seen(ToolStarted), talk.seen(ToolFinished)
    assert (started.title, started.input) == ("echo b", given)
    assert (finished.title, finished.text) == ("echo b", "b, says the walrus")
    assert feature.heard == [
        ("after", given, "b"), ("finished", given, "b, says the walrus"),
    ]  # fmt: skip


def test_a_call_that_no_feature_changes_has_no_arguments_in_its_details(project: Path) -> None:
    steps = [Step(tools=[("Bash", {"command": "echo a"})]), Step(text="ok")]
    talk = Conversation(project, steps)
    Changing(talk)
    talk.say("go")
    assert "arguments" not in talk.of(ToolResult)[0].details


def test_a_repaired_call_runs_and_both_its_arguments_are_recorded(project: Path) -> None:
    (project / "a.txt").write_text("alpha\n")
    fenced = '```json\n{"path": "a.txt"}\n```'
    calls: list[tuple[str, Any]] = [("Read", {"file_path": "a.txt"}), ("Read", fenced)]
    talk = Conversation(project, [Step(tools=calls), Step(text="ok")])
    assert talk.say("go").status == "ok"
    (reply, _), results = talk.of(Assistant), talk.of(ToolResult)
    first, second = (block for block in reply.content if block["type"] == "tool_use")
    assert first["input"] == {"file_path": "a.txt"}
    assert reply.broken == {second["id"]: fenced}
    assert [result.details["arguments"] for result in results] == [{"path": "a.txt"}] * 2
    assert {str(result.content) for result in results} == {"1\talpha"}
    assert [started.input for started in talk.seen(ToolStarted)] == [{"path": "a.txt"}] * 2


def test_a_repaired_call_that_edits_does_not_run_beside_another(project: Path) -> None:
    fenced = '```\n{"command": "test -e a && echo late; touch a; sleep 0.1; rm a"}\n```'
    talk = Conversation(project, [Step(tools=[("Bash", fenced)] * 2), Step(text="ok")])
    talk.say("go")
    assert [result.content for result in talk.of(ToolResult)] == ["[no output; exit 0]"] * 2


def test_a_result_is_recorded_also_if_a_feature_fails(project: Path) -> None:
    class Failing(Feature):
        async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> None:
            raise ZeroDivisionError("by zero")

    steps = [Step(tools=[("Bash", {"command": "echo a"})]), Step(text="fine")]
    talk = Conversation(project, steps)
    talk.agent.features.add(Failing(talk.agent))
    finished = talk.say("go")
    assert finished.status == "error"
    assert "by zero" in str(finished.error)
    assert [result.content for result in talk.of(ToolResult)] == ["a"]
    assert talk.say("go on") == TurnFinished("ok", "fine")


def test_a_call_of_a_command_file_runs_by_the_same_rules_and_is_not_recorded(
    project: Path,
) -> None:
    talk = Conversation(project, deny=["Bash(rm:*)"])

    def output(command: str) -> Output:
        params = BashParams(command=command)
        return asyncio.run(talk.agent.runner.permitted(BashTool(), params, "c1"))

    assert output("echo a").text == "a"
    denied = output("rm a")
    assert denied.is_error
    assert denied.text.startswith("Not allowed: ")
    assert talk.of(ToolResult) == []


def test_secrets_are_removed_before_a_result_is_recorded(project: Path) -> None:
    steps = [Step(tools=[("Bash", {"command": "echo key-1234"})]), Step(text="ok")]
    talk = Conversation(project, steps)
    talk.agent.context.redact = lambda output: Output(
        output.text.replace("key-1234", "[key]"), output.details
    )
    talk.say("go")
    assert talk.of(ToolResult)[0].content == "[key]"
    assert talk.seen(ToolFinished)[0].text == "[key]"


def test_what_a_command_leaves_for_other_programs_is_reported(project: Path) -> None:
    steps = [Step(tools=[("Bash", {"command": "echo x > .envrc"})]), Step(text="ok")]
    talk = Conversation(project, steps)
    talk.say("go")
    assert ".envrc" in talk.of(ToolResult)[0].content
    assert any(".envrc" in notice.text for notice in talk.seen(Notice))


@pytest.mark.parametrize(("count", "groups"), [(3, [3]), (20, [16, 4])])
def test_harmless_calls_run_in_groups(project: Path, count: int, groups: list[int]) -> None:
    class Counting(Tool[Params]):
        name, description, effect, Params = "Count", "Counts.", "read", Params
        running, peaks = 0, list[int]()

        async def run(self, params: Params, context: Context) -> Output:
            if not self.running:
                self.peaks.append(0)
            self.running += 1
            self.peaks[-1] = max(self.peaks[-1], self.running)
            await asyncio.sleep(0)
            self.running -= 1
            return Output("ok")

    tool = Counting()
    steps = [Step(tools=[("Count", {})] * count), Step(text="ok")]
    Conversation(project, steps, tools=[tool]).say("go")
    assert tool.peaks == groups


def test_the_file_of_a_large_output_has_the_note_too(project: Path) -> None:
    steps = [Step(tools=[("Bash", {"command": "echo x > .envrc; seq 1 40000"})]), Step(text="ok")]
    talk = Conversation(project, steps)
    talk.agent.context.redact = lambda output: replace(
        output, text=output.text.replace("by themselves", "[hidden]")
    )
    talk.say("go")
    (result,) = talk.of(ToolResult)
    whole = (talk.agent.folder / result.offloaded).read_text()
    assert whole.rstrip().endswith("[hidden]: .envrc; the user is told]")


def test_a_tool_that_returns_something_else_has_failed(project: Path) -> None:
    class Wrong(Tool[Params]):
        name, description, effect, Params = "Wrong", "Fails.", "read", Params

        async def run(self, params: Params, context: Context) -> Output:
            return "text"  # type: ignore[return-value]

    talk = Conversation(project, [Step(tools=[("Wrong", {})]), Step(text="ok")], tools=[Wrong()])
    assert talk.say("go").status == "ok"
    (result,) = talk.of(ToolResult)
    assert result.is_error
    assert result.content == (
        "Wrong failed by a fault of its own: TypeError: run must give an Output, not str"
    )
    assert result.details["fault"] == "TypeError"


def test_a_command_knows_its_call(project: Path) -> None:
    """Its environment names the call, so that leftover processes can be found."""
    steps = [Step(tools=[("Bash", {"command": "env"})]), Step(text="ok")]
    talk = Conversation(project, steps)
    talk.say("go")
    (result,) = talk.of(ToolResult)
    name = orphans.call_name("s", result.seq, "call_1_1")
    assert f"{TREE_VARIABLE}={name}" in result.content
    talk.agent.context = replace(talk.agent.context, session_dir=None)
    output = asyncio.run(talk.agent.runner.watched(BashTool(), BashParams(command="env"), "c"))
    assert "PATH=" in output.text
    assert f"{TREE_VARIABLE}=s/" not in output.text
