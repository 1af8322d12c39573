"""Measure undo with many files, in a repository and in a plain folder: the first scan, later scans,
a snapshot, and a rewind.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import measure
from measure import Rows, Table

from ctxagent.agent.worktree import SavedFiles, WorkTree

SIZES: dict[str, dict[str, Any]] = {
    "full": {"count": 150_000},
    "quick": {"count": 20_000},
    "tiny": {"count": 300},
}
FOLDER_FILES = 50
T = TypeVar("T")


def timed(row: dict[str, float], what: str, work: Callable[[], T]) -> T:
    started = time.perf_counter()
    found = work()
    row[what] = row.get(what, 0.0) + time.perf_counter() - started
    return found


def fill(project: Path, count: int) -> None:
    """Write files of 0 to 2,000 bytes."""
    for number in range(count):
        folder = project / f"d{number // 2_500}" / f"e{number // FOLDER_FILES % FOLDER_FILES}"
        if number % FOLDER_FILES == 0:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.py").write_text(f"# {number}\n" + "x = 1\n" * (number % 300))


def main(count: int) -> Iterator[Table]:
    rows: Rows = {}
    for kind in ("repository", "folder"):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            rows[kind] = timings(Path(folder), count, repository=kind == "repository")
    yield Table("undo among many files", rows)


def timings(root: Path, count: int, *, repository: bool) -> dict[str, float]:
    """Return the seconds of each step, by name."""
    row: dict[str, float] = {}
    project, state = root / "project", root / "state"
    fill(project, count)
    if repository:
        who = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"]
        for words in ("init -q", "add .", "commit -qm First"):
            subprocess.run([*who, *words.split()], cwd=project, check=True)
    index = state / "sessions" / "s" / "worktree.index"
    tree = WorkTree(project, store=state / "worktree.git", index=index, env=dict(os.environ))
    while timed(row, "first_scan_s", tree.observe).tree is None:
        pass  # a long scan continues at the next call
    timed(row, "later_scan_s", tree.observe)
    timed(row, "unchanged_s", lambda: tree.observe(full=False))
    edited = project / "d0" / "e0" / "f0.py"
    saved = SavedFiles(state / "sessions" / "s" / "saved")
    files = timed(row, "save_file_s", lambda: saved.save([str(edited)]))
    then = timed(row, "snapshot_s", lambda: tree.snapshot("s/1")).tree
    assert then
    edited.write_text("changed\n")
    timed(row, "put_file_back_s", lambda: saved.restore(files))
    edited.write_text("changed\n")
    timed(row, "restore_snapshot_s", lambda: tree.restore(then))
    assert edited.read_text() == "# 0\n"
    return row


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
