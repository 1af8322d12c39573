"""Language servers: the messages sent to them, the errors that are new, and all kinds of
failures.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.diagnostics import server as module
from ctxagent.addons.diagnostics import servers as servers_module
from ctxagent.addons.diagnostics.servers import LanguageServers

from ..support import language_server
from ..support.command import gone, running
from ..support.starts import start_gate

Scene = Callable[["Project"], Awaitable[None]]


class Project:
    """A project with a scripted server for its `.x` files."""

    def __init__(self, folder: Path, mode: str, *, command: str = "") -> None:
        self.folder, self.heard_in = folder, folder / "heard"
        (folder / ".git").mkdir()
        command = command or f"{sys.executable} {language_server.__file__} {mode} {self.heard_in}"
        self.told: list[str] = []
        self.servers = LanguageServers(
            folder,
            {"PATH": "/usr/bin:/bin"},
            (f".x .y: {command}",),
            None,
            start_gate(folder),
            self.told.append,
        )

    def path(self, name: str) -> Path:
        return self.folder / name

    async def edit(self, name: str, after: str) -> list[str]:
        """Change a file, and return the errors that are new afterwards."""
        path = self.path(name)
        before = path.read_text() if path.exists() else None
        path.write_text(after)
        await self.servers.check(path, before)
        return self.new(name)

    def new(self, *names: str) -> list[str]:
        found = self.servers.take_new_errors([self.path(name) for name in names])
        return [f"{path.name}:{each.shown}" for path, each in found]

    def heard(self, method: str) -> list[Any]:
        rows = map(json.loads, self.heard_in.read_text().splitlines())
        return [row["params"] for row in rows if row["method"] == method]

    @property
    def server(self) -> module.LanguageServer:
        (found,) = self.servers.running.values()
        return found


def play(folder: Path, mode: str, scene: Scene, *, command: str = "") -> Project:
    """Run a scenario with a server, then stop the server."""

    async def played() -> Project:
        project = Project(folder, mode, command=command)
        try:
            await scene(project)
        finally:
            await project.servers.close()
        return project

    return asyncio.run(played())


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_only_errors_that_an_edit_has_made_are_new(tmp_path: Path, mode: str) -> None:
    async def scene(project: Project) -> None:
        project.path("a.x").write_text("error: old\nwarning: old\n")
        assert await project.edit("a.x", "\n\nerror: old\nwarning: new\nerror: made\n") == [
            "a.x:5:1: made"
        ]
        assert project.new("a.x") == []  # each error is reported once
        assert await project.edit("a.x", "error: old\nerror: made\nerror: made\n") == [
            "a.x:3:1: made"
        ]
        assert await project.edit("a.x", "fine\n") == []
        assert await project.edit("a.x", "error: made\n") == ["a.x:1:1: made"]
        assert await project.edit("b.x", "error: of a new file\n") == ["b.x:1:1: of a new file"]
        assert [each.message for _, each in project.servers.problems([project.path("b.x")])] == [
            "of a new file"
        ]

    project = play(tmp_path, mode, scene)
    assert project.told == []
    (opened, _) = project.heard("textDocument/didOpen")
    assert opened["textDocument"]["text"] == "error: old\nwarning: old\n"
    assert opened["textDocument"]["languageId"] == "x"
    assert [change["textDocument"]["version"] for change in project.heard("textDocument/didChange")]
    assert len(project.heard("initialize")) == 1
    assert len(project.heard("exit")) == 1


def test_servers_are_notified_of_files_that_commands_change(tmp_path: Path) -> None:
    async def scene(project: Project) -> None:
        await project.edit("a.x", "fine\n")
        project.path("a.x").write_text("error: by a command\n")
        project.path("b.x").write_text("")
        actions = {"a.x": "modified", "b.x": "created", "c.x": "deleted"}
        await project.servers.notify_changed({project.path(name): a for name, a in actions.items()})
        await project.server.idle.wait()
        assert project.new("a.x", "b.x") == ["a.x:1:1: by a command"]
        project.path("a.x").unlink()
        await project.servers.notify_changed({project.path("a.x"): "deleted"})
        assert project.servers.problems([project.path("a.x")]) == []

    project = play(tmp_path, "push", scene)
    first, *_ = project.heard("workspace/didChangeWatchedFiles")
    assert [row["type"] for row in first["changes"]] == [2, 1, 3]
    assert len(project.heard("textDocument/didClose")) == 1


def test_errors_of_untouched_files_are_not_reported(tmp_path: Path) -> None:
    async def scene(project: Project) -> None:
        await project.edit("a.x", "fine\n")
        await project.servers.check(project.path("b.x"), None)  # the file does not exist
        assert await project.edit("b.x", "error: in b\n") == ["b.x:1:1: in b"]
        assert await project.edit("c.x", "error: in c\n") == ["c.x:1:1: in c"]
        assert project.new("a.x", "b.x", "c.x") == []

    play(tmp_path, "push", scene)


def test_late_errors_are_reported_later_without_a_second_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "MAX_WAIT_S", 0.3)

    async def scene(project: Project) -> None:
        assert await project.edit("a.x", "error: late\n") == []
        assert project.server.is_late
        monkeypatch.setattr(servers_module, "MAX_WAIT_S", 600.0)  # longer than the test
        assert await project.edit("a.x", "error: late\nerror: later\n") == []
        project.path("a.go").write_text("")
        await project.server.idle.wait()
        assert project.new("a.x") == ["a.x:1:1: late", "a.x:2:1: later"]
        assert not project.server.is_late

    assert play(tmp_path, "late", scene).told == []


def test_a_silent_server_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_module, "MAX_WAIT_S", 0.01)
    monkeypatch.setattr(module, "SILENCE_TIMEOUT_S", 0.2)

    async def scene(project: Project) -> None:
        for text in ("error: a\n", "error: b\n", "error: c\n"):
            assert await project.edit("a.x", text) == []
            await project.server.idle.wait()
        assert project.server.state == "silent"

    assert play(tmp_path, "silent", scene).told == [
        f"the language server {Path(sys.executable).name} does not answer: it has said nothing "
        "for 0.2 s"
    ]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("hang", "it did not answer in 0.5 s"),
        ("garbage", "it sent data that is not a message: 'Warning: walrus"),
        ("crash", "it has ended (it said: out of herrings)"),
    ],
)
def test_a_failed_server_is_reported_once_and_breaks_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, said: str
) -> None:
    if mode == "hang":
        monkeypatch.setattr(module, "START_TIMEOUT_S", 0.5)

    async def scene(project: Project) -> None:
        project.path("a.x").write_text("fine\n")
        await project.edit("a.x", "error: a\n")
        await project.server.idle.wait()
        assert project.server.state == "failed"
        began = time.monotonic()
        for number in range(20):
            assert await project.edit("a.x", f"error: {number}\n") == []
        assert time.monotonic() - began < servers_module.MAX_WAIT_S
        assert said in project.server.error

    (told,) = play(tmp_path, mode, scene).told
    assert "has failed: " in told
    assert said in told


@pytest.mark.parametrize(
    "written",
    [
        b"walrus\n\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: walrus\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: 2\r\n\r\n[]",
        b"Content-Length: 3\r\n\r\n{x}",
        b"Content-Type: " + b"x" * 10_000,
        b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000,
    ],
)
def test_invalid_data_ends_the_connection(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "written").write_bytes(written)

    async def scene(project: Project) -> None:
        await project.edit("a.x", "error: a\n")
        await project.server.idle.wait()
        assert project.server.state == "failed"
        assert "it sent " in project.server.error

    script = "import os, sys, time; sys.stdout.buffer.write(open('written', 'rb').read()); "
    script += "sys.stdout.flush(); time.sleep(600)"
    play(tmp_path, "push", scene, command=f'{sys.executable} -c "{script}"')


def test_the_server_and_its_child_processes_end(tmp_path: Path) -> None:
    pids = list[int]()

    async def scene(project: Project) -> None:
        await project.edit("a.x", "")
        pids.extend(running(str(project.heard_in)))
        assert len(pids) == 2  # the server, and the script that started it

    play(tmp_path, "push", scene)
    assert gone(*pids)
