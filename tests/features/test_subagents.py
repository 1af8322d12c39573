"""Subagents on the scripted model: their input, their output, and how they end."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.app import open_agent
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.config.settings import PermissionSettings, Settings
from ctxagent.agent.config.trust import trust
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request
from ctxagent.agent.events import (
    AgentFinished,
    AgentProgress,
    AgentStarted,
    Answer,
    Ask,
    Compacted,
    Event,
    Question,
    TurnFinished,
)
from ctxagent.agent.features.subagent_types import load_types, parse_type
from ctxagent.agent.features.subagents import MAX_PARALLEL_SUBAGENTS
from ctxagent.agent.launch import Budget, LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.checkpoints import rewind_points
from ctxagent.agent.session.entries import Assistant, Entry, SubagentRun, Summary, ToolResult, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.store import Project
from ctxagent.agent.session.totals import Counts, Totals

from ..compaction.test_engine import RECORD
from ..support.server.validator import validate
from ..support.sessions.killed import write_killed
from ..support.sessions.setup import every_tool

Player = Callable[["Talk", str, int], Step]


def task(description: str, prompt: str, type: str = "explore", **more: Any) -> tuple[str, Any]:
    return "Task", {"description": description, "prompt": prompt, "type": type, **more}


class Talk:
    """A session in `folder`, opened as by the command. `parent` is the list of its model's steps,
    and `child(talk, prompt, n)` returns step n of the subagent whose prompt starts with `prompt`.
    """

    def __init__(
        self,
        folder: Path,
        parent: Sequence[Step],
        child: Player = lambda talk, prompt, number: Step(text="Found."),
        *,
        mode: str = "bypass",
        ask: Ask | None = None,
        bounds: Budget | None = None,
        window: int = 200_000,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
    ) -> None:
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self.folder, self.parent, self.child = folder, list(parent), child
        self.events: list[Event] = []
        self.counts: dict[str, int] = {}
        self.prompts: dict[str, list[Request]] = {}
        self.model = ScriptedModel(self._step, id="claude-haiku-4-5", check=validate, window=window)
        self.launch = LaunchOptions(
            settings=Settings(
                permissions=PermissionSettings(mode=mode, allow=tuple(allow), deny=tuple(deny))  # type: ignore[arg-type]
            ),
            places=Places(
                cwd=self.project,
                state=folder / "state",
                config_home=folder / "config",
                environ={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
            ),
            budget=bounds or Budget(),
            model=self.model,
        )
        self.ask = ask
        self.agent = self.open(SessionChoice())

    def open(self, choice: SessionChoice) -> AgentState:
        self.agent = open_agent(self.launch, choice, emit=self.events.append, ask=self.ask)
        return self.agent

    def _step(self, request: Request) -> Step:
        if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
            return Step(text=RECORD)
        if "You are a subagent" not in request.system[0]["text"]:
            return self.parent.pop(0)
        prompt = first_words(request)
        self.prompts.setdefault(prompt, []).append(request)
        self.counts[prompt] = self.counts.get(prompt, 0) + 1
        return self.child(self, prompt, self.counts[prompt])

    def say(self, words: str, when: Callable[[Event], bool] | None = None) -> TurnFinished:
        """Run one turn. Cancel it at the first event that matches `when`."""

        async def run() -> TurnFinished:
            turn = asyncio.ensure_future(run_turn(self.agent, words))

            def emit(event: Event) -> None:
                self.events.append(event)
                if when and when(event):
                    asyncio.get_running_loop().call_soon(turn.cancel)

            self.agent.emit = emit
            try:
                return await turn
            finally:
                await self.agent.close()

        return asyncio.run(run())

    def entries(self) -> list[Entry]:
        return read_log(self.agent.log.path).entries

    def of(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.entries() if isinstance(entry, kind)]

    def results(self) -> list[ToolResult]:
        return self.of(ToolResult)

    def seen(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def agents(self) -> dict[str, SubagentRun]:
        """Return each subagent's newest entry, by its description."""
        return {entry.description: entry for entry in self.of(SubagentRun)}

    def log_of(self, agent: SubagentRun) -> list[Entry]:
        return read_log(self.agent.folder / agent.log).entries


def approximate(counts: Counts) -> Counts:
    """Return the counts with rounded dollars, because the order of summation varies."""
    assert counts.cost_usd is not None
    return replace(counts, cost_usd=round(counts.cost_usd, 9))


