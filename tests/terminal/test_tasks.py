"""Background subagents and /tasks on the screen: Ctrl-B, questions between turns,
leaving, kill -9.
"""

import json
import re
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from ctxagent.agent.session.entries import SubagentRun, User
from ctxagent.agent.session.log import read_log

from ..support.command import Place, end, running
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

CTRL_B = "\x02"
SLEEP = f"sleep 300.{secrets.randbelow(10**9)}"
JOBS = "job-1", "job-2", "job-3"
FREELY = ("--permission-mode", "bypass", "-c", "sandbox.mode=off")


@pytest.fixture(autouse=True)
def _no_sleep_left() -> Iterator[None]:
    yield
    end(SLEEP)


def said(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"])


def is_parent(body: dict[str, Any]) -> bool:
    return any(tool["name"] == "Task" for tool in body["tools"])


def word_of(body: dict[str, Any]) -> str:
    """The word that a subagent should return."""
    found = re.search(r"ask: (\w+)", said(body))
    assert found, "a request of a subagent has its prompt"
    return found[1]


def begin(*words: str, background: bool = True) -> list[tuple[str, dict[str, Any]]]:
    given = {"type": "general", **({"background": True} if background else {})}
    return [("Task", {"description": word, "prompt": f"ask: {word}", **given}) for word in words]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12)])
def test_ctrl_b_sends_a_subagent_to_the_background(tmp_path: Path, columns: int, rows: int) -> None:
    place = Place(tmp_path)
    parent = [Say(tools=begin("look", background=False)), Say("It goes on."), Say("It is told.")]

    def step(body: dict[str, Any]) -> Say:
        if is_parent(body):
            return parent.pop(0)
        if "tool_result" in said(body):
            return Say("The port is 48231.")
        wait = "touch begun; until test -e go; do sleep 0.02; done"
        return Say(tools=[("Bash", {"command": wait})])

    with Server(step) as server:
        terminal = Terminal(
            *FREELY, cwd=place.project, env=place.server(server.url), columns=columns, rows=rows
        )
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see(lambda _: (place.project / "begun").exists())
        terminal.type(CTRL_B)
        terminal.see("It goes on.")
        terminal.type("/tasks\r")
        terminal.see(lambda text: "search:" in text and "running" in text)
        terminal.press("esc")
        terminal.see(lambda text: "search:" not in text)
        (place.project / "go").touch()
        terminal.see(lambda text: "look has ended: done" in flat(text))
        terminal.type("/tasks general\r")
        terminal.see(lambda text: "The port is 48231." in text)
        terminal.type("and?\r")
        terminal.see("It is told.")
        terminal.type("/exit\r")
        assert terminal.leave() == 0
    assert server.rejected == []
    last = said(next(body for body in reversed(server.requests) if is_parent(body)))
    assert last.count("The port is 48231.") == 1
    assert "has ended in the background" in last


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_question_between_turns_and_leaving(tmp_path: Path) -> None:
    """Esc interrupts only the turn; the question names the subagent; leaving asks once."""
    place = Place(tmp_path)
    parent = [
        Say(tools=begin("look")), Say("Begun."),
        Say(tools=[("Bash", {"command": f"touch slow; {SLEEP}"})]),
    ]  # fmt: skip

    def step(body: dict[str, Any]) -> Say:
        if is_parent(body):
            return parent.pop(0)
        if "tool_result" in said(body):
            return Say(tools=[("Bash", {"command": SLEEP})])
        return Say(tools=[("Write", {"path": "made.txt", "content": "x"})])

    allowed = ("-c", "sandbox.mode=off", "--allow", f"Bash({SLEEP})", "--allow", "Bash(touch:*)")
    with Server(step) as server:
        terminal = Terminal(*allowed, cwd=place.project, env=place.server(server.url))
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see("Begun.")
        terminal.see("general · look: Write wants to write")
        terminal.keys()
        terminal.type("y")
        terminal.see("✓ allowed")
        terminal.see(lambda _: (place.project / "made.txt").exists())
        terminal.type("slow\r")
        terminal.see(lambda _: (place.project / "slow").exists() and len(running(SLEEP)) > 1)
        terminal.press("esc")
        terminal.see("interrupted; what was done is kept")
        terminal.type("/tasks\r")
        terminal.see(lambda text: f"general: look Bash {SLEEP} running" in flat(text))
        terminal.press("esc")
        terminal.see(lambda text: "search:" not in text)
        terminal.press("ctrl-d")
        terminal.see("[y]es, leave and end this subagent · [n]o, stay")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    assert running(SLEEP) == []
    (log,) = place.logs()
    runs = [entry for entry in read_log(log).entries if isinstance(entry, SubagentRun)]
    assert [run.status for run in runs] == ["running", "interrupted"]


