"""Sending commands to the background (Ctrl-B, /background), /tasks, and leaving while jobs run."""

import json
import os
import re
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import ToolResult, User
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import read_log

from ..support.command import Place, end, gone, running
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal
from ..support.terminal.seat import CTRL_C, CTRL_D, ENTER, ESC, Desk, Seat, drive

CTRL_B = "\x02"
SLEEP = f"sleep 300.{secrets.randbelow(10**9)}"
LONG = Step(tools=[("Bash", {"command": f"echo under way; {SLEEP}"})])
JOB = Step(tools=[("Bash", {"command": f"exec {SLEEP}", "run_in_background": True})])


@pytest.fixture(autouse=True)
def _no_sleep_left() -> Iterator[None]:
    yield
    end(SLEEP)


def send_to_background(terminal: Terminal, seen: str) -> None:
    """Press Ctrl-B until it takes effect: a command may be visible a moment before it runs."""

    def heard(text: str) -> bool:
        terminal.type("" if seen in text else CTRL_B)
        return seen in text

    terminal.see(heard)


def test_ctrl_b_sends_a_command_to_the_background(tmp_path: Path) -> None:
    desk = Desk(tmp_path, LONG, Step(text="It runs on."), mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until(lambda: seat.repl.runs_command)
        await seat.until("\n  under way\n")  # what it said, below its title
        seat.press(CTRL_B)
        await seat.until("It runs on.")
        await seat.until("1 job")
        assert "continues in the background as job-1" in seat.glass.all()
        seat.say("/jobs")
        await seat.until("Enter: show or stop it")
        row = rf"job-1 +echo under way; {SLEEP} +running +[\d.]+ s"
        await seat.until(lambda: re.search(row, seat.glass.all()) is not None)
        seat.press(ESC)
        await seat.until("search:", gone=True)
        seat.say("/tasks job-1")
        await seat.until("last output of job-1:")
        seat.say("/tasks stop job-1")
        await seat.until("ended by the user")
        await seat.until("1 job ", gone=True)

    drive(desk, act)
    (result,) = [e for e in read_log(desk.loops[0].log.path).entries if isinstance(e, ToolResult)]
    assert "under way\n[after " in str(result.content)
    assert "job-1: running, pid" in str(result.content)
    assert not result.is_error


def test_a_user_command_goes_to_the_background(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="I know."))

    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.say(f"!echo by hand; {SLEEP}")
        await seat.until(lambda: seat.repl.runs_command)
        seat.press(CTRL_B)
        await seat.until("continues in the background as job-1")
        seat.say("what runs?")
        await seat.until("I know.")
        seat.say("/tasks stop 1")
        await seat.until("ended by the user")

    drive(desk, act)
    log = read_log(desk.loops[0].log.path).entries
    (ran,) = [e for e in log if isinstance(e, User) and e.source == "shell"]
    assert "the user sent it to the background" in str(desk.model.requests[-1].messages)
    ledger = Ledger()
    for entry in log:
        ledger.add(entry)
    assert ledger.commands[-1].exit_code is None
    assert ledger.unresolved() == []
    assert ran.details["backgrounded"] is True


@pytest.mark.parametrize("editing_mode", ["emacs", "vi"])
def test_ctrl_b_moves_left_where_nothing_runs(tmp_path: Path, editing_mode: str) -> None:
    desk = Desk(tmp_path, Step(text="Read."))

    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.press("ac" + CTRL_B + "b" + ENTER)
        await seat.until("Read.")

    drive(desk, act, editing_mode=editing_mode)
    assert desk.said() == ["abc"]


