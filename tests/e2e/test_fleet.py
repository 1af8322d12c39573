"""`ctxagent fleet`: many agents from one manifest, with the real command and kills."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.request_check import check_log
from ctxagent.agent.session.entries import Assistant
from ctxagent.agent.session.log import Entries

from ..support.command import PATIENCE, comes, gone
from ..support.fleet import (
    BYPASS,
    CALLS,
    Fleet,
    git,
    logged_dollars,
    paid_twice,
    run_with_kills,
    tail,
    work,
)
from ..support.server.faults import PASSING, Faults
from ..support.server.loopback import Fail, Say, Server, Step
from ..support.server.wires import Wire, over_each_wire

TASKS = 4
AIMS = ("fleet", "agent", "fleet")
WRITES = {"steps": [
    {"text": "", "tools": [{"name": "Bash", "input": {"command": "echo new > made.txt"}}]},
    {"text": "Written."},
]}  # fmt: skip


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, repositories=3)
    yield fleet
    fleet.end()


def test_fleet_ends_well_after_many_kills_and_pays_nothing_twice(fleet: Fleet) -> None:
    fleet.tasks(TASKS)
    with Server(Faults(work, rate=0.15, seed=3, kinds=PASSING)) as server:
        env = fleet.place.server(server.url)
        code, said = run_with_kills(fleet, server, AIMS, "--jobs", "3", env=env)
        assert code == 0, said
        assert list(paid_twice(fleet, server)) == []
        assert server.rejected == []
        asked = len(server.requests)
        again = fleet.call("run", env=env)
        assert (again.returncode, len(server.requests)) == (0, asked), again.stderr
    status = fleet.status()
    assert (status["done"], status["tasks"], len(fleet.logs())) == (TASKS, TASKS, TASKS)
    assert status["cost_usd"] == pytest.approx(logged_dollars(fleet), abs=1e-6)
    assert status["cost_usd"] > 0
    assert status["calls"] >= TASKS * (CALLS + 1)
    assert all(task["patch_bytes"] for task in status["each"])
    assert fleet.agents() == []


@pytest.mark.full
def test_a_second_run_is_refused_and_two_ctrl_c_keep_the_session(fleet: Fleet) -> None:
    fleet.tasks(2)
    steps: list[Step] = [Say("", tools=[("Bash", {"command": "true"})]), Say(fault="mute")]
    with Server([*steps, *[Say("Done.")] * 2]) as server:
        env = fleet.place.server(server.url)
        process = fleet.start("--jobs", "1", env=env)
        assert comes(lambda: len(server.requests) == 2, PATIENCE)
        second = fleet.call("run", env=env)
        assert (second.returncode, second.stdout) == (2, "")
        assert f"another process (pid {process.pid}) runs this manifest" in second.stderr
        running = fleet.status()
        assert (running["running"], running["waiting"], running["calls"]) == (1, 1, 1)
        assert running["cost_usd"] > 0
        assert running["cost_usd"] == pytest.approx(logged_dollars(fleet), abs=1e-6)
        told = fleet.call("status").stdout
        assert "  running t0  1 call · $" in told
        assert "  waiting t1\n" in told
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        told = "no more tasks are started; 1 task still running"
        assert any(told in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        said = tail(process)
        assert process.returncode == 130, said
        assert "interrupted: run the same command again to continue" in said
        assert (fleet.status()["stopped"], fleet.status()["waiting"]) == (1, 1)
        done = fleet.call("run", "--jobs", "1", env=env)
        assert done.returncode == 0, done.stderr
        assert list(paid_twice(fleet, server)) == []
        assert len(server.requests) == 4


def test_a_page_shows_a_fleet_as_it_runs(fleet: Fleet) -> None:
    fleet.tasks(2)
    steps: list[Step] = [Say("", tools=[("Bash", {"command": "sleep 600"})])]
    with Server(steps) as server:
        process = fleet.start("--jobs", "1", env=fleet.place.server(server.url))
        shown = fleet.place.start(
            "fleet", "show", "tasks.jsonl", "--serve",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert shown.stdout is not None
        url = shown.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")

        def page() -> str:
            return str(urllib.request.urlopen(url, timeout=PATIENCE).read().decode())

        assert comes(lambda: "Bash sleep 600" in page(), PATIENCE)
        assert "0 of 2 tasks" in page()
        shown.send_signal(signal.SIGINT)
        assert (shown.wait(PATIENCE), shown.stdout.read()) == (0, "")
        process.terminate()
        tail(process)
    assert fleet.call("show").returncode == 2


def test_next_run_waits_for_an_agent_of_a_killed_run(fleet: Fleet) -> None:
    fleet.tasks(1)
    call = Say("", tools=[("Bash", {"command": "echo a > made.txt"})])
    with Server([call, Fail(529, "Overloaded"), Say("Done.")]) as server:
        env = fleet.place.server(server.url)
        process = fleet.start(env=env)
        with server.halted_after(""):
            assert comes(lambda: len(server.requests) == 1, PATIENCE)
            process.kill()
            tail(process)
            (agent,) = fleet.agents()
            after = fleet.start(env=env)
            assert comes(lambda: fleet.folder.ledger.read_text().count("begun") == 2, PATIENCE)
        said = tail(after)
        assert after.returncode == 0, said
        assert gone(agent)
        assert len(server.requests) == 3
    assert fleet.folder.wait_file.exists(), "the others were told to wait"
    (task,) = fleet.status()["each"]
    assert (task["state"], task["attempt"], task["starts"]) == ("done", 1, 2)


@pytest.mark.full
@over_each_wire
def test_a_total_budget_stops_the_run_and_a_higher_budget_continues_it(
    fleet: Fleet, wire: Wire
) -> None:
    fleet.tasks(3)
    with wire(work) as server:
        env = fleet.place.environ(server.variables)
        stopped = fleet.call("run", "--jobs", "1", "--max-budget-usd", "0.0001", env=env)
        assert stopped.returncode == 4
        assert (
            "the budget is spent: raise the limit and run the same command again to continue"
            in stopped.stderr
        )
        assert len(server.requests) == 1
        status = fleet.status()
        assert (status["stopped"], status["waiting"]) == (1, 2)
        assert status["each"][0]["kind"] == "fleet budget"
        assert fleet.call("run", "--max-budget-usd", "5", env=env).returncode == 0
        assert list(paid_twice(fleet, server)) == []
    assert len(server.requests) == 3 * (CALLS + 1)


def test_a_reply_that_a_kill_cuts_is_in_the_bill(fleet: Fleet) -> None:
    fleet.tasks(1)
    call = Say("Look.", tools=[("Bash", {"command": "true"})])
    with Server([call, Say(fault="mute"), Say("Done.")]) as server:
        env = fleet.place.server(server.url)
        process = fleet.start("--max-budget-usd", "1", env=env)
        assert comes(lambda: len(server.requests) == 2, PATIENCE)
        (agent,) = fleet.agents()
        os.kill(agent, signal.SIGKILL)
        said = tail(process)
        assert process.returncode == 0, said
        assert "retry   t0  lost: the agent was ended by signal 9" in said
        assert len(server.requests) == 3
    (log,) = fleet.logs()
    entries = list(Entries(log))
    paid = [entry.cost_usd or 0.0 for entry in entries if isinstance(entry, Assistant)]
    cut = fleet.status()["cost_usd"] - sum(paid)
    assert paid[-1] < cut < 3 * paid[-1], "the same, but less of it was cached"
    assert fleet.status()["cost_usd"] == pytest.approx(logged_dollars(fleet), abs=1e-6)
    assert check_log(log).holds


@pytest.mark.full
def test_failed_tasks_are_counted_and_retried_on_request(fleet: Fleet) -> None:
    fleet.tasks(3)
    options = fleet.scripted({"steps": []})
    failed = fleet.call("run", *options, "--jobs", "1", "--max-failures", "2")
    assert failed.returncode == 4
    assert "too many tasks have failed" in failed.stderr
    status = fleet.status()
    assert (status["failed"], status["waiting"]) == (2, 1)
    assert sum(status["failures"].values()) == 2
    fleet.scripted(WRITES)
    fleet.tasks(2)
    assert fleet.call("run", *options).returncode == 1, "failed tasks stay failed"
    assert "2 tasks marked for a retry: `ctxagent fleet run" in fleet.call("retry").stdout
    assert fleet.call("retry").stdout == "no task has failed\n"
    unknown = fleet.call("show", "t9")
    assert "no task t9\n`ctxagent fleet status tasks.jsonl` lists them." in unknown.stderr
    assert fleet.call("run", *options).returncode == 0
    assert fleet.call("retry", "t0").returncode == 2
    assert "  done    t0, t1\n" in fleet.call("status").stdout
    each = fleet.status()["each"]
    assert [(task["attempt"], task["starts"]) for task in each] == [(2, 2), (2, 2)]
    assert len(fleet.logs()) == 2, "a retry goes on in its session"


def test_a_changed_task_is_reported_and_starts_again(fleet: Fleet) -> None:
    fleet.tasks(1)
    options = fleet.scripted(WRITES)
    assert fleet.call("run", *options).returncode == 0
    fleet.write([{"id": "t0", "prompt": "Another.", "dir": "r0"}])
    told = fleet.call("run", *options)
    assert (told.returncode, "t0 was changed after it began" in told.stderr) == (0, True)
    assert "`fleet retry` starts it again" in told.stderr
    (before,) = fleet.status()["each"]
    assert fleet.call("retry", "t0").returncode == 0
    assert "  stopped t0  2 calls" in fleet.call("status").stdout
    again = fleet.call("run", *options)
    assert "t0 was changed after it began; it starts again now" in again.stderr
    assert again.returncode == 0
    assert len(fleet.logs()) == 2
    status = fleet.status()
    (after,) = status["each"]
    assert not after["changed"]
    for name in ("calls", "tool_calls"):
        assert after[name] == 2 * before[name], name
    assert status["calls"] == after["calls"] == 4, "the bill is for both sessions"
    assert status["tokens"] == after["tokens"] > before["tokens"]
    assert "bill: no known price · 4 calls" in again.stdout


@pytest.mark.full
def test_each_place_has_its_own_patch(fleet: Fleet, tmp_path: Path) -> None:
    first = git(fleet.place.project / "r0", "rev-parse", "HEAD")
    below = fleet.place.project / "r2" / "below"
    below.mkdir()
    (below / "file").touch()
    git(below, "add", ".")
    git(below, "commit", "-qm", "below")
    (fleet.place.project / "r0" / "read.me").write_text("later\n")
    git(fleet.place.project / "r0", "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--bare", str(fleet.place.project / "r0"), str(tmp_path / "b.git"))
    plain = fleet.place.project / "plain"
    plain.mkdir()
    git(fleet.place.project, "init", "-q", "empty")
    fleet.write(
        [
            {"id": "worktree", "prompt": "go", "dir": "r0"},
            {"id": "clone", "prompt": "go", "git": str(tmp_path / "b.git"), "commit": first},
            {"id": "url", "prompt": "go", "git": (tmp_path / "b.git").as_uri()},
            {"id": "itself", "prompt": "go", "dir": "r1", "worktree": False},
            {"id": "plain", "prompt": "go", "dir": "plain", "worktree": False},
            {"id": "below", "prompt": "go", "dir": "r2/below"},
            {"id": "no-such", "prompt": "go", "git": "http://127.0.0.1:9/none.git"},
        ]
    )
    done = fleet.call("run", *fleet.scripted(WRITES))
    assert done.returncode == 1, done.stderr
    each = {task["id"]: task for task in fleet.status()["each"]}
    for id in ("worktree", "clone", "url", "itself"):
        patch = (Path(each[id]["folder"]) / "patch.diff").read_text()
        assert "+new" in patch, id
        assert "made.txt" in patch, id
    assert (plain / "made.txt").exists()
    assert each["plain"]["patch_bytes"] is None
    assert not (fleet.place.project / "r0" / "made.txt").exists()
    assert (fleet.place.project / "r1" / "made.txt").exists()
    assert "?? made.txt" in git(fleet.place.project / "r1", "status", "--short")
    assert (Path(each["clone"]["folder"]) / "place" / "read.me").read_text() == "hello\n"
    told = [json.loads(line) for line in fleet.folder.ledger.read_text().splitlines()]
    expected = {line["task"]: line["log"] for line in told if line["event"] == "begun"}
    for id in ("worktree", "clone", "url", "itself", "plain", "below"):
        assert expected[id] == each[id]["log"], id
        assert Path(expected[id]).exists(), id
    assert each["no-such"]["kind"] == "place"
    assert "cannot clone http://127.0.0.1:9/none.git" in each["no-such"]["message"]


def test_a_task_that_takes_too_long_is_interrupted_and_keeps_its_session(fleet: Fleet) -> None:
    fleet.tasks(1, time_limit=1)
    slow = {"steps": [{"text": "", "tools": [{"name": "Bash", "input": {"command": "sleep 300"}}]}]}
    assert fleet.call("run", *fleet.scripted(slow)).returncode == 1
    (task,) = fleet.status()["each"]
    assert (task["state"], task["kind"], task["message"]) == (
        "failed",
        "time limit",
        "more than 1 s",
    )
    assert fleet.agents() == []
    fleet.tasks(1)
    fleet.call("retry")
    assert fleet.call("run", *fleet.scripted(WRITES)).returncode == 0
    (after,) = fleet.status()["each"]
    assert (after["session"], after["attempt"]) == (task["session"], 2)
    shown = fleet.call("show", "t0")
    assert f"--resume {task['session']}" in shown.stdout
    assert "Written." in shown.stdout


def test_an_answer_in_a_pipe_has_no_control_sequences(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.tasks(1)
    answer = {"steps": [{"text": "\x1b]0;title\x07\x1b[31mred\x1b[0m and\nmore"}]}
    assert fleet.call("run", *fleet.scripted(answer)).returncode == 0
    shown = fleet.call("show", "t0").stdout
    assert "red" in shown
    assert [c for c in shown if not c.isprintable() and c != "\n"] == []


def test_the_printed_command_continues_the_session_in_the_place_of_the_task(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "a folder; it's odd")
    fleet.tasks(1)
    assert fleet.call("run", *fleet.scripted(WRITES)).returncode == 0
    shown = dict(line.split(": ", 1) for line in fleet.call("show", "t0").stdout.splitlines()
                 if ": " in line)  # fmt: skip
    place = Path(shown["place"])
    assert (place / "made.txt").exists()
    assert shown["branch"] == git(place, "branch", "--show-current")
    steps = [{"text": "", "tools": [{"name": "Bash", "input": {"command": "pwd > where.txt"}}]}]
    options = fleet.scripted({"steps": [*steps, {"text": "More."}]})
    resume = shlex.split(shown["continue the session"])[1:]
    command = [*resume, *BYPASS, *options, "-p", "More words."]
    more = fleet.place.run(*command)
    assert (more.returncode, more.stdout) == (0, "More.\n"), more.stderr
    assert (place / "where.txt").read_text() == f"{place}\n"
    assert "where.txt" not in git(fleet.place.project / "r0", "status", "--short")


def test_a_container_sees_its_task_and_gets_what_is_named(fleet: Fleet, tmp_path: Path) -> None:
    """No container engine runs here. A program in its place records the command line, and runs the
    agent without a container.
    """
    engine = tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    agent = f"exec {sys.executable} -P -m ctxagent"
    engine.write_text(
        f'#!/bin/bash\n[ "$1" = info ] && exit 0\nprintf "%s\\n" "$@" >> {tmp_path}/said\n'
        f'[ "$1" = rm ] && exit 1\n'
        f'while [ "$1" != ctxagent ]; do shift; done; shift; {agent} "$@"\n'
    )
    engine.chmod(engine.stat().st_mode | stat.S_IXUSR)
    task = {"id": "t", "prompt": "go", "dir": "r0", "image": "img:1", "cores": 2, "memory_mb": 64}
    fleet.write([{**task, "env": ["MORE"], "time_limit": 300}])
    env = fleet.place.environ({"MORE": "much", "ANTHROPIC_API_KEY": "k"})
    env["PATH"] = f"{engine.parent}:{env['PATH']}"
    done = fleet.call("run", *fleet.scripted(WRITES), env=env)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text()
    words = said.split("\n")
    session = fleet.status()["each"][0]["session"]
    folder = Path(fleet.status()["each"][0]["folder"])
    assert words[:6] == ["rm", "--force", f"ctxagent-{session}", "run", "--rm", "--init"]
    for word in ("--env=MORE", "--env=ANTHROPIC_API_KEY", "--cpus=2", "--memory=64m", "img:1",
                 f"--mount=type=bind,source={folder},target={folder}",
                 f"--user={os.getuid()}:{os.getgid()}"):  # fmt: skip
        assert word in words, word
    assert "much" not in said
    assert "made.txt" in (folder / "patch.diff").read_text()
    assert not (fleet.place.project / "r0" / "made.txt").exists()
    assert len(fleet.logs()) == 1


def test_missing_container_engine_and_invalid_line_are_reported(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.write([{"id": "t", "prompt": "go", "image": "img:1"}])
    env = fleet.place.environ({"PATH": str(tmp_path / "nothing")})
    assert fleet.call("run", *fleet.scripted(WRITES), env=env).returncode == 1
    (task,) = fleet.status()["each"]
    assert (task["kind"], "no container engine" in task["message"]) == ("place", True)
    fleet.write([{"id": "a", "prompt": "go", "dir": "r0", "settings": {"model.idd": "x"}}])
    bad = fleet.call("run")
    assert bad.returncode == 2
    assert "tasks.jsonl:1: settings: no setting is called 'model.idd'" in bad.stderr
    assert "Did you mean model.id?" in bad.stderr
    fleet.write([{"id": "a", "prompt": "go", "dir": "r0", "env": ["NOT_THERE"]}])
    assert "the variable NOT_THERE is not set" in fleet.call("run").stderr


def test_collect_refuses_folders_that_it_did_not_create(fleet: Fleet, tmp_path: Path) -> None:
    fleet.tasks(1)
    fleet.call("run", *fleet.scripted(WRITES))
    refused = fleet.call("collect", str(fleet.place.project / "r0"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "r0 is not empty\nGive a new or empty directory" in refused.stderr
    assert git(fleet.place.project / "r0", "status", "--short") == ""
    (tmp_path / "out").mkdir()
    assert fleet.call("collect", str(tmp_path / "out")).returncode == 0
    assert fleet.call("collect", str(tmp_path / "out")).returncode == 0
    other = Fleet(tmp_path / "other")
    other.tasks(1)
    refused = other.call("collect", str(tmp_path / "out"))
    assert (refused.returncode, "has the results of another fleet" in refused.stderr) == (2, True)


def test_status_lists_the_first_tasks_of_each_state(fleet: Fleet) -> None:
    fleet.tasks(30)
    told = fleet.call("status").stdout
    assert told.startswith("30 tasks: 30 waiting\n")
    ids = ", ".join(f"t{n}" for n in range(20))
    assert f"  waiting {ids}, and 10 more: --json lists all\n" in told


def test_the_error_for_an_option_after_the_command_says_where_to_put_it(fleet: Fleet) -> None:
    fleet.tasks(1)
    for word, told in (
        ("--model=x", "--model ID"),
        ("--plain", "--plain"),
        ("--effort=low", "--effort …"),
    ):
        done = fleet.call("run", word)
        assert done.returncode == 2
        assert f"Put it before the command: ctxagent {told} fleet run …" in done.stderr
    assert "stands before" not in fleet.call("run", "--continue").stderr


def nothing_began(fleet: Fleet) -> bool:
    """Return True if no task has begun and no file was created for one."""
    made = fleet.place.project.glob("*-worktrees")
    return not fleet.folder.ledger.exists() and not list(made)


def test_an_error_for_all_tasks_is_reported_before_the_start(fleet: Fleet) -> None:
    fleet.tasks(3)
    keyless = fleet.call("run")
    assert (keyless.returncode, keyless.stdout) == (5, "")
    assert "ctxagent: No key for the model" in keyless.stderr
    unreadable = fleet.call("run", "-c", "model.id=scripted:nowhere.json")
    assert unreadable.returncode == 2
    assert "nowhere.json: the script cannot be read" in unreadable.stderr
    unpriced = fleet.call("run", *fleet.scripted(WRITES), "--max-budget-usd", "1")
    assert unpriced.returncode == 2
    assert "the price of scripted is not known, so a budget" in unpriced.stderr
    no_answers = fleet.place.run("--answers", "nowhere", "fleet", "run", "tasks.jsonl")
    assert (no_answers.returncode, "--answers nowhere" in no_answers.stderr) == (2, True)
    fleet.write([{"id": "a", "prompt": "go", "dir": "r0"},
                 {"id": "b", "prompt": "go", "dir": "r0", "budget_usd": 1}])  # fmt: skip
    one = fleet.call("run", *fleet.scripted(WRITES))
    assert (one.returncode, "task b: the price of scripted" in one.stderr) == (2, True)
    assert nothing_began(fleet)


def test_missing_places_are_listed_in_one_error_before_the_start(fleet: Fleet) -> None:
    tasks = [
        {"id": "a", "prompt": "go", "dir": "r0"},
        {"id": "b", "prompt": "go", "dir": "nowhere"},
        {"id": "c", "prompt": "go", "git": "none/at/all"},
    ]
    fleet.write(tasks)
    bad = fleet.call("run", *fleet.scripted(WRITES))
    assert bad.returncode == 2
    assert "2 mistakes in tasks.jsonl:" in bad.stderr
    assert (
        f"tasks.jsonl:2: there is no directory {fleet.place.project}/nowhere. `dir` is relative"
        in bad.stderr
    )
    assert "tasks.jsonl:3: there is no repository none/at/all" in bad.stderr
    assert nothing_began(fleet)
    fleet.write(tasks[:1])
    assert fleet.call("run", *fleet.scripted(WRITES)).returncode == 0
    (fleet.place.project / "r0").rename(fleet.place.project / "away")
    assert fleet.call("run").returncode == 0, "what is done needs neither its place nor a key"


@pytest.mark.full
def test_outage_costs_no_task_an_attempt(fleet: Fleet) -> None:
    fleet.tasks(8)
    asked = list[int]()

    def step(body: dict[str, Any]) -> Step:
        asked.append(1)
        return Fail(529, "Overloaded") if 5 < len(asked) <= 10 else work(body)

    with Server(step) as server:
        env = fleet.place.server(server.url)
        words = ("--jobs", "3", "-c", "model.overload_wait=0")
        done = fleet.call("run", *words, env=env)
        assert done.returncode == 0, done.stderr
        assert "outage: the server does not answer: the model is overloaded" in done.stderr
        assert "outage: over, server works again" in done.stderr
        assert "failed" not in done.stderr
        assert list(paid_twice(fleet, server)) == []
    status = fleet.status()
    assert (status["done"], status["failed"]) == (8, 0)
    assert len(server.requests) == 8 * (CALLS + 1) + 5


@pytest.mark.full
def test_long_outage_ends_the_run_without_failed_tasks(fleet: Fleet) -> None:
    fleet.tasks(4)
    is_down = [True]

    def step(body: dict[str, Any]) -> Step:
        return Fail(529, "Overloaded") if is_down[0] else Say("Done.")

    with Server(step) as server:
        env = fleet.place.server(server.url)
        words = ("--jobs", "2", "-c", "model.overload_wait=0")
        ended = fleet.call("run", *words, "--max-outage", "3", env=env)
        assert ended.returncode == 5, ended.stderr
        assert "ctxagent: the server does not answer: the model is overloaded" in ended.stderr
        again = "run the same command again to continue, with a longer --max-outage to wait"
        assert again in ended.stderr
        status = fleet.status()
        assert status["failed"] == 0
        assert status["stopped"] + status["waiting"] == 4
        assert {task.get("cause") for task in status["each"]} <= {"server", None}
        is_down[0] = False
        assert fleet.call("run", *words, env=env).returncode == 0


@pytest.mark.full
def test_failures_are_retried_and_chosen_by_their_kind(fleet: Fleet) -> None:
    fleet.tasks(2)
    options = fleet.scripted({"steps": []})
    done = fleet.call("run", *options, "--retries", "rejected=1")
    assert done.returncode == 1
    assert done.stderr.count("retry   t0  rejected: ") == 1
    assert [task["attempt"] for task in fleet.status()["each"]] == [2, 2]
    none = fleet.call("retry", "--failed-by", "time-limit")
    assert none.stdout == "no task failed with time limit\n"
    assert "2 tasks marked for a retry" in fleet.call("retry", "--failed-by", "rejected").stdout
    wrong = fleet.call("run", *options, "--retries", "eror=1")
    assert (wrong.returncode, "no kind of failure 'eror'\nKinds: error, " in wrong.stderr) == (
        2,
        True,
    )
    assert fleet.call("run", "--retries", "error=x").returncode == 2


@pytest.mark.full
def test_a_key_that_is_refused_ends_the_run_and_no_task_has_failed(fleet: Fleet) -> None:
    fleet.tasks(4)
    with Server([Fail(401, "bad key"), *[Say("Done.")] * 4]) as server:
        env = fleet.place.server(server.url)
        refused = fleet.call("run", "--jobs", "1", env=env)
        assert refused.returncode == 5
        assert "the key was not accepted (401): bad key" in refused.stderr
        assert "no more tasks were started: fix this, then" in refused.stderr
        status = fleet.status()
        assert (status["stopped"], status["waiting"], status["failed"]) == (1, 3, 0)
        assert fleet.call("run", "--jobs", "1", env=env).returncode == 0
        assert list(paid_twice(fleet, server)) == []


def test_a_key_that_is_refused_for_the_model_of_one_task_is_its_failure(fleet: Fleet) -> None:
    own = {"settings": {"model.id": "claude-opus-4-8"}}
    fleet.write([{"id": "a", "prompt": "go", "dir": "r0", **own},
                 {"id": "b", "prompt": "go", "dir": "r0"}])  # fmt: skip
    with Server([Fail(403, "not for you"), Say("Done.")]) as server:
        env = fleet.place.server(server.url)
        assert fleet.call("run", "--jobs", "1", env=env).returncode == 1
    status = fleet.status()
    assert (status["done"], status["failed"]) == (1, 1)


@pytest.mark.full
def test_the_path_of_a_script_is_relative_to_where_it_was_written(fleet: Fleet) -> None:
    fleet.scripted(WRITES)
    script = (fleet.place.root / "script.json").rename(fleet.place.project / "own.json")
    own = {"model.id": "scripted:own.json"}
    fleet.write([{"id": "a", "prompt": "go", "dir": "r0"},
                 {"id": "b", "prompt": "go", "dir": "r0", "settings": own}])  # fmt: skip
    words = ("--model", "scripted:own.json", *BYPASS, "fleet", "run", "tasks.jsonl")
    done = fleet.place.run(*words)
    assert done.returncode == 0, done.stderr
    script.rename(fleet.place.project / "by-variable.json")
    fleet.write([{"id": "c", "prompt": "go", "dir": "r0"}])
    env = fleet.place.environ({"CTXAGENT_MODEL_ID": "scripted:by-variable.json"})
    done = fleet.call("run", env=env)
    assert done.returncode == 0, done.stderr


def test_failures_are_listed_briefly_with_the_next_step(fleet: Fleet) -> None:
    fleet.tasks(2)
    path = fleet.place.project / "r0" / ".agentrc"
    path.write_text("[permissions]\nmode = 'never'\n")
    git(fleet.place.project / "r0", "add", ".")
    git(fleet.place.project / "r0", "commit", "-qm", "settings")
    done = fleet.call("run", *fleet.scripted(WRITES))
    assert done.returncode == 1
    for said in (done.stdout, fleet.call("status").stdout):
        (line,) = (line for line in said.splitlines() if line.startswith("  failed"))
        assert "t0  usage: " in line
        cause, command = said.split("failures by cause:\n")[1].splitlines()
        assert cause.startswith("  1 task usage: ")
        assert command == "    ctxagent fleet show tasks.jsonl t0"


def test_a_run_names_each_finished_task_once(fleet: Fleet) -> None:
    fleet.tasks(2)
    done = fleet.call("run", *fleet.scripted(WRITES))
    assert done.stderr.count("done    t0  ") == 1
    assert "  done " not in done.stdout
    assert "2 tasks: 2 done" in done.stdout
    assert "  done    t0, t1\n" in fleet.call("status").stdout


def test_finished_task_keeps_few_files(fleet: Fleet) -> None:
    fleet.tasks(2)
    fleet.call("run", *fleet.scripted(WRITES))
    for task in fleet.status()["each"]:
        project = Path(task["log"]).parents[2]
        folders = [Path(task["folder"]), project]
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert len(files) <= 8, files
        assert {"log.jsonl", "conversation.md", "patch.diff"} <= {path.name for path in files}


def test_collect_writes_pages(fleet: Fleet, tmp_path: Path) -> None:
    fleet.tasks(2)
    options = fleet.scripted(WRITES)
    fleet.call("run", *options)
    fleet.tasks(3)
    assert fleet.call("collect", str(tmp_path / "out")).returncode == 0
    index = (tmp_path / "out" / "index.html").read_text()
    for n in range(2):
        folder = tmp_path / "out" / f"t{n}"
        assert f'href="t{n}/session.html"' in index
        assert f'href="t{n}/patch.diff"' in index
        assert "+new" in (folder / "patch.diff").read_text()
        assert json.loads((folder / "result.json").read_text())["result"] == "Written."
        assert "Written." in (folder / "session.html").read_text()
        assert (folder / "log.jsonl").exists()
    assert "t2/session.html" not in index
    made = (tmp_path / "out" / "t0" / "session.html").stat().st_mtime_ns
    fleet.call("collect", str(tmp_path / "out"))
    assert (tmp_path / "out" / "t0" / "session.html").stat().st_mtime_ns == made
