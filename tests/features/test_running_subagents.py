"""Subagents in the background: notices for the model, messages, interrupts and limits."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.request_check import check_with_subagents
from ctxagent.agent.context.request import Request
from ctxagent.agent.events import AgentFinished, AgentProgress, AgentStarted, Answer, Question
from ctxagent.agent.features.subagents import MAX_PARALLEL_SUBAGENTS
from ctxagent.agent.launch import Budget, SessionChoice
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.checkpoints import rewind_points
from ctxagent.agent.session.entries import Note, SubagentRun, ToolResult, User

from .test_subagents import Talk, task

WAITS = "read line < gate"  # what a subagent does until `Live.go` opens the gate
Act = Callable[["Live"], Awaitable[None]]


def begin(name: str, type: str = "general", **more: Any) -> tuple[str, Any]:
    return task(name, f"ask: {name}", type, background=True, **more)


def message(id: str, prompt: str, **more: Any) -> tuple[str, Any]:
    return "Task", {"description": "more", "prompt": prompt, "resume": id, **more}


def waiting_child(talk: Talk, prompt: str, number: int) -> Step:
    """Wait at the gate, then answer."""
    if number == 1:
        return Step(tools=[("Bash", {"command": WAITS})])
    return Step(text=f"Answer to {prompt}.")


class Live(Talk):
    """A session that runs several turns before it is closed."""

    def live(self, act: Act) -> None:
        gate = self.project / "gate"
        if not gate.exists():
            os.mkfifo(gate)
        self.gate = os.open(gate, os.O_RDWR)

        async def run() -> None:
            try:
                async with asyncio.timeout(60):
                    await act(self)
            finally:
                await self.agent.close()
                os.close(self.gate)

        asyncio.run(run())

    async def turn(self, words: str) -> str:
        return (await run_turn(self.agent, words)).status

    def go(self, times: int = 1) -> None:
        """Let this number of subagents continue."""
        os.write(self.gate, b"go\n" * times)

    async def until(self, seen: Callable[[], object]) -> None:
        while not seen():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.005)

    async def ended(self, count: int = 1) -> None:
        await self.until(lambda: len(self.seen(AgentFinished)) >= count)

    async def waits_at_gate(self, count: int = 1) -> None:
        def waiting() -> bool:
            doing = {e.id for e in self.seen(AgentProgress) if WAITS in e.doing}
            return len(doing) >= count

        await self.until(waiting)

    @property
    def id(self) -> str:
        return next(iter(self.agent.ledger.agents))

    def notices(self) -> list[str]:
        return [str(e.content) for e in self.of(User) if e.source == "notice"]


def sent(request: Request) -> str:
    return json.dumps(body(request))


def live(folder: Path, steps: Sequence[Step], act: Act, **more: Any) -> Live:
    talk = Live(folder, steps, more.pop("child", waiting_child), **more)
    talk.live(act)
    return talk


def test_the_conversation_continues_and_is_notified_once(tmp_path: Path) -> None:
    async def act(talk: Live) -> None:
        assert await talk.turn("go") == "ok"
        await talk.waits_at_gate()
        assert talk.agent.ledger.agents[talk.id].status == "running"
        assert await talk.turn("and?") == "ok"
        talk.go()
        await talk.ended()
        assert await talk.turn("now?") == "ok"
        assert await talk.turn("again?") == "ok"

    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 2:
            return Step(tools=[("Write", {"path": "made.txt", "content": "x\n"})])
        return waiting_child(talk, prompt, number)

    says = [Step(text=text) for text in ("Begun.", "Not yet.", "I see.", "Nothing new.")]
    talk = live(tmp_path, [Step(tools=[begin("look")]), *says], act, child=child)
    (result,) = talk.results()
    assert result.content.startswith(f"[{talk.id} works in the background; ")
    assert [e.status for e in talk.of(SubagentRun)] == ["running", "done"]
    (notice,) = [e for e in talk.of(User) if e.source == "notice"]
    assert notice.content.startswith(f"{talk.id} (general): look. It has ended in the background:")
    assert "Answer to ask: look." in notice.content
    assert notice.details["agent"] == talk.id
    parent = [r for r in talk.model.requests if "You are a subagent" not in r.system[0]["text"]]
    assert [sent(r).count("It has ended in the background") for r in parent] == [0, 0, 0, 1, 1]
    (changed,) = [e for e in talk.of(Note) if e.topic == "agent"]
    assert [Path(row["path"]).name for row in changed.data["changes"]] == ["made.txt"]
    assert list(talk.agent.ledger.files) == ["made.txt"]
    assert [e.background for e in talk.seen(AgentStarted)] == [True]
    assert [e.background for e in talk.seen(AgentFinished)] == [True]
    assert check_with_subagents(talk.agent.log.path).holds
    kept = talk.agent.context.recall(notice.seq)
    assert kept is not None
    assert "Answer to ask: look." in kept.whole()
    talk.parent = [Step(text="Yes.")]
    talk.open(SessionChoice(newest=True))
    talk.say("on")
    assert len(talk.notices()) == 1


def test_each_turn_during_its_work_has_a_snapshot(tmp_path: Path) -> None:
    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.waits_at_gate()
        await talk.turn("and?")

    steps = [Step(tools=[begin("look")]), Step(text="Begun."), Step(text="Not yet.")]
    talk = live(tmp_path, steps, act)
    assert [point.changed for point in rewind_points(talk.entries())] == [True, True]


def test_a_running_subagent_gets_another_message(tmp_path: Path) -> None:
    """It gets the message before its next call. A message after its last call continues the
    turn.
    """
    given: list[str] = []

    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 2:  # while it writes its answer
            talk.agent.context.agents[talk.agents()["look"].id].messages.append("And the tests?")
        return waiting_child(talk, prompt, number)

    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.waits_at_gate()
        talk.parent.insert(0, Step(tools=[message(talk.id, "Look at b too.", background=True)]))
        await talk.turn("more")
        given.append(str(talk.results()[-1].content))
        talk.go()
        await talk.ended()

    steps = [Step(tools=[begin("look")]), Step(text="Begun."), Step(text="Told.")]
    talk = live(tmp_path, steps, act, child=child)
    assert given == [
        f"[{talk.id} is at work and gets this before its next call; you are told when it ends]"
    ]
    second, third = talk.prompts["ask: look"][1:]
    assert "Look at b too." in sent(second)
    assert "And the tests?" not in sent(second)
    assert "And the tests?" in sent(third)
    said = [e.content for e in talk.log_of(talk.agents()["look"]) if isinstance(e, User)]
    assert [words for words in said if "ask" in str(words) or "?" in str(words)] == [
        "ask: look", "And the tests?",
    ]  # fmt: skip
    assert [e.status for e in talk.of(SubagentRun)] == ["running", "done"]


def test_a_call_without_background_waits_for_a_running_subagent(tmp_path: Path) -> None:
    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.waits_at_gate()
        talk.parent.insert(0, Step(tools=[message(talk.id, "Be quick.")]))
        turn = asyncio.ensure_future(talk.turn("wait for it"))
        await talk.until(lambda: talk.agent.context.foreground)
        talk.go()
        assert await turn == "ok"

    steps = [Step(tools=[begin("look")]), Step(text="Begun."), Step(text="Good.")]
    talk = live(tmp_path, steps, act)
    assert str(talk.results()[-1].content).startswith("Answer to ask: look.")
    assert talk.notices() == []
    assert [e.background for e in talk.seen(AgentFinished)] == [False]


def test_an_ended_subagent_resumes_in_the_background(tmp_path: Path) -> None:
    async def act(talk: Live) -> None:
        await talk.turn("go")
        talk.go()
        await talk.ended()
        talk.parent.insert(0, Step(tools=[message(talk.id, "And b?", background=True)]))
        await talk.turn("more")
        await talk.ended(2)
        await talk.turn("and?")

    steps = [Step(tools=[begin("look")]), *(Step(text="So.") for _ in range(3))]
    talk = live(tmp_path, steps, act)
    assert [e.status for e in talk.of(SubagentRun)] == ["running", "done"] * 2
    assert len(talk.notices()) == 2
    assert "And b?" in sent(talk.prompts["ask: look"][-1])
    assert talk.of(SubagentRun)[-1].calls == 3


def test_an_interrupt_does_not_stop_a_background_subagent(tmp_path: Path) -> None:
    """Even if a call waited for it."""

    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.waits_at_gate()
        talk.parent.insert(0, Step(tools=[message(talk.id, "Be quick.")]))
        turn = asyncio.ensure_future(run_turn(talk.agent, "wait for it"))
        await talk.until(lambda: talk.agent.context.foreground)
        turn.cancel()
        assert (await turn).status == "interrupted"
        assert list(talk.agent.context.agents) == [talk.id]
        assert talk.agent.context.agents[talk.id].in_background
        talk.go()
        await talk.ended()
        await talk.turn("and?")

    steps = [Step(tools=[begin("look")]), Step(text="Begun."), Step(text="Good.")]
    talk = live(tmp_path, steps, act)
    assert len(talk.notices()) == 1
    assert [e.status for e in talk.of(SubagentRun)] == ["running", "done"]


def test_one_in_the_foreground_is_sent_to_the_background(tmp_path: Path) -> None:
    async def act(talk: Live) -> None:
        turn = asyncio.ensure_future(talk.turn("go"))
        await talk.waits_at_gate()
        (send,) = talk.agent.context.foreground
        send()
        assert await turn == "ok"
        talk.go()
        await talk.ended()
        await talk.turn("and?")

    steps = [Step(tools=[task("look", "ask: look", "general")]), Step(text="So."), Step(text="I.")]
    talk = live(tmp_path, steps, act)
    assert "the user sent" in str(talk.results()[0].content)
    assert talk.results()[0].details["backgrounded"] is True
    assert [e.background for e in talk.seen(AgentStarted)] == [False, True]
    assert [e.status for e in talk.of(SubagentRun)] == ["running", "done"]
    assert len(talk.notices()) == 1


def test_slots_are_limited_and_a_waiting_subagent_can_be_stopped(tmp_path: Path) -> None:
    count = MAX_PARALLEL_SUBAGENTS + 2

    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.waits_at_gate(MAX_PARALLEL_SUBAGENTS)
        running = list(talk.agent.context.agents.values())
        assert len(running) == count
        assert sum(each.child is not None for each in running) == MAX_PARALLEL_SUBAGENTS
        running[-1].stop()
        await talk.ended()
        talk.go(count - 1)
        await talk.ended(count)
        await talk.turn("and?")

    calls = [begin(f"n{number}") for number in range(count)]
    talk = live(tmp_path, [Step(tools=calls), Step(text="Begun."), Step(text="Good.")], act)
    states = [agent.status for agent in talk.agents().values()]
    assert states == ["done"] * (count - 1) + ["interrupted"]
    assert "was stopped before it had begun" in "".join(talk.notices())
    assert len(talk.notices()) == count


def test_a_subagent_that_cannot_start_is_reported(tmp_path: Path) -> None:
    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.ended()
        await talk.turn("and?")

    unpriced = begin("look", model="claude-of-nobody")
    steps = [Step(tools=[unpriced]), Step(text="Begun."), Step(text="Good.")]
    talk = live(tmp_path, steps, act, bounds=Budget(dollars=1.0))
    (notice,) = talk.notices()
    assert "No subagent could be started" in notice
    assert talk.agents()["look"].status == "error"


def test_limits_hold_in_the_background(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        return Step(tools=[("Bash", {"command": f"echo {number}"})])

    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.ended()

    steps = [Step(tools=[begin("look")]), Step(text="Begun.")]
    talk = live(tmp_path, steps, act, child=child, bounds=Budget(calls=9))
    assert talk.agents()["look"].status == "limit"
    assert talk.agent.totals.all.calls == 9


@pytest.mark.parametrize("can_ask", [True, False])
def test_a_question_between_turns_names_it(tmp_path: Path, can_ask: bool) -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> Answer:
        asked.append(question)
        return Answer(True)

    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 1:
            return Step(tools=[("Write", {"path": "made.txt", "content": "x"})])
        return Step(text="So.")

    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.ended()
        status = await talk.turn("and?")
        assert status == ("ok" if can_ask else "denied")

    steps = [Step(tools=[begin("look")]), Step(text="Begun."), Step(text="Good.")]
    options: dict[str, Any] = {"mode": "ask", "child": child, "ask": ask if can_ask else None}
    talk = live(tmp_path, steps, act, **options)
    assert [question.agent for question in asked] == [talk.id] * can_ask
    assert (talk.project / "made.txt").exists() is can_ask
    assert ("Not allowed to it" in talk.notices()[0]) is not can_ask


def test_subagents_interrupted_by_the_end_of_the_session_can_be_resumed(tmp_path: Path) -> None:
    """A subagent that had no free slot yet starts with its first prompt."""
    count = MAX_PARALLEL_SUBAGENTS + 1

    async def act(talk: Live) -> None:
        await talk.turn("go")
        await talk.waits_at_gate(MAX_PARALLEL_SUBAGENTS)

    calls = [begin(f"n{number}") for number in range(count)]
    talk = live(tmp_path, [Step(tools=calls), Step(text="Begun.")], act)
    agents = talk.agents()
    assert {agent.status for agent in agents.values()} == {"interrupted"}
    first, last = agents["n0"].id, agents[f"n{count - 1}"].id
    talk.parent = [
        Step(tools=[message(first, "Go on."), message(last, "Go on.")]), Step(text="Good."),
    ]  # fmt: skip
    talk.child = lambda talk, prompt, number: Step(text=f"Answer to {prompt}.")
    talk.open(SessionChoice(newest=True))
    talk.say("go on")
    (notice,) = talk.notices()
    assert all(f"- {agent.id} (general)" in notice for agent in agents.values())
    answers = [str(result.content).split("\n")[0] for result in talk.results()[-2:]]
    assert sorted(answers) == ["Answer to ask: n0.", f"Answer to ask: n{count - 1}."]
    talk.parent = [Step(text="Yes.")]
    talk.open(SessionChoice(newest=True))
    talk.say("and?")
    assert len(talk.notices()) == 1
    assert len([r for r in talk.results() if isinstance(r, ToolResult)]) == count + 2
