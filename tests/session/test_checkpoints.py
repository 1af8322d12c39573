"""Checkpoints: files that describe a session's state, and snapshots that restore its files."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import RecordError, SessionError
from ctxagent.agent.session.checkpoints import (
    TURN_TRIGGER,
    CheckpointFacts,
    Checkpoints,
    RestorePlan,
    RewindPoint,
    entries_up_to_checkpoint,
    load_checkpoint,
    rewind_points,
)
from ctxagent.agent.session.entries import Assistant, Checkpoint, Entry, Session, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.store import Project
from ctxagent.agent.worktree import WorkTree

FACTS = CheckpointFacts(
    intent="Mend the parser",
    document={"intent": "Mend the parser", "next_steps": ["ändern: a.py"]},
    ledger={"files": {"a.py": {"action": "modified"}}},
    todos=[{"content": "write it", "status": "pending"}],
    tokens=12_345,
    window=200_000,
    model="claude-sonnet-5-5",
    mode="ask",
)


class Place:
    """A session of a project, with its log, its checkpoints and its work tree."""

    def __init__(self, root: Path, id: str = "s1") -> None:
        self.root = root
        self.project = root / "project"
        self.folder = root / "state" / "sessions" / id
        self.log = Log(self.folder / "log.jsonl")
        self.checkpoints = Checkpoints(self.folder, self.worktree())
        self.add(Session(id=id, cwd=str(self.project), version="1", model="m"))

    def worktree(self) -> WorkTree:
        return WorkTree(
            self.project,
            store=self.root / "state" / "worktree.git",
            index=self.folder / "worktree.index",
            env=clean_environment(self.root),
        )

    def add(self, entry: Entry) -> Entry:
        recorded = self.log.append(entry)
        self.checkpoints.add(recorded)
        return recorded

    def say(self, words: str) -> Entry:
        return self.add(User(content=words))

    def change(self) -> Checkpoint | None:
        """Do the same as before a call that may change something."""
        taken = self.checkpoints.turn_snapshot()
        return self.add(taken) if taken else None  # type: ignore[return-value]

    def take(self, trigger: str = "by hand") -> Checkpoint:
        taken = self.checkpoints.take(FACTS, trigger, self.log.last_seq)
        return self.add(taken)  # type: ignore[return-value]

    def points(self) -> list[RewindPoint]:
        return rewind_points(self.log.entries())

    def back(self, number: int) -> Checkpoint:
        """Restore the files of a point. Return the checkpoint taken before."""
        before = self.take("before rewind")
        held = self.checkpoints.add_overwritten_files(RestorePlan(self.point(number)), before)
        self.checkpoints.restore(RestorePlan(self.point(number)))
        return before if held == before else self.add(held)  # type: ignore[return-value]

    def point(self, number: int) -> RewindPoint:
        return next(p for p in self.points() if p.number == number)


def clean_environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True,
        env=clean_environment(folder.parent),
    )  # fmt: skip
    return done.stdout


@pytest.fixture(params=["repository", "folder"])
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_bytes(b"one\r\ntwo\n")
    (project / "tool.sh").write_text("#!/bin/sh\n")
    (project / "tool.sh").chmod(0o755)
    (project / ".gitignore").write_text("*.log\n.env\n")
    if request.param == "repository":
        git(project, "init", "-q")
        git(project, "add", ".")
        git(project, "commit", "-qm", "one")
    opened = Place(tmp_path)
    yield opened
    opened.log.close()


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder except git's: its mode and content, or a link's target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        found[name] = (path.lstat().st_mode, content)
    return found


def digests(folder: Path) -> dict[str, str]:
    """The bytes of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_a_checkpoint_says_how_the_session_stood(session: Place) -> None:
    session.say("mend the parser")
    taken = session.take("by hand: before the rewrite")
    assert (taken.number, taken.path) == (2, "checkpoints/2.json")
    file = session.folder / taken.path
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["2.json"]
    assert "ändern" in file.read_text("utf-8")
    saved = load_checkpoint(session.folder, 2)
    assert saved.facts == FACTS
    assert (saved.trigger, saved.session, saved.seq) == ("by hand: before the rewrite", "s1", 2)
    assert saved.snapshot == taken.snapshot
    assert saved.snapshot
    assert saved.limits == ""
    assert saved.at.endswith("Z")
    if (session.project / ".git").exists():
        assert saved.head == f"main {git(session.project, 'rev-parse', 'HEAD').strip()}"
    else:
        assert saved.head == ""


