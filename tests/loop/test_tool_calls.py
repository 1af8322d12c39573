"""Calls of a reply: what runs side by side, what is recorded, and what an interrupt leaves."""

import asyncio
from pathlib import Path

import pytest

from ctxagent.agent.events import (
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import ToolResult
from ctxagent.tools.base import Context, Output, Params, Tool

from ..support.command import gone
from ..support.sessions.conversation import Conversation


class Meet(Tool[Params]):
    """Comes back only when several calls of it run at the same time."""

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
    assert len(result.content) < 4_000
    assert result.details["gate"] == "HOOK-CTX-001"
    assert talk.agent.totals.all.compaction["demoted"] == 1
    assert talk.agent.totals.all.compaction["tokens_saved"] > 30_000


@pytest.mark.slow
def test_interrupting_a_tool_keeps_what_it_had_and_leaves_no_child(project: Path) -> None:
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

    talk.agent.handle.emit = emit
    assert talk.say("go").status == "ok"
    sent = talk.model.requests[-1].messages[-1]["content"]  # type: ignore[attr-defined]
    assert [b["content"] for b in sent] == ["second", "first"]  # in the order of the calls
