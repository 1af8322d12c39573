"""The real command while Python reports a Mac: it does not read /proc or call functions that only
Linux has, and still finds and ends processes. These tests do not run on macOS itself.
"""

import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ctxagent

from ..support.command import PATIENCE, Place, comes, gone, running
from ..support.server.loopback import Say, Server

SHIM = Path(__file__).parents[1] / "support" / "other_system"
FORBIDDEN = """
import sys
def look(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        import psutil
        frame, found = sys._getframe(1), False
        while frame:
            found = found or "psutil" in frame.f_code.co_filename
            frame = frame.f_back
        if not found:
            print("READS", arguments[0], file=sys.stderr)
sys.addaudithook(look)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def start(place: Place, env: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    program = f"{FORBIDDEN}\nfrom ctxagent.agent.cli.main import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=place.project,
        env={**env, "PYTHONPATH": str(SHIM)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_every_module_is_imported_there() -> None:
    names = [m.name for m in pkgutil.walk_packages(ctxagent.__path__, "ctxagent.")]
    own = [n for n in names if n.startswith(("ctxagent.agent", "ctxagent.tools"))]
    assert len(own) > 300
    program = f"import importlib, sys\nassert sys.platform == 'darwin'\nfor n in {own!r}:\n"
    program += "    importlib.import_module(n)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SHIM)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


def test_task_on_another_system(place: Place) -> None:
    (place.project / "a.txt").write_text("one\n")
    name = f"left-{os.getpid()}"
    leave = f"setsid sh -c 'exec -a {name} sleep 1000' >/dev/null 2>&1 & echo left"
    steps = [
        Say(tools=[("Read", {"path": "a.txt"})]),
        Say(tools=[("Edit", {"path": "a.txt", "old_string": "one", "new_string": "two"})]),
        Say(tools=[("Bash", {"command": "cat a.txt"})]),
        Say(tools=[("Grep", {"pattern": "tw"})]),
        Say(tools=[("Bash", {"command": f'bash -c "{leave}"; sleep 1000', "timeout": 1})]),
        Say(tools=[("Bash", {"command": "sleep 1000", "background": True})]),
        Say("All done."),
    ]
    with Server(steps) as server:
        env = place.server(server.url)
        with start(place, env, "-p", "go", "--permission-mode", "bypass") as process:
            out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "All done.\n"), err
    assert "READS" not in err
    assert "sandbox" not in err
    assert (place.project / "a.txt").read_text() == "two\n"
    results = [e for e in place.entries() if e["kind"] == "tool_result"]
    assert "two" in json.dumps(results[2]["content"])
    assert "a.txt" in json.dumps(results[3]["content"])
    assert comes(lambda: not running(name))
    assert server.rejected == []


def test_an_interrupt_there_ends_the_whole_tree(place: Place) -> None:
    numbers = place.project / "numbers"
    command = f"setsid sh -c 'echo $$ >> {numbers}; sleep 1000' & echo $$ >> {numbers}; sleep 1000"
    with Server([Say(tools=[("Bash", {"command": command})]), Say("Never.")]) as server:
        env = place.server(server.url)
        with start(place, env, "-p", "go", "--permission-mode", "bypass") as process:
            assert comes(lambda: numbers.exists() and len(numbers.read_text().split()) == 2, 120)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert gone(*map(int, numbers.read_text().split()))


def test_a_slow_program_in_front_is_waited_for_there(place: Place) -> None:
    go = place.project / "go"
    slow = f"until [ -e {go} ]; do sleep 0.1; done; echo walrus"
    program = f"{FORBIDDEN}\nfrom ctxagent.agent.cli.main import main\nmain()"
    with Server([Say("Done.")]) as server:
        with subprocess.Popen(
            [
                "sh",
                "-c",
                f'sh -c "{slow}" | "$@"',
                "-",
                sys.executable,
                "-c",
                program,
                "-p",
                "look",
            ],
            cwd=place.project,
            env={**place.server(server.url), "PYTHONPATH": str(SHIM)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stderr is not None
            waiting = process.stderr.readline()
            go.touch()
            out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (0, "Done.\n"), err
    # The shell or the program that it has just started.
    assert re.search("waiting for standard input from (sh|sleep)$", waiting.strip())
    assert "READS" not in err
    assert "walrus" in json.dumps(server.requests[0])


def test_on_windows_the_command_says_where_it_runs() -> None:
    program = "import sys\nsys.platform = 'win32'\nfrom ctxagent.agent.cli.main import main\nmain()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "WSL" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_on_another_system(place: Place) -> None:
    with start(place, place.environ({"ANTHROPIC_API_KEY": "k"}), "doctor") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert "there is no sandbox for this system" in out, err
    assert "Traceback" not in err
    assert "READS" not in err
