"""Subagents of the real command, against a server as strict as the real one."""

import json
import re
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context import tokens
from ctxagent.agent.session.entries import Assistant, Entry, SubagentRun, ToolResult, Usage, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.totals import Totals

from ..compaction.test_engine import RECORD
from ..support.command import PATIENCE, Place, comes, running
from ..support.server.chat import ChatServer
from ..support.server.loopback import Body, Say, Server, Step, flat
from ..support.server.wires import Wire, over_each_wire
from ..support.sessions.setup import long_text
from .test_engine_http import asks_for_a_record

WINDOW = 32_000
LINES = 400  # of a result: about 2,800 tokens
ROUNDS = 140  # of them: ten windows and more


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said(body: Body) -> str:
    return json.dumps([block for _, block in flat(body)])


def child_of(body: Body) -> str:
    """Return the word in the task of the subagent that sends a request, "" for the parent."""
    found = re.search(r"ask: (\w+)", said({**body, "tools": []}))
    return found[1] if found and "You are a subagent" in said(body) else ""


class Cast:
    """Play the parent's steps in order. For a subagent, play what `child` returns for its word and
    the number of its call.
    """

    def __init__(
        self, parent: list[Step | Callable[[Body], Step]], child: Callable[[str, int], Step]
    ) -> None:
        self.parent, self.child = parent, child
        self.counts: dict[str, int] = {}

    def __call__(self, body: Body) -> Step:
        if asks_for_a_record(body):
            return Say(RECORD)
        word = child_of(body)
        if not word:
            step = self.parent.pop(0)
            return step(body) if callable(step) else step
        self.counts[word] = self.counts.get(word, 0) + 1
        return self.child(word, self.counts[word])


def tasks(*words: str, type: str = "explore") -> Say:
    return Say(
        tools=[
            ("Task", {"description": f"count {word}", "prompt": f"ask: {word}", "type": type})
            for word in words
        ]
    )


def summed(*logs: Path) -> Totals:
    """Return the sums of the calls in the logs."""
    totals = Totals()
    for log in logs:
        for entry in read_log(log).entries:
            if not isinstance(entry, SubagentRun):
                totals.add(entry)
    return totals


def newest(entries: list[Entry]) -> dict[str, SubagentRun]:
    return {entry.id: entry for entry in entries if isinstance(entry, SubagentRun)}


def statuses(log: Path) -> set[str]:
    return {run.status for run in newest(read_log(log).entries).values()}


def agent_logs(place: Place) -> list[Path]:
    return sorted(place.state.glob("projects/*/sessions/*/agents/*/log.jsonl"))


