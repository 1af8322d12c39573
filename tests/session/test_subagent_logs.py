"""Logs of subagents: refs to their logs, the results of killed ones, hand-overs to later ones, and
limits of `resume`.
"""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.settings import PermissionSettings, Settings
from ctxagent.agent.context.request import Request
from ctxagent.agent.features.crash_recovery import CrashRecoveryFeature
from ctxagent.agent.launch import SessionChoice
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Note, SubagentRun, ToolResult, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.store import Project
from ctxagent.agent.session.subagent_logs import qualify_refs, subagent_log
from ctxagent.agent.session.totals import Totals
from ctxagent.tools.system.kept_text import KeptText

from ..e2e.test_subagent_http import Cast, agent_logs, tasks
from ..features.test_subagents import Talk, approximate, task
from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.server.loopback import Step as ServerStep
from ..support.sessions.killed import write_killed

FACT = "the gateway is zanzibar"


def cut_after(log: Path, status: str, count: int = 1) -> None:
    """Cut a log as a kill right after the entry with the status does."""
    lines = log.read_bytes().splitlines(keepends=True)
    mark = f'"status": "{status}"'.encode()
    places = [n for n, line in enumerate(lines) if b'"kind": "agent"' in line and mark in line]
    write_killed(log, lines[: places[count - 1] + 1])


def notices(talk: Talk) -> list[str]:
    return [str(e.content) for e in talk.of(User) if e.source == "notice"]


def shown(request: Request) -> str:
    return "\n".join(
        str(block.get("text", "")) for message in request.messages for block in message["content"]
    )


def sums_of(talk: Talk) -> Totals:
    """Return the sums over the calls in all logs of the session."""
    totals = Totals()
    for log in (talk.agent.log.path, *talk.agent.folder.glob("agents/*/log.jsonl")):
        for entry in read_log(log).entries:
            if not isinstance(entry, SubagentRun):
                totals.add(entry)
    return totals


@pytest.mark.slow
def test_refs_that_leave_a_subagent_name_its_log(tmp_path: Path) -> None:
    """In its answer to the parent, and in a hand-over to a later subagent."""

    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 1:
            return Step(tools=[("Bash", {"command": f"echo {FACT}"})])
        return Step(text="It stands in #5 (see #4, not #900 and not other/agents/x#5).")

    talk = Talk(
        tmp_path,
        [Step(tools=[task("t", "ask: t")]), Step(tools=[task("t", "ask: u")]), Step(text="So.")],
        child,
    )
    talk.say("go")
    agent = talk.of(SubagentRun)[0]
    name = f"{talk.agent.folder.name}/agents/{agent.id}"
    inner = next(e for e in talk.log_of(agent) if isinstance(e, ToolResult))
    assert inner.seq == 5
    told = f"It stands in {name}#5 (see {name}#4, not #900 and not other/agents/x#5)."
    assert str(talk.results()[0].content).startswith(told)
    assert talk.agents()["t"].answer.startswith("It stands in ")
    assert talk.agent.context.recall(f"{name}#5") == KeptText(FACT)
    prior = shown(talk.prompts["ask: u"][0])
    assert told in prior
    assert "in #5" not in prior


def test_only_refs_are_taken_for_refs(tmp_path: Path) -> None:
    log = tmp_path / "p" / "sessions" / "s" / "agents" / "a" / "log.jsonl"
    same = "&#38; a#1 b/#1 #0 #9 #1a #"
    assert qualify_refs(same, log, 8) == same
    assert qualify_refs("#8, (#1)", log, 8) == "s/agents/a#8, (s/agents/a#1)"
    assert qualify_refs(qualify_refs("#8", log, 8), log, 8) == "s/agents/a#8"


