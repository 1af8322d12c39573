"""A turn with the scripted model and real tools: what is recorded, sent and shown."""

import asyncio
import itertools
import json
import threading
from pathlib import Path

import pytest

from ctxagent.agent.context.request import build_messages
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import ModelUnavailable, RecordError
from ctxagent.agent.events import (
    TextDelta,
    TurnFinished,
    Waiting,
)
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.interface import Feature
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import End, Note, ToolResult

from ..support.sessions.conversation import Conversation


def test_a_turn_is_recorded_in_order(project: Path) -> None:
    (project / "a.txt").write_text("alpha\n")
    talk = Conversation(
        project,
        [Step(text="I look.", tools=[("Read", {"path": "a.txt"})]), Step(text="It says alpha.")],
    )
    finished = talk.say("what does a.txt say?")
    assert finished == TurnFinished("ok", "It says alpha.")
    assert talk.kinds() == ["session", "user", "assistant", "tool_result", "assistant", "end"]
    assert "1\talpha" in talk.of(ToolResult)[0].content
    assert talk.agent.totals.all.calls == 2
    assert talk.agent.totals.all.tool_calls == 1
    told = [type(e).__name__ for e in talk.events if not isinstance(e, TextDelta | Waiting)]
    assert told == [
        "UserSaid", "CallStarted", "Accepted", "ToolDraft", "CallFinished", "ToolStarted",
        "ToolFinished", "CallStarted", "Accepted", "CallFinished", "TurnFinished",
    ]  # fmt: skip


@pytest.mark.slow
def test_each_request_is_a_prefix_of_the_next_also_over_a_resume(project: Path) -> None:
    steps = [
        Step(thinking="hm", text=f"step {n}", tools=[("Bash", {"command": f"echo {n}"})])
        for n in range(5)
    ]
    first = Conversation(project, [*steps, Step(text="done")])
    first.say("go")
    requests = list(first.model.requests)  # type: ignore[attr-defined]
    first.agent.log.close()
    second = Conversation(project, [*steps, Step(text="done again")])
    second.say("go on")
    requests += second.model.requests  # type: ignore[attr-defined]
    sent = [bare(r.messages) for r in requests]
    assert len(sent) == 12
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    assert requests[0].system == requests[-1].system
    assert requests[0].tools == requests[-1].tools


def bare(sent: list[dict[str, object]]) -> list[str]:
    """Messages as JSON, without cache marks."""
    text = json.dumps(sent)
    return [json.dumps(m) for m in json.loads(text, object_hook=_unmarked)]


def _unmarked(node: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in node.items() if k != "cache_control"}


def test_the_live_view_equals_that_of_a_fresh_process(project: Path) -> None:
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", {"command": "printf '\\033[1mbold\\r\\xff'; exit 3"})]),
            Step(tools=[("Read", {"path": "nowhere"}), ("Nope", {})]),
            Step(text="done"),
        ],
    )
    talk.say("go \ud800")
    fresh = fold(talk.entries())
    assert build_messages(fresh.items) == build_messages(talk.agent.view.items)
    live = talk.agent.view
    assert (fresh.size, fresh.size_changed) == (live.size, live.size_changed)
    assert (fresh.ratio, fresh.last_seq) == (live.ratio, live.last_seq)


def test_an_error_of_the_model_ends_the_turn_and_the_next_works(project: Path) -> None:
    broken = ModelUnavailable("overloaded", status=529, hint="later")
    talk = Conversation(project, [Step(error=broken), Step(text="fine")])
    finished = talk.say("go")
    assert finished.status == "error"
    assert finished.error == {"type": "ModelUnavailable", "message": "overloaded\nlater"}
    assert [n.topic for n in talk.of(Note)] == ["warning"]
    assert talk.say("again") == TurnFinished("ok", "fine")


def test_limits_end_the_turn_before_the_next_call(project: Path) -> None:
    step = Step(tools=[("Bash", {"command": "echo x"})])
    talk = Conversation(project, [step] * 9, bounds=Budget(calls=3))
    finished = talk.say("go")
    assert finished.status == "limit"
    assert talk.agent.totals.all.calls == 3
    assert len(talk.of(ToolResult)) == 3
    assert talk.of(End)[-1].status == "limit"


def test_a_context_that_cannot_fit_is_a_limit_and_never_sent(project: Path) -> None:
    talk = Conversation(project, [Step(text="x")], window=3_000)
    finished = talk.say("word " * 600)
    assert finished.status == "limit"
    assert talk.model.requests == []  # type: ignore[attr-defined]


def test_what_cannot_be_recorded_is_not_done(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Bash", {"command": "touch a"})])])
    talk.agent.log.path.parent.write_text("a file stands where the folder should be")
    with pytest.raises(RecordError):
        talk.say("go")
    assert talk.model.requests == []  # type: ignore[attr-defined]
    assert list(project.iterdir()) == []


def test_no_thread_or_task_is_left_behind(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Bash", {"command": "echo x"})]), Step(text="ok")])

    async def run() -> set[str]:
        await run_turn(talk.agent, "go")
        await talk.agent.close()
        return {t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()}

    before = threading.active_count()
    assert asyncio.run(run()) == set()
    assert threading.active_count() <= before


def test_a_feature_may_end_a_turn_after_a_step(project: Path) -> None:
    class Ending(Feature):
        async def step_finished(self) -> str | None:
            return "the plan"

    talk = Conversation(project, [Step(tools=[("Bash", {"command": "echo x"})])])
    talk.agent.features.add(Ending(talk.agent))
    assert talk.say("go") == TurnFinished("ok", "the plan")
    assert talk.kinds()[-2:] == ["tool_result", "end"]
