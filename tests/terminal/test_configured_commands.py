"""The user's own commands, for the status line and for notices: they run in the background, and
only if they are allowed.
"""

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from ..support.command import Place, comes, gone, running
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

ASKS = Say(tools=[("Bash", {"command": "touch made"})])
FOCUS_IN, FOCUS_OUT = "\x1b[I", "\x1b[O"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def script(place: Place, text: str, name: str = "mine") -> Path:
    path = place.root / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def status_env(place: Place, server: Server, command: str) -> dict[str, str]:
    return place.server(server.url) | {"CTXAGENT_STATUSLINE_COMMAND": command}


def says(terminal: Terminal, words: str) -> None:
    """Wait for a text, however it is wrapped."""
    terminal.see(lambda text: words in " ".join(text.split()))


def row_below_status(terminal: Terminal) -> str:
    rows = terminal.screen.display
    at = max((n for n, row in enumerate(rows) if "% full" in row), default=-1)
    return rows[at + 1].rstrip() if at >= 0 else ""


def test_the_status_command_prints_from_the_facts_it_gets(place: Place) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=place.project, check=True)
    seen = place.root / "seen"
    mine = script(
        place,
        f"""cat > {seen}.part; cat {seen}.part >> {seen}
state=$(sed 's/.*"state": "\\([a-z]*\\)".*/\\1/' {seen}.part)
printf '\\033[32mI am %s\\033[0m\\033[2J\\nnot this\\n' "$state\"""",
    )
    with Server([ASKS, Say("Half", fault="silence")]) as server:
        terminal = Terminal(cwd=place.project, env=status_env(place, server, str(mine)))
        terminal.see(lambda _: row_below_status(terminal) == "I am idle")
        y = next(y for y, row in enumerate(terminal.screen.display) if "I am idle" in row)
        assert terminal.screen.buffer[y][0].fg == "green"
        terminal.type("make it\r")
        terminal.see(lambda _: row_below_status(terminal) == "I am question")
        terminal.keys()
        terminal.type("y")
        terminal.see("Half")
        terminal.see(lambda _: row_below_status(terminal) == "I am working")
        terminal.press("ctrl-c")
        terminal.see(lambda _: row_below_status(terminal) == "I am idle")
        terminal.resize(6, 30)
        terminal.see(lambda _: any(row.rstrip() == "I am" for row in terminal.screen.display))
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    facts = [json.loads(line) for line in seen.read_text().splitlines()]
    (log,) = place.logs()
    last = facts[-1]
    assert last["session"] == log.parent.name
    assert (last["cwd"], last["project"]) == (str(place.project), "project")
    assert (last["state"], last["mode"], last["branch"]) == ("idle", "ask", "main")
    assert 0 < last["tokens"]["used"] < last["tokens"]["window"]
    assert 0 < last["tokens"]["percent"] < 100
    assert last["cost_usd"] > 0
    assert last["model"].startswith("claude-")
    assert re.fullmatch(r"\d+\.\d+.*", last["version"])
    assert all(a != b for a, b in pairwise(facts)), "run for nothing"
    assert "not this" not in terminal.text()
    assert b"\x1b[2J" not in terminal.raw


def test_a_command_that_fails_shows_nothing_and_is_told_of_once(place: Place) -> None:
    with Server([Say("One."), Say("Two.")]) as server:
        env = status_env(place, server, "echo broken; exit 3")
        terminal = Terminal(cwd=place.project, env=env)
        says(terminal, "later failures are not reported")
        for words, answer in (("one", "One."), ("two", "Two.")):
            terminal.type(f"{words}\r")
            terminal.see(answer)
        terminal.see(lambda _: terminal.screen.title == "project")
        assert row_below_status(terminal) == ""
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    text = " ".join(terminal.text().split())
    assert text.count("statusline.command `echo broken; exit 3` failed (exit 3): broken") == 1


def test_a_hanging_command_is_stopped(place: Place) -> None:
    hangs = script(place, "sleep 300", "hangs-for-long")
    with Server([Say("I am here.")]) as server:
        terminal = Terminal(cwd=place.project, env=status_env(place, server, str(hangs)))
        terminal.see("% full")
        terminal.see(lambda _: bool(running(str(hangs))))
        pids = running(str(hangs))
        terminal.type("hello\r")
        terminal.see("I am here.")
        says(terminal, "was stopped after 5 s")
        assert gone(*pids)
        terminal.type("/clear\r")
        terminal.see("new session")
        terminal.see(lambda _: bool(running(str(hangs))))
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert comes(lambda: not running(str(hangs))), "left behind"


def test_a_notice_goes_to_the_command_too(place: Place) -> None:
    told = place.root / "told"
    mine = script(place, f'echo "$NOTICE_TITLE: $NOTICE_TEXT" >> {told}; exit 4')
    with Server([ASKS, Say("Made."), Say("Again.")]) as server:
        env = place.server(server.url) | {
            "CTXAGENT_UI_NOTIFY": "off",
            "CTXAGENT_UI_NOTIFY_AFTER": "0",
            "CTXAGENT_UI_NOTIFY_COMMAND": str(mine),
        }
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("% full")
        terminal.type(f"make it\r{FOCUS_OUT}")
        terminal.keys()
        says(terminal, "failed (exit 4)")
        terminal.type("y")
        terminal.see("Made.")
        terminal.see(lambda _: len(told.read_text().splitlines()) == 2)
        terminal.type("again\r")
        terminal.see("Again.")
        terminal.see(lambda _: len(told.read_text().splitlines()) == 3)
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    question, *ends = told.read_text().splitlines()
    assert question == "project: a question is waiting for your answer"
    assert all(end.startswith("project: the turn has ended after ") for end in ends)
    assert terminal.text().count("ui.notify_command") == 1


PROJECT_FILE = """
[statusline]
command = "echo I RAN"
[ui]
notify_command = "touch notified"
notify_after = 0
"""


def test_a_project_may_name_commands_only_once_it_is_trusted(place: Place) -> None:
    (place.project / ".agentrc").write_text(PROJECT_FILE)
    with Server([Say("One."), Say("Two."), Say("Three.")]) as server:
        env = place.server(server.url)
        for trusted, options, answer in (
            (False, (), "One."), (True, (), "Two."), (True, ("--safe",), "Three."),
        ):  # fmt: skip
            if trusted and not options:
                done = place.run("config", "--trust", env=env)
                assert done.returncode == 0, done.stderr
            terminal = Terminal(*options, cwd=place.project, env=env)
            terminal.see("% full")
            terminal.type(f"hello\r{FOCUS_OUT}")
            terminal.see(answer)
            runs = trusted and not options
            if runs:
                terminal.see("I RAN")
                assert comes((place.project / "notified").exists)
                (place.project / "notified").unlink()
            terminal.press("ctrl-d")
            assert terminal.leave() == 0
            assert ("I RAN" in terminal.raw.decode()) is runs
            assert not (place.project / "notified").exists()
            told = "".join(terminal.text().split())  # a long path is cut anywhere
            assert ("isnottrusted" in told) is not trusted
