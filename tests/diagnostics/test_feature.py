"""When language servers start, and how their errors appear in results."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ctxagent.addons.diagnostics import feature as module
from ctxagent.addons.diagnostics.feature import DiagnosticsFeature, tracked_files
from ctxagent.agent.config.add_on_settings import LspSettings
from ctxagent.agent.events import Answer, Question
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.interface import ToolCall
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.tools.base import Output

from ..support import language_server


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


async def asked(question: Question) -> Answer | None:
    return None


class Sandbox:
    """The parts of a sandbox that are checked before a server starts."""

    def __init__(
        self, *, required: bool = False, absent: str = "", unasked_absent: str = ""
    ) -> None:
        self.required, self.absent, self.unasked_absent = required, absent, unasked_absent


def feature(session: LiveSession, **settings: Any) -> DiagnosticsFeature:
    given = replace(session.options.settings, lsp=LspSettings(**settings))
    session.options = replace(session.options, settings=given)
    return DiagnosticsFeature(cast(AgentState, session))


def refusal(session: LiveSession, mode: str) -> str:
    made = feature(session, enabled=mode)
    asyncio.run(made.servers())
    assert made.refusal is not None
    return made.refusal


def test_files_are_counted_by_the_index(tmp_path: Path) -> None:
    assert tracked_files(tmp_path) is None
    git(tmp_path, "init")
    assert tracked_files(tmp_path) == 0
    (tmp_path / "deep").mkdir()
    for number in range(7):
        (tmp_path / "deep" / f"{number}").write_text("")
    git(tmp_path, "add", ".")
    assert tracked_files(tmp_path / "deep") == 7
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "a")
    git(tmp_path, "worktree", "add", str(tmp_path.parent / "other"))
    assert tracked_files(tmp_path.parent / "other") == 7
    (tmp_path / ".git" / "index").write_bytes(b"walrus")
    assert tracked_files(tmp_path) == 0


def test_by_default_servers_run_in_the_sandbox_for_a_user_in_a_small_repository(
    session: LiveSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    cwd, context = session.context.cwd, session.context
    assert refusal(session, "off") == 'lsp.enabled is "off"'
    assert refusal(session, "auto").startswith("no user can answer questions; lsp.enabled = ")
    session.ask = asked
    assert refusal(session, "auto").startswith("this is not a git repository")
    git(cwd, "init")
    assert "the sandbox cannot confine them: sandbox.mode is off" in refusal(session, "auto")
    context.sandbox = Sandbox(unasked_absent="bwrap is not installed.")  # type: ignore[assignment]
    assert "the sandbox cannot confine them: bwrap is not installed; lsp" in refusal(
        session, "auto"
    )
    context.sandbox = Sandbox(required=True, absent="no.")  # type: ignore[assignment]
    assert refusal(session, "on") == "nothing runs without the sandbox: no."
    context.sandbox = None
    assert refusal(session, "on") == ""
    (cwd / "tracked").write_text("")
    git(cwd, "add", "tracked")
    monkeypatch.setattr(module, "MAX_TRACKED_FILES", 0)
    assert "1 files in the repository are more than 0" in refusal(session, "auto")


def test_what_a_result_gets(session: LiveSession) -> None:
    cwd = session.context.cwd
    git(cwd, "init")
    command = f"{sys.executable} {language_server.__file__} push"
    (cwd / "a.x").write_text("fine\n")

    async def scene() -> tuple[Output | None, Output | None, Output | None]:
        made = feature(session, enabled="on", servers=(f".x: {command}",))
        edit = ToolCall("1", "Edit", "a.x", {"path": "a.x"}, cwd)
        bash = ToolCall("2", "Bash", "sed", {"command": "sed"}, cwd)
        output = Output("Edited.", {"path": str(cwd / "a.x")})
        await made.before_tool(edit)
        (cwd / "a.x").write_text("".join(f"error: {n}\n" for n in range(12)))
        told = await made.after_tool(edit, output, 0.1)
        failed = await made.after_tool(edit, replace(output, is_error=True), 0.1)
        (cwd / "a.x").write_text("error: by a command\n")
        row = {"path": "a.x", "action": "modified"}
        await made.after_tool(bash, Output("", {"changes": [row]}, blocks=[{}]), 0.1)
        servers = await made.servers()
        assert servers is not None
        (server,) = servers.running.values()
        await server.idle.wait()
        later = await made.after_tool(bash, Output("ran"), 0.1)
        await made.close()
        return told, failed, later

    told, failed, later = asyncio.run(scene())
    assert told is not None
    shown = "\n".join(f"a.x:{n + 1}:1: {n}" for n in range(10))
    assert told.text == (f"Edited.\n[New errors, says the language server:\n{shown}\nand 2 more]")
    assert told.details["new_errors"] == 12
    assert failed is None
    assert later is not None
    assert later.text == ("ran\n[New errors, says the language server:\na.x:1:1: by a command]")
