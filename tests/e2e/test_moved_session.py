"""Changing to another session: what an interrupt stops, what is shown during a wait, and what is
handed over.
"""

import asyncio
import threading
from pathlib import Path

from ctxagent.agent.errors import SessionBusy, SessionError
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.interface import Feature
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.log import Log

from ..support.terminal.seat import CTRL_C, Desk, Seat, drive


class Ending(Feature):
    """A feature that never finishes at the end of a session."""

    def __init__(self, session: LiveSession) -> None:
        super().__init__(session)
        self.begun = asyncio.Event()
        self.cut_short = False

    async def session_ended(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cut_short = True
            raise


def slow_end(agent: AgentState) -> Ending:
    """Make the end of a session take forever."""
    ending = Ending(agent)
    agent.features.add(ending)
    return ending


async def interrupted_at_the_end(seat: Seat, words: str) -> None:
    """Type a command, and press Ctrl-C when the old session is ending."""
    loop = seat.repl.conversation.agent
    ending = slow_end(loop)
    seat.say(words)
    await ending.begun.wait()
    seat.press(CTRL_C)
    await seat.until(lambda: ending.cut_short)
    await seat.idle()
    assert seat.repl.conversation.agent is not loop


def test_interrupt_shortens_only_the_end_of_the_old_session(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Hello."), Step(text="Yes."), Step(text="Again."))

    async def act(seat: Seat) -> None:
        seat.say("make the parser faster")
        await seat.until("Hello.")
        await seat.idle()
        first = seat.repl.conversation.session
        await interrupted_at_the_end(seat, "/clear --keep")
        await seat.until("shows the hand-over")
        seat.say("/clear --keep")
        await seat.until(lambda: seat.glass.all().count("shows the hand-over") == 2)
        seat.say("something else")
        await seat.until("Yes.")
        await seat.idle()
        await interrupted_at_the_end(seat, f"/resume {first}")
        await seat.until(lambda: seat.glass.all().count("❯ make the parser faster") == 2)
        seat.say("go on")
        await seat.until("Again.")
        await seat.idle()
        loop = seat.repl.conversation.agent
        ending = slow_end(loop)
        seat.say("/rewind 2 conversation")
        await seat.keys("[y]es, rewind the conversation")
        seat.press("y")
        await ending.begun.wait()
        seat.press(CTRL_C)
        await seat.until("what came later: /resume")
        await seat.until(lambda: seat.glass.lines()[-2] == "❯ go on")
        seat.press("\x15")  # what is offered again

    _, glass = drive(desk, act)
    assert "nothing has changed" not in glass.all()


def test_an_interrupt_while_a_session_is_left_reaches_its_end_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Hello."))
    leaving, go_on = threading.Event(), threading.Event()

    async def act(seat: Seat) -> None:
        seat.say("make the parser faster")
        await seat.until("Hello.")
        await seat.idle()
        loop = seat.repl.conversation.agent
        leave = loop.resume_cache.save_at_close
        slow_end(loop)

        def slow(log: Log) -> None:
            leaving.set()
            go_on.wait(100)
            leave(log)

        loop.resume_cache.save_at_close = slow  # type: ignore[method-assign]
        seat.say("/clear --keep")
        await seat.until(leaving.is_set)
        seat.press(CTRL_C)
        await seat.until(lambda: bool(seat.repl._task._task and seat.repl._task._task.cancelling()))
        go_on.set()
        await seat.idle()
        await seat.until("shows the hand-over")
        assert seat.repl.conversation.agent is not loop

    drive(desk, act)


def test_new_session_can_be_opened_after_a_failed_opening(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Hello."), fails=[SessionError("the log is a folder")])

    async def act(seat: Seat) -> None:
        await seat.until("the log is a folder")
        await seat.until("no session is open")
        seat.say("/clear --keep")
        await seat.until("% full")
        seat.say("are you there?")
        await seat.until("Hello.")

    drive(desk, act)


class Busy(Desk):
    """A desk whose session is used by another process at first."""

    def __init__(self, folder: Path, *steps: Step) -> None:
        super().__init__(folder, *steps, fails=[SessionBusy("", "1")] * 4)


def test_wait_for_a_session_is_shown_until_it_opens(tmp_path: Path) -> None:
    desk = Busy(tmp_path, Step(text="Hello."))
    seen: set[bool] = set()

    async def act(seat: Seat) -> None:
        def tried() -> bool:
            if desk.fails:
                seen.add(seat.repl.conversation.is_opening)
            return not desk.fails

        await seat.keys("[w]ait")
        seat.press("w")
        await seat.until("waiting for process")
        await seat.until(tried)
        seat.say("hi")
        await seat.until("Hello.")

    drive(desk, act)
    assert seen == {True}
