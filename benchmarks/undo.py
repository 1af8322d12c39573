"""Measure undo among many files: the first look, later looks, a snapshot, and a rewind.

python -m ctxagent.benchmarks.undo [FILES]      by default 150,000, in a repository and in a folder
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ctxagent.agent.worktree import SavedFiles, WorkTree

T = TypeVar("T")
FILES = 150_000
FOLDER_FILES = 50


def timed(what: str, work: Callable[[], T]) -> T:
    started = time.monotonic()
    found = work()
    print(f"  {what:<40} {time.monotonic() - started:6.2f} s", flush=True)
    return found


def fill(project: Path, count: int) -> None:
    """Make files of 0 to 2,000 bytes."""
    for number in range(count):
        folder = project / f"d{number // 2_500}" / f"e{number // FOLDER_FILES % FOLDER_FILES}"
        if number % FOLDER_FILES == 0:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.py").write_text(f"# {number}\n" + "x = 1\n" * (number % 300))


def measure(root: Path, count: int, *, repository: bool) -> None:
    project, state = root / "project", root / "state"
    fill(project, count)
    if repository:
        who = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"]
        for words in ("init -q", "add .", "commit -qm First"):
            subprocess.run([*who, *words.split()], cwd=project, check=True)
    index = state / "sessions" / "s" / "worktree.index"
    tree = WorkTree(project, store=state / "worktree.git", index=index, env=dict(os.environ))
    while timed("look at all files, until it is whole", tree.observe).tree is None:
        print(f"    {tree.limits}")
    timed("look again", tree.observe)
    timed("look where nothing has changed", lambda: tree.observe(anew=False))
    edited = project / "d0" / "e0" / "f0.py"
    saved = SavedFiles(state / "sessions" / "s" / "saved")
    files = timed("save the file that is edited", lambda: saved.save([str(edited)]))
    then = timed("snapshot", lambda: tree.snapshot("s/1")).tree
    assert then
    edited.write_text("changed\n")
    timed("put the saved file back", lambda: saved.restore(files))
    edited.write_text("changed\n")
    timed("restore the snapshot", lambda: tree.restore(then))
    assert edited.read_text() == "# 0\n"


def main() -> None:
    count = int(sys.argv[1]) if sys.argv[1:] else FILES
    for repository in (True, False):
        print(f"{count:,} files in a {'repository' if repository else 'folder'}")
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), count, repository=repository)


if __name__ == "__main__":
    main()