def test_a_rewind_ends_what_could_write_once_the_files_are_back(tmp_path: Path) -> None:
    place, go = Place(tmp_path), tmp_path / "go"
    writes = f"until test -e {go}; do sleep 0.02; done; while :; do date >made.txt; done; {SLEEP}"
    parent = [Say(tools=begin("look")), Say("Begun."), Say("Second.")]

    def step(body: dict[str, Any]) -> Say:
        if is_parent(body):
            return parent.pop(0)
        return Say(tools=[("Bash", {"command": writes})])

    with Server(step) as server:
        terminal = Terminal(*FREELY, cwd=place.project, env=place.server(server.url))
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see("Begun.")
        terminal.see("1 agent")
        terminal.type("second\r")
        terminal.see("Second.")
        go.touch()
        terminal.see(lambda _: (place.project / "made.txt").exists())
        terminal.type("/rewind 2 both\r")
        shown = terminal.see("[y]es, rewind the conversation and the files")
        assert "may write to restored files, and ends when the conversation" in flat(shown)
        terminal.type("y\r")
        terminal.see("this is a copy")
        terminal.see(lambda text: "1 agent" not in "\n".join(terminal.screen.display))
        assert running(SLEEP) == []
        assert not (place.project / "made.txt").exists()
        terminal.type("\x15/exit\r")
        assert terminal.leave() == 0
    (left,) = [log for log in place.logs() if "Second." in log.read_text()]
    runs = [entry for entry in read_log(left).entries if isinstance(entry, SubagentRun)]
    assert [run.status for run in runs] == ["running", "interrupted"]


def test_esc_declines_between_turns(tmp_path: Path) -> None:
    """Esc first clears the typed text, then an offered mode; the next Esc declines."""
    place = Place(tmp_path)
    parent = [Say(tools=begin("look")), Say("Begun.")]
    write = Say(tools=[("Write", {"path": "made.txt", "content": "x"})])

    def step(body: dict[str, Any]) -> Say:
        if is_parent(body):
            return parent.pop(0)
        return Say("Not made.") if "tool_result" in said(body) else write

    with Server(step) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see("Begun.")
        terminal.see("general · look: Write wants to write")
        terminal.keys()
        terminal.type("n wh")
        terminal.see("no; the model gets this text")
        terminal.press("esc")
        terminal.see(lambda text: "no; the model gets" not in text)
        terminal.type("\x1b[Z")
        terminal.see("mode accept-edits?")
        terminal.press("esc")
        terminal.see(lambda text: "mode accept-edits?" not in text)
        terminal.press("esc")
        terminal.see("✗ declined")
        terminal.see("look has ended: done")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    assert not (place.project / "made.txt").exists()


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12)])
def test_the_menu_shows_a_task_and_stops_it(tmp_path: Path, columns: int, rows: int) -> None:
    place = Place(tmp_path)
    commands = f"echo one; echo two; exec {SLEEP}", "echo over; exit 3"
    jobs = [("Bash", {"command": each, "run_in_background": True}) for each in commands]
    wait = Say(tools=[("Job", {"action": "wait", "id": "job-2"})])
    with Server([Say(tools=jobs), wait, Say("Begun.")]) as server:
        terminal = Terminal(
            *FREELY, cwd=place.project, env=place.server(server.url), columns=columns, rows=rows
        )
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see("Begun.")
        terminal.type("/tasks\r")
        terminal.see(lambda text: listed(text) == {"job-1": "running", "job-2": "failed"})
        terminal.see("Enter: show or stop it")
        if rows == 24:
            terminal.see(lambda text: re.search(r"\n *one\n *two\n", text) is not None)
        terminal.type("\r")
        terminal.see("Enter: do it")
        terminal.press("esc")
        terminal.see(lambda text: "Enter: do it" not in text and "show or stop it" in text)
        terminal.type("\r")
        terminal.see("Enter: do it")
        terminal.type("\r")
        terminal.see("last output of job-1:")
        terminal.type("/tasks\r")
        terminal.see("Enter: show or stop it")
        terminal.type("\x1b[B\r")
        terminal.see("last output of job-2:")
        terminal.type("/tasks\r")
        terminal.see("Enter: show or stop it")
        terminal.type("\r")
        terminal.see("Enter: do it")
        terminal.type("\x1b[B\r")
        terminal.see(lambda text: "job-1: killed by SIGTERM, ended by the user" in flat(text))
        assert running(SLEEP) == []
        terminal.type("/exit\r")
        assert terminal.leave() == 0


