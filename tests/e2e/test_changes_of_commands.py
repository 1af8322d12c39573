"""The log has the file changes of each command. The git process that compares files ends with the
session, also if the session is killed.
"""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from ..support.command import Place, comes, gone, running
from ..support.server.loopback import Say, Server
from .test_worktree_option import git

# Each command, and what it changes: the action, lines that came, lines that went.
COMMANDS: dict[str, dict[str, tuple[str, int, int]]] = {
    "echo 3 >> a.txt; true": {"a.txt": ("modified", 1, 0)},
    "sed -i s/3/4/ a.txt src/b.txt": {"a.txt": ("modified", 1, 1), "src/b.txt": ("modified", 1, 1)},
    "sh -c 'cat a.txt'": {},
    "echo x > new.txt; echo x > new.log": {
        "new.txt": ("created", 1, 0),
        "new.log": ("created", 0, 0),  # ignored, but named
    },
    "mkdir -p lib/deep && cp a.txt lib/deep": {"lib/deep/a.txt": ("created", 3, 0)},
    "rm lib/deep/a.txt; chmod +x a.txt": {
        "a.txt": ("modified", 0, 0),
        "lib/deep/a.txt": ("deleted", 0, 3),
    },
    "mv src source": {"src/b.txt": ("deleted", 0, 1), "source/b.txt": ("created", 1, 0)},
    "git add . && git -c user.name=A -c user.email=a@b commit -qm Second": {},
    "git stash list; echo 5 > source/b.txt": {"source/b.txt": ("modified", 1, 1)},
    "git checkout -q source/b.txt": {"source/b.txt": ("modified", 1, 1)},
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / "src").mkdir()
    (place.project / "a.txt").write_text("1\n2\n")
    (place.project / "src" / "b.txt").write_text("3\n")
    (place.project / ".gitignore").write_text("*.log\n")
    git(place.project, "init", "-q", "-b", "main")
    git(place.project, "add", ".")
    git(place.project, "commit", "-qm", "First")
    return place


def comparing(place: Place) -> list[int]:
    """Return the git processes that compare files of the project."""
    found = []
    for pid in running("diff-tree"):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink() == place.project:
                found.append(pid)
    return found


def test_each_command_result_lists_its_changes(place: Place) -> None:
    steps = [Say(tools=[("Bash", {"command": command})]) for command in COMMANDS]
    with Server([*steps, Say("Done.")]) as server:
        done = place.run(
            "-p", "go", "--permission-mode", "bypass", env=place.server(server.url)
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = [entry["details"] for entry in place.entries() if entry["kind"] == "tool_result"]
    told = {
        result["command"]: {
            os.path.relpath(row["path"], place.project): (
                row["action"],
                row["added"],
                row["removed"],
            )
            for row in result.get("changes", ())
        }
        for result in results
    }
    assert told == COMMANDS
    assert comparing(place) == []


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="processes are found in /proc")
def test_kill_leaves_no_git_process(place: Place) -> None:
    steps = [
        Say(tools=[("Bash", {"command": command})])
        for command in ("echo 3 >> a.txt; true", "echo 4 >> a.txt; sleep 300")
    ]
    with (
        Server(steps) as server,
        place.start(
            "-p", "go", "--permission-mode", "bypass", env=place.server(server.url),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as agent,
    ):  # fmt: skip
        assert comes(lambda: (place.project / "a.txt").read_text() == "1\n2\n3\n4\n")
        found = comparing(place)
        agent.kill()
    assert len(found) == 1
    assert gone(*found)