@pytest.mark.full
def test_three_at_once_each_through_ten_windows(place: Place) -> None:
    def child(word: str, number: int) -> Step:
        if number <= ROUNDS:
            command = f"seq -f 'item %g of {word}{number}' {LINES}"
            return Say(f"Part {number}.", tools=[("Bash", {"command": command})])
        return Say(f"All of {word} counted. " + long_text(8_000))

    cast = Cast([tasks("red", "green", "blue"), Say("All counted.")], child)
    whole = ("-c", "move.above=off", "-c", "clear.outline=false")
    options = ("--output-format", "json", "--context-window", str(WINDOW), *whole)
    with Server(cast, window=WINDOW) as server:
        done = place.run("-p", "count", *options, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert server.rejected == []
    result = json.loads(done.stdout)
    assert result["result"] == "All counted."
    (log,) = place.logs()
    logs = agent_logs(place)
    assert len(logs) == 3
    for each in logs:
        entries = read_log(each).entries
        kinds = {entry.kind for entry in entries}
        assert {"mask", "summary"} <= kinds
        results = [str(e.content) for e in entries if isinstance(e, ToolResult)]
        assert sum(map(tokens.estimate, results)) > 10 * WINDOW
        turns = [e for e in entries if isinstance(e, Assistant) and e.purpose == "turn"]
        assert max(Usage.from_json(e.usage).prompt for e in turns) <= WINDOW
    first, last = [e for e in read_log(log).entries if isinstance(e, Assistant)]
    grown = sum(last.usage.values()) - sum(first.usage.values())
    assert grown < 7_000
    assert {agent.status for agent in newest(read_log(log).entries).values()} == {"done"}
    sums = summed(log, *logs)
    assert result["usage"] == sums.all.usage.to_json()
    assert result["calls"] == sums.all.calls
    assert result["tool_calls"] == sums.all.tool_calls == 3 * ROUNDS + 3
    assert result["compaction"] == sums.all.compaction
    assert result["cost_usd"] == pytest.approx(sums.all.cost_usd)
    id = logs[0].parent.name
    name = f"{log.parent.name}/agents/{id}"
    for command in ("sessions show", "sessions export", "recover 2 --session", "doctor", "log"):
        shown = place.run(*command.split(), name if command == "log" else id)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout
    assert f"# Session {name}" in place.run("sessions", "show", id).stdout


@pytest.mark.variants
@over_each_wire
def test_killed_in_the_middle_and_gone_on_with(place: Place, wire: Wire) -> None:
    waiting = threading.Semaphore(0)

    def child(word: str, number: int) -> Step:
        if word == "red" and number == 2:
            return Say("Red is done.")
        if number < 3:
            return Say(tools=[("Bash", {"command": f"seq 1 {number}"})])
        waiting.release()
        return Say("Never heard.", fault="silence", after=2)

    with wire(Cast([tasks("red", "green", "blue")], child)) as server:
        process = place.start(
            "-p", "count", env=place.environ(server.variables),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(2):
            assert waiting.acquire(timeout=PATIENCE)
        (log,) = place.logs()
        assert comes(lambda: "done" in statuses(log))
        process.kill()
        process.wait(PATIENCE)
    assert server.rejected == []
    before = newest(read_log(log).entries)
    left = [id for id, agent in before.items() if agent.status == "running"]
    assert len(left) == 2

    def resume(body: Body) -> Step:
        told = said(body)
        assert "The session was left while subagents were at work" in told
        named = dict.fromkeys(re.findall(r"- (explore-\w+) \(explore\)", told))
        assert set(named) == set(left)
        give = {"description": "go on", "prompt": "Go on."}
        return Say(tools=[("Task", {**give, "resume": id}) for id in named])

    cast = Cast([resume, Say("All counted.")], lambda word, number: Say(f"{word} is done."))
    with wire(cast) as server:
        options = ("-p", "go on", "--continue", "--output-format", "json")
        done = place.run(*options, env=place.environ(server.variables))
    assert done.returncode == 0, done.stderr
    assert server.rejected == []
    result = json.loads(done.stdout)
    assert result["result"] == "All counted."
    entries = read_log(log).entries
    assert {agent.status for agent in newest(entries).values()} == {"done"}
    assert sum(isinstance(e, User) and e.source == "notice" for e in entries) == 1
    for path in agent_logs(place):
        words = [e.content for e in read_log(path).entries
                 if isinstance(e, User) and e.source == "person"]  # fmt: skip
        assert len(words) == 1 + (path.parent.name in left)
    sums = summed(log, *agent_logs(place))
    assert result["usage"] == sums.all.usage.to_json()
    assert result["calls"] == sums.all.calls
    assert result["cost_usd"] == pytest.approx(sums.all.cost_usd)


def test_ctrl_c_ends_all(place: Place) -> None:
    sleep = f"sleep 900.{secrets.randbelow(10**9)}"

    def child(word: str, number: int) -> Step:
        return Say(f"I begin {word}.", tools=[("Bash", {"command": f"echo {word}; {sleep}"})])

    with Server(Cast([tasks("red", "green", "blue", type="general")], child)) as server:
        options = ("-p", "go", "--output-format", "stream-json", "--permission-mode", "bypass")
        process = place.start(
            *options, env=place.server(server.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        asleep: set[str] = set()
        for event in map(json.loads, process.stdout):
            if event["type"] == "agent_progress" and event["doing"].startswith("Bash echo"):
                asleep.add(event["id"])
            if len(asleep) == 3:
                break
        assert comes(lambda: len(running(sleep)) >= 3)
        process.send_signal(signal.SIGINT)
        assert comes(lambda: process.poll() is not None), "it waits for them"
        ended = [json.loads(line) for line in process.stdout]
    assert process.returncode == 130
    assert comes(lambda: not running(sleep))
    assert [e["status"] for e in ended if e["type"] == "agent_finished"] == ["interrupted"] * 3
    assert ended[-1]["status"] == "interrupted"
    assert server.rejected == []
    (log,) = place.logs()
    reading = read_log(log)
    assert reading.warnings == []
    agents = newest(reading.entries)
    assert {a.status for a in agents.values()} == {"interrupted"}
    assert {a.answer for a in agents.values()} == {
        f"I begin {word}." for word in ("red", "green", "blue")
    }
    results = [e for e in reading.entries if isinstance(e, ToolResult)]
    assert all("was interrupted" in str(e.content) for e in results)
    for path in agent_logs(place):
        assert read_log(path).warnings == []
        assert read_log(path).entries[-1].kind == "end"
    assert ended[-1]["usage"] == summed(log, *agent_logs(place)).all.usage.to_json()


def test_headless_denials_of_a_subagent_are_the_runs(place: Place) -> None:
    def child(word: str, number: int) -> Step:
        if number == 1:
            return Say(tools=[("Bash", {"command": "touch made"})])
        return Say("I could not.")

    with Server(Cast([tasks("red", type="general"), Say("Not done.")], child)) as server:
        done = place.run("-p", "go", "--output-format", "json", env=place.server(server.url))
    assert done.returncode == 3
    result: dict[str, Any] = json.loads(done.stdout)
    assert [d["tool"] for d in result["denials"]] == ["Bash"]
    assert not (place.project / "made").exists()


def test_a_subagents_session_can_be_opened_by_itself(place: Place) -> None:
    with Server(Cast([tasks("red"), Say("Done.")], lambda w, n: Say(f"{w} is done."))) as server:
        place.run("-p", "go", env=place.server(server.url))
    (log,) = agent_logs(place)
    with Server([Say("It was red.")]) as server:
        options = ("-p", "what was it?", "--resume", log.parent.name)
        done = place.run(*options, env=place.server(server.url))
    assert done.stdout == "It was red.\n"
    assert "red is done." in said(server.requests[0])
    assert "Task" not in [tool["name"] for tool in server.requests[0]["tools"]]


def test_the_turn_limit_ends_one_that_never_stops(place: Place) -> None:
    def child(word: str, number: int) -> Step:
        return Say(f"Round {number}.", tools=[("Bash", {"command": "echo x"})])

    with Server(Cast([tasks("red", "green")], child)) as server:
        options = ("-p", "go", "--output-format", "json", "--max-turns", "11")
        done = place.run(*options, env=place.server(server.url))
    assert done.returncode == 4
    assert json.loads(done.stdout)["calls"] == len(server.requests) == 11
    results = [e for e in place.entries() if e["kind"] == "tool_result"]
    assert all("ended by a limit" in e["content"] for e in results)


def test_another_model_has_its_own_window(place: Place) -> None:
    given = {"description": "d", "prompt": "ask: red", "type": "explore", "model": "tiny-1"}
    parent: list[Any] = [Say(tools=[("Task", given)]), Say("Done.")]

    def child(word: str, number: int) -> Step:
        if number <= 12:
            return Say(tools=[("Bash", {"command": f"seq -f 'item %g of {number}' 800"})])
        return Say("Counted.")

    with Server(Cast(parent, child), models={"tiny-1": (24_000, 4_000)}) as server:
        options = ("-p", "go", "--output-format", "json", "--context-window", "500000")
        done = place.run(*options, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert server.rejected == []
    assert {body["model"] for body in server.requests} == {"tiny-1", "claude-sonnet-5-5"}
    (log,) = agent_logs(place)
    turns = [e for e in read_log(log).entries if isinstance(e, Assistant)]
    assert max(Usage.from_json(e.usage).prompt for e in turns) <= 24_000
    assert json.loads(done.stdout)["cost_usd"] is None  # nobody knows the price of tiny-1


def test_trust_takes_in_the_types_of_the_project(place: Place) -> None:
    folder = place.project / ".ctxagent" / "agents"
    folder.mkdir(parents=True)
    (folder / "x.md").write_text("---\nname: scribe\ndescription: writes\n---\nWrite well.\n")

    def run() -> tuple[str, str]:
        with Server([Say("Hello.")]) as server:
            done = place.run("-p", "hi", env=place.server(server.url))
        return json.dumps(server.requests[0]["tools"]), done.stderr

    tools, errors = run()
    assert "scribe" not in tools
    assert "x.md is not trusted" in errors
    assert place.run("config", "--trust").returncode == 0
    tools, errors = run()
    assert "- scribe: writes" in tools
    assert errors == ""


def test_a_reworded_task_starts_with_the_summary_of_the_earlier_one(place: Place) -> None:
    """They match by the file that the earlier subagent read. The model and the parent see which
    subagent it was. Other work with the same words gets no summary.
    """
    (place.project / "conf").mkdir()
    (place.project / "conf" / "gate.toml").write_text("port = 48231\n")
    given = [
        ("Trouver le port", "ask: one. Sur quel port écoute la passerelle ?"),
        ("Port de la passerelle", "ask: two. Le port d'écoute est-il dans conf/gate.toml ?"),
        ("Port de la base", "ask: three. Le port d'écoute est-il dans conf/base.toml ?"),
    ]
    parent: list[Step | Callable[[Body], Step]] = []
    for description, prompt in given:
        call = {"description": description, "prompt": prompt, "type": "explore"}
        parent += [Say(tools=[("Task", call)]), Say("Done.")]

    def child(word: str, number: int) -> Step:
        if (word, number) == ("one", 1):
            return Say(tools=[("Read", {"path": "conf/gate.toml"})])
        return Say("It is 48231, in conf/gate.toml.")

    with Server(Cast(parent, child)) as server:
        for n in range(3):
            more = ["--continue"] if n else []
            done = place.run(*more, "-p", "go", env=place.server(server.url))
            assert done.returncode == 0, done.stderr
    assert server.rejected == []
    children = {word: body for body in server.requests if (word := child_of(body))}
    (first, *_) = {e["id"]: e for e in place.entries() if e["kind"] == "agent"}.values()
    assert first["files"] == ["conf/gate.toml"]
    told = "\n".join(str(block.get("text", "")) for _, block in flat(children["two"]))
    assert "## Prior Session Context" in told
    assert f'Subagent {first["id"]} worked on a task like yours ("Trouver le port")' in told
    assert "It is 48231" in told
    assert "Prior Session Context" not in said(children["one"]) + said(children["three"])
    results = [e for e in place.entries() if e["kind"] == "tool_result"]
    line = f'[Started with the summary of {first["id"]} ("Trouver le port")]'
    assert [line in e["content"] for e in results] == [False, True, False]
    assert [e["details"].get("handed_over_by") for e in results] == [None, first["id"], None]


def test_replay_counts_the_files_that_the_parent_reads_again(place: Place) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (place.project / name).write_text(f"the text of {name}\n")
    reads = [("Read", {"path": name}) for name in ("a.txt", "b.txt")]

    def child(word: str, number: int) -> Step:
        return Say(tools=reads) if number == 1 else Say("a.txt has it, in line 1.")

    again = [("Read", {"path": str(place.project / "a.txt")}), ("Read", {"path": "c.txt"})]
    with Server(Cast([tasks("one"), Say(tools=again), Say("Done.")], child)) as server:
        done = place.run("-p", "find it", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    (log,) = place.logs()
    played = place.run("replay", str(log), "--json")
    (sums, *_) = json.loads(played.stdout)["totals"]
    assert sums["explored"] == [1, 2]
    shown = place.run("replay", str(log)).stdout
    assert re.search(r"Read again after a subagent +50", shown), shown


def test_explore_uses_the_small_model_and_continues_with_it(place: Place) -> None:
    def resumed(body: Body) -> Step:
        (found,) = set(re.findall(r"explore-[0-9a-f]{6}", said(body)))
        task = {"description": "count one", "prompt": "Go on.", "resume": found}
        return Say(tools=[("Task", task)])

    both = Say(
        tools=[
            ("Task", {"description": f"count {kind}", "prompt": f"ask: {kind}", "type": kind})
            for kind in ("explore", "general")
        ]
    )
    cast = Cast([both, Say("Two."), resumed, Say("Done.")], lambda word, number: Say("One."))
    small = ("-c", "model.small=haiku")
    with Server(cast) as server:
        env = place.server(server.url)
        assert place.run("-p", "count", *small, env=env).returncode == 0
        done = place.run("--continue", "-p", "count again", env=env)
    assert (done.stdout, done.returncode) == ("Done.\n", 0), done.stderr
    asked = sorted((child_of(each), each["model"]) for each in server.requests if child_of(each))
    explorer = ("explore", "claude-haiku-5-5")
    assert asked == [explorer, explorer, ("general", "claude-sonnet-5-5")]
    assert server.rejected == []


@pytest.mark.parametrize(
    ("model", "asked"), [("claude-sonnet-5-5", "claude-haiku-5-5"), ("ollama/walrus", "walrus")]
)
def test_a_family_of_models_needs_no_other_provider(place: Place, model: str, asked: str) -> None:
    types = place.root / "home" / ".config" / "ctxagent" / "agents"
    types.mkdir(parents=True)
    (types / "quick.md").write_text("---\nname: quick\ndescription: d\nmodel: haiku\n---\nGo.")
    cast = Cast([tasks("one", type="quick"), Say("Done.")], lambda word, number: Say("One."))
    kind = Server if model.startswith("claude") else ChatServer
    with kind(cast) as server:
        env = {**place.server(server.url), "OLLAMA_BASE_URL": f"{server.url}/v1"}
        env["OLLAMA_API_KEY"] = "test-key-1"
        done = place.run("-p", "count", "--model", model, "--context-window", "50000", env=env)
    assert (done.stdout, done.returncode) == ("Done.\n", 0), done.stderr
    assert [each["model"] for each in server.requests if child_of(each)] == [asked]
    assert server.rejected == []
