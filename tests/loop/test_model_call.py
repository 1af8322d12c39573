"""One call of the model: what is kept of a reply that breaks off or is interrupted."""

import asyncio
import json
from pathlib import Path

from ctxagent.agent.events import (
    Retrying,
    TextDelta,
    TurnFinished,
)
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.models.server_gaps import ServerGaps
from ctxagent.agent.session.entries import Assistant

from ..support.sessions.conversation import Conversation


def test_interrupting_the_model_keeps_its_words(project: Path) -> None:
    talk = Conversation(project, [Step(text="one two three four"), Step(text="fine")])
    words: list[str] = []

    def third(event: object) -> bool:
        words.extend([event.text] if isinstance(event, TextDelta) else [])
        return len(words) == 2

    finished = talk.interrupted_at("go", third)
    assert finished.status == "interrupted"
    kept = talk.of(Assistant)[0]
    assert kept.stop_reason == "interrupted"
    assert kept.content[0]["text"].startswith("one two")
    assert kept.usage["input"] > 0
    assert talk.say("go on") == TurnFinished("ok", "fine")
    assert "one two" in json.dumps(talk.model.requests[-1].messages)  # type: ignore[attr-defined]


def test_retrying_voids_the_words_of_the_broken_attempt(project: Path) -> None:
    class Flaky:
        id = "scripted"
        gaps = ServerGaps(None, "", id)

        async def stream(self, request: object):  # type: ignore[no-untyped-def]
            yield TextDelta("half a ")
            yield Retrying(1, 3, 0.0, "cut")
            yield TextDelta("whole ")
            await asyncio.Event().wait()

        def assumed_limits(self):  # type: ignore[no-untyped-def]
            from ctxagent.agent.models.catalog import DEFAULT_LIMITS

            return DEFAULT_LIMITS

        async def limits(self):  # type: ignore[no-untyped-def]
            return self.assumed_limits()

    talk = Conversation(project, model=Flaky())  # type: ignore[arg-type]
    finished = talk.interrupted_at("go", lambda e: e == TextDelta("whole "))
    assert finished.text == "whole "
