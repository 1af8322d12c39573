"""Leftovers of a killed process are stopped, found, recorded and reported."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ctxagent.agent.events import Event, Notice
from ctxagent.agent.features.crash_recovery import (
    KILLED_TOPIC,
    NOT_BEGUN,
    CrashRecoveryFeature,
    describe_leftovers,
    recover_from_kill,
)
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.archive import open_partial
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    End,
    Entry,
    Note,
    Session,
    ToolResult,
    User,
)
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import Log
from ctxagent.agent.worktree import WorkTree
from ctxagent.tools.system import orphans
from ctxagent.tools.system.process import TREE_VARIABLE, named

from ..support.sessions.history import called
from ..support.sessions.setup import every_tool

ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
ID = "20260101-000000-0000aa"
TOOLS = every_tool([])


class Left:
    """A session as a killed process leaves it: a log, and the files of its project."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "old.txt").write_text("old\n")
        subprocess.run(["git", "init", "-q"], cwd=self.project, env=ENV, check=True)
        # A name of its own: other tests look for what is left running at the same time.
        self.log = Log(folder / "state" / "sessions" / f"{ID}{os.getpid()}" / "log.jsonl")
        session = self.log.path.parent
        self.tree = WorkTree(
            self.project, store=folder / "state" / "worktree.git",
            index=session / "worktree.index", env=ENV,
        )  # fmt: skip
        self.ledger = Ledger()
        self.add(Session(id=session.name, cwd=str(self.project), version="1", model="m"))
        self.add(User(content="go"))
        self.numbers: dict[str, int] = {}
        self.running: list[subprocess.Popen[bytes]] = []

    def add(self, *entries: Entry) -> None:
        for entry in entries:
            self.ledger.add(self.log.append(entry))

    def snapshot(self) -> None:
        tree = self.tree.snapshot("1").tree
        assert tree is not None
        self.add(Checkpoint(number=1, path="", snapshot=tree, trigger="turn"))

    def call(self, id: str, name: str = "Bash", command: str = "make") -> None:
        use = called(id, name, {"command": command})
        self.add(Assistant(content=[use], usage={}, stop_reason="tool_use", model="m"))
        self.numbers[id] = self.log.last_seq + 1

    def start(self, id: str, command: str = "sleep 300 & echo up; wait; exit 1") -> None:
        """Start a process as a call would."""
        session, number = self.log.path.parent.name, self.numbers[id]
        env = named(ENV, orphans.call_name(session, number, id))
        process = subprocess.Popen(
            ["sh", "-c", command], env=env, start_new_session=True, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        self.running.append(process)

    def after(self) -> list[Entry]:
        return recover_from_kill(self.log.path, self.ledger, self.tree, TOOLS, ())


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    made = Left(tmp_path)
    yield made
    made.log.close()
    for process in made.running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()


@pytest.mark.slow
def test_what_an_unfinished_call_changed_is_known_to_the_ledger(left: Left) -> None:
    left.call("one")
    left.snapshot()
    (left.project / "told.txt").write_text("told\n")
    row = {"path": str(left.project / "told.txt"), "action": "created"}
    told = subprocess.run(
        ["git", "hash-object", "told.txt"], cwd=left.project, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    blob = told.stdout.strip()
    left.add(ToolResult(tool_use_id="one", content="", details={"changes": [row | {"blob": blob}]}))
    left.call("two")
    (left.project / "new.txt").write_text("new\n")
    (left.project / "old.txt").unlink()
    note, words = left.after()
    assert isinstance(note, Note)
    assert isinstance(words, User)
    assert note.data["calls"] == ["two"]
    assert {row["path"]: row["action"] for row in note.data["changes"]} == {
        str(left.project / "new.txt"): "created",
        str(left.project / "old.txt"): "deleted",
    }
    assert "- created new.txt" in str(words.content)
    left.add(note, words)
    assert set(left.ledger.files) == {"told.txt", "new.txt", "old.txt"}
    assert left.ledger.files["old.txt"].tool == "a call that was cut short"
    assert left.after() == []  # it is told once


def test_what_an_unfinished_command_had_printed_is_named(left: Left) -> None:
    left.call("one")
    left.add(ToolResult(tool_use_id="one", content=""))
    left.call("two", command="seq 1000000")
    for id in ("one", "two"):
        open_partial(left.log.path.parent, "Bash", id, 1_000_000).feed(b"1\n2\n")
    note, words = left.after()
    assert isinstance(note, Note)
    assert isinstance(words, User)
    (path,) = note.data["outputs"]
    assert Path(path).read_bytes() == b"1\n2\n"
    assert path in str(words.content)
    assert f"output until the kill: {path}" in describe_leftovers(note, str)


def test_a_turn_that_ended_leaves_nothing_to_find(left: Left) -> None:
    left.call("one")
    left.snapshot()
    left.add(ToolResult(tool_use_id="one", content=""), End(status="ok"))
    (left.project / "by-hand.txt").write_text("mine\n")
    assert left.after() == []


def test_a_call_that_only_reads_changes_nothing(left: Left) -> None:
    left.snapshot()
    left.call("one", "Read")
    (left.project / "by-hand.txt").write_text("mine\n")
    assert left.after() == []


@pytest.mark.parametrize(
    ("names", "answered", "unbegun"),
    [
        (["Bash", "Bash", "Bash"], 1, ["2"]),
        (["Read", "Grep", "Bash", "Read"], 0, ["2", "3"]),
        (["Read", "Read", "Write", "Bash"], 2, ["3"]),
        (["Read", "Read"], 1, []),
        (["Bash"], 0, []),
        (["Bash"], 1, []),
    ],
)
def test_calls_that_never_began_are_answered_so(
    left: Left, names: list[str], answered: int, unbegun: list[str]
) -> None:
    uses = [called(str(n), name, {"command": "make"}) for n, name in enumerate(names)]
    left.add(Assistant(content=uses, usage={}, stop_reason="tool_use", model="m"))
    for n in range(answered):
        left.add(ToolResult(tool_use_id=str(n), content="done"))
    found = left.after()
    results = [entry for entry in found if isinstance(entry, ToolResult)]
    assert [result.tool_use_id for result in results] == unbegun
    assert {result.content for result in results} <= {NOT_BEGUN}
    notes = [entry for entry in found if isinstance(entry, Note)]
    begun = [name for name in names[answered : len(names) - len(unbegun)] if name != "Read"]
    assert [note.data["calls"] for note in notes] == (
        [[str(answered)]] if "Bash" in begun or "Write" in begun else []
    )
    left.add(*found)
    assert left.after() == []


def test_running_leftovers_are_stopped_and_reported(left: Left) -> None:
    left.call("one", command="make serve")
    left.start("one")
    note, words = left.after()
    assert isinstance(note, Note)
    assert isinstance(words, User)
    assert note.data["ended"] == ["make serve"]
    assert "- make serve" in str(words.content)
    assert left.running[0].wait(100) != 0
    left.add(note, words)
    assert left.after() == []


@pytest.mark.slow
def test_a_process_that_ignores_sigterm_is_killed(left: Left) -> None:
    left.call("one")
    left.start("one", "trap '' TERM; echo up; while :; do sleep 1; done")
    assert len(left.after()) == 2
    assert left.running[0].wait(100) == -9


def test_a_job_is_ended_and_what_a_finished_call_left_on_purpose_is_not(left: Left) -> None:
    left.call("one", command="run the server")
    details = {"job": "job-1", "command": "run the server"}
    left.add(ToolResult(tool_use_id="one", content="", details=details))
    left.call("two", command="start a daemon")
    left.add(ToolResult(tool_use_id="two", content=""), End(status="ok"))
    left.start("one")
    left.start("two")
    note, _ = left.after()
    assert isinstance(note, Note)
    assert note.data["ended"] == ["run the server"]
    assert left.running[0].wait(100) != 0
    assert left.running[1].poll() is None


@pytest.mark.slow
def test_the_end_of_a_later_turn_that_never_looked_hides_nothing(left: Left) -> None:
    left.call("one")
    left.snapshot()
    (left.project / "new.txt").write_text("new\n")
    left.add(Session(id=left.log.path.parent.name, cwd=str(left.project), version="1", model="m"))
    left.add(User(content="go on"), End(status="interrupted"))
    note, words = left.after()
    assert isinstance(note, Note)
    assert note.data["calls"] == ["one"]
    assert "- created new.txt" in str(words.content)  # type: ignore[attr-defined]


def test_an_unfinished_call_of_a_turn_that_ended_is_over(left: Left) -> None:
    left.call("one")
    left.snapshot()
    left.add(End(status="error"))
    left.add(Session(id=left.log.path.parent.name, cwd=str(left.project), version="1", model="m"))
    (left.project / "by-hand.txt").write_text("mine\n")
    assert left.after() == []


def test_the_result_of_a_later_call_of_the_same_id_is_not_that_of_the_first(left: Left) -> None:
    left.call("one", command="the first")
    left.start("one")
    left.add(End(status="interrupted"))
    left.call("one", command="the second")
    left.add(ToolResult(tool_use_id="one", content=""), End(status="ok"))
    note, _ = left.after()
    assert isinstance(note, Note)
    assert note.data["ended"] == ["the first"]


HOLDS = """\
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(file, f"{os.getpid()}\\n".encode())
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_copy_tells_of_calls_only_if_the_original_was_killed(left: Left) -> None:
    left.call("one")
    left.snapshot()
    left.log.close()
    (left.project / "new.txt").write_text("new\n")
    original = left.log.path
    copy = original.parents[1] / "20260101-000001-0000bb" / "log.jsonl"
    copy.parent.mkdir()
    copy.write_bytes(original.read_bytes())
    left.log = Log.open(copy)
    parent = {"id": original.parent.name, "seq": left.log.last_seq}
    left.add(
        Session(id=copy.parent.name, cwd=str(left.project), version="1", model="m", parent=parent)
    )
    lock = [sys.executable, "-c", HOLDS, str(original.with_name("lock"))]
    with subprocess.Popen(lock, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert left.after() == []  # it works on
    assert [type(entry) for entry in left.after()] == [Note, User]
    told = Log.open(original)
    told.append(Note(topic="killed", text="the original was told of it meanwhile"))
    told.close()
    assert [type(entry) for entry in left.after()] == [Note, User]
    with_result = Log.open(original)
    with_result.append(ToolResult(tool_use_id="one", content="done"))
    with_result.close()
    assert left.after() == []  # it was not killed


def test_the_commands_of_a_call_carry_its_name(left: Left) -> None:
    from ..loop.test_file_changes import Bench

    bench = Bench(left.project / "inner")

    async def run() -> None:
        use = called("x:/\n y", "Bash", {"command": f"echo ${TREE_VARIABLE}"})
        await bench.tool_runner.run([use], {}, cut=False)

    asyncio.run(run())
    (result,) = (e for e in bench.log.entries() if isinstance(e, ToolResult))
    name, _, _ = str(result.content).partition(":")
    assert name == orphans.call_name("s", 2, "x:/\n y")


def recovery(session: LiveSession, unrecorded: Sequence[Entry] = ()) -> CrashRecoveryFeature:
    folder = session.folder
    tree = WorkTree(session.context.cwd, store=folder / "store.git", index=folder / "index", env={})
    feature = CrashRecoveryFeature(session, tree, unrecorded, resumed=True)
    session.listeners.append(feature.recorded)
    return feature


def test_what_subagents_left_is_recorded_with_the_first_entries(session: LiveSession) -> None:
    left = Note(topic="agent", text="explore-1 was killed", data={})
    session.record_opening()
    assert [*recovery(session, [left]).first_entries()] == [left]


def test_the_user_is_warned_of_what_a_kill_left(session: LiveSession, events: list[Event]) -> None:
    session.record_opening()
    recovery(session)
    data = {"changes": [{"path": str(session.context.cwd / "a.txt")}], "ended": ["make"]}
    session.record(Note(topic="other", text="x", data=data))
    assert events == []
    session.record(Note(topic=KILLED_TOPIC, text="killed", data=data))
    told = "files that have changed since: a.txt; still running, now stopped: `make`"
    assert events == [Notice("warning", told)]
    session.record(Note(topic=KILLED_TOPIC, text="killed", data={}))
    assert len(events) == 1
