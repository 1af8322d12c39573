"""The changes of a call are in its result: real commands and real git."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import Event, ToolOutput
from ctxagent.agent.loop.dispatch import Features
from ctxagent.agent.loop.file_changes import ChangeTracker, FileEdit, FileSaver
from ctxagent.agent.loop.tool_calls import ToolRunner
from ctxagent.agent.session.entries import Assistant, Note, Session, ToolResult
from ctxagent.agent.session.since_point import list_stale_files
from ctxagent.agent.worktree import SavedFiles, TouchRecord, TreeChange, WorkTree, blob_digest
from ctxagent.agent.worktree.touch_record import OtherCall
from ctxagent.tools.base import Context
from ctxagent.tools.job import end_all

from ..support.sessions.setup import live_session

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


class Bench:
    """Calls of real tools in `folder/p`, a repository unless `plain`, executed and recorded as in
    a turn."""

    def __init__(self, folder: Path, *, plain: bool = False, watched: bool = True) -> None:
        self.project = folder / "p"
        self.project.mkdir(parents=True)
        for name, text in {
            "a.txt": "one\ntwo\n",
            "src/b.py": "x  =  1\ny=2\n",
            "src/c.py": "z = 3\n",
            ".gitignore": ".env\n*.log\n",
            ".env": "KEY=1\n",
        }.items():
            (self.project / name).parent.mkdir(exist_ok=True)
            (self.project / name).write_text(text)
        if not plain:
            for words in ("init -qb main", "add .", "commit -qm First", "branch other"):
                subprocess.run(["git", *words.split()], cwd=self.project, env=ENV, check=True)
        state = folder / "state"
        path = state / "sessions" / "s" / "log.jsonl"
        self.events: list[Event] = []
        self.context = Context(self.project, session_dir=path.parent, env=ENV)
        tree = WorkTree(
            self.project,
            store=state / "worktree.git",
            index=path.parent / "worktree.index",
            env=ENV,
        )
        session = live_session(self.project, path, emit=self.events.append, context=self.context)
        self.log, self.ledger, self.record = session.log, session.ledger, session.record
        tracker = ChangeTracker(tree, self.context) if watched else None
        self.tool_runner = ToolRunner(session, Features(self.events.append), tracker)
        self.record(Session(id="s", cwd=str(self.project), version="0", model="m"))

    async def call(self, tool: str, given: dict[str, Any]) -> ToolResult:
        """Run one call. Return its result as recorded in the log."""
        block = {
            "type": "tool_use", "id": f"c{self.log.last_seq}", "name": tool, "input": given,
        }  # fmt: skip
        self.record(Assistant(content=[block], usage={}, stop_reason="tool_use", model="m"))
        await self.tool_runner.run([block], {}, cut=False)
        return self.newest()

    def newest(self) -> ToolResult:
        return [e for e in self.log.entries() if isinstance(e, ToolResult)][-1]

    def bash(self, command: str, **more: Any) -> ToolResult:
        return asyncio.run(self.call("Bash", {"command": command, **more}))

    def changes(self, result: ToolResult) -> dict[str, tuple[str, int, int]]:
        """The changes of a result, by path from the project."""
        return {
            os.path.relpath(row["path"], self.project): (
                row["action"],
                row["added"],
                row["removed"],
            )
            for row in result.details.get("changes", ())
        }

    def did(self, command: str) -> dict[str, tuple[str, int, int]]:
        """What a command changed."""
        return self.changes(self.bash(command))


FORMATTER = """python3 - <<'PY'
import pathlib
for path in pathlib.Path("src").glob("*.py"):
    path.write_text(path.read_text().replace("  =  ", " = "))
