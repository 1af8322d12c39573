"""After kill -9, the user is told which commands ended with an unknown result."""

import signal
import subprocess
from pathlib import Path

import pytest

from ..support.command import Place, running
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

RUNS = "touch made.txt; echo started; sleep 4711"
UNKNOWN = f"killed before `Bash {RUNS}` had a result: its outcome is unknown"
CALLS = [("Bash", {"command": RUNS}), ("Write", {"path": "b.txt", "content": "b"})]
FREELY = ("--permission-mode", "bypass", "-c", "sandbox.mode=off")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    return place


def killed(place: Place, server: Server) -> None:
    """Run the command, and kill it in the middle of its calls."""
    terminal = Terminal(*FREELY, cwd=place.project, env=place.server(server.url))
    terminal.see("❯")
    terminal.type("make it\r")
    terminal.see("  started")
    terminal.child.kill(signal.SIGKILL)
    terminal.child.wait()


@pytest.mark.variants
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12)])
def test_the_person_is_told_before_they_type(place: Place, columns: int, rows: int) -> None:
    with Server([Say(tools=CALLS[:1]), Say("It was cut short.")]) as server:
        killed(place, server)
        terminal = Terminal(
            *FREELY, "--continue", cwd=place.project, env=place.server(server.url),
            columns=columns, rows=rows,
        )  # fmt: skip
        shown = terminal.see(lambda text: "unknown" in text and "make it" in text)
        assert UNKNOWN in " ".join(shown.split())
        terminal.type("what happened?\r")
        shown = " ".join(terminal.see("It was cut short.").split())
        assert "have changed since: made.txt" in shown
        assert f"still running, now stopped: `{RUNS}`" in shown
        terminal.type("/quit\r")
        assert terminal.leave() == 0
        again = Terminal(*FREELY, "--continue", cwd=place.project, env=place.server(server.url))
        assert "unknown" not in again.see("what happened?")
        again.type("/quit\r")
        assert again.leave() == 0
    assert server.rejected == []
    assert not running("sleep 4711")


def test_headless_says_it_on_standard_error(place: Place) -> None:
    with Server([Say(tools=CALLS), Say("Cut short.")]) as server:
        killed(place, server)
        done = place.run(*FREELY, "--continue", "-p", "go on", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Cut short.\n"
    assert f"warning: {UNKNOWN}\n" in done.stderr
    assert "b.txt" not in done.stderr, "that call never began"
    sent = str(server.requests[1]["messages"])
    assert sent.count("outcome unknown") == 1
    assert sent.count("[not run: the agent was killed before this call started]") == 1
    assert "warning: files that have changed since" in done.stderr


def test_what_ended_in_good_order_is_not_told(place: Place) -> None:
    with Server(
        [Say(tools=[("Bash", {"command": "echo one"})]), Say("One."), Say("Two.")]
    ) as server:
        for more in ((), ("--continue",)):
            done = place.run(*FREELY, *more, "-p", "go", env=place.server(server.url))
            assert done.returncode == 0
            assert "unknown" not in done.stderr
