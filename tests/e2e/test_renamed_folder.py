"""Sessions of a renamed project folder: found, adopted, and never taken from a copy or a clone."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.session.log import Log

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal
from .test_delete_session import asked, started, work

pytestmark = pytest.mark.slow
WHO = ("git", "-c", "user.name=a", "-c", "user.email=a@b")


class Moved(Place):
    """A place whose project folder may be renamed."""

    name = "project"

    @property
    def project(self) -> Path:
        return self.root / self.name

    def rename(self, name: str) -> Path:
        """Rename the project folder and return its old path."""
        old = self.project
        self.name = name
        old.rename(self.project)
        return old


@pytest.fixture
def place(tmp_path: Path) -> Moved:
    return Moved(tmp_path)


def make_repository(folder: Path) -> None:
    for words in ("init -q", "add .", "commit -q --allow-empty -m First"):
        subprocess.run([*WHO, *words.split()], cwd=folder, check=True)


def listed(place: Place) -> list[str]:
    """Return the sessions of the project."""
    return [line.split()[0] for line in place.run("sessions", "list").stdout.splitlines()]


def say(place: Place, *options: str) -> "subprocess.CompletedProcess[str]":
    script = place.root / "steps.json"
    script.write_text(json.dumps({"steps": [{"text": "Done."}]}))
    return place.run("-p", "go", "--model", f"scripted:{script}", *options)


@pytest.mark.parametrize("with_git", [True, False])
def test_sessions_of_a_renamed_folder_are_adopted(place: Moved, with_git: bool) -> None:
    if with_git:
        make_repository(place.project)
    ids = {started(place, "say quokka"), started(place, "say wombat")}
    newest = listed(place)[0]
    old = place.rename("renamed")
    done = say(place, "--continue")
    assert done.returncode == 2
    assert f"The 2 sessions of {old} seem to belong to this folder (renamed?)" in done.stderr
    assert f"ctxagent sessions adopt {old}" in done.stderr
    assert listed(place) == []
    done = place.run("sessions", "adopt", str(old))
    assert (done.returncode, done.stderr) == (0, f"2 sessions of {old} moved to {place.project}\n")
    assert {*listed(place)} == ids
    assert listed(place)[0] == newest  # the order stays
    assert "wombat" in place.run("sessions", "show", newest).stdout
    assert say(place, "--continue").returncode == 0
    (log,) = (log for log in place.logs() if log.parent.name == newest)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    said = [entry for entry in entries if entry.get("source") == "environment"][-1]["content"]
    assert said == (
        f"The project folder was renamed: {old} is now {place.project}. Use the new path."
    )
    assert place.run("sessions", "search", "quokka").returncode == 0
    assert place.run("doctor", newest).returncode == 0
    usage = json.loads(place.run("sessions", "usage", "--json").stdout)
    assert [{each["id"] for each in row["sessions"]} for row in usage["projects"]] == [ids]


def test_a_folder_on_another_disk_is_found_by_its_root_commit(place: Moved) -> None:
    make_repository(place.project)
    started(place, "say quokka")
    old, place.name = place.project, "restored"
    shutil.copytree(old, place.project)  # another inode
    shutil.rmtree(old)
    assert f"ctxagent sessions adopt {old}" in say(place, "--continue").stderr
    assert place.run("sessions", "adopt", "../project").returncode == 0
    assert len(listed(place)) == 1


@pytest.mark.parametrize("clone", [True, False])
def test_a_copy_or_a_clone_gets_no_sessions(place: Moved, clone: bool) -> None:
    make_repository(place.project)
    id = started(place, "say quokka")
    old, place.name = place.project, "other"
    if clone:
        subprocess.run([*WHO, "clone", "-q", old, place.project], check=True)
    else:
        shutil.copytree(old, place.project)
    done = say(place, "--continue")
    assert done.returncode == 2
    assert "adopt" not in done.stderr
    done = place.run("sessions", "adopt", "--yes", str(old))
    assert done.returncode == 2
    assert f"{old} still exists, so its sessions stay there" in done.stderr
    place.name = "project"
    assert listed(place) == [id]


def test_a_link_at_the_old_path_does_not_hide_the_sessions(place: Moved) -> None:
    id = started(place, "say quokka")
    old = place.rename("renamed")
    old.symlink_to(place.project)
    assert place.run("sessions", "adopt", str(old)).returncode == 0
    assert listed(place) == [id]


def test_sessions_of_another_folder_move_only_after_a_confirmation(place: Moved) -> None:
    id = started(place, "say quokka")
    place.name = "second"
    place.project.mkdir()
    started(place, "say wombat")
    old = place.root / "project"
    old.rmdir()
    done = place.run("sessions", "adopt", str(old))
    assert done.returncode == 2
    assert "is not known to be the folder" in done.stderr
    code, text = asked(place, "n", "sessions", "adopt", str(old))
    assert code == 1
    assert "nothing was moved" in text
    assert id not in listed(place)
    assert place.run("sessions", "adopt", "--yes", str(old)).returncode == 0
    assert id in listed(place)
    done = place.run("sessions", "adopt", "--yes", str(old))
    assert done.returncode == 2
    assert f"there are no sessions of {old}" in done.stderr


def test_an_open_session_stays(place: Moved) -> None:
    started(place, "say quokka")
    old = place.rename("renamed")
    log = Log.open(place.logs()[0])
    try:
        done = place.run("sessions", "adopt", str(old))
    finally:
        log.close()
    assert done.returncode == 1
    assert "Nothing was moved." in done.stderr
    assert listed(place) == []


def rewound(place: Place, point: int) -> None:
    """Restore the files of a point of the newest session, in a terminal."""
    with Server([Say("Done.")]) as server:
        terminal = Terminal("--continue", cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type(f"/rewind {point} files\r")
        terminal.keys("[y]es, restore the files")
        terminal.type("y")
        terminal.see("to undo this: /rewind")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0


@pytest.mark.parametrize("with_git", [True, False])
def test_files_are_restored_in_the_renamed_folder(place: Moved, with_git: bool) -> None:
    """Also if sessions with snapshots are here already, and for ignored files, which are saved by
    their absolute path.
    """
    files = {"kept.txt": "before\n", "ignored.bin": "before\n", ".gitignore": "*.bin\n"}
    for name, text in files.items():
        (place.project / name).write_text(text)
    if with_git:
        make_repository(place.project)
    first = work(place, "echo after | tee kept.txt > ignored.bin")
    old = place.rename("renamed")
    second = work(place, "echo later > other.txt")
    assert place.run("sessions", "adopt", str(old)).returncode == 0
    assert listed(place) == [second, first]
    assert not [*place.state.glob("projects/project-*")]
    log = next(log for log in place.logs() if log.parent.name == first)
    os.utime(log)  # it is the newest
    rewound(place, 1)
    assert {name: (place.project / name).read_text() for name in files} == files
    assert not old.exists()


def leave(terminal: Terminal) -> None:
    terminal.see("❯")
    terminal.press("ctrl-d")
    assert terminal.leave() == 0


@pytest.mark.parametrize("options", [(), ("--continue",)], ids=["start", "continue"])
def test_the_terminal_asks_and_uses_the_sessions(place: Moved, options: tuple[str, ...]) -> None:
    id = started(place, "say quokka")
    old = place.rename("renamed")
    terminal = Terminal(
        *options, cwd=place.project, env=place.server("http://127.0.0.1:9"), columns=400
    )
    terminal.see(f"The session of {old} seems to belong to this folder (renamed?).")
    terminal.see("Use them here? [y]es [n]o")
    terminal.type("y\r")
    if options:
        terminal.see("say quokka")
    leave(terminal)
    assert listed(place) == [id]


def test_the_answer_no_is_remembered(place: Moved) -> None:
    id = started(place, "say quokka")
    old = place.rename("renamed")
    env = place.server("http://127.0.0.1:9")
    terminal = Terminal(cwd=place.project, env=env, columns=400)
    terminal.see("Use them here? [y]es [n]o")
    terminal.type("n\r")
    leave(terminal)
    terminal = Terminal(cwd=place.project, env=env, columns=400)
    leave(terminal)
    assert "renamed?" not in terminal.text()
    assert listed(place) == []
    assert "adopt" not in say(place, "--continue").stderr
    assert place.run("sessions", "adopt", str(old)).returncode == 0  # still possible
    assert listed(place) == [id]
