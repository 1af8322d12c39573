"""The notice that a model has sent nothing for a long time."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.events import Delta, Event, Notice, TurnFinished
from ctxagent.agent.loop import turn
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.scripted import ScriptedModel, Step

from ..support.sessions.conversation import Conversation


class Quiet(ScriptedModel):
    """Answers after several notices."""

    def __init__(self, heard: asyncio.Event) -> None:
        super().__init__([Step(text="Done.")])
        self.heard = heard

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        async with asyncio.timeout(100):
            await self.heard.wait()
        async for delta in super().stream(request):
            yield delta


def test_each_long_silence_of_a_model_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "QUIET_S", 0.01)
    heard = asyncio.Event()
    talk = Conversation(project, model=Quiet(heard))

    def emit(event: Event) -> None:
        talk.events.append(event)
        if len(talk.seen(Notice)) == 2:
            heard.set()

    talk.agent.emit = emit
    assert talk.say("go") == TurnFinished("ok", "Done.")
    first, second = (notice.text for notice in talk.seen(Notice)[:2])
    assert first == "the model has sent nothing for 0.01 s, still waiting"
    assert second == "the model has sent nothing for 0.02 s, still waiting"


def test_parts_of_a_reply_delay_the_notice_and_its_end_stops_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Event] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        timers = list[asyncio.TimerHandle]()
        later = loop.call_later
        monkeypatch.setattr(
            loop, "call_later", lambda *given: timers.append(later(*given)) or timers[-1]
        )
        with turn.quiet_notices(seen.append) as emit:
            emit(Notice("info", "a part"))
            assert [timer.cancelled() for timer in timers] == [True, False]
        assert [timer.cancelled() for timer in timers] == [True, True]

    asyncio.run(run())
    assert seen == [Notice("info", "a part")]
