"""Subagents on the screen: while running, at their end, in questions, and on standard error."""

import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.app import open_agent
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.config.settings import PermissionMode, PermissionSettings, Settings
from ctxagent.agent.context.request import Request
from ctxagent.agent.events import (
    AgentFinished,
    AgentProgress,
    AgentStarted,
    Ask,
    CallFinished,
    Compacted,
    Emit,
    Event,
    Notice,
    Question,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    UserSaid,
)
from ctxagent.agent.launch import LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant
from ctxagent.agent.session.log import read_log
from ctxagent.agent.ui import status
from ctxagent.agent.ui.headless import Headless, OutputFormat
from ctxagent.agent.ui.transcript import Transcript

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.server.validator import validate
from ..support.sessions.conversation import Conversation
from ..support.sessions.setup import long_text
from ..support.terminal.command_line import CommandDesk
from ..support.terminal.screen import Terminal
from ..support.terminal.seat import ESC, Desk, Glass, Seat, drive
from ..support.terminal.watch import Watch, seen
from ..ui.test_repl import RECORD

USED = {"input": 1_000, "cache_read": 500, "cache_creation": 0, "output": 40}


class WideWatch(Watch):
    @property
    def text(self) -> str:
        return seen(*self.printed, width=200)


def started(number: int) -> list[Event]:
    title = f"explore: part {number}"
    return [
        ToolStarted(f"call{number}", "Task", title, {}),
        AgentStarted(f"a{number}", "explore", f"part {number}"),
    ]


def test_a_running_subagent_is_one_line_under_its_call() -> None:
    watch = Watch()
    watch.show(*started(1))
    assert watch.live == "\n● Task  explore: part 1\n  explore · part 1 · starting\n"
    watch.now += 12
    watch.show(AgentProgress("a1", 12, 30, 23_400, "ORANGE", 'Grep "x"'))
    assert watch.live == (
        "\n● Task  explore: part 1  12 s · Esc to stop · Ctrl-B: to the background\n"
        '  explore · part 1 · 12 calls · 23,400 tokens · Grep "x"\n'
    )
    watch.show(AgentProgress("a1", 1, 0, 9, "GREEN", ""))
    assert watch.live.endswith("  explore · part 1 · 1 call · 9 tokens\n")
    assert watch.text == "", "what is live is not printed"


def test_several_side_by_side_have_one_headline_and_a_line_each() -> None:
    watch = Watch()
    for number in (1, 2, 3, 4):
        watch.show(*started(number))
    watch.show(ToolStarted("call5", "Task", "explore: part 5", {}))
    head, *lines = watch.live.strip("\n").split("\n")
    assert head == "● Task  5 subagents, 1 waiting to start"
    assert [line.split(" · ")[1] for line in lines] == ["part 1", "part 2", "part 3", "part 4"]
    watch.show(ToolStarted("grep", "Grep", "x", {}))
    assert watch.live.startswith("\n● Grep  x\n● Task  5 subagents")


def test_progress_changes_one_line_and_the_others_stay() -> None:
    watch = Watch()
    for number in (1, 2, 3, 4):
        watch.show(*started(number))
    before = watch.live.split("\n")
    watch.show(AgentProgress("a3", 2, 5, 6_000, "GREEN", "Read b.py"))
    after = watch.live.split("\n")
    assert [n for n, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1] == [4]


def test_a_long_line_of_progress_is_cut() -> None:
    watch = Watch()
    watch.show(*started(1), AgentProgress("a1", 2, 5, 6_000, "GREEN", "Read " + "x" * 300))
    assert [len(line) <= 80 for line in watch.live.split("\n")] == [True] * 4


def test_the_end_of_a_subagent_stands_with_its_answer() -> None:
    watch = WideWatch()
    watch.show(UserSaid("go"), CallFinished({"input": 10, "output": 5}, 0.5, "tool_use"))
    watch.show(*started(1), *started(2), AgentProgress("a2", 3, 7, 9, "GREEN", ""))
    watch.show(AgentFinished("a2", "done", 34.2, USED, 0.1234))
    assert watch.live.count("explore ·") == 1
    answer = "\n".join(f"line {n}" for n in range(20))
    result = ToolFinished("call2", "Task", "explore: part 2", False, answer, 34.2, {"agent": "a2"})
    watch.show(result, AgentFinished("a1", "limit", 1.0, USED, None))
    assert watch.text == (
        "❯ go\n\n● Task  explore: part 2  34 s\n  done · 34.2 s · 1,540 tokens · $0.1234\n"
        "  line 0\n  line 1\n  line 2\n  line 3\n  … +14 lines (Ctrl-O)\n  line 18\n  line 19\n"
    )
    watch.show(TurnFinished("interrupted", ""))
    assert "  explore · part 1 · ended by a limit · 1.0 s · 1,540 tokens · price not known\n" in (
        watch.text
    )
    assert "3.0k in (1.0k cached) · 85 out · 8 tool calls" in watch.text, "with all that they took"
    assert "$" not in watch.text.split("\n")[-2], "one price is not known, so the sum is not"


