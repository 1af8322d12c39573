"""Hooks around tool calls and sessions: their input, their vetoes, and no cost without hooks."""

import asyncio
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.app import open_agent
from ctxagent.agent.config.settings import (
    HookSettings,
    PermissionSettings,
    SandboxSettings,
    Settings,
)
from ctxagent.agent.events import Event, Notice, TurnFinished, Waiting
from ctxagent.agent.launch import LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Entry, Note, ToolResult
from ctxagent.agent.session.log import read_log

from ..support.command import Place
from ..support.server.validator import validate

HEARD = "cat >> heard"  # what a hook does that only listens


class Talk:
    """A conversation with hooks, assembled as by the program."""

    def __init__(
        self,
        root: Path,
        *steps: Step,
        choice: SessionChoice = SessionChoice(),  # noqa: B008 (it is a value)
        permissions: PermissionSettings = PermissionSettings(mode="bypass"),  # noqa: B008
        environ: dict[str, str] | None = None,
        **hooks: Sequence[str],
    ) -> None:
        self.cwd = root / "project"
        self.cwd.mkdir(exist_ok=True)
        self.events: list[Event] = []
        settings = replace(
            Settings(),
            permissions=permissions,
            sandbox=SandboxSettings(mode="off"),
            hooks=HookSettings(**{name: tuple(each) for name, each in hooks.items()}),
        )
        launch = LaunchOptions(
            settings=settings,
            places=Places(
                cwd=self.cwd,
                state=root / "state",
                config_home=root / "config",
                environ={"PATH": os.environ["PATH"], "HOME": str(root), **(environ or {})},
            ),
            model=ScriptedModel(list(steps), check=validate),
        )
        self.agent: AgentState = open_agent(launch, choice, emit=self.events.append, ask=None)

    def say(self, words: str, when: Callable[[Event], bool] | None = None) -> TurnFinished:
        """Run one turn, then close the session. Interrupt the turn at an event that matches
        `when`.
        """

        async def run() -> TurnFinished:
            turn = asyncio.ensure_future(run_turn(self.agent, words))

            def emit(event: Event) -> None:
                self.events.append(event)
                if when and when(event):
                    turn.cancel()

            self.agent.emit = emit
            try:
                return await turn
            finally:
                await self.agent.close()

        return asyncio.run(run())

    @property
    def heard(self) -> list[dict[str, Any]]:
        path = self.cwd / "heard"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def entries(self) -> list[Entry]:
        return read_log(self.agent.log.path).entries

    def results(self) -> list[ToolResult]:
        return [entry for entry in self.entries() if isinstance(entry, ToolResult)]

    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


def bash(*commands: str) -> Step:
    return Step(tools=[("Bash", {"command": command}) for command in commands])


@pytest.mark.slow
def test_session_hooks_run_from_start_to_end(tmp_path: Path) -> None:
    hooks = {name: [HEARD] for name in HookSettings.__slots__}
    talk = Talk(tmp_path, bash("echo said; touch made"), Step(text="Done."), **hooks)
    assert talk.say("go").status == "ok"
    start, before, after, end = talk.heard
    id, log = talk.agent.folder.name, str(talk.agent.log.path)
    cwd = str(talk.cwd)
    assert start == {
        "event": "session_start", "session": id, "log": log, "cwd": cwd, "resumed": False,
    }  # fmt: skip
    call = {"tool": "Bash", "title": "echo said; touch made", "cwd": cwd, "session": id}
    given = {"command": "echo said; touch made"}
    assert before == {**call, "event": "before_tool", "input": given}
    assert after.pop("seconds") >= 0
    assert after == {
        **call, "event": "after_tool", "input": given, "is_error": False, "output": "said",
        "characters": 4, "changed": [f"{cwd}/made"],
    }  # fmt: skip
    assert end == {"event": "session_end", "session": id, "log": log, "status": "ok"}
    waits = [event.what for event in talk.events if isinstance(event, Waiting)]
    assert "the hooks of before_tool" in waits
    assert "the hooks of session_end" in waits
    again = Talk(
        tmp_path, Step(text="On."), choice=SessionChoice(newest=True), session_start=[HEARD]
    )
    again.say("and?")
    assert again.heard[-1]["resumed"] is True
    told = json.dumps(again.agent.model.client.requests[-1].messages)  # type: ignore[attr-defined]
    assert "session_start" not in told


@pytest.mark.slow
def test_a_hook_prevents_a_call_and_the_model_is_told_why(tmp_path: Path) -> None:
    veto = "grep -q secrets && { echo 'leave the secrets alone'; exit 2; }; exit 0"
    talk = Talk(
        tmp_path,
        bash("cat secrets", "touch made"),
        Step(text="So be it."),
        before_tool=[veto],
        after_tool=[HEARD],
    )
    finished = talk.say("go")
    assert finished.status == "ok"
    prevented, made = talk.results()
    assert prevented.is_error
    assert "leave the secrets alone" in str(prevented.content)
    assert not made.is_error
    assert (talk.cwd / "made").exists()
    assert [each["input"]["command"] for each in talk.heard] == ["touch made"]
    (denial,) = talk.agent.denials
    assert denial.asked
    (note,) = [e for e in talk.entries() if isinstance(e, Note) and e.topic == "permission"]
    assert note.text == "not authorised: Bash cat secrets"
    assert note.data["answer"] == "hook"


