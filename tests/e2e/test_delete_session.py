"""`ctxagent sessions delete`: removes a session and all data about it."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from subprocess import PIPE

import pytest

from ctxagent.agent.session.log import Log
from ctxagent.agent.worktree import WorkTree

from ..support.command import PATIENCE, Place, comes

WORD = "quokka"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def started(place: Place, task: str) -> str:
    """Run a task, and return the ID of its session."""
    before = {*place.logs()}
    script = place.root / "steps.json"
    script.write_text(json.dumps({"steps": [{"text": "Done."}]}))
    done = place.run("-p", task, "--model", f"scripted:{script}")
    assert done.returncode == 0, done.stderr
    (new,) = {*place.logs()} - before
    return new.parent.name


def traces(place: Place, word: str) -> list[Path]:
    """Return the files in the state directory that contain a word."""
    files = [path for path in place.state.rglob("*") if path.is_file()]
    return [path for path in files if word.encode() in path.read_bytes()]


def asked(place: Place, answer: str, *arguments: str) -> tuple[int, str]:
    """Run the command on a terminal where the user types an answer."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = place.run(*arguments, stdin=theirs, stderr=theirs)
    finally:
        os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123
        shown = b"".join(_read_all(terminal))
    return done.returncode, shown.decode()


def _read_all(terminal: FileIO) -> Iterator[bytes]:
    """Read what is in a terminal that has no other end any more."""
    with suppress(OSError):  # EIO: nothing is left
        while data := terminal.read(100_000):
            yield data


def test_a_session_is_deleted_with_all_its_traces(place: Place) -> None:
    gone, kept = started(place, f"say {WORD}"), started(place, "say wombat")
    assert place.run("sessions", "search", WORD).returncode == 0  # the index has it
    done = place.run("sessions", "delete", gone, "--yes")
    assert (done.returncode, done.stdout) == (0, f"deleted: {gone}\n")
    assert re.fullmatch(rf"{gone}  changed now  \d+ kB  say {WORD}\n", done.stderr)
    assert [log.parent.name for log in place.logs()] == [kept]
    assert not [*place.state.rglob(f"*{gone}*/log.jsonl")]
    assert place.run("sessions", "search", WORD).returncode == 1
    assert place.run("sessions", "search", "wombat").returncode == 0
    assert traces(place, gone) == []
    assert place.run("sessions", "show", gone).returncode == 2


def test_several_sessions_are_deleted_or_none(place: Place) -> None:
    one, two = started(place, "first"), started(place, "second")
    done = place.run("sessions", "delete", one, "20200101-000000-abcdef", "--yes")
    assert done.returncode == 2
    assert "there is no session '20200101-000000-abcdef'" in done.stderr
    assert len(place.logs()) == 2
    log = Log.open(next(log for log in place.logs() if log.parent.name == two))
    try:
        done = place.run("sessions", "delete", one, two, "--yes")
    finally:
        log.close()
    assert done.returncode == 1
    assert f"session {two} is open in another process" in done.stderr
    assert "End that process first. Nothing was deleted." in done.stderr
    assert len(place.logs()) == 2
    done = place.run("sessions", "delete", one, two, one, "--yes")
    assert (done.returncode, done.stdout) == (0, f"deleted: {one}\ndeleted: {two}\n")
    assert place.logs() == []


def test_delete_asks_and_refuses_without_a_terminal(place: Place) -> None:
    id = started(place, "say hello")
    done = place.run("sessions", "delete", id)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing was deleted, because there is no terminal to ask\nGive --yes." in done.stderr
    code, shown = asked(place, "n", "sessions", "delete", id)
    assert code == 1
    assert "say hello" in shown
    assert "Delete 1 session for good? [y/N]" in shown
    assert "nothing was deleted" in shown
    assert len(place.logs()) == 1
    assert asked(place, "y", "sessions", "delete", id)[0] == 0
    assert place.logs() == []