def test_what_a_subagent_tells_has_its_name() -> None:
    watch = WideWatch()
    watch.show(*started(1), Notice("warning", "careful", "a1"), Notice("info", "all", ""))
    for layer in ("microcompact", "summary"):
        watch.show(Compacted(layer, "level", 90, 60, 0.1, 0.0, 7, "told", "a1"))  # type: ignore[arg-type]
    watch.transcript.ask(Question("Bash", "make", {"command": "make"}, "", "", agent="a1"))
    watch.transcript.ask(Question("Bash", "make", {"command": "make"}, "", ""))
    assert "! explore · part 1: careful\n· all\n" in watch.text
    assert "  explore · part 1: told (level): 90 → 60 tokens\n" in watch.text
    assert "  explore · part 1: context compacted (level): 90 → 60 tokens" in watch.text
    assert "/uncompact" not in watch.text, "that would take back one of the conversation's own"
    assert "? explore · part 1: Bash wants to run\n  make\n" in watch.text
    assert "\n? Bash wants to run\n" in watch.text


def test_the_start_of_a_subagent_is_printed_on_the_plain_screen() -> None:
    printed: list[object] = []
    transcript = Transcript(printed.append, paints=False)
    for event in (*started(1), AgentProgress("a1", 2, 5, 6_000, "GREEN", "Read")):
        transcript.show(event)
    assert "  explore · part 1 · started\n" in seen(*printed)


def test_nothing_of_a_subagent_acts_on_the_terminal() -> None:
    watch, evil = WideWatch(), "x\x1b[2J\x9b\n\u202ey"
    watch.show(ToolStarted("1", "Task", evil, {}), AgentStarted("a", evil, evil))
    watch.show(AgentProgress("a", 1, 1, 1, "RED", evil))
    live = watch.live
    assert live.count("\n") == 3
    watch.transcript.ask(Question("Bash", evil, {"command": evil}, "", "", agent="a"))
    watch.show(AgentFinished("a", "done", 1.0, USED, None), TurnFinished("ok", ""))
    for text in (live, watch.text):
        assert not {"\x1b", "\x9b", "\u202e"} & {*text}


def test_the_status_line_counts_what_runs() -> None:
    now = status.StatusLine(
        "claude-sonnet-5-5", "ask", "main", 0.5, "50% full", cost_usd=1.5, agents=3, jobs=1
    )
    text = "".join(part for _, part in status.fit_line(now, 120))
    assert text.endswith("50% full · $1.50 · 3 agents · 1 job")
    short = "".join(part for _, part in status.fit_line(now, 50))
    assert short == "sonnet-5-5 · ask · 50% full · 3 agents · 1 job"


@pytest.mark.parametrize("format", ["text", "json", "stream-json"])
def test_headless_tells_the_start_and_the_end(format: OutputFormat) -> None:
    out, err = io.StringIO(), io.StringIO()
    front = Headless(format, out, err)
    for event in (
        AgentStarted("a1", "explore", "find it"),
        AgentProgress("a1", 2, 5, 6_000, "GREEN", "Read b.py"),
        Notice("warning", "careful", "a1"),
        AgentFinished("a1", "error", 2.5, USED, 0.25, reason="no reply: overloaded\n(529)"),
    ):
        front.emit(event)
    assert err.getvalue() == (
        "subagent explore · find it · started\n"
        "warning: explore · find it: careful\n"
        "subagent explore · find it · failed · 2.5 s · 1,540 tokens · $0.2500"
        " · no reply: overloaded. (529)\n"
    )
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    kinds = ["agent_started", "agent_progress", "notice", "agent_finished"]
    assert [line["type"] for line in lines] == (kinds if format == "stream-json" else [])
    if lines:
        assert lines[0] == {
            "type": "agent_started", "id": "a1", "agent_type": "explore", "description": "find it",
            "background": False,
        }  # fmt: skip
        assert lines[1] == {
            "type": "agent_progress", "id": "a1", "calls": 2, "tools": 5, "tokens": 6_000,
            "level": "GREEN", "doing": "Read b.py",
        }  # fmt: skip