@pytest.mark.slow
def test_deny_rules_come_first_and_a_vetoed_call_is_not_asked_about(tmp_path: Path) -> None:
    rules = PermissionSettings(mode="ask", deny=("Bash(rm:*)",))
    talk = Talk(
        tmp_path,
        bash("rm x", "touch y"),
        Step(text="Well."),
        permissions=rules,
        before_tool=[HEARD, "echo no; exit 2"],
    )
    assert talk.say("go").status == "ok"  # not "denied": nothing was left to be asked
    assert [each["input"]["command"] for each in talk.heard] == ["touch y"]
    assert "a before_tool hook prevented it: no" in str(talk.results()[1].content)


@pytest.mark.slow
def test_a_hook_that_fails_is_a_warning_and_stops_nothing(tmp_path: Path) -> None:
    talk = Talk(
        tmp_path,
        bash("echo on"),
        Step(text="Done."),
        before_tool=["echo broken; exit 1"],
        after_tool=["exit 2"],
        session_start=["no-such-command"],
        session_end=["exit 3"],
    )
    assert talk.say("go").text == "Done."
    assert str(talk.results()[0].content) == "on"
    told = "\n".join(talk.notices())
    for part in ("exit 127", "broken", "`exit 2` failed", "`exit 3` failed"):
        assert part in told


@pytest.mark.slow
def test_hooks_of_calls_side_by_side_do_not_wait_for_each_other(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    reads = Step(tools=[("Read", {"path": str(tmp_path / name)}) for name in "abc"])
    # Each waits until all three have begun: one after the other they would never end.
    meet = "touch began.$$; until [ $(ls began.* | wc -l) -ge 3 ]; do sleep 0.01; done"
    talk = Talk(tmp_path, reads, Step(text="Read."), before_tool=[meet])
    assert talk.say("go").text == "Read."
    assert [result.is_error for result in talk.results()] == [False] * 3
    assert talk.notices() == []


def test_a_hook_can_be_interrupted(tmp_path: Path) -> None:
    def waits(event: Event) -> bool:
        return isinstance(event, Waiting) and "before_tool" in event.what

    talk = Talk(tmp_path, bash("touch made"), before_tool=["sleep 60"])
    assert talk.say("go", waits).status == "interrupted"
    assert not (talk.cwd / "made").exists()
    (result,) = talk.results()
    assert result.details["interrupted"]


@pytest.mark.slow
def test_hooks_get_calls_but_not_sessions_of_subagents(tmp_path: Path) -> None:
    errand = {"description": "look", "prompt": "Look.", "type": "general"}
    talk = Talk(
        tmp_path,
        Step(tools=[("Task", errand)]),
        bash("echo inside"),
        Step(text="Looked."),
        Step(text="Done."),
        before_tool=[HEARD],
        session_start=[HEARD],
        session_end=[HEARD],
    )
    assert talk.say("go").text == "Done."
    told = [(each["event"], each.get("tool")) for each in talk.heard]
    assert told == [
        ("session_start", None),
        ("before_tool", "Task"),
        ("before_tool", "Bash"),
        ("session_end", None),
    ]
    assert talk.heard[2]["session"].startswith("general-")


def test_hooks_see_no_keys_and_nothing_is_done_without_any(tmp_path: Path) -> None:
    environ = {"ANTHROPIC_API_KEY": "sk-ant-the-key-of-the-agent-1"}
    talk = Talk(tmp_path, bash("true"), Step(text="."), environ=environ, before_tool=["env > seen"])
    talk.say("go")
    assert "sk-ant" not in (talk.cwd / "seen").read_text()
    plain = Talk(tmp_path, bash("true"), Step(text="."))
    plain.say("go")
    assert not any("hooks" in e.what for e in plain.events if isinstance(e, Waiting))


def test_the_end_of_a_session_in_which_nothing_was_said_is_none(tmp_path: Path) -> None:
    talk = Talk(tmp_path, session_start=[HEARD], session_end=[HEARD])
    asyncio.run(talk.agent.close())
    assert talk.heard == []


@pytest.mark.slow
def test_a_hook_at_the_end_can_be_interrupted_and_the_result_stands(tmp_path: Path) -> None:
    place = Place(tmp_path)
    script = tmp_path / "steps.json"
    script.write_text(json.dumps({"steps": [{"text": "Done."}]}))
    os.mkfifo(place.project / "begun")
    begun = os.open(place.project / "begun", os.O_RDONLY | os.O_NONBLOCK)
    hook = "hooks.session_end=echo on > begun; sleep 900"
    options = ("--model", f"scripted:{script}", "--output-format", "stream-json", "-c", hook)
    run = place.start("-p", "go", *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with run:
        assert select.select([begun], [], [], 200)[0], "the hook never ran"
        os.close(begun)
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=200)
    last = json.loads(out.splitlines()[-1])
    assert (run.returncode, last["type"], last["result"]) == (0, "result", "Done.")