@pytest.mark.slow
def test_turns_and_checkpoints_are_numbered_together_and_on_over_a_resume(
    session: Place,
) -> None:
    session.say("one")
    session.say("two")
    assert session.take().number == 3
    again = Checkpoints(session.folder, None)
    for entry in session.log.entries():
        again.add(entry)
    session.checkpoints = again
    session.say("three")
    assert session.take().number == 5
    assert [point.number for point in session.points()] == [5, 4, 3, 2, 1]


@pytest.mark.slow
def test_the_files_of_a_turn_are_those_before_its_first_change(session: Place) -> None:
    session.say("only talk")
    session.say("write b")
    assert session.change()
    (session.project / "b.py").write_text("b\n")
    assert session.change() is None  # once a turn
    session.say("write c")
    snapshot = session.change()
    (session.project / "c.py").write_text("c\n")
    session.say("and now?")
    now, third, second, first = session.points()
    assert (now.changed, now.snapshot) == (False, None)
    assert snapshot
    assert third.snapshot == snapshot.snapshot
    assert first.snapshot == second.snapshot != third.snapshot
    assert [point.words for point in (first, second, third)] == ["only talk", "write b", "write c"]
    assert {point.trigger for point in (first, second, third)} == {TURN_TRIGGER}
    assert [point.seq for point in (first, second)] == [1, 2]  # up to before their words
    assert not any(point.path for point in session.points())


def test_a_checkpoint_is_a_point_behind_its_own_entry(session: Place) -> None:
    said = session.say("write b")
    taken = session.take("HOOK-CTX-005: 86% of the window")
    assert session.change() is None  # its snapshot is the turn's too
    point, turn = session.points()
    assert (point.seq, point.number, point.words) == (taken.seq, 2, "write b")
    assert point.trigger == "HOOK-CTX-005: 86% of the window"
    assert turn.snapshot == point.snapshot == taken.snapshot
    assert turn.seq == said.seq - 1


@pytest.mark.slow
def test_words_in_the_middle_of_a_turn_are_a_point_with_its_files(session: Place) -> None:
    session.say("write b")
    assert session.change()
    (session.project / "b.py").write_text("b\n")
    said = session.add(User(content="and c", mid_turn=True))
    assert session.change()
    (session.project / "c.py").write_text("c\n")
    assert session.change() is None
    middle, turn = session.points()
    assert (middle.number, middle.words, middle.seq) == (2, "and c", said.seq - 1)
    assert (middle.mid_turn, turn.mid_turn) == (True, False)
    session.back(2)
    assert (session.project / "b.py").exists()
    assert not (session.project / "c.py").exists()
    session.back(1)
    assert not (session.project / "b.py").exists()


def test_notices_are_no_turns(session: Place) -> None:
    session.add(User(content="The mode is plan.", source="notice"))
    assert session.points() == []
    assert session.change() is None


def make_a_mess(project: Path) -> None:
    """Change files in every possible way."""
    (project / "a.py").write_text("three\n")
    (project / "tool.sh").chmod(0o644)
    (project / "link").unlink()
    (project / "link").symlink_to("/etc")
    (project / "gone.txt").unlink()
    (project / "sub" / "deep.bin").write_bytes(b"\x00\xff")
    (project / "sub" / "new.txt").write_text("new\n")
    (project / "made").mkdir()
    (project / "made" / "x").write_text("x\n")
    (project / "out.log").write_text("noise, more of it\n")


