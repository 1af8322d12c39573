"""The model of a conversation: its window, the room for a reply, and missing abilities."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from ctxagent.agent.context.request import Request, build_request
from ctxagent.agent.errors import ModelError, RequestRejected
from ctxagent.agent.events import (
    Accepted,
    CallFinished,
    Delta,
    Event,
    Notice,
    TextDelta,
    Waiting,
)
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.loop.model_session import ModelSession
from ctxagent.agent.models.base import Abilities, Reply
from ctxagent.agent.models.catalog import Limits
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, Block, Session, Summary, User

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


def used(session: LiveSession, model: ScriptedModel) -> ModelSession:
    """A conversation's use of this model, after a first message."""
    session.record(User(content="go"))
    session.model.change(model)
    return session.model


def ask(session: LiveSession, purpose: str = "turn") -> tuple[Reply, Sequence[Delta]]:
    """Ask for a reply. Return it and its deltas."""
    request = build_request(session.view, model=session.model.id, max_tokens=1_000)
    deltas: list[Delta] = []
    reply = asyncio.run(session.model.ask(request, purpose, deltas.append))
    return reply, deltas


def test_a_reply_is_shown_recorded_and_paid(session: LiveSession, events: list[Event]) -> None:
    model = used(session, ScriptedModel([Step(text="All done."), Step(text="A summary.")]))
    reply, deltas = ask(session)
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["All ", "done."]
    recorded = [entry for entry in session.log.entries() if isinstance(entry, Assistant)]
    assert [(each.content, each.purpose) for each in recorded] == [(reply.content, "turn")]
    assert [type(event) for event in events] == [CallFinished]
    assert set(model.last_calls) == {"scripted"}
    model.last_calls.clear()
    ask(session, "summary")
    assert len(events) == 1
    assert model.last_calls == {}  # only calls of turns keep the cache warm


def test_only_a_turn_waits_for_an_overloaded_server(session: LiveSession) -> None:
    model = used(session, ScriptedModel([Step(text="a"), Step(text="b")]))
    model.overload_wait = 7.0
    ask(session)
    ask(session, "summary")
    assert isinstance(model.client, ScriptedModel)
    assert [request.overload_wait for request in model.client.requests] == [7.0, None]


class Changing(Refusing):
    """Changes the model of the conversation while streaming, and is then interrupted."""

    def __init__(self, session: ModelSession) -> None:
        super().__init__()
        self.id, self.session = "claude-sonnet-5-5", session

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        yield Accepted({"input": 50})
        self.session.change(Refusing())
        raise asyncio.CancelledError


def test_a_reply_is_of_the_model_that_was_asked(session: LiveSession) -> None:
    """The model may change while a summary is written in the background."""
    used(session, Changing(session.model))
    with pytest.raises(asyncio.CancelledError):
        ask(session, "summary")
    recorded = [entry for entry in session.log.entries() if isinstance(entry, Assistant)]
    assert [entry.model for entry in recorded] == ["claude-sonnet-5-5"]


def test_other_refusals_are_raised(session: LiveSession, events: list[Event]) -> None:
    used(session, Refusing(NO_CACHE))
    with pytest.raises(ModelError, match="unknown field"):
        ask(session)
    assert events == []


def test_the_model_is_asked_for_its_limits_once(session: LiveSession, events: list[Event]) -> None:
    client = Refusing()
    model = used(session, client)
    assert model.current_window().size == 200_000
    for _ in range(2):
        assert asyncio.run(model.window()).size == 50_000
    assert client.asked == 1
    assert [event.what for event in events if isinstance(event, Waiting)] == [
        "checking the model's context window", "",
    ]  # fmt: skip
    assert model.reply_room() == 9_000
    model.max_tokens = 500
    assert model.reply_room() == 500


def test_an_estimate_is_corrected_by_what_the_server_counted(session: LiveSession) -> None:
    model = used(session, Refusing())
    before = model.current_window().tokens
    model.token_correction = 2.0
    assert model.current_window().tokens == pytest.approx(2 * before, abs=1)


def test_a_window_that_was_learned_counts_until_the_model_changes(session: LiveSession) -> None:
    model = used(session, Refusing())
    model.learned_window.size = 30_000
    assert model.current_window().size == 30_000
    model.change(Refusing())
    assert model.current_window().size == 200_000


