"""Keys that must not conflict: Esc, Ctrl-C, Ctrl-L, history search, vi keys."""

from pathlib import Path

import pytest

from ctxagent.agent.events import Retrying
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.ui.terminal.application import CHORD_TIMEOUT_S, ESCAPE_TIMEOUT_S
from ctxagent.agent.ui.transcript import WaitLine

from ..support.terminal.seat import CTRL_C, CTRL_R, ENTER, ESC, Desk, Seat, drive

RUNS = {"command": "echo going on; sleep 60"}


def test_esc_is_a_key_of_its_own_and_a_chord_takes_its_time(tmp_path: Path) -> None:
    async def act(seat: Seat) -> None:
        await seat.idle()
        app = seat.repl.screen.app  # type: ignore[attr-defined]
        seat.press("\x18")
        await seat.until(lambda: bool(app.key_processor.key_buffer))
        assert app.timeoutlen == CHORD_TIMEOUT_S
        seat.press("\x07x" + ESC)
        await seat.until(lambda: app.timeoutlen == ESCAPE_TIMEOUT_S)
        await seat.until(lambda: not app.key_processor.key_buffer)
        seat.press(CTRL_C)

    drive(Desk(tmp_path), act)
    assert 2 * ESCAPE_TIMEOUT_S < 0.3 < CHORD_TIMEOUT_S


def test_the_next_key_removes_the_hint_about_leaving(tmp_path: Path) -> None:
    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.press(CTRL_C)
        await seat.until("Press Ctrl-C again")
        seat.press("w")
        await seat.until("Press Ctrl-C again", gone=True)
        seat.press(CTRL_C + CTRL_C)
        await seat.until("Press Ctrl-C again")
        assert seat.repl.screen.app.is_running  # type: ignore[attr-defined]

    drive(Desk(tmp_path), act)


def test_ctrl_l_clears_nothing(tmp_path: Path) -> None:
    async def act(seat: Seat) -> None:
        seat.say("talk")
        await seat.until("Said.")
        await seat.idle()
        seat.press("\x0cwords")
        await seat.until("❯ words")
        assert "Said." in "\n".join(seat.glass.lines())
        seat.press(CTRL_C)

    _, glass = drive(Desk(tmp_path, Step(text="Said.")), act)
    assert "\x1b[2J" not in glass.raw


def test_a_question_ends_a_search(tmp_path: Path) -> None:
    ask = Step(tools=[("Bash", {"command": "touch made"})])

    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.press("go" + ENTER + CTRL_R)
        await seat.keys()
        await seat.until("I-search", gone=True)
        seat.press("y")
        await seat.until("Ran.")

    drive(Desk(tmp_path, ask, Step(text="Ran.")), act)


def test_esc_interrupts_in_vi_with_words_in_the_input(tmp_path: Path) -> None:
    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("going on")
        seat.press("words")
        await seat.until("❯ words")
        app = seat.repl.screen.app  # type: ignore[attr-defined]
        seat.press(ESC)
        await seat.until(lambda: app.vi_state.input_mode == "vi-navigation")
        assert seat.repl.working
        seat.press(ESC)
        await seat.until("interrupted")
        await seat.idle()
        seat.press(CTRL_C)

    drive(Desk(tmp_path, Step(tools=[("Bash", RUNS)]), mode="bypass"), act, editing_mode="vi")


def test_a_long_reason_stands_behind_the_countdown() -> None:
    now = 0.0
    waits = WaitLine(lambda: now, "Esc")
    waits.retry(Retrying(2, 8, 4.0, "the rate limit is reached: no such luck"))
    assert waits.line().startswith("again in 4 s · Esc to stop · attempt 2 of 8 failed: the rate")
    now = 5.0
    assert waits.line().startswith("attempt 2 of 8 failed · 5 s · Esc to stop · the rate")


@pytest.mark.variants
@pytest.mark.parametrize("key", ["\x1b\x7f", "\x1bb", "\x1b\r", "\x1bf"])
def test_alt_with_a_key_does_not_interrupt(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, Step(text="One.", delay=2), Step(text="Two."))

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until(lambda: seat.repl.working)
        seat.press(key)
        await seat.until("One.")
        seat.repl.screen.draft.reset()  # type: ignore[attr-defined]

    _, glass = drive(desk, act)
    assert "interrupted" not in glass.all()
