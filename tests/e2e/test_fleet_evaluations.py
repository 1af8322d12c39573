"""Evaluations and migrations with `ctxagent fleet` and the real command: attempts, scores,
comparisons, and the command after a score.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.session.entries import Assistant
from ctxagent.agent.session.log import Entries

from ..support.command import PATIENCE, alive, comes
from ..support.fleet import Fleet, tail
from ..support.machine import needs_bwrap

WRITES = {"steps": [
    {"text": "", "tools": [{"name": "Bash", "input": {"command": "echo new > made.txt"}}]},
    {"text": "Written."},
]}  # fmt: skip
# Says that it has begun, waits for a file, and says that it has ended.
WAITS = (
    "echo {0} >> $FLEET_DIR/begun; until [ -e $FLEET_DIR/go ]; do sleep 0.02; done; "
    "echo {0} >> $FLEET_DIR/ended"
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.end()


def unconfined(command: str) -> dict[str, Any]:
    """Return a score without a sandbox, so that it can write files for the test."""
    return {"command": command, "sandbox": False}


def killed_at_a_step(fleet: Fleet, options: tuple[str, ...]) -> int:
    """Start a run and kill it while a step runs; return the process group of the step."""
    process = fleet.start(*options, env=fleet.place.environ())
    assert comes((fleet.place.project / "begun").exists, PATIENCE)
    (lock,) = fleet.folder.path.glob("tasks/*/*/lock")
    assert comes(lambda: alive(int(lock.read_text().split()[0])), PATIENCE)
    process.kill()
    tail(process)
    return int(lock.read_text().split()[0])


def said(fleet: Fleet, name: str) -> list[str]:
    """Return the lines that the steps have written into a file next to the manifest."""
    path = fleet.place.project / name
    return path.read_text().split() if path.exists() else []


def replies(fleet: Fleet) -> int:
    """Return the number of model replies in all logs."""
    return sum(isinstance(entry, Assistant) for log in fleet.logs() for entry in Entries(log))


def test_a_run_that_is_killed_at_the_score_or_after_it_repeats_nothing(fleet: Fleet) -> None:
    options = fleet.scripted(WRITES)
    steps = {"score": unconfined(WAITS.format("score")), "after": WAITS.format("after")}
    fleet.tasks(1, **steps)
    killed_at_a_step(fleet, options)
    again = fleet.start(*options, env=fleet.place.environ())
    assert comes(lambda: fleet.folder.ledger.read_text().count("begun") == 2, PATIENCE)
    (fleet.place.project / "go").touch()
    told = tail(again)
    assert again.returncode == 0, told
    assert said(fleet, "begun") == said(fleet, "ended") == ["score", "after"]
    assert replies(fleet) == 2
    (task,) = fleet.status()["each"]
    assert (task["state"], task["attempt"], task["passed"]) == ("done", 1, True)
    assert fleet.call("run", *options).returncode == 0
    assert said(fleet, "ended") == ["score", "after"]


def test_a_killed_command_after_the_score_runs_again_only_on_retry(
    fleet: Fleet,
) -> None:
    options = fleet.scripted(WRITES)
    fleet.tasks(1, score="test -f made.txt", after=WAITS.format("after"))
    os.killpg(killed_at_a_step(fleet, options), signal.SIGKILL)
    told = fleet.call("run", *options)
    assert told.returncode == 1
    assert "after unknown: the command began, but its end is unknown" in told.stderr
    assert fleet.call("run", *options).returncode == 1
    assert said(fleet, "begun") == ["after"]
    (fleet.place.project / "go").touch()
    assert fleet.call("retry", "--failed-by", "after-unknown").returncode == 0
    assert fleet.call("run", *options).returncode == 0
    assert (said(fleet, "begun"), said(fleet, "ended")) == (["after"] * 2, ["after"])
    (task,) = fleet.status()["each"]
    assert (task["state"], task["attempt"], replies(fleet)) == ("done", 1, 2)


def test_retry_repeats_only_the_failed_step(fleet: Fleet) -> None:
    options = fleet.scripted(WRITES)
    note = "echo {0} >> $FLEET_DIR/begun; "
    broken = {"score": unconfined(note.format("score") + "exit 7"), "after": "exit 3"}
    fleet.tasks(1, **broken)
    assert fleet.call("run", *options).returncode == 1
    (task,) = fleet.status()["each"]
    assert (task["kind"], task["passed"]) == ("score", None)
    assert "exit code 7" in task["message"]
    fleet.tasks(1, **{**broken, "score": unconfined(note.format("score"))})
    fleet.call("retry")
    assert fleet.call("run", *options).returncode == 1
    (task,) = fleet.status()["each"]
    assert (task["kind"], task["message"], task["passed"]) == ("after", "exit code 3", True)
    fleet.tasks(1, after=note.format("after") + "echo pushed; test -f made.txt", score="true")
    fleet.call("retry")
    assert fleet.call("run", *options).returncode == 0
    assert said(fleet, "begun") == ["score", "score", "after"]
    (task,) = fleet.status()["each"]
    assert (task["after"], task["attempt"], replies(fleet)) == ("pushed", 1, 2)
    fleet.tasks(1, score="exit 1")
    assert "1 task marked for a retry" in fleet.call("retry", "--score").stdout
    assert fleet.call("run", *options).returncode == 0
    (task,) = fleet.status()["each"]
    assert (task["passed"], task["score"], replies(fleet)) == (False, 0.0, 2)


@pytest.mark.full
def test_nothing_is_run_after_a_score_that_did_not_pass(fleet: Fleet) -> None:
    note = "echo $FLEET_TASK >> $FLEET_DIR/begun"
    tasks = [
        {"id": "bad", "prompt": "go", "dir": "r0", "score": "echo 0.4", "after": note},
        {
            "id": "good",
            "prompt": "go",
            "dir": "r0",
            "score": "echo '{\"score\": 1}'",
            "after": note,
        },
        {"id": "none", "prompt": "go", "dir": "r0", "after": note},
    ]
    fleet.write(tasks)
    assert fleet.call("run", *fleet.scripted(WRITES)).returncode == 0
    assert sorted(said(fleet, "begun")) == ["good", "none"]
    assert "score: 1 passed, 1 not passed" in fleet.call("status").stdout


@needs_bwrap
def test_the_score_has_the_sandbox_of_commands_and_no_keys(fleet: Fleet) -> None:
    looks = "touch $FLEET_DIR/x 2> /dev/null; grep -q new $FLEET_PATCH && test -f made.txt"
    looks += ' -a -z "$ANTHROPIC_API_KEY$GH_TOKEN"'
    after = 'test -e $FLEET_DIR/x || git config core.hooksPath; echo "$GH_TOKEN"'
    fleet.tasks(1, score=looks, after=after)
    env = fleet.place.environ({"ANTHROPIC_API_KEY": "k" * 20, "GH_TOKEN": "t1k2n3" * 4})
    assert fleet.call("run", *fleet.scripted(WRITES), env=env).returncode == 0
    (task,) = fleet.status()["each"]
    assert task["passed"] is True
    assert not (fleet.place.project / "x").exists()
    assert task["after"].startswith("/dev/null\n")
    assert "t1k2n3" not in fleet.folder.ledger.read_text(), "it is redacted"


@pytest.mark.full
def test_attempts_in_cells_have_names_results_and_predictions(fleet: Fleet) -> None:
    options = fleet.scripted(WRITES)
    matrix = {"preset": ["lean", "ledger"], "prompt": {"short": "{prompt}", "long": "{prompt}!"}}
    score = '[ "$FLEET_CELL" != ledger.long ] || [ "$FLEET_TASK" = t1 ]'
    defaults = {"dir": "r0", "score": score, "matrix": matrix}
    fleet.write([{"defaults": defaults}, {"id": "t0", "prompt": "a"}, {"id": "t1", "prompt": "b"}])
    done = fleet.call("run", *options, "--attempts", "2")
    assert done.returncode == 0, done.stderr
    status = fleet.status()
    assert status["tasks"] == len(fleet.logs()) == 16, "also without the option"
    ids = [task["id"] for task in status["each"]]
    assert ids[:4] == ["t0@lean.short@1", "t0@lean.short@2", "t0@lean.long@1", "t0@lean.long@2"]
    assert {task["attempt"] for task in status["each"]} == {1}, "no attempt is a retry"
    found = json.loads(fleet.call("results", "--json").stdout)["cells"]
    rates = {cell["cell"]: cell["pass_at"]["1"]["value"] for cell in found}
    assert rates == {"lean.short": 1, "lean.long": 1, "ledger.short": 1, "ledger.long": 0.5}
    assert fleet.call("results").stdout.splitlines()[0].split()[:3] == [
        "passed",
        "pass@1",
        "pass@2",
    ]
    runs = ("tasks.jsonl@lean.long", "tasks.jsonl@ledger.long")
    compared = fleet.place.run("fleet", "compare", *runs, "--json", "--page", "c.html")
    told = json.loads(compared.stdout)
    assert (told["wins"], told["losses"], told["ties"], told["p_value"]) == (0, 1, 1, 1)
    assert "exact sign test: p = 1" in (fleet.place.project / "c.html").read_text()
    assert fleet.place.run("fleet", "compare", "tasks.jsonl").returncode == 2
    fleet.tasks(1)
    no_matrix = fleet.place.run("fleet", "compare", "tasks.jsonl@lean", "tasks.jsonl")
    assert "has no cell lean\nIt has no matrix: write tasks.jsonl alone." in no_matrix.stderr
    fleet.write([{"defaults": defaults}, {"id": "t0", "prompt": "a"}, {"id": "t1", "prompt": "b"}])
    assert fleet.call("collect", "--swe-bench", "preds.json").returncode == 0
    files = sorted(path.name for path in fleet.place.project.glob("preds*"))
    assert len(files) == 8
    (first, _) = json.loads((fleet.place.project / "preds.lean.long.1.json").read_text())
    assert (first["instance_id"], first["model_name_or_path"]) == ("t0", "lean.long")
    assert "+new" in first["model_patch"]


def test_a_score_that_takes_too_long_is_ended(fleet: Fleet) -> None:
    fleet.tasks(1, score={"command": "sleep 300 & sleep 300", "time_limit": 1}, after="echo no")
    assert fleet.call("run", *fleet.scripted(WRITES)).returncode == 1
    (task,) = fleet.status()["each"]
    assert (task["kind"], task["after"]) == ("score", "")
    assert task["message"] == "the score took more than 1 s"


def test_ctrl_c_ends_a_score_and_the_next_run_makes_it_again(fleet: Fleet) -> None:
    options = fleet.scripted(WRITES)
    fleet.tasks(1, score=unconfined(WAITS.format("score")))
    process = fleet.start(*options, env=fleet.place.environ())
    assert comes((fleet.place.project / "begun").exists, PATIENCE)
    process.send_signal(signal.SIGTERM)
    tail(process)
    assert process.returncode == 130
    (task,) = fleet.status()["each"]
    assert (task["state"], task["kind"]) == ("stopped", "interrupted")
    (fleet.place.project / "go").touch()
    assert fleet.call("run", *options).returncode == 0
    (task,) = fleet.status()["each"]
    assert (task["passed"], task["attempt"], replies(fleet)) == (True, 1, 2)
    assert said(fleet, "ended") == ["score"]


def test_the_score_of_a_task_in_a_container_is_run_in_one(fleet: Fleet, tmp_path: Path) -> None:
    """A program in the place of the engine runs the command without a container."""
    engine = tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    engine.write_text(
        f'#!/bin/bash\nprintf "%s\\n" "$*" >> {tmp_path}/said\n[ "$1" = rm ] && exit 1\n'
        '[ "$1" = info ] && exit\n'
        'while [ "$1" != img:1 ]; do shift; done; shift\n'
        f'[ "$1" = ctxagent ] && shift && exec {sys.executable} -P -m ctxagent "$@"\nexec "$@"\n'
    )
    engine.chmod(0o700)
    fleet.tasks(1, image="img:1", score='test -f made.txt -a "$FLEET_TASK" = t0')
    env = fleet.place.environ()
    env["PATH"] = f"{engine.parent}:{env['PATH']}"
    assert fleet.call("run", *fleet.scripted(WRITES), env=env).returncode == 0
    assert fleet.status()["each"][0]["passed"] is True
    runs = [line for line in (tmp_path / "said").read_text().splitlines() if "--rm" in line]
    assert len(runs) == 2
    assert "--env=FLEET_TASK" in runs[1]
    assert "img:1 sh -c test -f made.txt" in runs[1]


def test_show_lists_the_attempts_of_a_line(fleet: Fleet) -> None:
    fleet.tasks(1, score="echo no compiler; exit 3", repeat=2)
    fleet.call("run", *fleet.scripted(WRITES), env=fleet.place.environ())
    done = fleet.call("show", "t0")
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[1].split()[:3] == ["t0@1", "failed", "-"]
    done = fleet.call("results")
    assert "2 attempts not counted: the score command failed" in done.stdout
    told = fleet.call("show", "t0@1").stdout
    assert "output of the score command: " in told
    assert "\n  no compiler\n" in told


def test_a_step_does_not_run_files_that_the_model_wrote(fleet: Fleet) -> None:
    options = fleet.scripted(WRITES)
    for step in ({"after": "sh made.txt"}, {"score": unconfined("sh made.txt")}):
        fleet.tasks(1, **step)
        assert fleet.call("run", *options).returncode == 1
        (task,) = fleet.status()["each"]
        assert task["kind"] == next(iter(step))
        assert "runs changed files (never accepted: made.txt)" in task["message"]
        fleet.call("retry")
    fleet.tasks(1, score="sh made.txt; true")
    assert fleet.call("run", *options).returncode == 0
