"""Two processes with one session: one writes, the other reads, forks or waits. No stale lock
blocks. Without locks, nobody writes between another process's lines.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import RecordError, SessionBusy
from ctxagent.agent.events import Ask, Emit
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Session, User
from ctxagent.agent.session.log import Log, read_log
from ctxagent.agent.session.store import Project

from ..support.command import PATIENCE, Place
from ..support.disk import shimmed
from ..support.machine import needs
from ..support.server.loopback import Say, Server
from ..support.terminal.seat import ESC, Desk, Seat, drive

HOLDS = """\
import sys
from pathlib import Path
from ctxagent.agent.errors import CtxagentError
from ctxagent.agent.session.entries import User
from ctxagent.agent.session.log import Log
log = Log.open(Path(sys.argv[1]))
print("open", *log.warnings, flush=True)
for words in sys.stdin:
    try:
        log.append(User(content=words.strip()))
        print("added", flush=True)
    except CtxagentError as error:
        print(error.message, flush=True)
"""
NO_LOCKS = "#include <errno.h>\nint flock(int f, int o) { errno = ENOLCK; return -1; }\n"


def session(folder: Path, *words: str) -> Path:
    """A session of the project in `folder/project`, as it was left."""
    log = Log(Project(folder / "state", folder / "project").new_log())
    log.append(Session(id=log.path.parent.name, cwd="/", version="0", model="m", system="Hi."))
    for each in words or ("one",):
        log.append(User(content=each))
    log.close()
    return log.path


class Other:
    """Another process that has a session open."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def add(self, words: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        return self.line()

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait()


