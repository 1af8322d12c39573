"""The real command where the home, the project or everything except one folder is read-only, where
there is no home, or where HOME is another user's: as in containers and in CI.

The tests run as a user without privileges and without an entry in the user database, also if root
starts them.
"""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.machine import bwrap, lacks
from ..support.server.loopback import Say, Server

UID = 54_321


@dataclass
class Plain:
    """A place with a project, a home and a temporary folder for that user."""

    root: Path
    mounts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.project, self.home, self.temporary):
            folder.mkdir()
        (self.project / "a.txt").write_text("walrus\n")

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        return self.root / "temporary"

    @property
    def state(self) -> Path:
        return self.temporary / f"ctxagent-{UID}"

    def run(
        self, *arguments: str, server: Server | None = None, **environ: str
    ) -> "subprocess.CompletedProcess[str]":
        key = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"} if server else {}
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(self.temporary), "LANG": "C.UTF-8"}
        with self.there() as user:
            return Place(self.root).run(*arguments, env={**env, **key, **environ}, inside=user)

    @contextmanager
    def there(self) -> Iterator[int]:
        """Yield the ID of a process of that user that has the mounts."""
        user = ("--unshare-user", "--uid", str(UID), "--gid", str(UID), "--cap-drop", "ALL")
        command = [str(bwrap()), *user, "--dev-bind", "/", "/", *self.mounts, "--"]
        with subprocess.Popen(
            [*command, "sh", "-c", "echo $$; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            told = process.stdout.readline()
            if not told:
                pytest.skip("bubblewrap cannot have another user here")
            yield int(told)
            process.communicate()  # it ends with its input


@pytest.fixture
def plain(tmp_path: Path) -> Plain:
    if lacks("bubblewrap"):  # which makes the other user
        pytest.skip(lacks("bubblewrap"))
    return Plain(tmp_path)


def homes(plain: Plain, how: str) -> dict[str, str]:
    """Change the home as `how` says, and return the environment that names it."""
    if how == "by its mode":
        plain.home.chmod(0o555)
    elif how == "by its mount":
        plain.mounts += ["--ro-bind", str(plain.home), str(plain.home)]
    elif how == "closed":
        plain.home.chmod(0)
    elif how == "none":
        return {}
    elif how == "missing":
        plain.home.chmod(0o555)
        return {"HOME": str(plain.home / "missing")}
    return {"HOME": str(plain.home)}


@pytest.mark.parametrize("how", ["by its mode", "by its mount", "closed", "none", "missing"])
def test_a_home_that_cannot_be_written(plain: Plain, how: str) -> None:
    env = homes(plain, how)
    steps = [
        Say(tools=[("Read", {"path": "a.txt"}), ("Write", {"path": "b.txt", "content": "seal\n"})]),
        Say("All done."),
        Say("Still here."),
    ]
    with Server(steps) as server:
        mode = ("--permission-mode", "bypass")
        first = plain.run("-p", "go", *mode, server=server, **env)
        assert (first.returncode, first.stdout) == (0, "All done.\n"), first.stderr
        again = plain.run("-p", "on", "--continue", *mode, server=server, **env)
        assert (again.returncode, again.stdout) == (0, "Still here.\n"), again.stderr
    assert server.rejected == []
    assert "walrus" in json.dumps(server.requests[1])
    assert (plain.project / "b.txt").read_text() == "seal\n"
    told = [line for line in first.stderr.splitlines() if str(plain.state) in line]
    assert len(told) == 1
    assert "CTXAGENT_STATE_DIR" in told[0]
    assert stat.S_IMODE(plain.state.stat().st_mode) == 0o700
    plain.home.chmod(0o700)
    assert not any(plain.home.iterdir())


@pytest.mark.parametrize("how", ["by its mode", "closed", "none"])
def test_every_command_works_with_a_read_only_home(plain: Plain, how: str) -> None:
    env = homes(plain, how)
    with Server([Say("All done.")]) as server:
        plain.run("-p", "go", server=server, **env)
    listed = plain.run("sessions", "list", **env)
    assert (listed.returncode, len(listed.stdout.splitlines())) == (0, 1), listed.stderr
    assert str(plain.state) in listed.stderr
    checked = plain.run("doctor", ANTHROPIC_API_KEY="k", **env)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"ok    state: {plain.state}\n" in checked.stdout
    (plain.project / ".agentrc").write_text('[model]\neffort = "high"\n')
    trusted = plain.run("config", "--trust", **env)
    assert trusted.returncode == 0, trusted.stderr
    assert f"sessions and trust are kept in {plain.state} until" in trusted.stderr
    for arguments in (["config"], ["mcp", "list"], ["plugin", "list"], ["log"], ["demo"]):
        done = plain.run(*arguments, **env)
        assert done.returncode == 0, (arguments, done.stderr)
    for arguments in (["mcp", "add", "x", "cat"], ["plugin", "add", str(plain.project)]):
        refused = plain.run(*arguments, **env)
        assert refused.returncode != 0
        assert "XDG_CONFIG_HOME" in refused.stderr
    without_key = plain.run("-p", "go", **env)
    assert without_key.returncode == 5
    assert "No key for the model" in without_key.stderr


def test_sessions_in_a_read_only_home_can_be_read(plain: Plain) -> None:
    with Server([Say("All done.")]) as server:
        plain.run("-p", "go", server=server, HOME=str(plain.home))
    plain.mounts += ["--ro-bind", str(plain.home), str(plain.home)]
    listed = plain.run("sessions", "list", HOME=str(plain.home))
    usual = plain.home / ".local" / "state" / "ctxagent"
    assert listed.stdout == ""
    assert f"CTXAGENT_STATE_DIR={usual}" in listed.stderr
    named = plain.run("sessions", "list", HOME=str(plain.home), CTXAGENT_STATE_DIR=str(usual))
    assert len(named.stdout.splitlines()) == 1
    assert named.stderr == ""


def test_a_chosen_folder_is_never_replaced(plain: Plain) -> None:
    plain.home.chmod(0o555)
    with Server([Say("Never.")]) as server:
        chosen = str(plain.home / "state")
        done = plain.run("-p", "go", server=server, CTXAGENT_STATE_DIR=chosen)
    assert done.returncode == 1
    assert "cannot record the session" in done.stderr
    assert "CTXAGENT_STATE_DIR" in done.stderr
    assert server.requests == []
    assert not plain.state.exists()


def test_a_project_that_cannot_be_written(plain: Plain) -> None:
    plain.mounts += ["--ro-bind", str(plain.project), str(plain.project)]
    calls = [
        ("Read", {"path": "a.txt"}),
        ("Grep", {"pattern": "walr"}),
        ("Write", {"path": "b.txt", "content": "seal\n"}),
        ("Edit", {"path": "a.txt", "old_string": "walrus", "new_string": "seal"}),
    ]
    with Server([Say(tools=calls), Say("All done.")]) as server:
        env = {"HOME": str(plain.home)}
        done = plain.run("-p", "go", "--permission-mode", "bypass", server=server, **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "All done.\n", "")
    read, found, written, edited = server.requests[1]["messages"][-1]["content"][:4]
    assert "walrus" in json.dumps(read)
    assert "a.txt" in json.dumps(found)
    for refused in (written, edited):
        assert refused["is_error"]
        assert "read-only" in json.dumps(refused).lower()


def test_a_machine_that_cannot_be_written(plain: Plain) -> None:
    """Like `docker run --read-only --tmpfs /tmp`."""
    temporary = str(plain.temporary)
    plain.mounts = ["--remount-ro", "/", "--dev", "/dev", "--bind", temporary, temporary]
    with Server([Say(tools=[("Read", {"path": "a.txt"})]), Say("All done.")]) as server:
        done = plain.run("-p", "go", server=server, HOME="/nonexistent")
    assert (done.returncode, done.stdout) == (0, "All done.\n"), done.stderr
    assert str(plain.state) in done.stderr
    shown = plain.run("demo", HOME="/nonexistent")
    assert shown.returncode == 0, shown.stderr
