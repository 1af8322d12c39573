"""Errors in the terminal: each is shown, and everything else continues."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.models.scripted import Step
from ctxagent.agent.ui.conversation.open_session import ConversationServices
from ctxagent.agent.ui.input.editor import CtxagentError, edit

from ..support.terminal.seat import CTRL_C, ENTER, ESC, UP, Desk, Seat, drive


class Faulty(Desk):
    """A desk whose checks raise an internal error."""

    def services(self) -> ConversationServices:
        def checks() -> Sequence[Sequence[str]]:
            raise ZeroDivisionError("by nothing")

        return replace(super().services(), checks=checks)


def test_a_fault_in_a_command_ends_nothing(tmp_path: Path) -> None:
    desk = Faulty(tmp_path, Step(text="Hello."), Step(text="Still here."))

    async def act(seat: Seat) -> None:
        seat.say("hi")
        await seat.until("Hello.")
        seat.say("/doctor")
        await seat.until("internal error: ZeroDivisionError: by nothing")
        seat.say("go on")
        await seat.until("Still here.")
        seat.say("/log")
        await seat.until("topic warning, text internal error")

    code, _ = drive(desk, act)
    assert code == 0


def test_ctrl_c_drops_a_queued_message_that_is_being_edited(tmp_path: Path) -> None:
    call = Step(tools=[("Bash", {"command": "cat gate"})])
    desk = Desk(tmp_path, call, Step(text="One."), Step(text="Two."), mode="bypass")
    os.mkfifo(desk.cwd / "gate")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until(lambda: seat.repl.runs_command)
        for words in ("first", "second"):
            seat.press(words + ESC + ENTER)  # for after the turn
        await seat.until("❯ second")
        seat.press(UP)
        seat.press(UP)
        await seat.until(lambda: [each.text for each in seat.repl._waiting] == ["second"])
        (desk.cwd / "gate").write_text("open\n")
        await seat.until("One.")
        await seat.until(lambda: not seat.repl.working)
        seat.press(CTRL_C)
        await seat.until("Two.")

    drive(desk, act)
    assert desk.said() == ["go", "second"]


@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_opening_another_session_can_be_interrupted(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, Step(text="Hello."), Step(text="Still here."))

    async def act(seat: Seat) -> None:
        seat.say("hi")
        await seat.until("Hello.")
        await seat.idle()
        desk.gate = gate = asyncio.Event()
        seat.say("/clear")
        await seat.until("opening the session")
        seat.press(key)
        await seat.until("interrupted; nothing has changed")
        gate.set()
        await seat.until(lambda: len(desk.loops) == 2)
        seat.say("go on")
        await seat.until("Still here.")

    drive(desk, act)
    assert desk.said(0) == ["hi", "go on"]


def test_no_wait_line_after_a_turn_that_cannot_be_recorded(tmp_path: Path) -> None:
    step = Step(text="Half a sentence, then more of it.", tools=[("Bash", {"command": "echo hi"})])
    desk = Desk(tmp_path, step, mode="bypass", pace=0.05)

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("Half")
        desk.loops[-1].log.close()
        await seat.until("✗")
        await seat.until("Esc to stop", gone=True)

    drive(desk, act)


def test_no_wait_line_after_a_command(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Hello."))

    async def act(seat: Seat) -> None:
        seat.say("hi")
        await seat.until("Hello.")
        for shown in ("written to", "exists"):
            seat.say("/export page.html")
            await seat.until(shown)
            await seat.until("Esc to stop", gone=True)

    drive(desk, act)


def test_an_editor_that_takes_the_file_away(tmp_path: Path) -> None:
    with pytest.raises(CtxagentError, match="could not be edited"):
        asyncio.run(edit("words", "words.md", {"EDITOR": "rm", "PATH": "/usr/bin:/bin"}))