@contextmanager
def another(log: Path, env: dict[str, str] | None = None) -> Iterator[Other]:
    command = [sys.executable, "-c", HOLDS, str(log)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            yield Other(process)
        finally:
            process.kill()


def test_a_killed_process_leaves_no_lock_whoever_has_its_number_now(tmp_path: Path) -> None:
    log = session(tmp_path)
    with another(log) as other:
        with pytest.raises(SessionBusy, match=f"pid {other.process.pid}") as error:
            Log.open(log)
        assert error.value.session == log.parent.name
        assert other.add("two") == "added"
        looked = Log.open(log, read_only=True)
        assert len(list(looked.entries())) == 3
        with pytest.raises(RecordError, match="read-only here"):
            looked.append(User(content="three"))
        other.end()
    log.with_name("lock").write_text(f"{os.getppid()}\n")  # a process that lives, and is another
    Log.open(log).close()


@pytest.mark.parametrize("what", ["directory", "symlink", "dangling", "pipe"])
def test_a_lock_that_is_no_file_is_named(tmp_path: Path, what: str) -> None:
    log = session(tmp_path)
    lock, precious = log.with_name("lock"), tmp_path / "precious"
    precious.write_text("do not touch")
    lock.unlink()
    if what == "directory":
        lock.mkdir()
    elif what == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(precious if what == "symlink" else tmp_path / "nowhere")
    with pytest.raises(RecordError) as error:
        Log.open(log)
    assert str(lock) in error.value.message
    assert precious.read_text() == "do not touch"
    assert not (tmp_path / "nowhere").exists()
    assert len(read_log(log).entries) == 2
    lock.rmdir() if what == "directory" else lock.unlink()
    Log.open(log).close()


def test_a_lock_that_was_removed_does_not_let_two_write(tmp_path: Path) -> None:
    log = session(tmp_path)
    with another(log) as other:
        log.with_name("lock").unlink()
        ours = Log.open(log)
        assert ours.append(User(content="ours")).seq == 3
        assert "another program has changed the log" in other.add("theirs")
        ours.close()
    assert [e.seq for e in read_log(log).entries] == [1, 2, 3]


@needs("gcc")
def test_without_locks_the_second_to_write_stops(tmp_path: Path) -> None:
    log, env = session(tmp_path), shimmed(tmp_path, NO_LOCKS)
    with another(log, env) as one, another(log, env) as two:
        assert "has no locks" in one.said
        assert "has no locks" in two.said
        assert one.add("a") == "added"
        assert one.add("b") == "added"
        assert "another program has changed the log" in two.add("c")
        assert one.add("d") == "added"
        assert "another program has changed the log" in two.add("e")
    reading = read_log(log)
    assert [getattr(e, "content", "") for e in reading.entries[1:]] == ["one", "a", "b", "d"]
    assert ([e.seq for e in reading.entries], reading.warnings) == ([1, 2, 3, 4, 5], [])


class Late(Desk):
    """A desk whose first session is already on disk, as with --resume."""

    def __init__(self, folder: Path, log: Path, *steps: Step) -> None:
        super().__init__(folder, *steps)
        self.first = log.parent.name

    async def __call__(self, emit: Emit, ask: Ask, **wish: Any) -> AgentState:
        wish["resume"] = wish.get("resume") or self.first
        return await super().__call__(emit, ask, **wish)


def test_user_reads_waits_or_forks(tmp_path: Path) -> None:
    log = session(tmp_path, "make it blue")
    desk = Late(tmp_path, log, Step(text="In the copy."), Step(text="Back in the first."))
    name = log.parent.name

    async def act(seat: Seat) -> None:
        with another(log) as other:
            await seat.keys("[r]ead only · [f]ork")
            assert f"pid {other.process.pid}" in seat.glass.all()
            seat.press("r")
            await seat.until("read-only: process")
            await seat.until("make it blue")
            before = log.read_bytes()
            seat.say("do something")
            await seat.until("this session is read-only here")
            seat.press("\x15")  # the words were given back
            for command in ("!touch made", "/compact", "/checkpoint", "#remember this", "/rewind"):
                seen = seat.glass.all().count("read-only here")
                seat.say(command)
                await seat.until(lambda n=seen: seat.glass.all().count("read-only here") > n)  # type: ignore[misc]
            seat.say("/log")
            await seat.until(lambda: seat.glass.all().count("make it blue") > 1)
            seat.say("/export seen.md")
            await seat.until("written to")
            assert log.read_bytes() == before
            assert not (desk.cwd / "made").exists()
            assert other.add("from the other") == "added"

            seat.say("/fork")
            await seat.until("ask ·")
            seat.say("go on here")
            await seat.until("In the copy.")

            seat.say(f"/resume {name}")
            await seat.keys("[w]ait")
            seat.press("w")
            await seat.until("waiting for process")
            seat.press(ESC)
            await seat.until("nothing has changed")
            seat.say(f"/resume {name}")
            await seat.until(lambda: bool(seat.repl.screen.instant))  # type: ignore[attr-defined]
            seat.press("w")
            await seat.until(lambda: seat.repl._task.running)
            other.end()
        await seat.until("from the other")
        seat.say("and on")
        await seat.until("Back in the first.")

    drive(desk, act)
    said = [e.content for e in read_log(log).entries if isinstance(e, User)]
    assert said == ["make it blue", "from the other", "and on"]
    copy = read_log(desk.loops[1].log.path).entries
    assert "go on here" in [e.content for e in copy if isinstance(e, User)]


def test_leaving_the_question_exits(tmp_path: Path) -> None:
    log = session(tmp_path)
    desk = Late(tmp_path, log)

    async def act(seat: Seat) -> None:
        with another(log):
            await seat.keys("[l]eave")
            seat.press("l")
            await seat.until(lambda: not seat.repl.screen.app.is_running)  # type: ignore[attr-defined]

    assert drive(desk, act)[0] == 0
    assert desk.loops == []


def test_script_gets_a_message_or_waits(tmp_path: Path) -> None:
    place = Place(tmp_path)
    log = session(tmp_path, "words of before")
    name = log.parent.name
    with Server([Say("It was my turn.")]) as server:
        env = place.server(server.url)
        go = ("-p", "go", "--resume", name, "--output-format", "json")
        with another(log) as other:
            done = place.run(*go, env=env)
            result = json.loads(done.stdout)
            assert (done.returncode, result["error"]["type"]) == (1, "SessionBusy")
            for told in (f"pid {other.process.pid}", "--wait", "--fork", f"sessions show {name}"):
                assert told in result["error"]["message"]
            shown = place.run("sessions", "show", name)
            assert (shown.returncode, "words of before" in shown.stdout) == (0, True)
            with waiting(place, *go, env=env) as run:
                run.send_signal(signal.SIGINT)
                assert json.loads(run.communicate(timeout=PATIENCE)[0])["status"] == "interrupted"
            assert server.requests == []
            with waiting(place, *go, env=env) as run:
                assert other.add("words of the other") == "added"
                other.end()
                result = json.loads(run.communicate(timeout=PATIENCE)[0])
    assert (result["exit_code"], result["result"]) == (0, "It was my turn.")
    assert "words of the other" in str(server.requests[0]["messages"])
    assert server.rejected == []


@contextmanager
def waiting(
    place: Place, *arguments: str, env: dict[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    """Return a run that has printed that it waits."""
    with place.start(
        *arguments, "--wait", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stderr is not None
        assert "waiting for it" in run.stderr.readline()
        yield run