def test_ctrl_b_sends_to_the_background_in_vi(tmp_path: Path) -> None:
    desk = Desk(tmp_path, LONG, Step(text="It runs on."), mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until(lambda: seat.repl.runs_command)
        seat.press("words" + CTRL_B)
        await seat.until("It runs on.")
        await seat.idle()
        seat.press(CTRL_C + CTRL_D)
        await seat.until("[y]es, leave and end this job")
        seat.press(CTRL_D)

    drive(desk, act, editing_mode="vi")
    assert gone(*running(SLEEP))


def test_nothing_that_could_go_to_the_background(tmp_path: Path) -> None:
    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.say("/background")
        await seat.until("no running command or subagent can go to the background")
        seat.say("/tasks")
        await seat.until("there are no tasks yet")
        seat.say("/tasks stop job-7")
        await seat.until("there is no task 'job-7'")

    drive(Desk(tmp_path), act)


@pytest.mark.variants
@pytest.mark.parametrize("leave", [CTRL_D, "/exit" + ENTER, "quit" + ENTER, CTRL_C + CTRL_C])
def test_leaving_asks_once_while_jobs_run(tmp_path: Path, leave: str) -> None:
    desk = Desk(tmp_path, JOB, Step(text="It serves."), Step(text="Still here."), mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("serve")
        await seat.until("It serves.")
        await seat.idle()
        seat.press(leave)
        await seat.keys("[y]es, leave and end this job · [n]o, stay")
        assert re.search(rf"job-1 has been running for \d+ s: exec {SLEEP}", seat.glass.all())
        seat.press("n")
        await seat.until("nothing has changed")
        seat.say("are you there?")
        await seat.until("Still here.")
        assert running(SLEEP)
        await seat.idle()
        seat.press(leave)
        await seat.keys("[y]es, leave and end this job")
        seat.press("y")
        await seat.until(lambda: not seat.repl.screen.app.is_running)  # type: ignore[attr-defined]

    code, _ = drive(desk, act)
    assert code == 0
    assert running(SLEEP) == []


def test_a_job_that_ends_is_told_and_shown(tmp_path: Path) -> None:
    """Its end, its result and its output, including output from before it became a job."""
    desk = Desk(tmp_path)
    os.mkfifo(desk.cwd / "go")

    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.say("!seq 50; cat go; exit 3")
        await seat.until(lambda: seat.repl.runs_command)
        await seat.until("● Shell  seq 50; cat go; exit 3")
        seat.press(CTRL_B)
        await seat.until("continues in the background as job-1")
        await seat.idle()
        (desk.cwd / "go").write_text("the end\n")
        await seat.until("job-1 has ended: exit 3 · /tasks job-1 shows its output")
        seat.say("/tasks")
        await seat.until("Enter: show or stop it")
        row = r"job-1 +seq 50; cat go; exit 3 +failed +[\d.]+ s *\n +exit 3 · the end"
        await seat.until(lambda: re.search(row, seat.glass.all()) is not None)
        seat.press(ESC)
        await seat.until("search:", gone=True)
        seat.say("/tasks job-1")
        await seat.until("  12\n  13\n")
        await seat.until("  49\n  50\n  the end\n")
        seat.say("/tasks stop job-1")
        await seat.until("job-1 has already ended: failed, exit 3")

    drive(desk, act)


def test_the_model_is_told_once_that_a_job_ended(tmp_path: Path) -> None:
    """Also after a kill; never about an end it has seen through Job; not at all if no job ended."""
    place = Place(tmp_path)
    wait = "until test -e {0}; do sleep 0.02; done; echo {0}; exit 3"
    jobs = [
        ("Bash", {"command": wait.format(name), "run_in_background": True})
        for name in ("late", "early")
    ]
    steps = [
        Say(tools=jobs), Say(tools=[("Job", {"action": "wait", "id": "job-2"})]), Say("Begun."),
        Say("I see."), Say("Still so."), Say("And now."),
    ]  # fmt: skip
    options = "--permission-mode", "bypass", "-c", "sandbox.mode=off"

    def step(body: dict[str, Any]) -> Say:
        if len(steps) == 5:  # the request before the call of Job
            (place.project / "early").touch()
        return steps.pop(0)

    with Server(step) as server:
        env = place.server(server.url)
        terminal = Terminal(*options, cwd=place.project, env=env)
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see("Begun.")
        (place.project / "late").touch()
        terminal.see("job-1 has ended: exit 3")
        terminal.type("and?\r")
        terminal.see("I see.")
        terminal.type("and now?\r")
        terminal.see("Still so.")
        terminal.child.kill(signal.SIGKILL)
        terminal.child.wait()
        terminal = Terminal(*options, "--continue", cwd=place.project, env=env)
        terminal.see("Still so.")
        terminal.type("what now?\r")
        terminal.see("And now.")
        terminal.type("/tasks\r")
        terminal.see(lambda text: re.search(r"job-1 .* failed", text) is not None)
        terminal.press("esc")
        terminal.see(lambda text: "search:" not in text)
        terminal.type("/exit\r")
        assert terminal.leave() == 0
        replayed = place.run("replay", place.logs()[0].parent.name, env=env)
    assert server.rejected == []
    line = r"job-\d has ended after[^\n]*"
    told = [re.findall(line, json.dumps(body["messages"])) for body in server.requests]
    assert [len(each) for each in told] == [0, 0, 0, 1, 1, 1]
    assert re.match(r"job-1 has ended after \d+ s: exit 3\. Job with action", told[-1][0])
    assert re.search(
        r"(\d+) of \1 requests rebuilt byte for byte", replayed.stdout + replayed.stderr
    )


def test_leaving_within_a_question_of_permission(tmp_path: Path) -> None:
    ask = Step(tools=[("Bash", {"command": "touch made"})])
    desk = Desk(tmp_path, JOB, ask)

    async def act(seat: Seat) -> None:
        seat.say("serve")
        await seat.keys()
        seat.press("y")
        await seat.until("touch made")
        await seat.keys()
        seat.press("/exit" + ENTER)
        await seat.until("tasks are running: answer the question first, or leave again")
        seat.press("/exit" + ENTER)
        await seat.until(lambda: not seat.repl.screen.app.is_running)  # type: ignore[attr-defined]

    code, _ = drive(desk, act)
    assert code == 0
    assert not (desk.cwd / "made").exists()
    assert running(SLEEP) == []


def test_a_session_that_is_left_for_another_asks_for_its_jobs(tmp_path: Path) -> None:
    desk = Desk(tmp_path, JOB, Step(text="It serves."), mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("serve")
        await seat.until("It serves.")
        for times, words in enumerate(("/new", "/fork"), 1):
            seat.say(words)
            await seat.keys("[y]es, leave and end this job")
            seat.press(ESC)
            await seat.until(lambda n=times: seat.glass.all().count("nothing has changed") == n)
        assert len(desk.loops) == 1
        seat.say("/clear")
        await seat.keys("[y]es, leave and end this job")
        seat.press("y")
        await seat.until("ended job")
        assert running(SLEEP) == []

    drive(desk, act)


def test_a_second_ctrl_d_leaves_the_real_command(tmp_path: Path) -> None:
    place = Place(tmp_path)
    steps = [
        Say(tools=[("Bash", {"command": f"echo under way; {SLEEP}"})]),
        Say("It runs on."),
    ]
    with Server(steps) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("/help")
        terminal.type("go\r")
        send_to_background(terminal, "It runs on.")
        terminal.see("1 job")
        assert running(SLEEP)
        terminal.press("ctrl-d")
        terminal.see("[y]es, leave and end this job · [n]o, stay")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    assert "sent it to the background" in json.dumps(server.requests[-1]["messages"])
    assert running(SLEEP) == []


def test_lines_alone_ask_too(tmp_path: Path) -> None:
    """On the plain screen, Ctrl-D ends the input, and /background replaces Ctrl-B."""
    place = Place(tmp_path)
    steps = [
        Say(tools=[("Bash", {"command": f"echo under way; touch begun; {SLEEP}"})]),
        Say("It runs on."),
        Say("Still here."),
    ]
    with Server(steps) as server:
        terminal = Terminal(
            "--plain", "--permission-mode", "bypass", cwd=place.project,
            env=place.server(server.url),
        )  # fmt: skip
        terminal.see("/help")
        terminal.type("go\r")
        terminal.see(lambda _: (place.project / "begun").exists())
        terminal.type("/background\r")
        terminal.see("It runs on.")
        terminal.press("ctrl-d")
        terminal.see("Type y for yes, leave and end this job, n for no, stay.")
        terminal.type("n\r")
        terminal.see("nothing has changed")
        terminal.type("there?\r")
        terminal.see("Still here.")
        terminal.press("ctrl-d")
        terminal.see(lambda text: text.count("leave and end this job") == 2)
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert running(SLEEP) == []
