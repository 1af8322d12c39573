"""Disks that are full, read-only or gone: what was recorded stays, and nothing is done that is not
recorded."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.config.trust import accept, is_trusted, trust
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import ConfigError, CtxagentError, RecordError
from ctxagent.agent.events import Notice
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.archive import SUMMARY_NAME, write_archive_file
from ctxagent.agent.session.checkpoints import CheckpointFacts, Checkpoints
from ctxagent.agent.session.entries import Session, ToolResult, User
from ctxagent.agent.session.listing import session_rows
from ctxagent.agent.session.log import Log, read_log, try_parse_entry
from ctxagent.agent.session.store import Project
from ctxagent.agent.ui.input.history import ProjectHistory
from ctxagent.agent.ui.input.pasted import PastedTexts

from ..compaction.test_engine import RECORD, asks_for_a_record, prepared
from ..support.command import COMMAND, PATIENCE, Place
from ..support.disk import Disk, shimmed, small_disk
from ..support.machine import needs
from ..support.server.loopback import Say, Server
from ..support.server.validator import validate
from ..support.sessions.conversation import Conversation
from ..support.sessions.setup import long_text
from ..support.terminal.seat import ESC, Desk, Seat, drive
from ..worktree.test_snapshots import repository, tree_of
from ..worktree.test_snapshots_lasting import full_disk

FACTS = CheckpointFacts(
    intent="x", document={"x": "y" * 9_000}, ledger={}, todos=[], tokens=1, window=2, model="m",
    mode="ask",
)  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", 1 << 20) as found:
        yield found


def begun(folder: Path, *words: str) -> Log:
    log = Log(folder / "s" / "log.jsonl")
    log.append(Session(id="s", cwd=str(folder), version="0", model="m"))
    for each in words:
        log.append(User(content=each))
    return log


def test_a_full_disk_stops_the_log_and_loses_nothing(disk: Disk) -> None:
    log, kept = begun(disk.path), 1
    disk.fill(but=32 << 10)
    with pytest.raises(RecordError, match="No space left on device") as error:  # noqa: PT012
        while True:
            log.append(User(content="x" * 3_000))
            kept += 1
    assert "Free disk space" in error.value.hint
    assert kept > 5
    assert [e.seq for e in read_log(log.path).entries] == [*range(1, kept + 1)]
    assert log.path.read_bytes().endswith(b"\n")  # and no part of the one that failed
    with pytest.raises(RecordError):
        log.append(User(content="y" * 9_000))
    disk.free()
    assert log.append(User(content="y" * 9_000)).seq == kept + 1
    log.close()
    reading = read_log(log.path)
    assert (len(reading.entries), reading.warnings) == (kept + 1, [])


def test_a_session_that_cannot_even_begin_leaves_nothing(disk: Disk) -> None:
    project = Project(disk.path, disk.path)
    log = Log(project.new_log())
    disk.fill(but=16 << 10)
    with pytest.raises(RecordError):
        log.append(User(content="x" * 30_000))
    assert project.logs() == []  # nothing that --continue would go on with
    disk.free()
    assert log.append(User(content="x" * 9_000)).seq == 1


def test_a_read_only_state_folder_can_be_read(disk: Disk) -> None:
    log = begun(disk.path, "one")
    log.close()
    disk.remount("ro")
    with pytest.raises(RecordError, match="Read-only file system"):
        Log.open(log.path)
    with pytest.raises(RecordError, match="Read-only file system"):
        begun(disk.path / "new")
    looked = Log.open(log.path, read_only=True)
    assert len(list(looked.entries())) == 2
    with pytest.raises(RecordError, match="read-only here"):
        looked.append(User(content="two"))


@pytest.mark.parametrize("what", ["file", "dangling"])
def test_a_state_folder_that_is_none(tmp_path: Path, what: str) -> None:
    state = tmp_path / "state"
    if what == "file":
        state.write_text("mine")
    else:
        state.symlink_to(tmp_path / "nowhere")
    told = {"file": "Not a directory", "dangling": "a symlink that leads nowhere"}
    with pytest.raises(RecordError, match=told[what]) as error:
        Log(Project(state, tmp_path).new_log()).append(User(content="x"))
    assert str(state) in error.value.message
    assert not (tmp_path / "nowhere").exists()


def deleted(path: Path) -> None:
    shutil.rmtree(path.parent)


def replaced(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(path.read_bytes())
    new.replace(path)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"v": 1, "seq": 4, "at": "", "kind": "user", "content": "not mine"}\n')


@pytest.mark.parametrize("happens", [deleted, replaced, truncated, appended])
def test_a_log_that_something_else_has_changed_is_let_go(
    tmp_path: Path, happens: Callable[[Path], None]
) -> None:
    log = begun(tmp_path, "one", "two")
    happens(log.path)
    there = log.path.read_bytes() if log.path.exists() else None
    for _ in range(2):
        with pytest.raises(RecordError, match=r"the log is missing|another program has changed"):
            log.append(User(content="three"))
    assert log.refusal
    assert (log.path.read_bytes() if log.path.exists() else None) == there
    if there is None:
        assert not log.path.parent.exists()
        return
    again = Log.open(log.path)  # the lock is free
    seq = again.append(User(content="three")).seq
    assert seq == max(e.seq for e in read_log(log.path).entries)
    again.close()


def unanswered(talk: Conversation) -> str:
    """What the newest request says of the calls that have no recorded result."""
    return str(talk.model.requests[-1].messages)  # type: ignore[attr-defined]


def test_a_turn_whose_disk_fills_up_stops_before_the_next_effect(disk: Disk) -> None:
    project = disk.path / "project"
    project.mkdir()
    fills = "head -c 1000000 /dev/zero > filler; touch first; seq 5000"
    steps = [
        Step(text="x" * 3_000, tools=[("Bash", {"command": "echo before"})]),
        Step(tools=[("Bash", {"command": fills}), ("Bash", {"command": "touch second"})]),
        Step(text="never asked for"),
    ]
    talk = Conversation(project, steps)
    with pytest.raises(RecordError, match="No space left"):
        talk.say("go")
    assert len(talk.model.requests) == 2  # type: ignore[attr-defined]
    assert (project / "first").exists()
    assert not (project / "second").exists()
    kept = talk.agent.log.path.read_bytes()
    with pytest.raises(RecordError):
        talk.say("x" * 50_000)  # and again, as long as there is no room
    assert len(talk.model.requests) == 2  # type: ignore[attr-defined]
    asyncio.run(talk.agent.close())
    assert talk.agent.log.path.read_bytes() == kept

    (project / "filler").unlink()
    again = Conversation(project, [Step(text="On it goes.")])
    assert again.say("go on").text == "On it goes."
    assert again.agent.log.path.read_bytes().startswith(kept)
    assert unanswered(again).count("outcome unknown") == 2
    assert "echo before" in unanswered(again)


def test_an_output_that_cannot_be_put_aside_stays_and_is_told(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    talk = Conversation(project, [Step(tools=[("Bash", {"command": "seq 12000"})]), Step("ok")])
    talk.agent.folder.mkdir()
    (talk.agent.folder / "offloaded").write_text("in the way")
    assert talk.say("go").status == "ok"
    (result,) = talk.of(ToolResult)
    assert result.offloaded is None
    assert str(result.content).endswith("12000")
    (notice,) = talk.seen(Notice)
    assert notice.level == "warning"
    assert "Bash" in notice.text


def test_a_summary_that_cannot_be_kept_is_not_applied(disk: Disk) -> None:
    project = disk.path / "project"
    project.mkdir()
    policy = replace(DEFAULT, summarizer="mechanical", keep_tokens=0, keep_messages=1)
    steps = [Step(tools=[("Bash", {"command": f"seq {n}00 {n}99"})]) for n in range(1, 9)]
    talk = Conversation(project, [*steps, Step(text="Done.")], policy=policy)
    talk.say("count " + "far " * 3_000)
    folder, before, view = talk.agent.folder, talk.agent.log.path.read_bytes(), talk.agent.view
    items = list(view.items)
    conversation = (folder / "conversation.md").read_bytes()
    (folder / "conversation.md").unlink()
    disk.fill()
    with pytest.raises(RecordError, match=r"cannot write .*conversation\.md: No space left"):
        asyncio.run(talk.agent.engine.compact())
    assert talk.agent.log.path.read_bytes() == before
    assert talk.agent.view.items == items
    assert not (folder / "conversation.md").exists()
    disk.free()
    asyncio.run(talk.agent.engine.compact())
    assert (folder / "conversation.md").read_bytes().startswith(conversation)
    written = (folder / "summary.md").read_bytes()
    disk.fill()
    with pytest.raises(RecordError):
        write_archive_file(folder / SUMMARY_NAME, "x" * 9_000)
    assert (folder / "summary.md").read_bytes() == written
    assert [p.name for p in folder.glob("*.part")] == []
    assert talk.kinds().count("summary") == 1


def test_a_background_summary_that_cannot_be_recorded_stops_the_turn(disk: Disk) -> None:
    project = disk.path / "project"
    project.mkdir()

    def record(request: Request) -> Step:
        disk.fill(but=200 << 10)  # room for all but this
        return Step(text=f"{RECORD}\n{long_text(60_000)}")

    talk, player = prepared(project, record)

    def go_on(request: Request) -> Step:
        """The turn has no end of its own once a summary is asked for."""
        step = player(request)
        if step.tools or asks_for_a_record(request) or not player.records:
            return step
        player.done = player.calls
        return Step(tools=[("Bash", {"command": "sleep 0.2"})])

    talk.use(ScriptedModel(go_on, check=validate, window=60_000))
    with pytest.raises(RecordError, match="No space left"):
        talk.say("count")
    assert player.records == 1
    assert len(talk.agent.log.path.read_bytes()) + (100 << 10) < 1 << 20
    asyncio.run(talk.agent.close())
    disk.free()
    again = Conversation(project, [Step(text="On it goes.")])
    assert again.say("go on").text == "On it goes."


def test_what_is_beside_the_log_costs_no_session(disk: Disk) -> None:
    """A copy, the list, the history, the trust and a checkpoint."""
    project = Project(disk.path, disk.path)
    log = begun(project.new_log().parent.parent, "look at the zebra " + "x" * 60_000)
    trusted = disk.path / ".agentrc"
    trusted.write_text("[ui]\n")
    trust(trusted, disk.path)
    disk.fill()
    with pytest.raises(RecordError, match="the session cannot be copied: No space left"):
        project.fork(log.path)
    assert project.logs() == [log.path]  # and no part of a copy
    assert [row.id for row in session_rows(project.logs())] == ["s"]
    told: list[CtxagentError] = []
    typed = ProjectHistory(disk.path / "history", PastedTexts(), told.append)
    for words in ("one", "two"):
        typed.store_string(words)
    assert [error.message for error in told] == [
        f"the input history cannot be saved: {disk.path}/history: No space left on device"
    ]
    with pytest.raises(ConfigError, match="not trusted: No space left"):
        accept(trusted, b"other" * 9_000, disk.path / "elsewhere")
    assert is_trusted(trusted, b"[ui]\n", disk.path)
    with pytest.raises(RecordError, match="cannot write the checkpoint"):
        Checkpoints(log.path.parent, None).take(FACTS, "by hand", 2)
    assert [*log.path.parent.glob("checkpoints/*")] == []
    disk.free()
    assert [e.seq for e in read_log(project.fork(log.path)).entries] == [1, 2]
    typed.store_string("three")
    assert list(typed.load_history_strings()) == ["three"]


SEARCHES = """\
import sys
from pathlib import Path
from ctxagent.agent.session.search import SearchIndex
index = SearchIndex(Path(sys.argv[1]))
print([hit.seq for hit in index.search("zebra").hits])
"""


def test_a_search_needs_no_room(disk: Disk) -> None:
    """Whether there is an index yet or not, and afterwards it catches up."""
    log = begun(disk.path / "sessions", "look at the zebra " + "x" * 60_000)
    command = [sys.executable, "-c", SEARCHES, str(disk.folder)]

    def searched() -> str:
        where = disk.inside(command, Path("/"))
        return subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()

    disk.fill()
    assert searched() == "[2]"
    disk.free()
    assert searched() == "[2]"
    assert (disk.path / "index.db").stat().st_size > 0
    log.append(User(content="and another zebra " + "y" * 30_000))
    disk.fill()
    assert searched() == "[3, 2]"


def test_the_doctor_tells_of_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    place = Place(tmp_path)
    for state in (disk.folder, disk.folder / "new" / "state"):
        env = place.environ({"CTXAGENT_STATE_DIR": str(state), "ANTHROPIC_API_KEY": "k1"})

        def run(env: Mapping[str, str] = env) -> str:
            command = disk.inside([COMMAND, "doctor"], place.project)
            return subprocess.run(command, env=env, capture_output=True, text=True).stdout

        assert f"ok    state: {state}" in run()
        disk.fill()
        assert f"FAIL  state: cannot create files in {state}: No space left on device" in run()
        disk.free()


def test_the_command_on_a_disk_that_fills_up(disk: Disk, tmp_path: Path) -> None:
    place = Place(tmp_path)
    filler = disk.folder / "filler"
    steps = [
        Say(
            "First.",
            tools=[("Bash", {"command": f"head -c 9000000 /dev/zero > {filler}; seq 3000"})],
        ),
        Say("Now there is room."),
    ]
    with Server(steps) as server:
        env = {**place.server(server.url), "CTXAGENT_STATE_DIR": str(disk.folder)}
        mode = ("--permission-mode", "bypass", "-c", "sandbox.mode=off")  # it fills our disk
        go = (COMMAND, *mode, "--output-format", "json", "-p", "go")

        def run(*more: str) -> dict[str, Any]:
            done = subprocess.run(
                disk.inside([*go, *more], place.project), env=env, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=PATIENCE,
            )  # fmt: skip
            assert "Traceback" not in done.stderr
            result: dict[str, Any] = json.loads(done.stdout)
            assert done.returncode == result["exit_code"]
            return result

        failed = run()
        assert (failed["status"], failed["exit_code"]) == ("error", 1)
        assert failed["error"]["type"] == "RecordError"
        assert "No space left on device" in failed["error"]["message"]
        (log,) = disk.path.glob("projects/*/sessions/*/log.jsonl")
        assert failed["session_id"] == log.parent.name
        assert failed["calls"] == len(server.requests) == 1  # it ended there
        kept = log.read_bytes()
        assert kept.endswith(b"\n")
        fresh = run()
        assert (fresh["error"]["type"], len(server.requests)) == ("RecordError", 1), fresh
        disk.free()
        resumed = run("--resume", failed["session_id"])
    assert resumed["status"] == "ok"
    assert log.read_bytes().startswith(kept)
    assert server.rejected == []
    assert "outcome unknown" in str(server.requests[1]["messages"])


def line(**fields: Any) -> bytes:
    return json.dumps({"v": 1, "at": "2026-01-01T00:00:00.000Z", **fields}).encode()


# What a hand may do to the lines of a log, and how many of them are then skipped.
EDITS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "reordered": (lambda lines: [lines[0], *lines[:0:-1]], 0),
    "doubled": (lambda lines: [*lines, *lines], 0),
    "thinned": (lambda lines: lines[::2], 0),
    "no beginning": (lambda lines: lines[3:], 0),
    "windows": (lambda lines: [each + b"\r" for each in lines], 0),
    "a mark in front": (lambda lines: [b"\xef\xbb\xbf" + lines[0], *lines[1:]], 0),
    "latin-1": (lambda lines: [*lines, lines[1].replace(b"count", b"caf\xe9")], 1),
    "nul": (lambda lines: [*lines[:2], b"\0" * 64, *lines[2:]], 1),
    "blank": (lambda lines: [*lines[:2], b"", b"   ", *lines[2:]], 2),
    "other json": (lambda lines: [*lines, b"[]", b"7", b'"x"', b"null", b"{}"], 5),
    "deep": (lambda lines: [*lines, b"[" * 100_000], 1),
    "text": (lambda lines: [*lines, b"<<<<<<< HEAD"], 1),
    "a later version": (lambda lines: [*lines, line(v=2, seq=41, kind="hologram", shape="x")], 0),
    "far ahead": (lambda lines: [*lines, line(seq=10**15, kind="note", topic="x", text="y")], 0),
    "long": (lambda lines: [*lines, line(seq=40, kind="note", topic="x", text="y" * 10**7)], 0),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_log_edited_by_hand_goes_on(tmp_path: Path, edit: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    steps = [Step(text="So.", tools=[("Bash", {"command": f"echo {n}"})]) for n in range(3)]
    talk = Conversation(project, [*steps, Step(text="Done.")])
    talk.say("count to three")
    path = talk.agent.log.path
    asyncio.run(talk.agent.close())
    change, skipped = EDITS[edit]
    edited = b"".join(each + b"\n" for each in change(path.read_bytes().splitlines()))
    path.write_bytes(edited)
    path.with_name("conversation.md").unlink()  # else the log must be repaired
    largest = max(entry.seq for entry in read_log(path).entries)

    again = Conversation(project, [Step(text="On it goes.")])  # which holds the request valid
    assert again.say("go on").status == "ok"
    warnings = again.agent.log.warnings
    assert len(warnings) == skipped
    for number, warning in zip(
        (n for n, each in enumerate(edited.split(b"\n"), 1) if not try_parse_entry(each)), warnings,
        strict=False,
    ):  # fmt: skip
        assert f"{path}:{number}: skipped" in warning
    now = path.read_bytes()
    assert now.startswith(edited)
    added = [try_parse_entry(each) for each in now[len(edited) :].splitlines()]
    assert [each and each.seq for each in added] == [largest + n for n in (1, 2, 3, 4)]
    asyncio.run(again.agent.close())


GONE = [
    ("Bash", {"command": "echo hello"}), ("Read", {"path": "a.txt"}), ("Grep", {"pattern": "x"}),
    ("Glob", {"pattern": "*"}), ("Write", {"path": "b.txt", "content": "x"}),
    ("Edit", {"path": "a.txt", "old_string": "a", "new_string": "b"}),
    ("Todo", {"todos": [{"content": "x", "status": "pending"}]}), ("Recall", {"query": "hello"}),
]  # fmt: skip


def test_a_working_directory_that_vanishes_under_way(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("a")
    vanish = ("Bash", {"command": f"rm -rf {project}; echo gone"})
    steps = [Step(tools=[vanish]), *(Step(tools=[call]) for call in GONE), Step(text="I see.")]
    talk = Conversation(project, steps)
    assert talk.say("go").text == "I see."
    for result, (tool, _) in zip(talk.of(ToolResult)[1:], GONE, strict=True):
        assert "fault" not in result.details, (tool, result.content)
        if tool not in ("Todo", "Recall"):
            assert (result.is_error, "does not exist any more" in str(result.content)) == (
                True,
                True,
            )
    assert not project.exists()  # nobody makes it again unasked
    asyncio.run(talk.agent.close())
    project.mkdir()
    again = Conversation(project, [Step(tools=[("Bash", {"command": "pwd"})]), Step(text="Back.")])
    assert again.say("go on").text == "Back."


def test_a_snapshot_that_finds_no_room_is_told_once_and_leaves_nothing(tmp_path: Path) -> None:
    project = repository(tmp_path / "p")
    points, said = Checkpoints(tmp_path / "s", tree_of(project)), []
    points.add(User(content="zero"))
    taken = points.turn_snapshot()
    assert taken is not None
    assert (taken.snapshot is None, points.missing_files_notice(taken)) == (False, "")
    (project / "big").write_bytes(os.urandom(1 << 20))
    with full_disk(1 << 19):
        for words in ("one", "two"):
            points.add(User(content=words))
            taken = points.turn_snapshot()
            assert taken is not None
            assert taken.snapshot is None
            points.add(taken)
            said.append(points.missing_files_notice(taken))
    assert "files are not kept" in said[0]
    assert said[1] == ""
    assert list(tmp_path.glob("**/tmp_obj_*")) == []
    points.add(User(content="three"))
    taken = points.turn_snapshot()
    assert taken is not None
    assert taken.snapshot
    assert points.missing_files_notice(taken) == ""


def test_a_session_that_is_deleted_under_the_person(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Here."), Step(text="In a fresh one."))

    async def act(seat: Seat) -> None:
        seat.say("hello")
        await seat.until("Here.")
        log = desk.loops[0].log.path
        shutil.rmtree(log.parent)
        seat.say("are you there")
        await seat.until("the log is missing")
        await seat.until("❯ are you there")  # the words are given back
        seat.press("\x15")
        assert len(desk.model.requests) == 1
        for command in ("!touch made", "/compact", "/checkpoint", "/rewind"):
            seen = seat.glass.all().count("the log is missing")
            seat.say(command)
            await seat.until(lambda n=seen: seat.glass.all().count("the log is missing") > n)  # type: ignore[misc]
        seat.say("/clear")
        await seat.until("new session")
        seat.say("go on")
        await seat.until("In a fresh one.")
        assert not log.parent.exists()

    drive(desk, act)
    assert not (desk.cwd / "made").exists()
    assert desk.said() == ["go on"]


TIMES = [
    "2026-03-01T12:00:00.000Z", "2026-02-01T12:00:00.000Z", "9999-12-31T23:59:59.999Z", "",
    "0001-01-01T00:00:00", "yesterday", "1969-12-31T23:59:59.000Z", "2026-03-01T11:59:59.999+14:00",
]  # fmt: skip


def test_a_clock_that_jumps_changes_no_order(tmp_path: Path) -> None:
    """Entries are told apart by number, sessions by their ids; times are only shown."""
    desk = Desk(tmp_path, Step(text="One."), Step(text="Two."), Step(text="Three."))
    project, log = desk.project, begun(desk.project.new_log().parent.parent, "first", "second")
    log.close()
    lines = [json.loads(each) for each in log.path.read_bytes().splitlines()]
    lines += [{**lines[1], "content": f"number {n}"} for n in range(len(TIMES) - len(lines))]
    for seq, (each, at) in enumerate(zip(lines, TIMES, strict=True), 1):
        each.update(seq=seq, at=at)
    log.path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    ahead = time.time() + 10**7  # as written by a clock that has been set back since
    os.utime(log.path, (ahead, ahead))
    assert [entry.seq for entry in read_log(log.path).entries] == [*range(1, len(TIMES) + 1)]
    assert project.new_log() != project.new_log()
    assert project.newest_log() == log.path
    (row,) = session_rows([log.path])
    assert (row.title, row.last) == ("first", f"number {len(TIMES) - 4}")

    async def act(seat: Seat) -> None:
        seat.say("hello")
        await seat.until("One.")
        seat.say("/resume s")
        await seat.until(row.last)
        for command, shown in (("/log", "#8  user     number 4"), ("/context status", "Compr"),
                               ("/sessions", "now"), ("/export a.html", "a.html")):  # fmt: skip
            seat.say(command)
            await seat.until(shown)
        seat.say("/rewind")
        await seat.until("Go back")
        seat.press(ESC)
        seat.say("go on")
        await seat.until("Two.")

    _, glass = drive(desk, act)
    assert "fault" not in glass.all()
    assert read_log(log.path).entries[len(TIMES)].seq == len(TIMES) + 1


def test_an_output_that_has_nowhere_to_go_and_a_folder_that_is_gone(tmp_path: Path) -> None:
    place = Place(tmp_path)

    def run(command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", command], cwd=place.project, env=place.environ(), text=True,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE,
        )  # fmt: skip
        return done.returncode, done.stderr

    code, told = run(f"{COMMAND} config > /dev/full")
    assert (code, told.splitlines()[0]) == (1, "ctxagent: cannot write: No space left on device")
    assert len(told.splitlines()) == 2
    code, told = run(f"mkdir gone && cd gone && rmdir ../gone && {COMMAND} -p go")
    ours = [line for line in told.splitlines() if "getcwd" not in line]  # which the shell says
    assert (code, ours[0]) == (2, "ctxagent: the current directory no longer exists")
    code, told = run(f"{COMMAND} --cwd gone -p go")
    assert (code, "'gone' does not exist" in told) == (2, True)


NO_SYNC = "#include <errno.h>\nint fsync(int f) { errno = EIO; return -1; }\n"
SYNCS = """\
import sys
from pathlib import Path
from ctxagent.agent.errors import RecordError
from ctxagent.agent.session.entries import User
from ctxagent.agent.session.log import Log
log = Log(Path(sys.argv[1]))
log.append(User(content="x"))
try: log.sync()
except RecordError as error: print(error.message)
"""


@needs("gcc")
def test_a_medium_that_fails_is_told(tmp_path: Path) -> None:
    shim = shimmed(tmp_path, NO_SYNC)
    command = [sys.executable, "-c", SYNCS, str(tmp_path / "s" / "log.jsonl")]
    done = subprocess.run(command, env=shim, capture_output=True, text=True, check=True)
    assert "log.jsonl: Input/output error" in done.stdout


def test_a_project_that_is_moved_under_the_person(tmp_path: Path) -> None:
    desk = Desk(
        tmp_path, Step(tools=[("Bash", {"command": "touch made"})]), Step(text="I see."),
        Step(text="Back again."), mode="bypass",
    )  # fmt: skip

    async def act(seat: Seat) -> None:
        seat.press("x")  # the first completion looks at the project
        await seat.until("❯ x")
        seat.press("\x15")
        moved = desk.cwd.rename(tmp_path / "moved")
        seat.say("go on")
        await seat.until("I see.")
        for command, shown in {
            "!ls": "does not exist any more",
            "/diff": "git could not be run",
            "/export kept.md": "cannot write",
            "/checkpoint": "without the files",
            "/context report": "next compaction",
            "/sessions": "go on",
        }.items():
            seat.say(command)
            await seat.until(shown)
        seat.press("look at @no")
        await seat.until("❯ look at @no")
        seat.press("\x15")
        assert not desk.cwd.exists()
        moved.rename(desk.cwd)
        seat.say("and now")
        await seat.until("Back again.")

    _, glass = drive(desk, act)
    assert "fault" not in glass.all()
    assert not (desk.cwd / "made").exists()
