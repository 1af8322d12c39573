"""Attribution of file changes: two sessions in one project at once, and programs that are not
sessions.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..support.command import PATIENCE, Place
from ..support.server.loopback import Body, Say, Server
from .test_worktree_option import git

COMMANDS = 20  # of each session
# The second command of each pair hides the name of its file.
WRITES = ("echo {n} >> {who}{n}.txt", "name={who}{n}; echo {n} >> $name.txt")
# Each command writes while the other one runs: they meet before and after, over two pipes.
MEETING = {
    "A": "echo > ab; read x < ba; {write}; echo > ab; read x < ba",
    "B": "read x < ab; echo > ba; {write}; read x < ab; echo > ba",
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / "a.txt").write_text("1\n")
    git(place.project, "init", "-q", "-b", "main")
    git(place.project, "add", ".")
    git(place.project, "commit", "-qm", "First")
    return place


def meeting(body: Body) -> Say:
    """Return the next command of the session that asks."""
    who = "A" if "session A" in json.dumps(body["messages"]) else "B"
    n = sum(message["role"] == "assistant" for message in body["messages"])
    if n == COMMANDS:
        return Say("Done.")
    write = WRITES[n % 2].format(who=who, n=n)
    return Say(tools=[("Bash", {"command": MEETING[who].format(write=write)})])


def start(place: Place, url: str, words: str) -> "subprocess.Popen[str]":
    return place.start(
        "-p", words, "--permission-mode", "bypass", env=place.server(url),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def listed(log: Path, key: str, keep: Callable[[dict[str, Any]], bool] = bool) -> set[str]:
    """Return the names of the files that a session's results list under a key."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    results = [entry["details"] for entry in entries if entry["kind"] == "tool_result"]
    rows = [row for details in results for row in details.get(key, ()) if keep(row)]
    return {Path(row["path"]).name for row in rows}


@pytest.mark.full
@pytest.mark.slow
def test_overlapping_commands_list_no_file_of_the_other_session(place: Place) -> None:
    for name in ("ab", "ba"):
        os.mkfifo(place.project / name)
    with Server(meeting) as server:
        both = [start(place, server.url, f"session {who}: write files") for who in "AB"]
        for process in both:
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors
    written = {f"{who}{n}.txt" for who in "AB" for n in range(COMMANDS)}
    assert written <= {path.name for path in place.project.iterdir()}
    for log in place.logs():
        who = "A" if "session A" in log.read_text() else "B"
        named = {f"{who}{n}.txt" for n in range(0, COMMANDS, 2)}
        hidden = {f"{each}{n}.txt" for each in "AB" for n in range(1, COMMANDS, 2)}
        assert listed(log, "changes") == named
        assert listed(log, "changes", lambda row: "certain" not in row) == named
        assert listed(log, "changed_meanwhile") == hidden


@pytest.mark.slow
def test_a_change_without_proof_is_listed_as_made_while_the_command_ran(place: Place) -> None:
    """An editor saves a file while a command runs: the command waits for it here."""
    os.mkfifo(place.project / "saved")
    steps = [
        Say(tools=[("Bash", {"command": "read x < saved; echo 2 >> a.txt"})]),
        Say("Done."),
    ]
    with Server(steps) as server:
        process = start(place, server.url, "go")
        with (place.project / "saved").open("w") as pipe:  # opens when the command reads
            (place.project / "editor.txt").write_text("by an editor\n")
            pipe.write("\n")
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    (log,) = place.logs()
    assert listed(log, "changes", lambda row: "certain" not in row) == {"a.txt"}
    assert listed(log, "changes", lambda row: row.get("certain") is False) == {"editor.txt"}
