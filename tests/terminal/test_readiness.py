"""Only visible questions are answered: when a single key answers, and the effect of
earlier keys.
"""

import asyncio
import math
from pathlib import Path

from ctxagent.agent.models.scripted import Step
from ctxagent.agent.ui.terminal.output import MIN_QUIET_S, MIN_SEEN_S, Readiness
from ctxagent.agent.ui.terminal.terminal import Terminal

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal as Window
from ..support.terminal.seat import CTRL_C, ENTER, ESC, Desk, Glass, Seat, drive

REPEATS = 0.6  # seconds after which a key that is held repeats
HELD = 0.033  # and then between two of them


def touch(*names: str) -> Step:
    return Step(tools=[("Bash", {"command": f"touch {name}"}) for name in names])


def screen(seat: Seat) -> Terminal:
    assert isinstance(seat.repl.screen, Terminal)
    return seat.repl.screen


def test_a_question_that_is_not_painted_cannot_be_answered(tmp_path: Path) -> None:
    desk, glass = Desk(tmp_path, touch("made"), Step(text="Ran.")), Glass()

    async def act(seat: Seat) -> None:
        screen(seat)._resized_at = math.inf  # its size changes and changes
        seat.say("go")
        await seat.until(lambda: screen(seat).asking)
        seat.press("y" + ENTER)
        await seat.until(lambda: screen(seat).reply.text == "y")
        seat.press(ENTER + ENTER)
        await asyncio.sleep(MIN_QUIET_S + MIN_SEEN_S)
        assert screen(seat).asking
        assert screen(seat).instant == ""
        assert "wants to" not in glass.raw
        assert not (desk.cwd / "made").exists()
        screen(seat).resized()
        await seat.until("Bash wants to run")
        await seat.until("? y")
        await seat.until("Enter: answer")
        seat.press(ENTER)
        await seat.until("Ran.")

    drive(desk, act, glass=glass)
    assert (desk.cwd / "made").exists()


def test_a_key_that_is_held_answers_one_question(tmp_path: Path) -> None:
    names = ("one", "two", "three", "four")
    desk = Desk(tmp_path, touch(*names), Step(text="Over."))

    now = 0.0

    async def act(seat: Seat) -> None:
        nonlocal now

        def later() -> bool:
            nonlocal now
            now += 0.1
            return bool(screen(seat).instant)

        screen(seat)._ready.clock = lambda: now
        seat.say("go")
        await seat.until("touch one")
        await seat.until(later)
        seat.press("y")
        await seat.until("touch two")
        now += REPEATS
        for count in range(1, 61):
            seat.press("y")
            await seat.until(lambda count=count: screen(seat).reply.text == count * "y")  # type: ignore[misc]
            now += HELD
        await seat.until("? yyy")
        assert [path.name for path in desk.cwd.iterdir()] == ["one"]
        seat.press(ESC)
        await seat.until("? yyy", gone=True)
        await seat.until(later)
        seat.press("y")
        await seat.until(lambda: (desk.cwd / "two").exists())
        await seat.until("touch three")
        await seat.until(later)
        seat.say("n enough")
        await seat.until("touch four")
        await seat.until(later)
        seat.press(CTRL_C)
        await seat.until("interrupted")

    drive(desk, act)
    assert sorted(path.name for path in desk.cwd.iterdir()) == ["one", "two"]


def test_a_word_begun_as_the_question_comes_is_text(tmp_path: Path) -> None:
    desk = Desk(tmp_path, touch("made"), Step(text="I see."))

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("[y]es")
        seat.press("you should not" + ENTER)
        await seat.until("I see.")

    _, glass = drive(desk, act)
    assert "declined: you should not" in glass.all()
    assert not (desk.cwd / "made").exists()


def test_y_and_enter_answer_without_a_delay(tmp_path: Path) -> None:
    desk = Desk(tmp_path, touch("made"), Step(text="Ran."))

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("[y]es")
        seat.press("y" + ENTER)
        await seat.until("Ran.")

    drive(desk, act)
    assert (desk.cwd / "made").exists()


def test_a_question_after_an_answer_is_answered_at_once() -> None:
    """A question that follows the user's own answer can be answered as soon as it is visible."""

    async def run() -> None:
        taken: list[bool] = []
        ready = Readiness(lambda: False, lambda: taken.append(True))
        ready.pressed()
        ready.ask(follows=True)
        assert not ready.seen
        assert not ready.accepts_keys
        ready.painted()
        assert ready.seen
        assert ready.accepts_keys
        ready.ask(follows=False)
        ready.painted()
        assert ready.seen
        assert not ready.accepts_keys

    asyncio.run(run())


def test_a_paused_terminal_has_not_shown_the_question() -> None:
    async def run() -> None:
        busy, taken = True, asyncio.Event()
        ready = Readiness(lambda: busy, taken.set)
        ready.ask(follows=True)
        ready.painted()
        await asyncio.sleep(MIN_SEEN_S)
        assert not ready.seen
        assert not ready.accepts_keys
        busy = False
        await asyncio.wait_for(taken.wait(), 100)
        assert ready.seen

    asyncio.run(run())


def test_choices_are_dim_until_keys_take_them(tmp_path: Path) -> None:
    place = Place(tmp_path)
    ask = Say(tools=[("Bash", {"command": "touch made"})])
    with Server([ask, Say("Ran.")]) as server:
        window = Window(cwd=place.project, env=place.server(server.url))
        window.see("❯")
        window.type("go\r")
        window.keys()
        dim = window.raw.index(b"[y]es")
        assert b"\x1b[0;1m" not in window.raw[dim - 8 : dim]
        window.type("y")
        window.see("Ran.")
        window.type("/quit\r")
        assert window.leave() == 0
    assert (place.project / "made").exists()