def test_parallel_subagents_repaint_only_what_changed(tmp_path: Path) -> None:
    """A step of one subagent repaints only the changed part of its line."""
    written: list[str] = []

    async def act(seat: Seat) -> None:
        await seat.until("a scripted model plays")
        for number in (1, 2, 3, 4):
            for event in started(number):
                seat.repl.emit(event)
            seat.repl.emit(AgentProgress(f"a{number}", 1, 1, 1_000, "GREEN", "Read a.py"))
        await seat.until(lambda: seat.glass.all().count("Read a.py") == 4)
        for step in range(2, 12):
            before, place = len(seat.glass.raw), seat.glass.lines()
            name = f"Read {'b' * step}.py"
            seat.repl.emit(AgentProgress("a3", step, step, 1_000 * step, "GREEN", name))
            await seat.until(name)
            written.append(seat.glass.raw[before:])
            changed = [a != b for a, b in zip(place, seat.glass.lines(), strict=True)]
            assert changed.count(True) <= 2, "its own line, and the seconds of the headline"
        for number in (1, 2, 3, 4):
            seat.repl.emit(AgentFinished(f"a{number}", "done", 1.0, USED, None))
            done = {"agent": f"a{number}"}
            seat.repl.emit(ToolFinished(f"call{number}", "Task", "t", False, "Here.", 1.0, done))
        await seat.until("Read a.py", gone=True)

    code, glass = drive(Desk(tmp_path), act)
    assert code == 0
    assert all(len(text) < 200 for text in written), [len(text) for text in written]
    assert glass.all().count("done · 1.0 s · 1,540 tokens") == 4
    assert "\x1b[2J" not in glass.raw


class Office(Desk):
    """Real conversations with real subagents. A subagent runs its prompt in the shell, then
    answers. The conversation starts a subagent for each of `errands`, then says "All done.".
    """

    def __init__(
        self, folder: Path, errands: Mapping[str, str], *, mode: PermissionMode = "bypass"
    ) -> None:
        super().__init__(folder, mode=mode)
        self.errands = errands
        self.model = ScriptedModel(self._step, check=validate)

    def _step(self, request: Request) -> Step:
        answered = any(b["type"] == "tool_result" for b in request.messages[-1]["content"])
        if any(tool["name"] == "Task" for tool in request.tools):
            calls = [
                ("Task", {"type": "general", "description": name, "prompt": f"Run: {command}"})
                for name, command in self.errands.items()
            ]
            return Step(text="All done.") if answered else Step(tools=calls)
        if answered:
            return Step(text="The answer.")
        said = next(b["text"] for b in request.messages[0]["content"] if "Run: " in b["text"])
        return Step(tools=[("Bash", {"command": said.removeprefix("Run: ")})])

    def _open(self, emit: Emit, ask: Ask, resume: str | None, fork: bool, _: bool) -> AgentState:
        launch = LaunchOptions(
            settings=Settings(permissions=PermissionSettings(mode=self.mode)),
            places=Places(
                cwd=self.cwd,
                state=self.cwd.parent / "state",
                config_home=self.cwd.parent / "config",
                environ={"PATH": os.environ["PATH"], "HOME": str(self.cwd.parent)},
            ),
            model=self.model,
        )
        loop = open_agent(launch, SessionChoice(id=resume, fork=fork), emit=emit, ask=ask)
        self.loops.append(loop)
        return loop

    def id_of(self, description: str) -> str:
        agents = self.loops[0].ledger.agents.values()
        return next(agent.id for agent in agents if agent.description == description)

    def gates(self, *names: str) -> list[int]:
        """Pipes: `read line < NAME` waits until a line is written to them."""
        for name in names:
            os.mkfifo(self.cwd / name)
        return [os.open(self.cwd / name, os.O_RDWR) for name in names]