@pytest.mark.slow
def test_another_model_is_asked_for_no_more_than_it_gives(tmp_path: Path) -> None:
    place = Place(tmp_path)
    given = {"description": "d", "prompt": "ask: red", "type": "explore", "model": "tiny-1"}
    parent: list[Any] = [Say(tools=[("Task", given)]), Say("Done.")]
    cast = Cast(parent, lambda word, number: Say("Counted."))
    with Server(cast, models={"tiny-1": (200_000, 4_000)}) as server:
        done = place.run("-p", "go", "--max-tokens", "30000", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    asked = {request["model"]: request["max_tokens"] for request in server.requests}
    assert asked.pop("tiny-1") == 4_000
    assert list(asked.values()) == [30_000]


@pytest.mark.slow
def test_resume_obeys_rules_on_a_type(tmp_path: Path) -> None:
    talk = Talk(tmp_path, [Step(tools=[task("t", "ask: t", "general")]), Step(text="Done.")])
    talk.say("go")
    id = talk.agents()["t"].id
    rules = PermissionSettings(mode="bypass", deny=("Task(general)",))
    talk.launch = replace(talk.launch, settings=Settings(permissions=rules))
    go_on = {"description": "on", "prompt": "On.", "resume": id}
    calls = [("Task", go_on), ("Task", go_on | {"type": "explore"})]
    talk.parent = [Step(tools=calls), Step(text="Done.")]
    talk.open(SessionChoice(newest=True))
    talk.say("on")
    for result in talk.results()[1:]:
        assert result.is_error
        assert "denied by the rule Task(general)" in str(result.content)
    assert len(talk.prompts["ask: t"]) == 1


@pytest.mark.slow
def test_resume_with_another_type_is_refused(tmp_path: Path) -> None:
    talk = Talk(tmp_path, [Step(tools=[task("t", "ask: t", "general")]), Step(text="Done.")])
    talk.say("go")
    id = talk.agents()["t"].id
    talk.parent = [Step(tools=[task("on", "On.", "explore", resume=id)]), Step(text="Done.")]
    talk.open(SessionChoice(newest=True))
    talk.say("on")
    assert talk.results()[-1].is_error
    assert f"{id} is of type general, not explore" in str(talk.results()[-1].content)
    assert len(talk.of(SubagentRun)) == 2


@pytest.mark.slow
def test_manual_work_in_a_subagent_counts_for_the_parent(tmp_path: Path) -> None:
    place = Place(tmp_path)
    parent: list[Any] = [tasks("red", type="general"), Say("Done.")]
    with Server(Cast(parent, lambda word, number: Say("It is red."))) as server:
        place.run("-p", "go", env=place.server(server.url))
    (inner,) = agent_logs(place)
    steps: list[ServerStep] = [
        Say(tools=[("Write", {"path": "by-hand.txt", "content": "x"})]),
        Say("Written."),
    ]
    with Server(steps) as server:
        options = ("-p", "more", "--resume", inner.parent.name, "--permission-mode", "bypass")
        assert place.run(*options, env=place.server(server.url)).returncode == 0
    for number in range(2):
        with Server([Say("Yes.")]) as server:
            options = ("-p", "and?", "--continue", "--output-format", "json")
            done = json.loads(place.run(*options, env=place.server(server.url)).stdout)
        assert done["calls"] == 2 + 1 + 2 + 1 + number
        assert done["tool_calls"] == 1 + 1
        (agent,) = done["agents"]
        assert (agent["status"], agent["calls"]) == ("done", 3)
    (log,) = place.logs()
    entries = read_log(log).entries
    assert [e.answer for e in entries if isinstance(e, SubagentRun)] == [
        "",
        "It is red.",
        "It is red.",
    ]
    (note,) = [e for e in entries if isinstance(e, Note) and e.topic == "agent"]
    assert [Path(row["path"]).name for row in note.data["changes"]] == ["by-hand.txt"]
    assert not [e for e in entries if isinstance(e, User) and e.source == "notice"]


@pytest.mark.slow
def test_one_that_had_finished_before_the_kill_is_not_called_unfinished(tmp_path: Path) -> None:
    for moment in ("running", "done"):  # its end is in its own log alone, or in both
        (tmp_path / moment).mkdir()
        talk = Talk(
            tmp_path / moment,
            [Step(tools=[task("t", "ask: t"), task("u", "ask: u")])],
            lambda talk, prompt, number: Step(text=f"Found {prompt} in #3."),
        )
        talk.parent.append(Step(text="Done."))
        talk.say("go")
        cut_after(talk.agent.log.path, moment, 2)
        if moment == "done":
            lines = talk.agent.log.path.read_bytes().splitlines(keepends=True)
            kept = [line for line in lines if b'"kind": "tool_result"' not in line]
            write_killed(talk.agent.log.path, kept)
        talk.parent = [Step(text="Good.")]
        talk.open(SessionChoice(newest=True))
        talk.say("on")
        (notice,) = notices(talk)
        assert "did not finish" not in notice
        for agent in talk.agents().values():
            assert agent.status == "done"
            assert agent.answer.endswith(f"/agents/{agent.id}#3.")
            assert agent.answer in notice
            assert f"{agent.id} (explore)" in notice
        assert approximate(talk.agent.totals.all) == approximate(sums_of(talk).all)
        assert notice in shown(talk.model.requests[-1])


@pytest.mark.slow
def test_unfinished_subagents_are_reported_once(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        return Step(tools=[("Bash", {"command": "echo x"})]) if number == 1 else Step(text="So.")

    talk = Talk(tmp_path, [Step(tools=[task("t", "ask: t")]), Step(text="Done.")], child)
    talk.say("go")
    agent = talk.agents()["t"]
    cut_after(talk.agent.log.path, "running")
    inner = talk.agent.folder / agent.log
    write_killed(inner, inner.read_bytes().splitlines(keepends=True)[:-2])
    for number in range(3):
        talk.parent = [Step(text="No, thanks.")]
        talk.open(SessionChoice(newest=True))
        talk.say(f"on {number}")
        assert [agent.id in notice for notice in notices(talk)] == [True]
        assert "did not finish" in notices(talk)[0]
    assert [e.status for e in talk.of(SubagentRun)] == ["running", "interrupted"]


@pytest.mark.slow
def test_one_that_goes_on_keeps_its_work_for_those_after_it(tmp_path: Path) -> None:
    talk = Talk(
        tmp_path, [Step(tools=[task("find it", "ask: a")]), Step(text="Done.")],
        lambda talk, prompt, number: Step(text=f"The port is {48230 + number}."),
    )  # fmt: skip
    talk.say("go")
    id = talk.agents()["find it"].id
    more = {"description": "other words", "prompt": "More.", "resume": id}
    talk.parent = [
        Step(tools=[("Task", more)]),
        Step(tools=[task("find it", "ask: b")]),
        Step(text="Done."),
    ]
    talk.open(SessionChoice(newest=True))
    talk.say("on")
    assert {agent.id: agent.description for agent in talk.of(SubagentRun)}[id] == "find it"
    assert "The port is 48232." in shown(talk.prompts["ask: b"][0])


def test_a_finished_one_hands_over_no_next_steps(tmp_path: Path) -> None:
    talk = Talk(
        tmp_path,
        [Step(tools=[task("t", "ask: a")]), Step(tools=[task("t", "ask: b")]), Step(text="So.")],
        lambda talk, prompt, number: Step(text="The port is 48231."),
    )
    talk.say("go")
    prior = shown(talk.prompts["ask: b"][0])
    assert "it ended as: done" in prior
    assert "Go on with" not in prior
    summary = (talk.agent.folder / talk.of(SubagentRun)[0].log).with_name("summary.md").read_text()
    done, _, rest = summary.partition("**Done:**")[2].partition("**In Progress:**")
    assert "The port is 48231." in done, rest


@pytest.mark.slow
def test_stopping_a_waiting_subagent_stops_no_other(tmp_path: Path) -> None:
    stopped: list[str] = []

    def child(talk: Talk, prompt: str, number: int) -> Step:
        agents = talk.agent.context.agents
        if not stopped:
            begun = {agent.id for agent in talk.of(SubagentRun)}
            stopped.append(next(id for id in agents if id not in begun and len(agents) == 6))
            asyncio.get_running_loop().call_soon(agents[stopped[0]].stop)
        if number <= 3:
            return Step(tools=[("Bash", {"command": "echo x"})])
        return Step(text="Found.")

    calls = [task(f"t{n}", f"ask: {n}") for n in range(6)]
    talk = Talk(tmp_path, [Step(tools=calls), Step(text="Done.")], child)
    assert talk.say("go").status == "ok"
    results = talk.results()
    assert [r.is_error for r in results].count(True) == 1
    assert f"{stopped[0]} was stopped before it had begun" in "".join(
        str(r.content) for r in results
    )
    assert stopped[0] not in talk.agent.ledger.agents
    assert [a.status for a in talk.agents().values()] == ["done"] * 5
    assert talk.agent.context.agents == {}


@pytest.mark.slow
def test_a_copy_up_to_a_point_has_what_its_subagents_had_done_by_then(tmp_path: Path) -> None:
    """The undone run is not in the copy's conversation, files or costs."""

    def child(talk: Talk, prompt: str, number: int) -> Step:
        name = f"{'ab'[number > 2]}.txt"
        if number % 2:
            return Step(tools=[("Write", {"path": name, "content": "x"})])
        return Step(text=f"Wrote {name}.")

    talk = Talk(
        tmp_path, [Step(tools=[task("t", "ask: t", "general")]), Step(text="First.")], child
    )
    talk.say("first")
    id, bill = talk.agents()["t"].id, talk.agent.totals.all
    told = len(talk.log_of(talk.agents()["t"]))
    talk.parent = [Step(tools=[task("on", "And b.", resume=id)]), Step(text="Second.")]
    talk.open(SessionChoice(newest=True))
    talk.say("second")
    log = talk.agent.log.path
    point = next(entry.seq for entry in talk.of(User) if entry.content == "second")
    project = Project(tmp_path / "state", talk.project)

    copy = project.fork(log, point - 1)
    again = talk.open(SessionChoice(id=copy.parent.name))
    assert list(again.ledger.files) == ["a.txt"]
    assert again.totals.all == bill
    recovery = again.features.find(CrashRecoveryFeature)
    assert recovery
    assert recovery.unrecorded == []
    inner = read_log(subagent_log(copy.parent, id)).entries
    assert len(inner) == told
    said = subagent_log(copy.parent, id).with_name("conversation.md").read_text()
    assert "Wrote a.txt." in said
    assert "And b." not in said
    asyncio.run(again.close())
    whole = project.fork(log)
    kept = subagent_log(whole.parent, id)
    assert kept.read_bytes() == subagent_log(log.parent, id).read_bytes()


@pytest.mark.slow
def test_a_copy_has_what_a_killed_subagent_did_before_the_point(tmp_path: Path) -> None:
    """The parent's log does not mention the work, but it was done before the message."""
    talk = Talk(tmp_path, [Step(tools=[task("t", "ask: t")]), Step(text="Done.")])
    talk.say("go")
    log, id = talk.agent.log.path, talk.agents()["t"].id
    cut_after(log, "running")
    talk.parent = [Step(text="Yes.")]
    talk.open(SessionChoice(newest=True))
    talk.say("again")
    point = next(entry.seq for entry in talk.of(User) if entry.content == "again")
    copy = Project(tmp_path / "state", talk.project).fork(log, point - 1)
    inner = subagent_log(copy.parent, id)
    assert inner.read_bytes() == subagent_log(log.parent, id).read_bytes()