PY"""


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True], ids=["repository", "folder"])
@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("sed -i s/one/1/ a.txt", {"a.txt": ("modified", 1, 1)}),
        ("cat > new.txt <<'X'\n1\n2\nX", {"new.txt": ("created", 2, 0)}),
        ("rm a.txt", {"a.txt": ("deleted", 0, 2)}),
        ("rm -rf src", {"src/b.py": ("deleted", 0, 2), "src/c.py": ("deleted", 0, 1)}),
        ("mv a.txt d.txt", {"a.txt": ("deleted", 0, 2), "d.txt": ("created", 2, 0)}),
        (
            "cp -r src lib",
            {"lib/b.py": ("created", 2, 0), "lib/c.py": ("created", 1, 0)},
        ),
        (FORMATTER, {"src/b.py": ("modified", 1, 1)}),
        ("echo KEY=2 > .env", {".env": ("modified", 0, 0)}),
        ("touch a.txt; touch .env", {}),
        ("echo x > ../out.txt", {"../out.txt": ("created", 0, 0)}),
        ("chmod +x a.txt", {"a.txt": ("modified", 0, 0)}),
        ("ln -s a.txt link", {"link": ("created", 1, 0)}),
        ("printf '\\0\\1' > image", {"image": ("created", 0, 0)}),
        ("echo x > 'ü\nn'", {"ü\nn": ("created", 1, 0)}),
        ("cd src && sed -i s/3/4/ c.py; false", {"src/c.py": ("modified", 1, 1)}),
        ("echo x > a.txt; git stash -q; false", None),
        ("cat a.txt; ls -la | head", {}),
    ],
)
def test_what_a_command_changed(
    tmp_path: Path, plain: bool, command: str, changes: dict[str, tuple[str, int, int]] | None
) -> None:
    bench = Bench(tmp_path, plain=plain)
    if changes is None:  # what git does with it where there is one
        changes = {"a.txt": ("modified", 1, 2)} if plain else {}
    assert bench.did(command) == changes
    assert {f.path for f in bench.ledger.files.values()} == {
        str(tmp_path / "out.txt") if path.startswith("../") else path for path in changes
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "command", "changes", "head"),
    [
        ("", "git checkout -q other", {}, "other"),
        (
            "git checkout -qb work && echo x > w.txt && git add . && git commit -qm W",
            "git checkout -q main",
            {"w.txt": ("deleted", 0, 1)},
            "main",
        ),
        ("echo x > a.txt", "git stash -q", {"a.txt": ("modified", 2, 1)}, ""),
        ("", "sed -i s/one/1/ a.txt && git commit -qam S", {"a.txt": ("modified", 1, 1)}, "main"),
        ("", "git checkout -q --detach", {}, "HEAD"),
    ],
)
def test_git_commands(
    tmp_path: Path, before: str, command: str, changes: dict[str, Any], head: str
) -> None:
    bench = Bench(tmp_path)
    if before:
        bench.bash(before)
    result = bench.bash(command)
    assert bench.changes(result) == changes
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=bench.project, env=ENV, capture_output=True, text=True
    ).stdout[:7]
    assert result.details.get("head", "") == (f"{head} {commit}" if head else "")
    if head:
        assert bench.ledger.head == f"{head} {commit}"


def test_without_a_watch_nothing_is_found_and_nothing_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, watched=False)
    assert bench.did("sed -i s/one/1/ a.txt") == {}
    assert not (tmp_path / "state" / "worktree.git").exists()


@pytest.mark.slow
def test_a_command_that_only_looks_is_not_watched(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.bash("cat a.txt && git status | head -3")
    assert not (tmp_path / "state" / "worktree.git").exists()
    bench.bash("cat a.txt > /dev/null; python3 -c 1")
    assert (tmp_path / "state" / "worktree.git").exists()


@pytest.mark.slow
def test_changes_by_others_between_calls_are_not_attributed_to_the_command(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.did("sed -i s/one/1/ a.txt").keys() == {"a.txt"}
    (bench.project / "src" / "b.py").write_text("by the person\n")
    asyncio.run(bench.call("Write", {"path": "w.txt", "content": "w\n"}))
    assert bench.did("echo x > new.txt").keys() == {"new.txt"}
    assert set(bench.ledger.files) == {"a.txt", "w.txt", "new.txt"}


@pytest.mark.slow
def test_a_job_answers_for_what_changes_while_it_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    os.mkfifo(tmp_path / "go")

    async def work() -> tuple[ToolResult, ToolResult, ToolResult]:
        command = f"cat {tmp_path}/go; echo built > built.txt; echo done"
        started = await bench.call("Bash", {"command": command, "run_in_background": True})
        await bench.call("Write", {"path": "mine.txt", "content": "mine\n"})
        await asyncio.to_thread((tmp_path / "go").write_text, "")
        waited = await bench.call("Job", {"action": "wait"})
        after = await bench.call("Bash", {"command": "echo x > later.txt"})
        return started, waited, after

    started, waited, after = asyncio.run(work())
    assert bench.changes(started) == {}
    (row,) = waited.details["changes"]
    assert (row["path"], row["by"]) == (str(bench.project / "built.txt"), "job-1")
    assert bench.changes(after) == {"later.txt": ("created", 1, 0)}
    assert set(bench.ledger.files) == {"mine.txt", "built.txt", "later.txt"}


@pytest.mark.slow
def test_a_job_is_named_in_the_next_commands_result(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for name in ("go", "done"):
        os.mkfifo(tmp_path / name)

    async def work() -> ToolResult:
        command = f"cat {tmp_path}/go; echo built > built.txt; : > {tmp_path}/done; exec sleep 60"
        await bench.call("Bash", {"command": command, "run_in_background": True})
        await asyncio.to_thread((tmp_path / "go").write_text, "")
        await asyncio.to_thread((tmp_path / "done").read_text)
        result = await bench.call("Bash", {"command": "echo x > later.txt"})
        await end_all(bench.context.jobs)
        return result

    rows = asyncio.run(work()).details["changes"]
    assert [(Path(r["path"]).name, r.get("by")) for r in rows] == [
        ("built.txt", "job-1"),
        ("later.txt", None),
    ]


def interrupt(bench: Bench, command: str, when: Callable[[Event], bool]) -> ToolResult:
    async def run() -> None:
        call = asyncio.ensure_future(bench.call("Bash", {"command": command}))

        def emit(event: Event) -> None:
            if when(event):
                asyncio.get_running_loop().call_soon(call.cancel)

        bench.tool_runner.session.emit = emit
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())
    bench.tool_runner.session.emit = bench.events.append
    return bench.newest()


@pytest.mark.slow
def test_changes_of_interrupted_and_timed_out_commands_are_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.tool_runner.change_tracker
    bench.tool_runner.change_tracker.moment = (
        100.0  # on a busy machine git takes longer than a moment
    )
    result = interrupt(
        bench, "echo 1 > a.txt; echo ready; sleep 300", lambda event: isinstance(event, ToolOutput)
    )
    assert result.details["interrupted"]
    assert bench.changes(result) == {"a.txt": ("modified", 1, 2)}
    for seconds in (1, 5, 25):  # on a busy machine the first may pass before anything is done
        result = bench.bash("echo 2 > a.txt; sleep 300", timeout=seconds)
        assert result.details["timed_out"]
        if changes := bench.changes(result):
            break
    assert changes == {"a.txt": ("modified", 1, 1)}


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_a_slow_look(tmp_path: Path) -> None:
    """The changes of the command are reported in the next result."""
    bench = Bench(tmp_path)
    assert bench.tool_runner.change_tracker
    slow = bench.tool_runner.change_tracker.tree._lock

    async def run() -> None:
        call = asyncio.ensure_future(
            bench.call("Bash", {"command": "echo 1 > a.txt; echo ready; sleep 300"})
        )

        def emit(event: Event) -> None:
            if isinstance(event, ToolOutput):
                slow.acquire()
                asyncio.get_running_loop().call_soon(call.cancel)

        bench.tool_runner.session.emit = emit
        with pytest.raises(asyncio.CancelledError):  # who waits for the look waits for ever
            await call
        slow.release()

    asyncio.run(run())
    bench.tool_runner.session.emit = bench.events.append
    result = bench.newest()
    assert result.details["interrupted"]
    assert "changes" not in result.details
    rows = bench.bash("echo x > later.txt").details["changes"]
    assert [(Path(r["path"]).name, r.get("by")) for r in rows] == [
        ("a.txt", "interrupted"),
        ("later.txt", None),
    ]


def test_a_command_that_has_ended_keeps_its_output_when_the_look_is_interrupted(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    watch = bench.tool_runner.change_tracker
    assert watch

    async def run() -> None:
        call = asyncio.ensure_future(bench.call("Bash", {"command": "echo x > a.txt; echo said"}))
        loop = asyncio.get_running_loop()

        def check() -> None:
            if watch._busy:
                call.cancel()
            else:
                loop.call_soon(check)

        def emit(event: Event) -> None:
            if isinstance(event, ToolOutput):
                watch.tree._lock.acquire()
                check()

        bench.tool_runner.session.emit = emit
        with pytest.raises(asyncio.CancelledError):
            await call
        watch.tree._lock.release()

    asyncio.run(run())
    assert bench.newest().content == "said"
    assert not bench.newest().is_error


@pytest.mark.slow
def test_many_changes_are_cut_and_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    result = bench.bash("mkdir many && cd many && for n in $(seq 2100); do : > $n; done")
    assert len(result.details["changes"]) == 2_000
    assert result.details["changes_left_out"] == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("rm -rf ../outside/deep", "../outside/deep/x"),
        ("rm ../outside/*.txt", "../outside/y.txt"),
        ("cp a.txt ../outside/", "../outside/a.txt"),
        ("cd ../outside && sed -i s/y/Y/ y.txt", "../outside/y.txt"),
        ("mkdir -p build && tee ../outside/y.txt < a.txt", "../outside/y.txt"),
        ("mkdir -p ../outside/p/q && echo 1 > ../outside/p/q/z.txt", "../outside/p/q/z.txt"),
        ("sudo -n true; timeout 5 sed -i s/y/Y/ ../outside/y.txt", "../outside/y.txt"),
    ],
)
def test_files_outside_that_a_command_names(tmp_path: Path, command: str, name: str) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    (tmp_path / "outside" / "deep" / "x").write_text("x\n")
    (tmp_path / "outside" / "y.txt").write_text("y\n")
    assert bench.did(command).keys() == {name}


def test_a_repository_that_sets_traps_sets_none_for_the_watch(tmp_path: Path) -> None:
    bench, trap = Bench(tmp_path), tmp_path / "ran"
    run = f"sh -c 'touch {trap}; cat'"
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "core.hooksPath"):
        subprocess.run(["git", "config", key, run], cwd=bench.project, env=ENV, check=True)
    (bench.project / ".gitattributes").write_text("*.txt filter=evil\n")
    assert bench.did("sed -i s/one/1/ a.txt") == {"a.txt": ("modified", 1, 1)}
    assert not trap.exists()


@pytest.mark.slow
def test_only_files_changed_by_others_are_stale(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    asyncio.run(bench.call("Read", {"path": "a.txt"}))
    asyncio.run(bench.call("Read", {"path": "src/b.py"}))
    asyncio.run(bench.call("Write", {"path": "w.txt", "content": "w\n"}))
    bench.bash("sed -i s/one/1/ a.txt; rm src/c.py; echo x > /dev/null; echo KEY=2 > .env")
    assert list_stale_files(bench.ledger) == []
    (bench.project / "a.txt").write_text("by the person\n")
    (bench.project / "src" / "b.py").unlink()
    (bench.project / "src" / "c.py").write_text("again\n")
    (bench.project / "w.txt").touch()
    (bench.project / ".env").write_text("KEY=3\n")
    assert sorted(list_stale_files(bench.ledger)) == [".env", "a.txt", "src/b.py", "src/c.py"]
    asyncio.run(bench.call("Read", {"path": "a.txt"}))
    assert sorted(list_stale_files(bench.ledger)) == [".env", "src/b.py", "src/c.py"]


# What other sessions and subagents change, and what is saved


class Shared(Bench):
    """A bench that saves files and shares a touch record with another session."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        assert self.tool_runner.change_tracker
        self.tracker = self.tool_runner.change_tracker
        self.tracker.record = TouchRecord(folder / "touched", "s")
        self.saved = folder / "saved"
        self.tracker.saver = FileSaver(SavedFiles(self.saved), self.record, lambda: 1)
        self.other = TouchRecord(folder / "touched", "other")

    def seen_by_other(self) -> list[OtherCall]:
        """The calls of this session, as reported to the other session."""
        return list(self.other.others(0).calls)

    def saved_contents(self) -> list[tuple[str, str, str]]:
        """The reasons, names and contents of saved files."""
        return [
            (note.data["by"], os.path.basename(row["path"]), self._content(row["blob"]))  # noqa: PTH119
            for note in self.log.entries()
            if isinstance(note, Note) and note.topic == "saved"
            for row in note.data["files"]
        ]

    def _content(self, blob: str) -> str:
        return (self.saved / blob).read_text() if blob else ""