def test_subagents_are_seen_listed_and_stopped_one_by_one(tmp_path: Path) -> None:
    errands = {"the left": "read line < left", "the right": "read line < right"}
    desk = Office(tmp_path, errands)
    _, right = desk.gates("left", "right")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("● Task  2 subagents")
        await seat.until("general · the left · 1 call")
        await seat.until("tokens · Bash read line < right")
        await seat.until("· 2 agents")
        seat.say("/tasks")
        row = r"the right +Bash read line < right +running"
        await seat.until(lambda: re.search(row, seat.glass.all()) is not None)
        seat.press(ESC)
        await seat.until("search:", gone=True)
        seat.say(f"/tasks {desk.id_of('the left')}")
        await seat.until("general: the left · Bash read")
        seat.say("/tasks stop general")
        await seat.until("several tasks begin with 'general'")
        seat.say(f"/tasks stop {desk.id_of('the left')}")
        await seat.until("interrupted · ")
        await seat.until("· 1 agent")
        await seat.until("● Task  general: the right")
        os.write(right, b"go on\n")
        await seat.until("All done.")
        seat.say(f"/tasks {desk.id_of('the left')}")
        await seat.until("general: the left\n")
        seat.say("/agents")
        await seat.until("reviews a change")
        seat.say("/cost")
        await seat.until("of these")

    _, glass = drive(desk, act, glass=Glass(columns=120, rows=40))
    seen = glass.all()
    rows = [
        line.split()[1:7] for line in seen.split("\n") if ": the left" in line and "gen" in line
    ]
    assert "running" in [row[0] for row in rows]
    totals = desk.loops[0].totals
    ids = [desk.id_of("the left"), desk.id_of("the right")]
    used = [f"{totals.by_agent[id].usage.total:,}" for id in ids]
    assert [used[0], "not", "known"] in [row[3:] for row in rows if row[0] == "stopped"]
    assert f"interrupted · {used[0]}" in re.sub(r" · [\d.]+ s", "", seen)
    assert f"done · {used[1]} tokens" in re.sub(r" · [\d.]+ s", "", seen)
    for name, built_in in (("explore", "finds things out"), ("review", "reviews a change")):
        assert re.search(rf"{name} +built in +.*{built_in}", seen)
    prompts = [totals.own.usage.prompt, totals.agents.usage.prompt]
    assert re.search(rf"conversation +2 +{prompts[0]:,} ", seen)
    used = [totals.by_agent[id] for id in ids]
    for what, each in zip(("the left", "the right"), used, strict=True):
        assert re.search(rf"general: {what} +{each.calls} +{each.usage.prompt:,} ", seen)
    assert re.search(rf"all +5 +{sum(prompts):,} ", seen)
    assert f"input       {sum(prompts):,}\n" in seen


def test_a_question_says_which_subagent_asks(tmp_path: Path) -> None:
    desk = Office(tmp_path, {"the left": "touch left", "the right": "touch right"}, mode="ask")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.keys()
        seat.press("y")
        await seat.until("✓ allowed")
        await seat.until("[y]es")
        seat.say("n leave it")
        await seat.until("All done.")

    _, glass = drive(desk, act, glass=Glass(columns=120, rows=40))
    seen = glass.all()
    asked = re.findall(r"\? general · the (left|right): Bash wants to run\n  touch (\w+)", seen)
    assert sorted(asked) == [("left", "left"), ("right", "right")]
    first, second = (name for name, _ in asked)
    assert [path.name for path in desk.cwd.iterdir()] == [first]
    assert "✗ declined: leave it" in seen.partition(f"the {second}: Bash wants to run")[2]
    assert f"touch {second}: leave it" in seen, "the answer says what was not allowed"


def test_a_command_that_only_looks_leaves_a_question_open(tmp_path: Path) -> None:
    desk = Office(tmp_path, {"the left": "touch left"}, mode="ask")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("[y]es")
        seat.say("/tasks")
        await seat.until("running")
        await seat.until("[y]es")
        seat.say("/agents halt")
        await seat.until("/agents does not take 'halt'")
        await seat.keys()
        assert not (desk.cwd / "left").exists()
        seat.press("y")
        await seat.until("All done.")

    _, glass = drive(desk, act, glass=Glass(columns=120, rows=40))
    assert (desk.cwd / "left").exists()
    assert "declined" not in glass.all()


def test_a_subagent_that_asks_can_be_stopped(tmp_path: Path) -> None:
    desk = Office(tmp_path, {"the left": "touch left"}, mode="ask")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("[y]es")
        seat.say("/tasks stop general")
        await seat.until("stopped; the conversation")
        await seat.until("All done.")
        await seat.until("[y]es", gone=True)

    _, glass = drive(desk, act, glass=Glass(columns=120, rows=40))
    assert not (desk.cwd / "left").exists()
    assert "interrupted · " in glass.all()