def test_a_question_closes_the_menu(tmp_path: Path) -> None:
    """Also at its second step; the first menu does not reopen over the question."""
    place, goes_on = Place(tmp_path), Event()
    parent = [Say(tools=begin("look")), Say("Begun.")]

    def step(body: dict[str, Any]) -> Say:
        if is_parent(body):
            return parent.pop(0)
        if "tool_result" in said(body):
            return Say("Made.")
        goes_on.wait()
        return Say(tools=[("Write", {"path": "made.txt", "content": "x"})])

    with Server(step) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see("Begun.")
        terminal.type("/tasks\r")
        terminal.see("Enter: show or stop it")
        terminal.type("\r")
        terminal.see("Enter: do it")
        goes_on.set()
        terminal.see("general · look: Write wants to write")
        terminal.keys()
        terminal.type("y")
        terminal.see("look has ended: done")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert (place.project / "made.txt").exists()


def test_a_headless_run_ends_them(tmp_path: Path) -> None:
    """Their cost is counted too."""
    place = Place(tmp_path)

    def step(body: dict[str, Any]) -> Say:
        if not is_parent(body):
            return Say(tools=[("Bash", {"command": f"touch begun; {SLEEP}"})])
        if "tool_result" not in said(body):
            return Say(tools=begin("look"))
        if "begun" not in said(body):
            wait = "until test -e begun; do sleep 0.02; done"
            return Say(tools=[("Bash", {"command": wait})])
        return Say("Done.")

    with Server(step) as server:
        options = (*FREELY, "-p", "go", "--output-format", "json")
        done = place.run(*options, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert server.rejected == []
    result = json.loads(done.stdout)
    assert result["result"] == "Done."
    (agent,) = result["agents"]
    assert (agent["status"], agent["calls"], agent["tool_calls"]) == ("interrupted", 1, 1)
    assert result["calls"] == 4
    assert running(SLEEP) == []


def test_a_kill_loses_no_task(tmp_path: Path) -> None:
    """Eight subagents and three jobs: each is listed with its state, none runs twice, and the model
    is told once.
    """
    place, words = Place(tmp_path), [f"w{number}" for number in range(8)]
    begun: Counter[str] = Counter()
    jobs = [
        ("Bash", {"command": command, "run_in_background": True})
        for command in (f"exec {SLEEP}", "echo quick", f"{SLEEP}; true")
    ]
    parent: list[Say] = [
        Say(tools=[*begin(*words), *jobs]),
        Say(tools=[("Job", {"action": "wait", "id": "job-2"})]),
        Say("All begun."),
        Say("I see."),
        Say("Still so."),
    ]

    def step(body: dict[str, Any]) -> Say:
        if is_parent(body):
            return parent.pop(0)
        word = word_of(body)
        begun[word] += 1
        if "Go on." in said(body):
            return Say(f"{word} went on.")
        if word in ("w0", "w1"):
            return Say(f"Answer of {word}.")
        return Say(tools=[("Bash", {"command": f"echo x >> {word}; {SLEEP}"})])

    with Server(step) as server:
        env = place.server(server.url)
        terminal = Terminal(*FREELY, cwd=place.project, env=env)
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see("All begun.")
        terminal.see(lambda text: all(f"{w} has ended: done" in flat(text) for w in ("w0", "w1")))
        terminal.see(lambda _: len([*place.project.glob("w*")]) == 4)
        terminal.child.kill(signal.SIGKILL)
        terminal.child.wait()
        (log,) = place.logs()
        ids = {run.description: run.id for run in newest(log)}
        assert sorted(ids) == words

        terminal = Terminal(*FREELY, "--continue", cwd=place.project, env=env, rows=60)
        terminal.see("All begun.")
        terminal.type("/tasks\r")
        shown = terminal.see(lambda text: listed(text).keys() == {*ids.values(), *JOBS})
        terminal.press("esc")
        terminal.see(lambda text: "search:" not in text)
        states = listed(shown)
        lost = {ids[word]: "lost" for word in words[2:]}
        done = {ids[word]: "done" for word in words[:2]}
        assert states == {**done, **lost, "job-1": "lost", "job-2": "done", "job-3": "lost"}
        terminal.type(f"/tasks {ids['w0']}\r")
        terminal.see("Answer of w0.")
        terminal.type("what now?\r")
        terminal.see("I see.")
        told = said(server.requests[-1])
        assert all(told.count(f"{id} (general)") == 1 for id in ids.values())
        assert "Answer of w0." in told
        assert running(SLEEP) == [], "what ran on has been ended"
        terminal.type("/tasks\r")
        terminal.see(lambda text: listed(text) == states)
        terminal.press("esc")
        terminal.see(lambda text: "search:" not in text)
        more = {"description": "more", "prompt": "Go on.", "background": True}
        calls = [("Task", {**more, "resume": ids[word]}) for word in ("w2", "w7")]
        parent[:] = [Say(tools=calls), Say("They go on."), Say("So.")]
        before = Counter(begun)
        terminal.type("go on\r")
        terminal.see("They go on.")
        terminal.see(lambda text: all(f"/tasks {ids[w]} shows" in flat(text) for w in ("w2", "w7")))
        terminal.type("and?\r")
        terminal.see("So.")
        terminal.type("/exit\r")
        assert terminal.leave() == 0
        replayed = place.run("replay", log.parent.name, env=env)
    assert server.rejected == []
    assert begun - before == Counter(w2=1, w7=1)
    assert all(path.read_text() == "x\n" for path in place.project.glob("w*"))
    notices = [e for e in read_log(log).entries if isinstance(e, User) and e.source == "notice"]
    assert [ids["w3"] in str(notice.content) for notice in notices].count(True) == 1
    assert {run.description: run.status for run in newest(log)} == {
        **dict.fromkeys(words, "interrupted"), **dict.fromkeys(("w0", "w1", "w2", "w7"), "done"),
    }  # fmt: skip
    assert replayed.returncode == 0, replayed.stderr
    assert re.search(
        r"(\d+) of \1 requests rebuilt byte for byte", replayed.stdout + replayed.stderr
    )


def listed(text: str) -> dict[str, str]:
    """The states of the tasks in the menu, by ID."""
    row = r"^[❯ ] ((?:general|job)-\w+) .*? (running|done|lost|failed|stopped)(?: |$)"
    return dict(re.findall(row, text.rpartition("search:")[2], re.MULTILINE))


def newest(log: Path) -> list[SubagentRun]:
    found = {e.id: e for e in read_log(log).entries if isinstance(e, SubagentRun)}
    return [*found.values()]