def first_words(request: Request) -> str:
    """Return a subagent's prompt: the first text in its context that the program did not add."""
    for message in request.messages:
        for block in message["content"]:
            text = str(block.get("text", ""))
            if text.startswith("ask:"):
                return text.split("\n")[0]
    return ""


@pytest.mark.slow
def test_one_subagent_has_a_log_and_an_answer_of_its_own(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 1:
            return Step(tools=[("Bash", {"command": "cat a.txt"})])
        return Step(text="It says alpha (a.txt:1).")

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("alpha\n")
    talk = Talk(
        tmp_path, [Step(tools=[task("read a.txt", "ask: what is in a.txt")]), Step(text="Alpha.")],
        child,
    )  # fmt: skip
    assert talk.say("go") == TurnFinished("ok", "Alpha.")
    (result,) = talk.results()
    agent = talk.agents()["read a.txt"]
    assert result.content.startswith("It says alpha (a.txt:1).")
    assert agent.id in result.content
    assert not result.is_error
    assert [entry.status for entry in talk.of(SubagentRun)] == ["running", "done"]
    kinds = [entry.kind for entry in talk.log_of(agent)]
    assert kinds == ["session", "user", "user", "assistant", "tool_result", "assistant", "end"]
    assert talk.log_of(agent)[1].content == "ask: what is in a.txt"  # type: ignore[attr-defined]
    (started,) = talk.seen(AgentStarted)
    (finished,) = talk.seen(AgentFinished)
    assert (started.id, started.type, started.description) == (agent.id, "explore", "read a.txt")
    assert (finished.id, finished.status) == (agent.id, "done")
    assert talk.seen(AgentProgress)[0].id == agent.id
    assert (talk.agent.folder / "agents" / agent.id / "summary.md").is_file()


@pytest.mark.slow
def test_what_a_subagent_is_told_and_given(tmp_path: Path) -> None:
    talk = Talk(
        tmp_path,
        [
            Step(tools=[task("a", "ask: a"), task("b", "ask: b", "general")]),
            Step(text="Done."),
        ],
    )
    (talk.project / "AGENTS.md").write_text("Use tabs.")
    talk.say("secret words")
    (explore,), (general,) = talk.prompts["ask: a"], talk.prompts["ask: b"]
    assert [t["name"] for t in explore.tools] == ["Bash", "Read", "Grep", "Glob", "Recall"]
    names = [t["name"] for t in general.tools]
    assert "Task" not in names
    assert {"Edit", "Write", "Job", "Todo"} <= set(names)
    assert "Your part: explore" in explore.system[0]["text"]
    sent = json.dumps(body(explore))
    assert "Use tabs." in sent
    assert "secret words" not in sent
    first = talk.model.requests[0]
    listed = next(t for t in first.tools if t["name"] == "Task")["description"]
    for name in ("- explore: ", "- general: ", "- review: "):
        assert name in listed


@pytest.mark.slow
def test_four_at_once_and_the_rest_wait(tmp_path: Path) -> None:
    running = most = 0

    def child(talk: Talk, prompt: str, number: int) -> Step:
        nonlocal most
        agents = talk.agent.ledger.agents.values()
        most = max(most, sum(agent.status == "running" for agent in agents))
        if number <= 3:
            return Step(tools=[("Bash", {"command": "echo x"})])
        return Step(text=f"Answer to {prompt}.")

    calls = [task(f"t{n}", f"ask: {n}") for n in range(7)]
    talk = Talk(tmp_path, [Step(tools=calls), Step(text="Done.")], child)
    assert talk.say("go").status == "ok"
    assert most == MAX_PARALLEL_SUBAGENTS
    assert running == 0
    assert [r.content.split("\n")[0] for r in sorted(talk.results(), key=lambda r: r.tool_use_id)] \
        == [f"Answer to ask: {n}." for n in range(7)]  # fmt: skip
    assert talk.agent.context.agents == {}


@pytest.mark.slow
def test_the_totals_are_the_sums_over_all_logs(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        return Step(tools=[("Bash", {"command": "echo x"})]) if number < 4 else Step(text="So.")

    calls = [task(f"t{n}", f"ask: {n}") for n in range(3)]
    talk = Talk(tmp_path, [Step(tools=calls), Step(text="Done.")], child)
    talk.say("go")
    own = Totals()
    for entry in talk.entries():
        if not isinstance(entry, SubagentRun):
            own.add(entry)
    others = [Totals() for _ in range(3)]
    for totals, agent in zip(others, talk.agents().values(), strict=True):
        for entry in talk.log_of(agent):
            totals.add(entry)
    sums = sum((t.all for t in others), own.all)
    assert approximate(talk.agent.totals.all) == approximate(sums)
    assert sums.calls == 2 + 3 * 4
    assert sums.tool_calls == 3 + 3 * 3
    again = Totals()
    for entry in talk.entries():
        again.add(entry)
    assert approximate(again.all) == approximate(sums)
    assert approximate(again.agents) == approximate(sum((t.all for t in others), Counts()))
    assert again.turns == 1


@pytest.mark.slow
def test_a_long_answer_is_bounded_and_its_whole_text_kept(tmp_path: Path) -> None:
    long = "\n".join(f"finding {n} in src/module_{n}.py" for n in range(3_000))
    talk = Talk(
        tmp_path,
        [Step(tools=[task("t", "ask: t"), task("u", "ask: u")]), Step(text="Done.")],
        lambda talk, prompt, number: Step(text=long),
    )
    talk.say("go")
    for result in talk.results():
        assert isinstance(result.content, str)
        assert tokens.estimate(result.content) <= 2_000
        assert "finding 0 in" in result.content
        assert "resume with this id goes on" in result.content
        assert result.offloaded
        assert f"_Task_{result.seq}.md" in result.offloaded
        whole = (talk.agent.folder / result.offloaded).read_text()
        assert whole.startswith(long)
        kept = talk.agent.context.recall(result.seq)
        assert kept is not None
        assert kept.whole() == whole


@pytest.mark.full
@pytest.mark.slow
def test_many_answers_are_bounded_together(tmp_path: Path) -> None:
    long = "\n".join(f"finding {n} in src/module_{n}.py" for n in range(3_000))
    calls = [task(f"t{n}", f"ask: {n}") for n in range(16)]
    talk = Talk(
        tmp_path, [Step(tools=calls), Step(text="Done.")],
        lambda talk, prompt, number: Step(text=long), window=64_000,
    )  # fmt: skip
    talk.say("go")
    last = talk.model.requests[-1].messages[-1]["content"]
    assert tokens.estimate_content(last) < 17_000
    assert sum("finding 0 in" in json.dumps(block) for block in last) > 4
    assert json.dumps(last).count("Full content: Read this file") == 16


def test_an_empty_answer_is_an_error(tmp_path: Path) -> None:
    talk = Talk(
        tmp_path, [Step(tools=[task("t", "ask: t")]), Step(text="Done.")],
        lambda talk, prompt, number: Step(text="  "),
    )  # fmt: skip
    assert talk.say("go").status == "ok"
    (result,) = talk.results()
    assert result.is_error
    assert "3 replies in a row were empty" in str(result.content)
    assert talk.agents()["t"].status == "error"
    (finished,) = talk.seen(AgentFinished)
    assert "3 replies in a row were empty" in finished.reason


@pytest.mark.slow
def test_an_endless_subagent_is_ended_by_the_limit(tmp_path: Path) -> None:
    talk = Talk(
        tmp_path,
        [Step(tools=[task("t", "ask: t")]), Step(text="Done.")],
        lambda talk, prompt, number: Step(
            "Again.", tools=[("Bash", {"command": f"echo {number}"})]
        ),
        bounds=Budget(calls=12),
    )
    finished = talk.say("go")
    assert finished.status == "limit"
    (result,) = talk.results()
    assert result.is_error
    assert "ended by a limit" in str(result.content)
    assert "12 model calls" in str(result.content)
    assert "Its last words:\nAgain." in str(result.content)
    assert talk.agents()["t"].status == "limit"
    assert talk.agent.totals.all.calls == 12


@pytest.mark.slow
def test_a_shared_limit_is_never_overrun(tmp_path: Path) -> None:
    calls = [task(f"t{n}", f"ask: {n}") for n in range(4)]
    talk = Talk(
        tmp_path, [Step(tools=calls)],
        lambda talk, prompt, number: Step(tools=[("Bash", {"command": "echo x"})]),
        bounds=Budget(calls=15),
    )  # fmt: skip
    assert talk.say("go").status == "limit"
    assert talk.agent.totals.all.calls == 15


@pytest.mark.slow
def test_read_only_subagents_change_nothing_in_any_mode(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        commands = ["touch made.txt", "ls > made.txt", "cat a.txt | head -1"]
        if number == 1:
            return Step(tools=[("Bash", {"command": c}) for c in commands])
        return Step(text="Could not.")

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("alpha\n")
    talk = Talk(tmp_path, [Step(tools=[task("t", "ask: t", "review")]), Step(text="Done.")], child)
    assert talk.say("go").status == "ok"
    assert not (talk.project / "made.txt").exists()
    (result,) = talk.results()
    assert not result.is_error
    assert len(result.details["denied"]) == 2
    assert "Not allowed to it:\n- Bash touch made.txt: this subagent only looks" in str(
        result.content
    )
    inner = [e for e in talk.log_of(talk.agents()["t"]) if isinstance(e, ToolResult)]
    assert inner[-1].content == "alpha"


@pytest.mark.slow
def test_denials_of_subagents_count_for_the_parent(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 1:
            return Step(tools=[("Write", {"path": "x.txt", "content": "x"})])
        return Step(text="I was not allowed to.")

    talk = Talk(
        tmp_path, [Step(tools=[task("t", "ask: t", "general")]), Step(text="Done.")], child,
        mode="ask",
    )  # fmt: skip
    finished = talk.say("go")
    assert finished.status == "denied"
    assert "--allow" in (finished.error or {})["message"]
    (result,) = talk.results()
    assert "Not allowed to it:\n- Write x.txt" in str(result.content)
    assert [d.tool for d in talk.agent.denials] == ["Write"]


@pytest.mark.slow
def test_questions_name_the_subagent_and_rules_and_mode_are_live(tmp_path: Path) -> None:
    questions: list[Question] = []

    async def ask(question: Question) -> Answer:
        questions.append(question)
        if len(questions) == 2:
            talk.agent.approval.mode = "bypass"
        kept = len(questions) == 1
        return Answer(True, rule=question.rule * kept, where="session" * kept)

    def child(talk: Talk, prompt: str, number: int) -> Step:
        commands = ["touch a", "touch a", "cp a b", "touch c", "rm a"]
        if number <= len(commands):
            return Step(tools=[("Bash", {"command": commands[number - 1]})])
        return Step(text="Made.")

    talk = Talk(
        tmp_path, [Step(tools=[task("t", "ask: t", "general")]), Step(text="Done.")], child,
        mode="ask", ask=ask, deny=["Bash(rm:*)"],
    )  # fmt: skip
    assert talk.say("go").status == "ok"
    agent = talk.agents()["t"]
    assert [q.title for q in questions] == ["touch a", "cp a b"]
    assert {q.agent for q in questions} == {agent.id}
    assert sorted(p.name for p in talk.project.iterdir()) == ["a", "b", "c"]


@pytest.mark.slow
def test_files_that_subagents_change_are_in_the_parents_ledger(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        name = prompt.removeprefix("ask: ")
        if number == 1:
            return Step(tools=[("Write", {"path": f"{name}.txt", "content": "x\ny\n"})])
        if number == 2:
            return Step(tools=[("Bash", {"command": f"echo z > {name}.sh"})])
        return Step(text="Written.")

    calls = [task(name, f"ask: {name}", "general") for name in ("one", "two")]
    talk = Talk(tmp_path, [Step(tools=calls), Step(text="Done.")], child)
    talk.say("go")
    files = talk.agent.ledger.files
    assert set(files) == {"one.txt", "one.sh", "two.txt", "two.sh"}
    assert {fact.tool for fact in files.values()} == {"Task"}
    for result in talk.results():
        rows = {Path(row["path"]).name: row for row in result.details["changes"]}
        name = "one" if "one.txt" in rows else "two"
        assert {f"{name}.txt", f"{name}.sh"} <= set(rows)
        assert rows[f"{name}.txt"]["added"] == 2
        assert {row["by"] for row in rows.values()} == {result.details["agent"]}
        other = "two" if name == "one" else "one"
        assert f"{other}.txt" not in rows  # what the other one wrote meanwhile
    (point,) = rewind_points(talk.entries())
    assert point.snapshot is not None or point.changed


@pytest.mark.slow
def test_cancelling_ends_all_and_keeps_what_they_had(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 1:
            return Step(text=f"I begin {prompt}.", tools=[("Bash", {"command": "sleep 60"})])
        return Step(text="On.")

    calls = [task(f"t{n}", f"ask: {n}") for n in range(3)]
    talk = Talk(tmp_path, [Step(tools=calls)], child)
    sleeping = 0

    def all_sleep(event: Event) -> bool:
        nonlocal sleeping
        sleeping += isinstance(event, AgentProgress) and event.doing.startswith("thinking")
        return sleeping == 3 and isinstance(event, AgentProgress)

    # What is cancelled is the moment when all three have begun.
    finished = talk.say("go", all_sleep)
    assert finished.status == "interrupted"
    assert len(talk.results()) == 3
    for agent in talk.agents().values():
        assert agent.status == "interrupted"
        assert talk.log_of(agent)[-1].status == "interrupted"  # type: ignore[attr-defined]
        assert (talk.agent.folder / "agents" / agent.id / "summary.md").is_file()
    for result in talk.results():
        assert result.is_error
        assert "was interrupted" in str(result.content)


@pytest.mark.slow
def test_only_the_stopped_subagent_is_cancelled(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        if prompt == "ask: 0":
            running = talk.agent.context.agents[talk.agents()["t0"].id]
            asyncio.get_running_loop().call_soon(running.stop)
            return Step(text="Sleep.", tools=[("Bash", {"command": "sleep 60"})])
        return Step(text="Found.")

    calls = [task(f"t{n}", f"ask: {n}", "general") for n in range(2)]
    talk = Talk(tmp_path, [Step(tools=calls), Step(text="Done.")], child)
    assert talk.say("go").status == "ok"
    agents = talk.agents()
    assert (agents["t0"].status, agents["t1"].status) == ("interrupted", "done")
    assert talk.model.requests[-1].messages[-1]["role"] == "user"


@pytest.mark.slow
def test_an_earlier_one_hands_over_and_can_be_resumed(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        return Step(text=f"Answer {number} of {prompt}: the port is 48231.")

    talk = Talk(
        tmp_path,
        [
            Step(tools=[task("Find  the port", "ask: one")]),
            Step(tools=[task("find the port", "ask: two"), task("other", "ask: three")]),
            Step(text="Done."),
        ],
        child,
    )
    talk.say("go")
    second = json.dumps(body(talk.prompts["ask: two"][0]))
    third = json.dumps(body(talk.prompts["ask: three"][0]))
    assert "## Prior Session Context" in second
    assert "the port is 48231" in second
    said = talk.agent.folder / "agents" / talk.of(SubagentRun)[0].id / "conversation.md"
    assert f"All that was said in it: {said}" in second
    assert "ask: one" in said.read_text()
    assert "[Conversation compressed]" not in second  # nothing was
    assert "## Prior Session Context" not in third
    source = f'Started with the summary of {talk.of(SubagentRun)[0].id} ("Find the port")'
    told = [str(result.content) for result in talk.results() if source in str(result.content)]
    assert ["of ask: two" in text for text in told] == [True]
    first = talk.of(SubagentRun)[0].id
    before = len(talk.log_of(talk.of(SubagentRun)[0]))
    talk.parent = [
        Step(tools=[("Task", {"description": "again", "prompt": "And why?", "resume": first})]),
        Step(tools=[("Task", {"description": "again", "prompt": "x", "resume": "explore-0"})]),
        Step(text="Done."),
    ]
    talk.open(SessionChoice(newest=True))
    talk.say("on")
    sent = json.dumps(body(talk.prompts["ask: one"][1]))
    assert "Answer 1 of ask: one" in sent
    assert "And why?" in sent
    assert len(talk.log_of(talk.of(SubagentRun)[0])) > before
    results = talk.results()
    assert results[-2].content.startswith("Answer 2 of ask: one")
    assert results[-1].is_error
    assert f"There are: {first}" in str(results[-1].content)
    totals = Totals()
    for entry in talk.entries():
        totals.add(entry)
    assert totals.agents.calls == 4


@pytest.mark.slow
def test_a_killed_subagent_is_reported_and_can_be_resumed(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 1:
            return Step(tools=[("Write", {"path": "made.txt", "content": "1\n2\n"})])
        if number == 2:
            return Step("Half way.", tools=[("Bash", {"command": "echo x"})])
        return Step(text="All of it.")

    talk = Talk(
        tmp_path, [Step(tools=[task("make it", "ask: make", "general")]), Step(text="Done.")],
        child,
    )  # fmt: skip
    talk.say("go")
    agent = talk.agents()["make it"]
    log = talk.agent.log.path
    inner = talk.agent.folder / agent.log
    # As a kill leaves it: the parent's log ends with the start, the other's within its second call.
    lines = log.read_bytes().splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if b'"kind": "agent"' in line)
    write_killed(log, lines[: start + 1])
    lines = inner.read_bytes().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if b"Half way." in line)
    write_killed(inner, [*lines[: cut + 1], lines[cut + 1][:20]])
    go_on = {"description": "go on", "prompt": "Go on.", "resume": agent.id}
    talk.parent = [Step(tools=[("Task", go_on)]), Step(text="Done.")]
    loop = talk.open(SessionChoice(newest=True))
    assert loop.totals.all.calls == 1 + 2  # known before it is recorded
    assert talk.say("go on").status == "ok"
    notice = next(e for e in talk.of(User) if e.source == "notice")
    assert f"- {agent.id} (general): make it" in notice.content
    statuses = [e.status for e in talk.of(SubagentRun)]
    assert statuses == ["running", "interrupted", "running", "done"]
    assert talk.of(SubagentRun)[1].answer == "Half way."
    assert list(loop.ledger.files) == ["made.txt"]
    assert loop.ledger.files["made.txt"].added == 2
    (result,) = talk.results()
    assert result.content.startswith("All of it.")
    sums = Totals()
    for path in (log, inner):
        for entry in read_log(path).entries:
            if not isinstance(entry, SubagentRun):
                sums.add(entry)
    assert approximate(loop.totals.all) == approximate(sums.all)
    parent = json.dumps(body(talk.model.requests[-1]))
    assert "outcome unknown" in parent
    talk.parent = [Step(text="Yes.")]
    talk.open(SessionChoice(newest=True))
    talk.say("and?")
    assert sum(e.source == "notice" for e in talk.of(User)) == 1


def test_unfinished_subagents_are_listed_after_a_summary(tmp_path: Path) -> None:
    talk = Talk(
        tmp_path, [Step(tools=[task("t", "ask: t")]), Step(text="Done.")],
        lambda talk, prompt, number: Step(text=" "),
    )  # fmt: skip
    talk.say("go")
    told = "\n".join(
        str(e.content) for e in talk.agent.engine.host.reinserted(()) if isinstance(e, User)
    )
    assert "Subagents that did not finish" in told
    assert talk.agents()["t"].id in told


@pytest.mark.slow
def test_the_parents_recall_and_the_project_find_a_subagents_log(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 1:
            return Step(tools=[("Bash", {"command": "echo the gateway is zanzibar"})])
        return Step(text="Found.")

    talk = Talk(tmp_path, [Step(tools=[task("t", "ask: t")]), Step(text="Done.")], child)
    talk.say("go")
    agent = talk.agents()["t"]
    found = talk.agent.context.search("zanzibar", "session").passages
    name = f"{talk.agent.folder.name}/agents/{agent.id}"
    assert found[0].ref.startswith(f"{name}#")
    kept = talk.agent.context.recall(found[0].ref)
    assert kept is not None
    assert "the gateway is zanzibar" in kept.whole()
    project = Project(talk.launch.places.state, talk.launch.places.cwd)
    log = talk.agent.folder / agent.log
    assert [project.find_log(id) for id in (name, agent.id, agent.id[:-2])] == [log] * 3
    copy = project.fork(talk.agent.log.path)
    assert read_log(copy.parent / agent.log).entries == read_log(log).entries


def test_types_from_files(tmp_path: Path) -> None:
    project, config, state = tmp_path / "p", tmp_path / "config", tmp_path / "state"
    own, foreign = config / "agents", project / ".ctxagent" / "agents"
    own.mkdir(parents=True)
    foreign.mkdir(parents=True)
    head = "---\nname: {}\ndescription: writes docs\ntools: Read, Write\nmodel: m\n---\nWrite.\n"
    (own / "docs.md").write_text(head.format("docs"))
    (own / "broken.md").write_text("no front matter")
    (foreign / "more.md").write_text(head.format("more"))
    (foreign / "again.md").write_text(head.format("explore"))
    tools = [tool.name for tool in every_tool()]

    def loaded() -> tuple[dict[str, Any], list[str]]:
        types, warnings = load_types(
            project, config_home=config, home=tmp_path, trust_dir=state, tools=tools
        )
        return {each.name: each for each in types}, warnings

    types, warnings = loaded()
    assert list(types) == ["explore", "general", "review", "docs"]
    assert types["docs"].tools == ("Read", "Write")
    assert types["docs"].model == "m"
    assert types["docs"].prompt == "Write."
    assert len(warnings) == 3
    assert "front matter" in warnings[0]
    assert all("is not trusted" in each for each in warnings[1:])
    trust(foreign / "more.md", state)
    trust(foreign / "again.md", state)
    types, warnings = loaded()
    assert list(types) == ["explore", "general", "review", "docs", "more"]
    assert types["explore"].source == "built in"
    assert "the type explore already exists" in warnings[-1]
    (foreign / "more.md").write_text(head.format("more") + "changed")
    assert "more" not in loaded()[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("---\nname: x\n---\nDo.", "no description"),
        ("---\nname: ../x\ndescription: d\n---\nDo.", "name is"),
        ("---\nname: x\ndescription: d\n---\n", "no prompt"),
        ("---\nname: x\ndescription: d\n", "does not end"),
        ("---\nname: x\ndescription: d\ntools: [Task]\n---\nDo.", "names Task"),
        ("---\nname: x\ndescription: d\ntools: Fly\n---\nDo.", "unknown tools: Fly"),
        ("---\nname: x\nhooks: d\n---\nDo.", "not one of name"),
    ],
)
def test_broken_types(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_type(text, "f", ["Read"])


@pytest.mark.slow
def test_a_trusted_type_of_the_project_can_do_no_more_than_the_parent(tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".ctxagent" / "agents"
    folder.mkdir(parents=True)
    path = folder / "bold.md"
    path.write_text("---\nname: bold\ndescription: is bold\ntools: Bash\n---\nBe bold.\n")
    trust(path, tmp_path / "state")

    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number == 1:
            return Step(tools=[("Bash", {"command": "touch x"}), ("Read", {"path": "x"})])
        return Step(text="No.")

    talk = Talk(
        tmp_path, [Step(tools=[task("t", "ask: t", "bold")]), Step(text="Done.")], child,
        deny=["Bash(touch:*)"],
    )  # fmt: skip
    talk.say("go")
    assert not (talk.project / "x").exists()
    assert "Be bold." in talk.prompts["ask: t"][0].system[0]["text"]
    inner = [e for e in talk.log_of(talk.agents()["t"]) if isinstance(e, ToolResult)]
    assert "denied by the rule" in str(inner[0].content)
    assert "There is no tool 'Read'" in str(inner[1].content)


def test_calls_that_cannot_begin(tmp_path: Path) -> None:
    calls = [
        task("a", "ask: a", "wizard"),
        ("Task", {"description": "b", "prompt": "ask: b"}),
        task("c", "ask: c", model="no-such-model"),
    ]
    talk = Talk(tmp_path, [Step(tools=calls), Step(text="Done.")], bounds=Budget(dollars=1.0))
    talk.say("go")
    wizard, none, model = (r.content for r in talk.results())
    assert "There is no type 'wizard'" in wizard
    assert "Give a type" in none
    assert "price of no-such-model is not known" in model
    assert talk.of(SubagentRun) == []


@pytest.mark.full
@pytest.mark.slow
def test_each_has_the_window_of_its_own_and_compacts_in_it(tmp_path: Path) -> None:
    def child(talk: Talk, prompt: str, number: int) -> Step:
        if number <= 60:  # results, of which old ones go; then words, which stay, fill the window
            said = "" if number <= 15 else " ".join(f"{number}.{n}" for n in range(600))
            command = f"seq -f 'item %g of {number}' 400"
            return Step(text=said, tools=[("Bash", {"command": command})])
        return Step(text="Counted.")

    talk = Talk(
        tmp_path, [Step(tools=[task("t", "ask: t")]), Step(text="Done.")], child, window=32_000
    )
    assert talk.say("go").status == "ok"
    kinds = {entry.kind for entry in talk.log_of(talk.agents()["t"])}
    assert {"mask", "summary"} <= kinds
    largest = max(len(json.dumps(body(request))) for request in talk.prompts["ask: t"])
    assert largest < 4 * 32_000
    assert not [e for e in talk.entries() if isinstance(e, Summary)]
    assert talk.agent.totals.all.compaction["summaries"] > 1
    assert talk.agent.totals.own.compaction["summaries"] == 0
    assert {event.agent for event in talk.seen(Compacted)} == {talk.agents()["t"].id}
    assert all(e.purpose == "turn" for e in talk.of(Assistant))