@pytest.mark.parametrize("words", ["/etc is not yours", "context status"])
def test_other_words_refuse_as_ever(tmp_path: Path, words: str) -> None:
    desk = Office(tmp_path, {"the left": "touch left"}, mode="ask")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("[y]es")
        seat.say(words)
        await seat.until("All done.")

    _, glass = drive(desk, act, glass=Glass(columns=120, rows=40))
    assert f"✗ declined: {words}" in glass.all()
    assert not (desk.cwd / "left").exists()


@pytest.mark.variants
@pytest.mark.parametrize("columns", [40, 60])
def test_agents_in_a_narrow_terminal(tmp_path: Path, columns: int) -> None:
    desk = Office(tmp_path, {"the left": "true"})

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("All done.")
        seat.say("/agents")
        await seat.until("reviews a change")
        seat.say("/tasks general")
        await seat.until("state done")

    _, glass = drive(desk, act, glass=Glass(columns=columns, rows=40))
    seen = glass.all().partition("❯ /agents")[2]
    used = desk.loops[0].totals.by_agent[desk.id_of("the left")]
    flat = " ".join(seen.split())
    facts = rf"state done · time [\d.]+ s · tokens {used.usage.total:,} · cost not known"
    assert f"\n  {desk.id_of('the left')}\n" in seen, "whole, as `stop` and `--resume` take it"
    assert re.search(rf"{facts} · general: the left", flat)
    types = {
        40: "explore from built in · finds things out, and changes nothing",
        60: "explore built in finds things out, and changes nothing",  # three columns have room
    }
    assert types[columns] in flat


def test_a_subagent_in_a_plain_terminal_and_in_headless_runs(tmp_path: Path) -> None:
    place = Place(tmp_path)

    def step(body: dict[str, Any]) -> Say:
        answered = any(b["type"] == "tool_result" for b in body["messages"][-1]["content"])
        if answered:
            return Say("Here.")
        if any(tool["name"] == "Task" for tool in body["tools"]):
            task = {"type": "explore", "description": "find it", "prompt": "Find it."}
            return Say(tools=[("Task", task)])
        return Say(tools=[("Bash", {"command": "pwd"})])

    with Server(step) as server:
        env = place.server(server.url)
        terminal = Terminal("-c", "ui.plain=true", cwd=place.project, env=env)
        terminal.see("/help\n>")
        terminal.type("go\r")
        terminal.see("\n  Here.")
        terminal.see("\nHere.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
        done = place.run("-p", "go", "--output-format", "json", env=env)
    assert server.rejected == []
    shown = terminal.text()
    assert b"\x1b" not in terminal.raw
    assert "\n  explore · find it · started\n" in shown
    ended = r"Task is done: explore: find it.*\n  done · [\d.]+ s · [\d,]+ tokens · "
    assert re.search(ended, shown)
    told = [line for line in done.stderr.splitlines() if line.startswith("subagent ")]
    assert told[0] == "subagent explore · find it · started"
    assert re.fullmatch(
        r"subagent explore · find it · done · [\d.]+ s · [\d,]+ tokens · .*", told[1]
    )
    result = json.loads(done.stdout)
    (agent,) = result["agents"]
    assert (agent["type"], agent["description"], agent["status"]) == ("explore", "find it", "done")
    assert (agent["calls"], agent["tool_calls"]) == (2, 1)
    assert (result["calls"], result["tool_calls"]) == (4, 2)
    assert Path(agent["log"]).exists()
    assert 0 < agent["usage"]["output"] < result["usage"]["output"]


def test_cost_has_compaction_apart(tmp_path: Path) -> None:
    few = replace(DEFAULT, keep_tokens=0, keep_messages=1)
    steps = [Step(text=long_text(2_000)), Step(text="Two."), Step(text=RECORD)]
    talk = Conversation(tmp_path, steps, policy=few)
    talk.say("one")
    talk.say("two")
    desk = CommandDesk(talk)
    assert "of these" not in desk.run("/cost"), "all of it is the conversation's"
    desk.run("/compact")
    shown = desk.run("/cost")
    calls = [e for e in read_log(talk.agent.log.path).entries if isinstance(e, Assistant)]
    said, summary = [e.usage for e in calls[:2]], calls[2].usage
    assert re.search(rf"conversation +2 +{sum(u['input'] for u in said):,} +", shown)
    own, wrote = f"{summary['input']:,}", f"{summary['output']:,}"
    assert re.search(rf"compaction +1 +{own} +0% +{wrote} +not known", shown)
    assert "verification" not in shown
