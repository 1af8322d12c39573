"""Secrets: that the key never reaches a disk or a result, that shapes are taken out on request, and
that what was taken out is not written into files in the place of the secret."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.app import open_agent
from ctxagent.agent.config.settings import (
    MoveSettings,
    PermissionSettings,
    SandboxSettings,
    Settings,
    StateSettings,
)
from ctxagent.agent.errors import ToolError, conceal
from ctxagent.agent.events import Event, ToolOutput
from ctxagent.agent.launch import LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.pages.export import export
from ctxagent.agent.security.redaction import Redaction
from ctxagent.agent.session.entries import ToolResult
from ctxagent.tools.base import Context
from ctxagent.tools.edit import EditTool
from ctxagent.tools.redaction_marks import mark
from ctxagent.tools.write import WriteTool

from ..support.command import Place
from ..support.secret_texts import ENVIRON, KEY, OTHER, PEM, lot
from ..support.server.loopback import Fail, Say, Server
from ..support.server.validator import validate


def test_a_key_is_taken_out_of_what_a_server_says() -> None:
    assert conceal(f"Incorrect API key provided: {KEY}.", f"{KEY}\n", None) == (
        "Incorrect API key provided: …."
    )
    assert conceal("a test", "test") == "a test"


@pytest.mark.parametrize("piece", ["a:", "a:=", "\0", "/", "::"])
def test_a_long_text_without_credentials_is_soon_looked_through(piece: str) -> None:
    assert conceal(piece * 3_000) == piece * 3_000
    assert conceal(f"{piece * 100} me:word@host") == f"{piece * 100} …@host"


# A conversation


def work(root: Path, *steps: Step, redact: bool = False, **environ: str) -> tuple[Any, list[Event]]:
    """A session of its own in a project, left after one turn; its loop and its events."""
    project = root / "project"
    project.mkdir(exist_ok=True)
    events: list[Event] = []
    chosen = replace(
        Settings(),
        permissions=PermissionSettings(mode="bypass"),
        sandbox=SandboxSettings(mode="off"),
        move=MoveSettings(above=500),
        state=StateSettings(redact=redact),
    )
    launch = LaunchOptions(
        settings=chosen,
        places=Places(
            cwd=project,
            state=root / "state",
            config_home=root / "config",
            environ={"PATH": os.environ["PATH"], "HOME": str(root), **ENVIRON, **environ},
        ),
        model=ScriptedModel(list(steps), check=validate),
    )
    loop = open_agent(launch, SessionChoice(), emit=events.append, ask=None)

    async def run() -> None:
        await run_turn(loop, f"my key is {KEY}, and theirs ghp_{lot(36)}")
        await loop.close()

    asyncio.run(run())
    return loop, events


def everything(folder: Path) -> bytes:
    return b"\n".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


def test_the_key_never_reaches_the_disk_the_model_or_an_event(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.keys").write_text(f"A={KEY}\nB={OTHER}\n")
    show = "cat .keys; seq 3000"
    calls = [
        ("Read", {"path": ".keys"}),
        ("Grep", {"pattern": "sk-ant", "path": ".keys"}),
        ("Bash", {"command": show}),
        ("Bash", {"command": show, "run_in_background": True}),
        ("Job", {"action": "wait"}),
        ("Bash", {"command": "python3 - <<'E'\nopen('new','w').write(open('.keys').read())\nE"}),
        ("Edit", {"path": ".keys", "old_string": "B=", "new_string": "C="}),
    ]
    loop, events = work(tmp_path, Step(tools=calls), Step(text="Done."))
    told = json.dumps(loop.model.client.requests[-1].messages) + repr(events)
    for secret, name in ((KEY, "ANTHROPIC_API_KEY"), (OTHER, "DEPLOY_TOKEN")):
        assert secret not in told
        assert mark(name) in told
        for path in (tmp_path / "state").rglob("*"):
            if path.is_file() and "worktree.git" not in path.parts:
                assert secret.encode() not in path.read_bytes(), path
    assert any(isinstance(event, ToolOutput) for event in events)
    assert f"ghp_{lot(36)}" in told  # shapes are taken out on request alone, words never
    # The person's files are theirs: what was edited around the secret still holds it.
    assert (tmp_path / "project/.keys").read_text() == f"A={KEY}\nC={OTHER}\n"


def test_shapes_are_taken_out_on_request_before_anything_is_kept(tmp_path: Path) -> None:
    token, password = f"glpat-{lot(20)}", "pa55-word-of-theirs"
    project = tmp_path / "project"
    project.mkdir()
    (project / ".env").write_text(f"CI_TOKEN={token}\nDB_PASSWORD={password}\n{PEM}\nPORT=80\n")
    (project / "AGENTS.md").write_text(f"Use {token} to deploy.\n")
    calls = [
        ("Read", {"path": ".env"}),
        ("Bash", {"command": "cat .env; seq 3000"}),
        ("Bash", {"command": "cat .env; seq 3000", "run_in_background": True}),
        ("Job", {"action": "wait"}),
    ]
    edits = [
        ("Edit", {"path": ".env", "old_string": f"CI_TOKEN={mark('GitLab token')}",
                  "new_string": "CI_TOKEN=x"}),
        ("Edit", {"path": ".env", "old_string": "PORT=80", "new_string": "PORT=81"}),
        ("Write", {"path": ".env", "content": f"CI_TOKEN={mark('GitLab token')}\nPORT=82\n"}),
    ]  # fmt: skip
    loop, events = work(tmp_path, Step(tools=calls), Step(tools=edits), Step(text="."), redact=True)
    told = json.dumps(loop.model.client.requests[-1].messages) + repr(events)
    kept = everything(tmp_path / "state/projects") + told.encode()
    session = everything(loop.folder)
    for secret in (token, password, lot(64)):
        assert secret not in told
        assert secret.encode() not in session
    assert b"[redacted: private key]" in kept
    results = [e for e in loop.log.entries() if isinstance(e, ToolResult)][-3:]
    assert [result.is_error for result in results] == [True, False, True]
    assert "stands for a secret" in str(results[0].content)
    assert "would take the secret's place" in str(results[2].content)
    left = (project / ".env").read_text()
    assert left == f"CI_TOKEN={token}\nDB_PASSWORD={password}\n{PEM}\nPORT=81\n"
    spooled = (loop.folder / "jobs/job-1.log").read_text()
    assert spooled.endswith("3000\n")
    assert "PORT=80" in spooled


def test_an_export_of_an_older_session_says_less(tmp_path: Path) -> None:
    token = f"glpat-{lot(20)}"
    step = Step(tools=[("Bash", {"command": f"echo {token[:9]}''{token[9:]}; seq 3000"})])
    loop, _ = work(tmp_path, step, Step(text="."))
    assert token.encode() in everything(loop.folder)
    redaction = Redaction({OTHER: "DEPLOY_TOKEN"}, shapes=True)
    for format in ("md", "html", "json"):
        told = export(loop.log.path, format, redact=redaction.clean)  # type: ignore[arg-type]
        assert token not in told, format
        assert "redacted: GitLab token" in told, format


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a [redacted: JWT]", "b", "ends before it or begins after it"),
        ("PORT", "[redacted: JWT]", "nothing was written"),
    ],
)
def test_an_edit_with_a_mark_says_what_to_do(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "f").write_text("a eyJ\nPORT\n")
    edit = EditTool()
    params = edit.Params.model_validate({"path": "f", "old_string": old, "new_string": new})
    with pytest.raises(ToolError, match=said):
        asyncio.run(edit.run(params, Context(cwd=tmp_path)))
    assert (tmp_path / "f").read_text() == "a eyJ\nPORT\n"


def test_a_file_that_speaks_of_marks_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x [redacted: JWT] y\n")
    context = Context(cwd=tmp_path)
    edit, write = EditTool(), WriteTool()
    changed = {"path": "f", "old_string": "[redacted: JWT] y", "new_string": "[redacted: JWT] z"}
    asyncio.run(edit.run(edit.Params.model_validate(changed), context))
    whole = {"path": "f", "content": "[redacted: JWT]\n"}
    asyncio.run(write.run(write.Params.model_validate(whole), context))
    asyncio.run(write.run(write.Params.model_validate({**whole, "path": "new"}), context))
    assert (tmp_path / "f").read_text() == (tmp_path / "new").read_text() == "[redacted: JWT]\n"


# The command


def test_nothing_that_the_command_says_or_leaves_has_the_key(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.project / "cat.txt").write_text(f"{KEY}\n")
    echoed = Fail(401, message=f"invalid x-api-key: {KEY}")
    steps = [
        Say(tools=[("Bash", {"command": "cat cat.txt; env"})]),
        Say("Done."),
        echoed,
    ]
    with Server(steps) as server:
        env = {**place.server(server.url), **ENVIRON}
        flags = ("--permission-mode", "bypass", "--verbose", "-c", "hooks.session_end=cat > ended")
        first = place.run("-p", "go", "--output-format", "stream-json", *flags, env=env)
        second = place.run("-p", "on", "--continue", "--output-format", "json", *flags, env=env)
    assert (first.returncode, second.returncode) == (0, 5)
    assert json.loads(first.stdout.splitlines()[-1])["type"] == "result"
    assert "…" in json.loads(second.stdout)["error"]["message"]
    assert json.loads((place.project / "ended").read_text())["status"] == "error"
    said = first.stdout + first.stderr + second.stdout + second.stderr
    explain = place.run(
        "-c", f"hooks.before_tool=curl -H 'x: {KEY}'", "config", "--explain", env=env
    )
    wrong = place.run("-p", "x", "-c", f"model.effort={KEY}", env=env)
    assert explain.returncode == 0
    assert mark("ANTHROPIC_API_KEY") in explain.stdout
    assert wrong.returncode == 2
    for done in (explain, wrong):
        said += done.stdout + done.stderr
    assert mark("ANTHROPIC_API_KEY") in said
    for secret in (KEY, OTHER):
        assert secret not in said
        for path in place.state.rglob("*"):
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path
