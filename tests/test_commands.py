import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ctxagent.agent.errors import CtxagentError, UsageError
from ctxagent.agent.loop import Loop
from ctxagent.agent.model.scripted import Step
from ctxagent.agent.ui import commands, render
from ctxagent.agent.ui.input import PrivateHistory, rank

from .support.conversation import Conversation


class Desk:
    """What a command sees and does, without a terminal."""

    def __init__(self, talk: Conversation) -> None:
        self.loop: Loop = talk.loop
        self.cwd = talk.cwd
        self.opened: list[dict[str, object]] = []
        self.logs: list[Path] = [talk.loop.log.path]
        self.printed = ""
        self.model = ""
        self.left = False

    @property
    def session(self) -> str:
        return self.loop.log.path.parent.name

    def put(self, *renderables: object) -> None:
        self.printed += render.ink(renderables, width=100, depth="plain")  # type: ignore[arg-type]

    async def reopen(self, **which: object) -> None:
        self.opened.append(which)

    def sessions(self) -> Sequence[Path]:
        return self.logs

    def settings(self) -> Sequence[Sequence[str]]:
        return [("model.id", "scripted", "-c")]

    def set_model(self, id: str) -> None:
        self.model = id

    def leave(self) -> None:
        self.left = True

    def run(self, words: str) -> str:
        """What a command prints."""
        found = commands.parse(words)
        assert found is not None
        self.printed = ""
        asyncio.run(found[0].run(self, found[1]))
        return self.printed


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    cwd = tmp_path / "project"
    cwd.mkdir()
    (cwd / "big.txt").write_text("word " * 3_000)
    steps = [Step(tools=[("Read", {"path": "big.txt"})]), Step(text="It is full of words.")]
    talk = Conversation(cwd, steps, mode="ask", allow=["Bash(make:*)"])
    talk.say("what is in big.txt?")
    return Desk(talk)


def test_words_are_told_from_commands() -> None:
    assert commands.parse("what is /help?") is None
    assert commands.parse("/usr/bin/env is what?") is None
    found = commands.parse("/resume  abc ")
    assert found is not None
    assert (found[0].name, found[1]) == ("resume", "abc")
    short = commands.parse("/perm plan")
    assert short is not None
    assert short[0].name == "permissions"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("/hlep", "/help"),
        ("/co", "/context, /cost, /config"),
        ("/xyzzy", "/help lists"),
        ("/", "/help"),
    ],
)
def test_an_unknown_command_names_the_nearest(words: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        commands.parse(words)
    assert hint in error.value.hint


def test_help_names_every_command(desk: Desk) -> None:
    shown = desk.run("/help")
    for command in commands.COMMANDS.values():
        assert f"/{command.name}" in shown
        assert command.help in shown


def test_context_names_the_largest_item(desk: Desk) -> None:
    shown = desk.run("/context").split("\n")
    window = desk.loop.measured()
    assert shown[0].startswith(f"{window.tokens:,} of 200,000 tokens")
    assert "GREEN" in shown[0]
    assert "user: result of Read" in shown[2]
    assert shown[2].split()[0] == "#4"


def test_cost(desk: Desk) -> None:
    shown = desk.run("/cost")
    assert "the model's price is not known" in shown
    assert f"{desk.loop.totals.usage.input:,}" in shown
    assert "2 of the model, 1 of tools" in shown


def test_permissions(desk: Desk) -> None:
    assert "Bash(make:*)" in desk.run("/permissions")
    assert "plan" in desk.run("/permissions plan")
    assert desk.loop.approval.mode == "plan"
    with pytest.raises(UsageError, match="no mode 'yolo'"):
        desk.run("/permissions yolo")


def test_effort_and_model(desk: Desk) -> None:
    assert "high" in desk.run("/effort high")
    assert desk.loop.effort == "high"
    with pytest.raises(UsageError, match="no effort 'most'"):
        desk.run("/effort most")
    assert "window 200,000 tokens" in desk.run("/model other")
    assert desk.model == "other"


def test_todo_and_tools_and_config(desk: Desk) -> None:
    assert "nothing on the list" in desk.run("/todo")
    desk.loop.context.todos[:] = [{"content": "write it", "status": "in_progress"}]
    assert "▸ write it" in desk.run("/todo")
    shown = desk.run("/tools")
    assert all(tool.name in shown for tool in desk.loop.tools)
    assert desk.run("/config").split() == ["model.id", "scripted", "-c"]


def test_the_log_in_lines(desk: Desk) -> None:
    lines = desk.run("/log").split("\n")
    assert lines[1].split()[:3] == ["#2", "user", "what"]
    assert "[Read]" in lines[2]
    assert str(desk.loop.log.path) in "".join(lines[6:])


def test_export(desk: Desk) -> None:
    shown = desk.run("/export out.md")
    assert str(desk.cwd / "out.md") in shown.replace("\n", "")
    assert "It is full of words." in (desk.cwd / "out.md").read_text()
    with pytest.raises(UsageError, match="exists"):
        desk.run("/export out.md")
    desk.run("/export out.json")
    assert json.loads((desk.cwd / "out.json").read_text())[1]["kind"] == "user"
    with pytest.raises(CtxagentError, match="cannot write"):
        desk.run("/export missing/out.md")


def test_going_to_other_sessions(desk: Desk, tmp_path: Path) -> None:
    shown = desk.run("/sessions")
    assert "what is in big.txt?" in shown
    assert "here" in shown
    other = tmp_path / "other" / "log.jsonl"
    other.parent.mkdir()
    other.write_bytes(desk.loop.log.path.read_bytes())
    desk.logs = [desk.loop.log.path, other]
    assert "other" in desk.run("/resume")
    desk.run("/resume 2")
    desk.run("/resume oth")
    desk.run("/fork")
    desk.run("/clear")
    assert desk.opened == [
        {"resume": "other"},
        {"resume": "oth"},
        {"resume": desk.session, "fork": True},
        {"fresh": True},
    ]
    with pytest.raises(UsageError, match="you are in"):
        desk.run("/resume 1")


def test_diff_runs_nothing_of_the_repository(desk: Desk) -> None:
    with pytest.raises(CtxagentError, match="git diff"):
        desk.run("/diff")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=desk.cwd, check=True)
    subprocess.run([*git, "add", "."], cwd=desk.cwd, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=desk.cwd, check=True)
    spy = desk.cwd.parent / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {desk.cwd.parent}/ran\n")
    spy.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "core.pager"):
        subprocess.run([*git, "config", key, str(spy)], cwd=desk.cwd, check=True)
    assert "nothing has changed" in desk.run("/diff")
    (desk.cwd / "big.txt").write_text("less")
    assert "big.txt" in desk.run("/diff")
    assert not (desk.cwd.parent / "ran").exists()


def test_quit(desk: Desk) -> None:
    desk.run("/quit")
    assert desk.left


def test_paths_are_ranked() -> None:
    paths = ["src/pricing.py", "tests/test_pricing.py", "docs/price.md", "p/r/i/c/e", "README.md"]
    assert rank("pric", paths, 9) == [
        "docs/price.md",
        "src/pricing.py",
        "tests/test_pricing.py",
        "p/r/i/c/e",
    ]
    assert rank("SRC/", paths, 9)[0] == "src/pricing.py"
    assert rank("", paths, 2) == ["README.md", "docs/price.md"]
    assert rank("(", paths, 9) == []


def test_history_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = PrivateHistory(str(tmp_path / "file" / "history"))
    history.append_string("words")
    assert history.get_strings() == ["words"]
