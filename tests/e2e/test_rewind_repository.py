"""`/rewind` with the real command: what the git repository has lost."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.ui.commands.rewind import EFFECTS

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal

THROW_AWAY = "git reflog expire --expire=now --all; git gc -q --prune=now"
WHO = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    env = {**os.environ, **WHO}
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, check=True)
    return done.stdout.decode()


def fill(folder: Path) -> None:
    git(folder, "init", "-q", "-b", "main")
    for name in ("one", "two"):
        (folder / name).write_text(f"{name}\n")
        git(folder, "add", name)
        git(folder, "commit", "-qm", name)
    git(folder, "branch", "feature", "HEAD~1")
    git(folder, "checkout", "-qb", "topic")
    git(folder, "commit", "-q", "--allow-empty", "-m", "topic")
    git(folder, "checkout", "-q", "main")
    (folder / "one").write_text("stashed\n")
    git(folder, "stash", "push", "-qm", "precious")


def state(folder: Path) -> list[str]:
    asked = ("for-each-ref", "stash list", "status --short", "symbolic-ref HEAD")
    return [git(folder, *words.split()) for words in asked]


def running(command: str) -> Iterator[Say]:
    """Return a model that runs a command outside the sandbox, because the sandbox keeps `.git`
    read-only.
    """
    yield Say(tools=[("Bash", {"command": command, "unsandboxed": True})])
    while True:
        yield Say("Done.")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("command", "choice", "said"),
    [
        (f"git stash clear; {THROW_AWAY}", "repository", "stashes: On main: precious"),
        (f"git branch -D topic feature; {THROW_AWAY}", "repository", "refs: refs/heads/feature"),
        (f"git update-ref -d refs/heads/topic; echo x > one; {THROW_AWAY}", "files", "refs: "),
        ("rm -rf .git", "repository", "a repository that is gone"),
        ("rm -rf .git; rm one; echo more > two", "files", "a repository that is gone"),
        (f"git stash clear; {THROW_AWAY}", "both", "stashes: On main: precious"),
    ],
    ids=["stash", "branches", "ref", "all", "all and files", "both"],
)
def test_rewind_restores_what_a_command_removed(
    tmp_path: Path, command: str, choice: str, said: str
) -> None:
    place = Place(tmp_path)
    fill(place.project)
    was, steps = state(place.project), running(command)

    def reply(body: Body) -> Say:
        return next(steps)

    with Server(reply) as server:
        env = place.server(server.url)
        done = place.run("-p", "do it", "--permission-mode", "bypass", env=env)
        assert done.returncode == 0, done.stderr
        terminal = Terminal("--continue", cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type(f"/rewind 1 {choice}\r")
        terminal.keys(f"[y]es, {EFFECTS[choice]}")
        terminal.see("git repository, would be restored")
        terminal.see(said)
        terminal.type("y")
        terminal.see("git repository, restored")
        terminal.rest()
        assert state(place.project) == was
        terminal.type("\x15")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    git(place.project, "fsck", "--full")


def test_the_files_wait_for_a_repository_above_the_folder(tmp_path: Path) -> None:
    place = Place(tmp_path)
    fill(tmp_path)
    (place.project / "inside").write_text("inside\n")
    steps = running("rm -rf ../.git inside")

    def reply(body: Body) -> Say:
        return next(steps)

    with Server(reply) as server:
        env = place.server(server.url)
        place.run("-p", "do it", "--permission-mode", "bypass", env=env)
        for choice, hint in (("repository", "is missing"), ("files", "inside")):
            terminal = Terminal("--continue", cwd=place.project, env=env)
            terminal.see("❯")
            terminal.type(f"/rewind 1 {choice}\r")
            terminal.keys(f"[y]es, {EFFECTS[choice]}")
            terminal.see(hint)
            terminal.type("y")
            terminal.see("restored: " if choice == "repository" else "to undo this: ")
            terminal.rest()
            terminal.press("ctrl-d")
            assert terminal.leave() == 0
    assert (place.project / "inside").read_text() == "inside\n"
