"""The model of a conversation: its window, the room for a reply, and what a server lacks."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.context.request import Request, build_request
from ctxagent.agent.errors import ModelError, RequestRejected
from ctxagent.agent.events import Accepted, CallFinished, Delta, Event, TextDelta, Waiting
from ctxagent.agent.loop.model_session import ModelSession
from ctxagent.agent.loop.session_handle import SessionHandle
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.catalog import Limits
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, User

from ..support.sessions.conversation import Conversation

NO_CACHE = RequestRejected("unknown field: cache_control", status=400)


class Refusing(ScriptedModel):
    """Refuses its first requests, each for one of these reasons, then says "Done."."""

    def __init__(self, *refusals: RequestRejected) -> None:
        super().__init__([Step(text="Done.")])
        self.refusals = list(refusals)
        self.asked = 0  # for its limits

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if self.refusals:
            self.requests.append(request)
            raise self.refusals.pop(0)
        async for delta in super().stream(request):
            yield delta

    async def limits(self) -> Limits:
        self.asked += 1
        return Limits(50_000, 9_000, "server")


def used(handle: SessionHandle, model: ScriptedModel) -> ModelSession:
    """A conversation's use of this model, after a first message."""
    handle.record(User(content="go"))
    handle.model.change(model)
    return handle.model


def ask(handle: SessionHandle, purpose: str = "turn") -> tuple[Reply, Sequence[Delta]]:
    """Ask for a reply. Return it and its deltas."""
    request = build_request(handle.view, model=handle.model.id, max_tokens=1_000)
    deltas: list[Delta] = []
    reply = asyncio.run(handle.model.ask(request, purpose, deltas.append))
    return reply, deltas


def test_a_reply_is_shown_recorded_and_paid(handle: SessionHandle, events: list[Event]) -> None:
    model = used(handle, ScriptedModel([Step(text="All done."), Step(text="A summary.")]))
    reply, deltas = ask(handle)
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["All ", "done."]
    recorded = [entry for entry in handle.log.entries() if isinstance(entry, Assistant)]
    assert [(each.content, each.purpose) for each in recorded] == [(reply.content, "turn")]
    assert [type(event) for event in events] == [CallFinished]
    assert set(model.last_calls) == {"scripted"}
    model.last_calls.clear()
    ask(handle, "summary")
    assert len(events) == 1
    assert model.last_calls == {}  # only calls of turns keep the cache warm


def test_only_a_turn_waits_for_an_overloaded_server(handle: SessionHandle) -> None:
    model = used(handle, ScriptedModel([Step(text="a"), Step(text="b")]))
    model.overload_wait = 7.0
    ask(handle)
    ask(handle, "summary")
    assert isinstance(model.client, ScriptedModel)
    assert [request.overload_wait for request in model.client.requests] == [7.0, None]


class Changing(Refusing):
    """Changes the model of the conversation while it streams, then is interrupted."""

    def __init__(self, session: ModelSession) -> None:
        super().__init__()
        self.id, self.session = "claude-sonnet-5-5", session

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        yield Accepted({"input": 50})
        self.session.change(Refusing())
        raise asyncio.CancelledError


def test_a_reply_is_of_the_model_that_was_asked(handle: SessionHandle) -> None:
    """The model may change while a summary is written in the background."""
    used(handle, Changing(handle.model))
    with pytest.raises(asyncio.CancelledError):
        ask(handle, "summary")
    recorded = [entry for entry in handle.log.entries() if isinstance(entry, Assistant)]
    assert [entry.model for entry in recorded] == ["claude-sonnet-5-5"]


def test_other_refusals_are_raised(handle: SessionHandle, events: list[Event]) -> None:
    used(handle, Refusing(NO_CACHE))
    with pytest.raises(ModelError, match="unknown field"):
        ask(handle)
    assert events == []


def test_the_model_is_asked_for_its_limits_once(handle: SessionHandle, events: list[Event]) -> None:
    client = Refusing()
    model = used(handle, client)
    assert model.current_window().size == 200_000
    for _ in range(2):
        assert asyncio.run(model.window()).size == 50_000
    assert client.asked == 1
    assert [event.what for event in events if isinstance(event, Waiting)] == [
        "asking how much the model takes", "",
    ]  # fmt: skip
    assert model.reply_room() == 9_000
    model.max_tokens = 500
    assert model.reply_room() == 500


def test_an_estimate_is_corrected_by_what_the_server_counted(handle: SessionHandle) -> None:
    model = used(handle, Refusing())
    before = model.current_window().tokens
    model.token_correction = 2.0
    assert model.current_window().tokens == pytest.approx(2 * before, abs=1)


def test_a_window_that_was_learned_counts_until_the_model_changes(handle: SessionHandle) -> None:
    model = used(handle, Refusing())
    model.learned_window.size = 30_000
    assert model.current_window().size == 30_000
    model.change(Refusing())
    assert model.current_window().size == 200_000


def test_a_subagent_with_the_same_model_shares_what_is_known(handle: SessionHandle) -> None:
    model = used(handle, Refusing())
    asyncio.run(model.window())
    model.effort, model.learned_window.size = "high", 30_000
    other = replace(model, limits=None, effort=None)
    other.share(model)
    assert (other.limits, other.effort) == (model.limits, "high")
    assert other.learned_window is model.learned_window


def test_the_reply_is_asked_to_fit_into_what_is_left(project: Path) -> None:
    talk = Conversation(project, [Step(text="x")], window=20_000)
    talk.say("word " * 4_500)
    (request,) = talk.model.requests  # type: ignore[attr-defined]
    assert 1_024 <= request.max_tokens < 20_000 - 4_500


def test_before_the_first_call_the_window_is_that_of_the_model(project: Path) -> None:
    talk = Conversation(project, model=ScriptedModel([Step(text="hi")], window=50_000))
    assert talk.agent.model.current_window().size == 50_000
    assert talk.agent.model.reply_room() == 32_000
