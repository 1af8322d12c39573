"""Waits while one session is closed and another is opened are shown while they last."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context.request import Request
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Summary
from ctxagent.agent.session.log import read_log

from ..support.terminal.seat import KEEP_LITTLE, Desk, Glass, Seat, drive

RECORD = "## Session Intent\nCount.\n\n## Current State\nDone.\n\n## Next Steps\n1. Wait.\n"
WRITING = "writing a summary of the session"


def test_the_seconds_of_another_session_that_opens(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Hello."))

    async def act(seat: Seat) -> None:
        seat.say("hi")
        await seat.until("Hello.")
        seat.say("/clear")
        await seat.until(lambda: len(desk.loops) == 2)
        await seat.idle()
        desk.gate = asyncio.Event()
        seat.say(f"/resume {desk.loops[0].log.path.parent.name}")
        told: set[str] = set()

        def seconds() -> bool:
            told.update(re.findall(r"opening the session … (\d+) s", seat.glass.all()))
            return len(told) > 1

        await seat.until(seconds)
        desk.gate.set()
        await seat.until("opening the session", gone=True)

    drive(desk, act)
    assert len(desk.loops) == 3


@pytest.mark.variants
@pytest.mark.parametrize("full", [True, False])
def test_a_summary_at_the_end_is_told_before_it_is_written(tmp_path: Path, full: bool) -> None:
    desk, glass = Desk(tmp_path), Glass()
    then: list[str] = []

    def step(request: Request) -> Step:
        if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
            then.append(glass.all())
            return Step(text=RECORD)
        return Step(text="Counted. " + "word " * 2_000)

    desk.model = ScriptedModel(step, window=20_000 if full else 200_000)

    async def act(seat: Seat) -> None:
        await seat.until(lambda: seat.repl.conversation.is_open)
        loop = desk.loops[0]
        loop.engine.policy = replace(
            KEEP_LITTLE, at_end=True, summarize_at=0.95, prepare_at=None, clear_when="off"
        )
        for number in range(1, 7):
            seat.say(f"count {number}")
            await seat.until(lambda number=number: loop.totals.turns == number)  # type: ignore[misc]
            await seat.idle()

    drive(desk, act, glass=glass)
    written = [e for e in read_log(desk.loops[0].log.path).entries if isinstance(e, Summary)]
    assert len(written) == bool(then) == full
    assert all(re.search(rf"{WRITING} …\s*$", text) for text in then[:1])
    assert glass.all().count(WRITING) == full
    assert "Resume with: ctxagent --resume" in glass.all()
