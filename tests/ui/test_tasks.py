"""The list of tasks: each subagent and job with its state, also after its process has ended."""

import asyncio
import json
from pathlib import Path

from ctxagent.agent.launch import SessionChoice
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.ui.tasks import SessionTask, Subagents, background_tasks, tasks_of

from ..features.test_subagents import Talk, task


def states(agent: AgentState) -> dict[str, str]:
    return {each.what: each.state for each in tasks_of(agent, Subagents())}


def job(command: str) -> tuple[str, dict[str, object]]:
    return "Bash", {"command": command, "run_in_background": True}


def test_every_task_is_listed_with_its_state(tmp_path: Path) -> None:
    steps = [
        Step(tools=[task("good", "ask: good"), task("bad", "ask: bad")]),
        Step(tools=[job("true"), job("exit 3"), job("sleep 300"), job("sleep 301")]),
        Step(tools=[("Job", {"action": "wait", "id": id}) for id in ("job-1", "job-2")]),
        Step(tools=[("Job", {"action": "end", "id": "job-3"})]),
        Step(text="Done."),
    ]
    talk = Talk(tmp_path, steps, lambda talk, prompt, n: Step(text="So." * ("good" in prompt)))

    async def act() -> list[SessionTask]:
        try:
            await run_turn(talk.agent, "go")
            return [*tasks_of(talk.agent, Subagents()), *background_tasks(talk.agent)]
        finally:
            await talk.agent.close()

    *tasks, running = asyncio.run(act())
    subagents = {"explore: good": "done", "explore: bad": "failed"}
    jobs = {"true": "done", "exit 3": "failed", "sleep 300": "stopped"}
    assert {each.what: each.state for each in tasks} == {
        **subagents, **jobs, "sleep 301": "running",
    }  # fmt: skip
    assert running.what == "sleep 301"
    assert running.is_running
    by_work = {each.what: each for each in tasks}
    assert by_work["exit 3"].facts == ["exit 3"]
    assert by_work["explore: good"].tokens
    assert by_work["sleep 300"].seconds is not None
    agent = talk.open(SessionChoice(newest=True))
    assert states(agent) == {**subagents, **jobs, "sleep 301": "lost"}
    asyncio.run(agent.close())


def test_a_killed_one_is_lost_unless_it_had_finished(tmp_path: Path) -> None:
    """Before and after the next turn records the result."""
    steps = [Step(tools=[task("ended", "ask: a"), task("cut", "ask: b")]), Step(text="Done.")]
    talk = Talk(tmp_path, steps)
    talk.say("go")
    log, agents = talk.agent.log.path, talk.agents()
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if json.loads(line).get("status") != "done"))
    inner = talk.agent.folder / agents["cut"].log
    inner.write_bytes(b"".join(inner.read_bytes().splitlines(keepends=True)[:-1]))
    expected = {"explore: ended": "done", "explore: cut": "lost"}
    agent = talk.open(SessionChoice(newest=True))
    assert states(agent) == expected
    assert {run.status for run in agent.ledger.agents.values()} == {"running"}
    talk.parent = [Step(text="I see.")]
    talk.say("on")
    assert states(talk.agent) == expected
    assert talk.agents()["cut"].lost
    assert not talk.agents()["ended"].lost
