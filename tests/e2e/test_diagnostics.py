"""The real command with language servers: what the model is told after its edits, with and without
the sandbox, and which server processes remain.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..support import language_server
from ..support.command import Place, comes, running
from ..support.machine import LANDLOCK, Kind, needs_bwrap, under
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal

EDIT = {"path": "a.x", "old_string": "fine", "new_string": "error: made"}
FIX = {"path": "a.x", "old_string": "error: made", "new_string": "fine"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / "a.x").write_text("error: old\nfine\n")
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    return place


def scripted(place: Place, mode: str = "push") -> str:
    """Return the setting for the scripted server. Its script is in the project, because a sandbox
    shows the project.
    """
    script = place.project / "server.py"
    shutil.copy(language_server.__file__, script)
    return f'lsp.servers=[".x: {sys.executable} {script} {mode} {place.project / "heard"}"]'


def results(request: Body) -> list[str]:
    blocks = [block for message in request["messages"] for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def run(place: Place, calls: list[tuple[str, dict[str, Any]]], *options: str) -> list[str]:
    """Run a task with these calls; return the results that the model got."""
    with Server([*(Say(tools=[call]) for call in calls), Say("Done.")]) as server:
        done = place.run(
            "-p", "go", "--permission-mode", "bypass", *options, env=place.server(server.url)
        )
    assert done.returncode == 0, done.stderr
    return results(server.requests[-1])


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_new_errors_are_told_with_the_result(place: Place, sandbox: str) -> None:
    options = ("-c", scripted(place), "-c", "lsp.enabled=on", "-c", f"sandbox.mode={sandbox}")
    calls = [("Edit", EDIT), ("Edit", FIX), ("Write", {"path": "b.x", "content": "error: b\n"})]
    edited, fixed, written = run(place, calls, *options)
    assert edited.endswith("\n[New errors, says the language server:\na.x:2:1: made]")
    assert "language server" not in fixed
    assert written.endswith("\n[New errors, says the language server:\nb.x:1:1: b]")
    assert '"exit"' in (place.project / "heard").read_text()
    entries = [entry for entry in place.entries() if entry["kind"] == "tool_result"]
    assert [entry["details"].get("new_errors") for entry in entries] == [1, None, 1]


@pytest.mark.parametrize(
    "options", [(), ("-c", "lsp.enabled=off"), ("-c", "features.off=diagnostics"), ("--safe",)]
)
def test_no_language_server_starts_if_switched_off(place: Place, options: tuple[str, ...]) -> None:
    """By default, no server starts if no user can be asked."""
    on = ("-c", "lsp.enabled=on") if "features" in str(options) or "--safe" in options else ()
    (edited,) = run(place, [("Edit", EDIT)], "-c", scripted(place), *on, *options)
    assert "language server" not in edited
    assert not (place.project / "heard").exists()


def test_the_setting_of_a_project_counts_once_it_is_trusted(place: Place) -> None:
    setting = scripted(place).removeprefix("lsp.")
    (place.project / ".agentrc").write_text(f'[lsp]\nenabled = "on"\n{setting}\n')
    (edited,) = run(place, [("Edit", EDIT)])
    assert "language server" not in edited
    assert not (place.project / "heard").exists()
    assert place.run("config", "--trust").returncode == 0
    (fixed,) = run(place, [("Edit", FIX)])
    assert (place.project / "heard").exists()
    assert "language server" not in fixed


@needs_bwrap
def test_diagnostics_shows_errors_and_servers(place: Place) -> None:
    with Server([Say(tools=[("Edit", EDIT)]), Say("Done.")]) as server:
        terminal = Terminal(
            "-c", scripted(place), "--permission-mode", "accept-edits", cwd=place.project,
            env=place.server(server.url),
        )  # fmt: skip
        terminal.see("❯")
        terminal.type("/diagnostics\r")
        terminal.see("has not changed a file with a language server yet")
        terminal.type("go\r")
        terminal.see("1 new error")
        terminal.see("Done.")
        terminal.type("/diagnostics\r")
        terminal.see("running")
        terminal.see("a.x:1:1: old")
        terminal.see("a.x:2:1: made")
        terminal.type("/exit\r")
        assert terminal.leave() == 0


@pytest.mark.parametrize("kind", [LANDLOCK, "none"])
def test_diagnostics_names_the_missing_sandbox(place: Place, kind: Kind) -> None:
    program, *first = under(kind)
    env = place.server("http://127.0.0.1:9")
    terminal = Terminal(*first, cwd=place.project, env=env, columns=200, command=program)
    terminal.see("❯")
    terminal.type("/diagnostics\r")
    terminal.see("the sandbox cannot confine them: bwrap is not installed. Install bubblewrap")
    terminal.type("/exit\r")
    assert terminal.leave() == 0


def test_the_server_does_not_outlive_a_killed_agent(place: Place) -> None:
    hold = {"command": "touch held; sleep 600"}
    with Server([Say(tools=[("Edit", EDIT)]), Say(tools=[("Bash", hold)])]) as server:
        agent = place.start(
            "-p", "go", "--permission-mode", "bypass", "-c", scripted(place), "-c",
            "lsp.enabled=on", env=place.server(server.url),
        )  # fmt: skip
        assert comes(lambda: (place.project / "held").exists())
        assert running(str(place.project / "heard"))
        agent.kill()
        agent.wait()
    assert comes(lambda: not running(str(place.project / "heard")))