def test_an_edit_is_saved_and_reported_to_other_sessions(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    path = str(bench.project / "a.txt")
    asyncio.run(bench.call("Read", {"path": "a.txt"}))
    edit = {"path": "a.txt", "old_string": "one", "new_string": "1"}
    assert not asyncio.run(bench.call("Edit", edit)).is_error
    (call,) = bench.seen_by_other()
    assert (call.session, call.writes, call.end < float("inf")) == ("s", {path}, True)
    assert call.changed == {path: blob_digest(path)}
    assert bench.saved_contents() == [("edit", "a.txt", "one\ntwo\n")]


def test_an_edit_that_fails_changed_nothing(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    edit = {"path": "a.txt", "old_string": "nowhere", "new_string": "x"}
    assert asyncio.run(bench.call("Edit", edit)).is_error
    assert [call.changed for call in bench.seen_by_other()] == [{}]


def test_an_invalid_path_is_left_to_the_tool(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    assert asyncio.run(bench.call("Write", {"path": "a\0b", "content": "x"})).is_error
    assert [call.changed for call in bench.seen_by_other()] == [{}]
    assert bench.saved_contents() == []


def test_the_changes_of_a_command_are_reported_to_other_sessions(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    out, new = str(tmp_path / "out.txt"), str(bench.project / "new.txt")
    (tmp_path / "out.txt").write_text("old\n")
    bench.bash("rm a.txt; echo x > new.txt; echo x > ../out.txt; touch $(echo b).txt")
    (call,) = bench.seen_by_other()
    assert call.end < float("inf")
    assert call.changed == {
        str(bench.project / "a.txt"): "deleted", new: blob_digest(new), out: blob_digest(out),
    }  # fmt: skip
    assert bench.saved_contents() == [("command", "out.txt", "old\n")]


def test_a_change_by_another_session_is_not_attributed_to_the_command(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    theirs = str(bench.project / "theirs.txt")
    call = bench.other.begin([theirs])
    bench.other.record_changes(call, {theirs: "?"}, ended=False)
    assert bench.did("echo x > new.txt; touch $(echo theirs).txt").keys() == {"new.txt"}


def test_a_change_during_another_sessions_call_belongs_to_neither(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    bench.other.begin()
    result = bench.bash("echo x > new.txt; touch $(echo b).txt")
    assert bench.changes(result).keys() == {"new.txt"}
    shared = [{"path": str(bench.project / "b.txt"), "action": "created"}]
    assert result.details["changed_meanwhile"] == shared


def test_a_change_that_no_command_names_is_uncertain(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    rows = bench.bash("echo x > new.txt; touch $(echo b).txt").details["changes"]
    assert [(Path(row["path"]).name, row.get("certain", True)) for row in rows] == [
        ("new.txt", True),
        ("b.txt", False),
    ]


def test_parallel_edits_of_a_subagent_are_attributed_to_it(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    path = str(bench.project / "a.txt")
    bench.tracker.edits.append(FileEdit("a-1", path))
    assert bench.did("echo 1 > a.txt; echo x > new.txt").keys() == {"new.txt"}
    bench.tracker.credit("a-1", [path])
    assert all(edit.ended for edit in bench.tracker.edits)
    assert bench.did("echo 2 > a.txt").keys() == {"a.txt"}


def test_the_end_of_a_session_ends_its_calls(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    assert bench.tracker.record
    bench.tracker.record.begin([str(tmp_path)])
    assert [call.end for call in bench.seen_by_other()] == [float("inf")]
    bench.tracker.close()
    assert all(call.end < float("inf") for call in bench.seen_by_other())
    bench.tracker.record = None
    bench.tracker.close()


def test_a_rewind_saves_files_and_reports_its_changes(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    path, wrong = str(bench.project / "a.txt"), str(bench.project / ("x" * 300))
    assert asyncio.run(bench.tracker.save_before_rewind([path, wrong])) == {wrong}
    assert bench.saved_contents()[0] == ("command", "a.txt", "one\ntwo\n")
    bench.tracker.report_to_others([TreeChange(path, "deleted")])
    (call,) = bench.seen_by_other()
    assert (call.changed, call.end < float("inf")) == ({path: "deleted"}, True)


def test_without_a_record_and_a_saver_there_is_nothing_to_report(tmp_path: Path) -> None:
    bench = Bench(tmp_path, plain=True)
    tracker = bench.tool_runner.change_tracker
    assert tracker
    path = str(bench.project / "a.txt")
    assert asyncio.run(tracker.save_before_rewind([path])) == frozenset()
    tracker.report_to_others([TreeChange(path, "deleted")])
    assert bench.log.last_seq == 1


def test_a_command_with_a_job_ends_with_the_job(tmp_path: Path) -> None:
    bench = Shared(tmp_path, plain=True)
    os.mkfifo(tmp_path / "go")

    async def work() -> list[list[bool]]:
        command = f"cat {tmp_path}/go; echo built > built.txt"
        await bench.call("Bash", {"command": command, "run_in_background": True})
        await bench.call("Bash", {"command": "echo x > new.txt"})
        before = [call.end == float("inf") for call in bench.seen_by_other()]
        await asyncio.to_thread((tmp_path / "go").write_text, "")
        await bench.call("Job", {"action": "wait"})
        return [before, [call.end == float("inf") for call in bench.seen_by_other()]]

    assert asyncio.run(work()) == [[True, True], [False, False]]


def test_only_one_of_two_calls_at_the_same_time_reports_a_change(tmp_path: Path) -> None:
    bench = Bench(tmp_path, plain=True)

    async def work() -> list[ToolResult]:
        command = "echo built > built.txt"
        await bench.call("Bash", {"command": command, "run_in_background": True})
        blocks = [
            {"type": "tool_use", "id": id, "name": "Job", "input": {"action": "wait"}}
            for id in ("first", "second")
        ]
        bench.record(Assistant(content=blocks, usage={}, stop_reason="tool_use", model="m"))
        await bench.tool_runner.run(blocks, {}, cut=False)
        return [e for e in bench.log.entries() if isinstance(e, ToolResult)]

    results = asyncio.run(work())
    assert len(results) == 3
    rows = [row for result in results for row in result.details.get("changes", ())]
    assert [Path(row["path"]).name for row in rows] == ["built.txt"]
