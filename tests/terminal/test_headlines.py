"""The headlines of calls that did not run or did not finish: the call is named once."""

import re
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

TWICE = re.compile(r"\b(\w+) +\1\b")


@pytest.mark.parametrize("columns", [80, 40])
def test_no_tool_is_named_twice(tmp_path: Path, columns: int) -> None:
    place = Place(tmp_path)
    steps = [
        Say(tools=[("Job", {}), ("Job", {"action": "stop"}), ("Bash", {"cmd": "ls -l"})]),
        Say(tools=[("Nothing", {}), ("Bash", '{"command": "ls')]),
        Say(tools=[("Bash", {"command": "sleep 500"}), ("Bash", {"command": "make all"})]),
    ]
    with Server(steps) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", cwd=place.project, env=place.server(server.url),
            columns=columns, rows=24,
        )  # fmt: skip
        terminal.see("❯")
        terminal.type("go on\r")
        terminal.see("● Bash  sleep 500")
        terminal.press("esc")
        terminal.see("interrupted; what was done is kept")
        shown = terminal.text()
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    heads = re.findall(r"^● .*$", shown, re.MULTILINE)
    assert [head.split("  ")[0] for head in heads] == [
        "● Job", "● Job", "● Bash", "● Nothing", "● Bash", "● Bash", "● Bash"
    ]  # fmt: skip
    assert heads[0] == "● Job  failed"
    assert heads[1] == "● Job  stop  failed"
    assert heads[2] == "● Bash  ls -l  failed"
    assert heads[-2].startswith("● Bash  sleep 500  interrupted")
    assert heads[-1] == "● Bash  make all  not run"
    assert not any(map(TWICE.search, heads))


def test_headless_names_no_tool_twice(tmp_path: Path) -> None:
    place = Place(tmp_path)
    steps = [Say(tools=[("Job", {}), ("Job", {"action": "stop"})]), Say("Done.")]
    with Server(steps) as server:
        done = place.run("-p", "go", "--verbose", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert not TWICE.search(done.stderr)