@pytest.mark.variants
@pytest.mark.slow
def test_files_go_back_to_what_they_were(session: Place) -> None:
    project = session.project
    (project / "sub").mkdir()
    (project / "sub" / "deep.bin").write_bytes(bytes(range(256)))
    (project / "gone.txt").write_text("not for long\n")
    (project / "link").symlink_to("a.py")
    (project / "naïve\nname").write_text("odd\n")
    (project / ".env").write_text("SECRET=1\n")
    session.say("go")
    session.change()
    before = tree(project)
    make_a_mess(project)
    mess = tree(project)
    difference = session.checkpoints.difference(RestorePlan(session.point(1)))
    rows = {os.path.relpath(c.path, project): c.action for c in difference.changes}
    assert rows == {
        "a.py": "modified", "tool.sh": "modified", "link": "modified", "gone.txt": "created",
        "sub/deep.bin": "modified", "sub/new.txt": "deleted", "made/x": "deleted",
    }  # fmt: skip
    assert "-three" in difference.diff
    assert "+two" in difference.diff

    kept = session.back(1)
    assert tree(project) == {**before, "out.log": mess["out.log"]}
    assert not (project / "made").exists()
    assert session.checkpoints.difference(RestorePlan(session.point(1))).changes == []

    session.back(kept.number)  # and the way back
    assert tree(project) == mess


