"""Sessions follow a folder that was renamed."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.session.folder_identity import IDENTITY_NAME

from ..support.command import Place, comes
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

FIRST = (Say(tools=[("Write", {"path": "made", "content": "one\n"})]), Say("Made."))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "init", "--quiet")
    (folder / "a").write_text("a\n")
    git(folder, "add", "a")
    git(folder, "commit", "--quiet", "--message", "first")


def begin(place: Place, server: Server) -> None:
    env = place.server(server.url)
    done = place.run("-p", "make it", "--permission-mode", "bypass", env=env)
    assert done.returncode == 0, done.stderr


def identity(place: Place) -> dict[str, object]:
    (path,) = place.state.glob(f"projects/*/{IDENTITY_NAME}")
    found: dict[str, object] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("has_commits", [False, True])
def test_sessions_are_named_and_moved_after_a_rename(place: Place, has_commits: bool) -> None:
    if has_commits:
        commit(place.project)
    with Server([*FIRST, Say("Again.")]) as server:
        begin(place, server)
        env, now = place.server(server.url), place.root / "now"
        place.project.rename(now)
        refused = place.run("-p", "go on", "--continue", env=env, cwd=now)
        assert refused.returncode == 2
        assert f"{place.project}, which is gone, has 1 session" in refused.stderr
        assert f"ctxagent sessions adopt {place.project}" in refused.stderr
        moved = place.run("sessions", "adopt", str(place.project), env=env, cwd=now)
        assert moved.stdout == f"1 session of {place.project} moved to {now}\n"
        done = place.run("-p", "go on", "--continue", env=env, cwd=now)
        assert (done.returncode, done.stdout) == (0, "Again.\n"), done.stderr
        assert "make it" in str(server.requests[-1])
        assert identity(place)["path"] == str(now)
        usage = json.loads(place.run("sessions", "usage", "--json", env=env, cwd=now).stdout)
        assert len(usage["projects"]) == 1
        again = place.run("sessions", "adopt", str(place.project), env=env, cwd=now)
        assert again.returncode == 2
        assert "there are no sessions of" in again.stderr


def test_a_file_is_restored_after_a_rename(place: Place) -> None:
    with Server([*FIRST]) as server:
        begin(place, server)
        env, now = place.server(server.url), place.root / "now"
        place.project.rename(now)
        terminal = Terminal("--continue", cwd=now, env=env)
        terminal.see("Use its 1 session here?")
        terminal.type("y\r")
        terminal.see("GREEN")
        terminal.type("/rewind 1 files\r")
        terminal.see("[y]es")
        terminal.type("y\r")
        assert comes(lambda: not (now / "made").exists())
        terminal.type("/exit\r")
        terminal.leave()


def test_no_is_remembered(place: Place) -> None:
    with Server([*FIRST, Say("New.")]) as server:
        begin(place, server)
        env, now = place.server(server.url), place.root / "now"
        place.project.rename(now)
        for asks in (True, False):
            terminal = Terminal(cwd=now, env=env)
            if asks:
                terminal.see("Use its 1 session here?")
                terminal.type("n\r")
            text = terminal.see("GREEN")
            assert ("Use its 1 session here?" in text) == asks
            terminal.press("ctrl-d")
            terminal.leave()
        assert place.logs()[0].is_file()


def test_a_moved_clone_has_the_same_first_commit(place: Place) -> None:
    commit(place.project)
    clone = place.root / "clone"
    git(place.root, "clone", "--quiet", str(place.project), str(clone))
    with Server([*FIRST]) as server:
        begin(place, server)
        env = place.server(server.url)
        assert comes(lambda: bool(identity(place)["commit"]))
        kept = place.run("-p", "go on", "--continue", env=env, cwd=clone)
        assert "adopt" not in kept.stderr  # the first folder still exists
        exists = place.run("sessions", "adopt", str(place.project), env=env, cwd=clone)
        assert exists.returncode == 2
        assert "exists" in exists.stderr
        shutil.rmtree(place.project)
        assert "adopt" in place.run("-p", "go on", "--continue", env=env, cwd=clone).stderr


def test_another_folder_gets_nothing(place: Place) -> None:
    other = place.root / "other"
    other.mkdir()
    with Server([*FIRST]) as server:
        begin(place, server)
        env = place.server(server.url)
        shutil.rmtree(place.project)
        refused = place.run("-p", "go on", "--continue", env=env, cwd=other)
        assert refused.returncode == 2
        assert "adopt" not in refused.stderr