def test_a_subagent_with_the_same_model_shares_what_is_known(session: LiveSession) -> None:
    model = used(session, Refusing())
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


class Able(ScriptedModel):
    """A model with these abilities."""

    def __init__(self, **abilities: bool) -> None:
        super().__init__([Step(text="Done.")])
        self.able = abilities

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, **self.able)  # type: ignore[arg-type]


def summary(block: Block | None) -> Summary:
    return Summary(document={}, text="So far.", covers=[1, 1], keep_from=2, block=block)


@pytest.mark.parametrize(
    ("makes", "takes", "block", "can_summarise"),
    [
        (False, False, None, False), (True, False, None, True), (True, True, None, True),
        (True, False, {"type": "compaction", "content": "x", "signature": "s"}, False),
        (True, True, {"type": "compaction", "content": "x", "signature": "s"}, True),
        (False, True, {"type": "compaction", "content": "x", "signature": "s"}, False),
    ],
)  # fmt: skip
def test_whether_the_server_can_summarise(
    session: LiveSession, makes: bool, takes: bool, block: Block | None, can_summarise: bool
) -> None:
    model = used(session, Able(makes_blocks=makes, takes_blocks=takes))
    assert model.has_compaction() == makes
    session.record(summary(block))
    assert model.has_compaction() == can_summarise


@pytest.mark.parametrize("able", [True, False])
def test_the_images_setting_overrides_the_known_abilities(session: LiveSession, able: bool) -> None:
    model = used(session, Able(images=able))
    assert model.takes_images() == able
    model.images_setting = "on"
    assert model.takes_images()
    model.images_setting = "off"
    assert not model.takes_images()


def test_the_least_window_holds_the_tools_and_a_reply(session: LiveSession) -> None:
    model = used(session, Refusing())
    assert model.least_window() == 1_024
    session.record(Session(id="s", cwd="/", version="0", model="m", system="word " * 2_000))
    assert 3_000 < model.least_window() < 4_000  # with the system prompt
    model.learned_window.accepted = 5_000
    assert model.least_window() == 5_000


def test_a_limit_that_is_not_known_does_not_bound_the_reply(session: LiveSession) -> None:
    model = used(session, Refusing())
    for output, room in ((9_000, 9_000), (None, 32_000)):
        model.limits = Limits(200_000, output, "server")
        assert model.reply_room() == room


def test_a_notice_of_the_model_goes_to_the_front_end(
    session: LiveSession, events: list[Event]
) -> None:
    """Also during a call whose deltas are not shown."""
    notice = Notice("info", "the server takes no thinking")

    class Telling(ScriptedModel):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
            yield notice  # type: ignore[misc]
            async for delta in super().stream(request):
                yield delta

    used(session, Telling([Step(text="A summary.")]))
    _, deltas = ask(session, "summary")
    assert events == [notice]
    assert notice not in deltas


def test_a_reply_is_paid_from_the_budget(session: LiveSession) -> None:
    used(session, ScriptedModel([Step(text="Done.")] * 2, id="claude-haiku-5-5"))
    ask(session)
    (entry,) = (entry for entry in session.log.entries() if isinstance(entry, Assistant))
    assert session.model.budget_meter.dollars == entry.cost_usd
    assert session.model.budget_meter.dollars > 0
    session.model.client.id = "unknown"
    ask(session)
    assert session.model.budget_meter.dollars == entry.cost_usd


@pytest.mark.parametrize("setting", ["auto", "on"])
def test_a_refusal_of_images_is_reported_if_it_changes_something(
    session: LiveSession, events: list[Event], setting: Literal["auto", "on"]
) -> None:
    class Blind(Able):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
            self.able["images"] = False
            raise RequestRejected("no images " + "x" * 300, status=400)
            yield

    used(session, Blind(images=True)).images_setting = setting
    for _ in range(2):
        with pytest.raises(RequestRejected):
            ask(session)
    told = "scripted accepts no images: requests are adapted from now on (no images "
    text = told + "x" * 190 + ")"
    assert events == [Notice("warning", text)] * (setting == "auto")