@pytest.mark.slow
def test_nothing_in_the_repository_changes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    (project / "a.py").write_text("one\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "one")
    (project / "a.py").write_text("stashed\n")
    git(project, "stash")
    (project / "a.py").write_text("staged\n")
    git(project, "add", "a.py")
    (project / "b.py").write_text("untracked\n")
    before = digests(project / ".git")
    session = Place(tmp_path)
    session.say("go")
    session.change()
    (project / "a.py").write_text("work\n")
    (project / "b.py").unlink()
    session.back(1)
    assert (project / "a.py").read_text() == "staged\n"
    assert (project / "b.py").read_text() == "untracked\n"
    assert digests(project / ".git") == before
    assert git(project, "stash", "list").count("\n") == 1
    session.log.close()


def test_without_snapshots_a_point_says_why(session: Place) -> None:
    session.checkpoints = Checkpoints(session.folder, None)
    session.say("go")
    entry = session.change()
    assert entry
    assert (entry.snapshot, entry.number, entry.path) == (None, 1, "")
    taken = session.take()
    saved = load_checkpoint(session.folder, taken.number)
    assert saved.snapshot is None
    assert "keeps no snapshots" in saved.limits
    for point in session.points():
        assert point.changed
        with pytest.raises(RecordError, match="keeps no snapshots"):
            session.checkpoints.difference(RestorePlan(point))
        with pytest.raises(RecordError, match="keeps no snapshots"):
            session.checkpoints.restore(RestorePlan(point))
        with pytest.raises(RecordError, match="keeps no snapshots"):
            session.checkpoints.add_overwritten_files(RestorePlan(point), taken)


@pytest.mark.slow
def test_a_snapshot_whose_objects_are_gone(tmp_path: Path) -> None:
    """Clean files are borrowed from the repository, whose garbage collection may delete them."""
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    (project / "a.py").write_text("one\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "one")
    session = Place(tmp_path)
    session.say("go")
    session.change()
    (project / "a.py").write_text("two\n")
    git(project, "commit", "-qam", "two", "--amend")
    git(project, "reflog", "expire", "--expire=now", "--all")
    git(project, "gc", "-q", "--prune=now")
    with pytest.raises(RecordError, match="are gone"):
        session.checkpoints.difference(RestorePlan(session.point(1)))
    with pytest.raises(RecordError, match="are gone"):
        session.back(1)
    assert (project / "a.py").read_text() == "two\n"
    assert session.points()[0].snapshot  # and new ones can be taken
    session.log.close()


@pytest.mark.slow
def test_snapshots_outlive_a_clean_up_of_the_store(session: Place) -> None:
    session.say("look")
    session.change()
    (session.project / "new.txt").write_text("only here\n")
    session.say("go")
    session.change()
    (session.project / "new.txt").unlink()
    store = session.root / "state" / "worktree.git"
    git(session.root, f"--git-dir={store}", "gc", "-q", "--prune=now")
    session.back(2)
    assert (session.project / "new.txt").read_text() == "only here\n"


@pytest.mark.slow
def test_a_missing_checkpoint_names_those_that_are_there(session: Place) -> None:
    with pytest.raises(SessionError, match="s1 has no checkpoint 1") as error:
        load_checkpoint(session.folder, 1)
    assert "/checkpoint" in error.value.hint
    session.take()
    session.take()
    with pytest.raises(SessionError) as error:
        load_checkpoint(session.folder, 3)
    assert error.value.hint == "It has 1, 2."


BROKEN: list[tuple[Any, str]] = [
    ("{", "Expecting"),
    ("[]", "not an object"),
    ("{}", "number is missing"),
    ({"facts": {}}, "intent is missing"),
    ({"seq": "7"}, "seq"),
    ({"snapshot": 7}, "snapshot"),
    ("[" * 100_000, ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "why"), BROKEN)
def test_a_broken_checkpoint_names_itself_and_blocks_nothing(
    session: Place, text: Any, why: str
) -> None:
    session.say("go")
    taken = session.take()
    path = session.folder / taken.path
    good = json.loads(path.read_text())
    path.write_text(text if isinstance(text, str) else json.dumps({**good, **text}))
    with pytest.raises(SessionError) as error:
        load_checkpoint(session.folder, taken.number)
    assert str(path) in error.value.message
    assert why in error.value.message
    assert session.checkpoints.difference(RestorePlan(session.point(taken.number))).changes == []
    assert [e.seq for e in entries_up_to_checkpoint(session.log.path)] == [1, 2, 3]
    assert session.take().number == taken.number + 1


def test_a_checkpoint_that_cannot_be_written_is_an_error(session: Place) -> None:
    (session.folder / "checkpoints").write_text("in the way")
    with pytest.raises(RecordError, match=r"cannot write the checkpoint .*/1\.json"):
        session.checkpoints.take(FACTS, "by hand", 1)


@pytest.mark.slow
def test_the_entries_up_to_a_checkpoint(session: Place) -> None:
    with pytest.raises(SessionError, match="no checkpoint"):
        entries_up_to_checkpoint(session.log.path)
    session.say("one")
    first = session.take()
    session.say("two")
    second = session.take()
    session.add(Assistant(content=[], usage={}, stop_reason="end_turn", model="m"))
    assert [*entries_up_to_checkpoint(session.log.path)][-1] == second
    assert [*entries_up_to_checkpoint(session.log.path, first.number)][-1] == first
    with pytest.raises(SessionError, match="no checkpoint 9") as error:
        entries_up_to_checkpoint(session.log.path, 9)
    assert error.value.hint == "It has 2, 4."


def test_a_copy_has_the_checkpoints_of_the_original_up_to_its_end(tmp_path: Path) -> None:
    project = Project(tmp_path / "state", tmp_path)
    log = Log(project.new_log())
    checkpoints = Checkpoints(log.path.parent, None)
    for entry in (Session(id="x", cwd="/", version="1", model="m"), User(content="go")):
        checkpoints.add(log.append(entry))
    for _ in range(2):
        checkpoints.add(log.append(checkpoints.take(FACTS, "by hand", log.last_seq)))
    log.append(Checkpoint(number=9, path="../../outside", snapshot=None, trigger="garbled"))
    log.close()
    assert load_checkpoint(project.fork(log.path).parent, 3).facts == FACTS
    copy = project.fork(log.path, 3).parent
    assert load_checkpoint(copy, 2).facts == FACTS
    assert (copy / "checkpoints").stat().st_mode & 0o777 == 0o700
    with pytest.raises(SessionError) as error:
        load_checkpoint(copy, 3)
    assert error.value.hint == "It has 2."
