"""`--worktree NAME`: the session works in its own git worktree, which is kept."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place, comes
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

WRITE = Say(tools=[("Bash", {"command": "echo made > made.txt && pwd"})])


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / "src").mkdir()
    (place.project / "src" / "a.txt").write_text("alpha\n")
    git(place.project, "init", "-q", "-b", "main")
    git(place.project, "add", ".")
    git(place.project, "commit", "-qm", "first")
    return place


def tree(place: Place, name: str = "fix") -> Path:
    return place.root / "project-worktrees" / name


def run(place: Place, server: Server, *more: str, name: str = "fix") -> Any:
    return place.run(
        "-p", "go", "--worktree", name, "--permission-mode", "bypass", *more,
        env=place.server(server.url),
    )  # fmt: skip


def test_the_session_works_there_and_nothing_else_changes(place: Place) -> None:
    with Server([WRITE, Say("Done.")]) as server:
        done = run(place, server, "--output-format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["worktree"] == {"path": str(tree(place)), "branch": "ctxagent/fix"}
    assert (tree(place) / "made.txt").read_text() == "made\n"
    assert git(place.project, "status", "--porcelain") == ""
    assert not (place.project / "made.txt").exists()
    assert git(tree(place), "branch", "--show-current") == "ctxagent/fix"
    assert f"a new worktree: {tree(place)} (branch ctxagent/fix)" in done.stderr
    assert f"the work is in {tree(place)}" in done.stderr
    assert "git merge ctxagent/fix" in done.stderr
    assert f"git worktree remove {tree(place)}" in done.stderr
    assert f"Working directory: {tree(place)}" in json.dumps(server.requests[0])


def test_printed_merge_commands_work(place: Place) -> None:
    commit = "git -c user.name=A -c user.email=a@example.com commit -qm second"
    commands = ("echo made > made.txt", f"git add . && {commit}")
    work = Say(tools=[("Bash", {"command": command}) for command in commands])
    with Server([work, Say("Done.")]) as server:
        done = run(place, server)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stderr.splitlines()]
    for start in ("merge it: ", "remove it: "):
        (command,) = [line.removeprefix(start) for line in lines if line.startswith(start)]
        subprocess.run(command, shell=True, cwd=place.project, check=True, capture_output=True)
    assert (place.project / "made.txt").read_text() == "made\n"
    assert not tree(place).exists()
    assert git(place.project, "branch", "--list", "ctxagent/*") == ""


def test_worktree_is_reused_with_its_sessions(place: Place) -> None:
    with Server([WRITE, Say("One."), Say("Two.")]) as server:
        run(place, server)
        done = run(place, server, "--continue")
    assert (done.returncode, done.stdout) == (0, "Two.\n"), done.stderr
    assert "existing worktree" in done.stderr
    assert len(place.logs()) == 1
    assert (tree(place) / "made.txt").exists()


def test_a_folder_within_the_checkout_and_one_within_a_worktree(place: Place) -> None:
    look = Say(tools=[("Bash", {"command": "pwd"})])
    with Server([look, Say("One."), look, Say("Two.")]) as server:
        run(place, server, "--cwd", "src")
        done = run(place, server, "--cwd", str(tree(place)), name="other")
    assert done.returncode == 0, done.stderr
    said = [json.dumps(server.requests[n]["messages"][-1]) for n in (1, 3)]
    assert f"{tree(place)}/src" in said[0]
    assert str(tree(place, "other")) in said[1]


def test_existing_branch_is_continued(place: Place) -> None:
    git(place.project, "branch", "ctxagent/fix")
    with Server([Say("Done.")]) as server:
        done = run(place, server)
    assert done.returncode == 0, done.stderr
    assert git(tree(place), "branch", "--show-current") == "ctxagent/fix"


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a b",
        "",
        "-x",
        "a.lock",
        "a..b",
        ".a",
        "a/b",
        "a.",
        "x" * 65,
        "a\nb",
        "a~1",
        "@{-1}",
    ],
)
def test_invalid_names_create_nothing(place: Place, name: str) -> None:
    with Server([Say("Done.")]) as server:
        done = place.run("-p", "go", f"--worktree={name}", env=place.server(server.url))
    assert done.returncode == 2
    assert "is not a valid name" in done.stderr
    assert server.requests == []
    assert sorted(path.name for path in place.root.iterdir()) == ["home", "project"]


def break_by(place: Place, what: str) -> None:
    if what == "no repository":
        git(place.project, "worktree", "prune")
        (place.project / ".git").rename(place.root / "elsewhere")
    elif what == "no commit":
        git(place.project, "update-ref", "-d", "HEAD")
    elif what == "branch elsewhere":
        git(place.project, "checkout", "-qb", "ctxagent/fix")
    elif what == "something there":
        tree(place).mkdir(parents=True)
    elif what == "a branch in the way":
        git(place.project, "branch", "ctxagent")
    elif what == "no git":
        (place.root / "bin").mkdir()
    elif what == "holder is a link":
        (place.root / "real").mkdir()
        tree(place).parent.symlink_to(place.root / "real")
    elif what == "gone":
        git(place.project, "worktree", "add", "-q", str(tree(place)))
        tree(place).rename(place.root / "moved")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("no repository", "is not in a git checkout"),
        ("no commit", "has no commit yet"),
        ("branch elsewhere", "ctxagent/fix is checked out in"),
        ("something there", "exists and is not a worktree"),
        ("a branch in the way", "git worktree failed"),
        ("no git", "git is not installed"),
        ("holder is a link", "other users own or can write to"),
        ("gone", "git worktree prune"),
    ],
)
def test_impossible_worktree_gives_the_reason(place: Place, what: str, why: str) -> None:
    break_by(place, what)
    before = git(place.project, "worktree", "list") if what != "no repository" else ""
    with Server([Say("Done.")]) as server:
        env = place.server(server.url)
        if what == "no git":
            env["PATH"] = str(place.root / "bin")
        done = place.run("-p", "go", "--worktree", "fix", "--output-format", "json", env=env)
    assert done.returncode == 2, done.stderr
    assert why in json.loads(done.stdout)["error"]["message"]
    assert (server.requests, place.logs()) == ([], [])
    if before:
        assert git(place.project, "worktree", "list") == before
    if what in ("no commit", "branch elsewhere", "a branch in the way", "no git"):
        assert not tree(place).parent.exists()
    if what == "a branch in the way":
        assert git(place.project, "branch", "--list", "ctxagent/*") == ""


def test_two_processes_do_not_share_a_worktree(place: Place) -> None:
    waits = Say("Slow words that never end.", fault="silence", after=5)
    with Server([waits, Say("Other.")]) as server:
        with place.start(
            "-p", "go", "--worktree", "fix", env=place.server(server.url),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as first:  # fmt: skip
            assert comes(lambda: len(server.requests) == 1)
            second = run(place, server)
            other = run(place, server, name="other")
            first.terminate()
        assert second.returncode == 2
        assert f"another process uses it (pid {first.pid})" in second.stderr
        assert (other.returncode, other.stdout) == (0, "Other.\n"), other.stderr


def test_no_hook_and_no_filter_of_the_repository_runs(place: Place) -> None:
    spoilt = place.root / "ran"
    hook = place.project / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {spoilt}\n")
    hook.chmod(0o755)
    git(place.project, "config", "filter.bad.smudge", f"touch {spoilt}; cat")
    (place.project / ".git" / "info").mkdir(exist_ok=True)
    (place.project / ".git" / "info" / "attributes").write_text("* filter=bad\n")
    with Server([Say("Done.")]) as server:
        done = run(place, server)
    assert done.returncode == 0, done.stderr
    assert (tree(place) / "src" / "a.txt").read_text() == "alpha\n"
    assert not spoilt.exists()


def test_settings_and_trust_of_the_checkout_apply_in_the_worktree(place: Place) -> None:
    """Also those of an untracked file. A file that differs in the worktree is not trusted."""
    (place.project / ".agentrc").write_text('[permissions]\nallow = ["Bash(touch:*)"]\n')
    commands = place.project / ".ctxagent" / "commands"
    commands.mkdir(parents=True)
    (commands / "say.md").write_text("---\ndescription: d\n---\nsay !`echo hel''lo`\n")
    git(place.project, "add", ".ctxagent")
    git(place.project, "commit", "-qm", "commands")
    assert place.run("config", "--trust").returncode == 0
    touch = Say(tools=[("Bash", {"command": "touch b"})])
    with Server([touch, Say("One."), Say("Two."), Say("Three.")]) as server:
        env = place.server(server.url)
        allowed = ("--allow", "Bash(echo:*)")
        done = place.run("-p", "go", "--worktree", "fix", env=env)
        assert done.returncode == 0, done.stderr
        assert (tree(place) / "b").exists()
        place.run("-p", "/say", "--worktree", "fix", *allowed, env=env)
        assert "say hello" in json.dumps(server.requests[2])
        other = tree(place) / ".ctxagent" / "commands" / "say.md"
        other.write_text(other.read_text() + "changed\n")
        done = place.run("-p", "/say", "--worktree", "fix", *allowed, env=env)
    assert "not trusted" in done.stderr
    assert "say hello" not in json.dumps(server.requests[3])


def test_in_the_terminal(place: Place) -> None:
    with Server([WRITE, Say("Done.")]) as server:
        terminal = Terminal(
            "--worktree", "fix", "--permission-mode", "bypass",
            cwd=place.project, env=place.server(server.url),
        )  # fmt: skip
        terminal.see("a new worktree")
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("Done.")
        terminal.type("/quit\r")
        terminal.see("git merge ctxagent/fix")
        assert terminal.leave() == 0
    assert (tree(place) / "made.txt").exists()
    assert not (place.project / "made.txt").exists()