def test_a_subagent_is_deleted_with_its_session_only(place: Place) -> None:
    id = started(place, "say hello")
    (log,) = place.logs()
    part = log.parent / "agents" / "a1"
    part.mkdir(parents=True)
    (part / "log.jsonl").write_bytes(log.read_bytes())
    done = place.run("sessions", "delete", "a1", "--yes")
    assert done.returncode == 2
    assert f"ctxagent sessions delete {id}" in done.stderr
    assert part.is_dir()


def disk_bytes(place: Place) -> int:
    """Return the size of the state directory, as `du` counts it."""
    return sum(path.lstat().st_blocks * 512 for path in place.state.rglob("*"))


def work(place: Place, *commands: str, more: Sequence[str] = ()) -> str:
    """Run a task that runs commands, and return the ID of its session."""
    steps = [{"tools": [{"name": "Bash", "input": {"command": each}}]} for each in commands]
    script = place.root / "steps.json"
    script.write_text(json.dumps({"steps": [*steps, {"text": "Done."}]}))
    before = {*place.logs()}
    done = place.run(
        "-p", "work", "--model", f"scripted:{script}", "--permission-mode", "bypass", *more
    )
    assert done.returncode == 0, done.stderr
    new = {*place.logs()} - before or {max(place.logs(), key=lambda log: log.stat().st_mtime)}
    return new.pop().parent.name


CHANGE = "head -c 3000000 /dev/urandom > {name}"


@pytest.mark.slow
def test_a_deletion_frees_what_only_the_session_used(place: Place) -> None:
    """Ignored files are saved one by one, others in snapshots."""
    (place.project / ".gitignore").write_text("*.bin\n")
    (place.project / "data.bin").write_bytes(os.urandom(3_000_000))
    first = work(place, "touch kept.txt")
    before = disk_bytes(place)
    names = ("data.bin", "data.csv")
    change = " && ".join(CHANGE.format(name=name) for name in names)
    ids = [work(place, change), work(place, change)]
    for _ in range(3):
        work(place, change, more=("--resume", ids[1]))
    assert disk_bytes(place) > before + 15_000_000
    done = place.run("sessions", "delete", "--yes", *ids)
    assert done.returncode == 0, done.stderr
    assert abs(disk_bytes(place) - before) < 1_000_000
    done = place.run("sessions", "delete", "--yes", first)
    assert disk_bytes(place) < 300_000
    work(place, change)  # a new session works after that


@pytest.mark.slow
def test_a_deletion_leaves_a_running_session_all_it_needs(place: Place) -> None:
    (place.project / ".gitignore").write_text("*.bin\n")
    ids = [work(place, f"echo {n} > data.bin && echo {n} > a.txt") for n in range(2)]
    os.mkfifo(place.project / "gate")
    wait = "echo running > a.txt && touch waits && cat gate"
    commands = ["echo begin > data.bin && echo begin > a.txt", wait, "echo end > a.txt"]
    steps = [{"tools": [{"name": "Bash", "input": {"command": each}}]} for each in commands]
    script = place.root / "running.json"
    script.write_text(json.dumps({"steps": [*steps, {"text": "Done."}]}))
    options = ("-p", "work", "--model", f"scripted:{script}", "--permission-mode", "bypass")
    with place.start(*options, stdout=PIPE, stderr=PIPE) as process:
        try:
            assert comes((place.project / "waits").exists)
            done = place.run("sessions", "delete", "--yes", *ids)
            assert done.returncode == 0, done.stderr
            (place.project / "gate").write_text("go\n")
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, err
    (log,) = place.logs()
    store = log.parents[2] / "worktree.git"
    rows = place.entries()
    files = [row for each in rows if each.get("topic") == "saved" for row in each["data"]["files"]]
    blobs = {row["blob"] for row in files if row["blob"]}
    assert blobs
    assert all((store / "saved" / log.parent.name / blob).is_file() for blob in blobs)
    index = log.parent / "worktree.index"
    tree = WorkTree(place.project, store=store, index=index, env=dict(os.environ))
    trees = {each["snapshot"] for each in rows if each["kind"] == "checkpoint"}
    assert trees
    assert all(tree.is_whole(each) for each in trees)
