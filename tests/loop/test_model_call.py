"""One model call: the deltas that are passed on, and the recorded entry."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import pytest

from ctxagent.agent.context.items import Item
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.view import View
from ctxagent.agent.errors import ModelError
from ctxagent.agent.events import (
    Accepted,
    Delta,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolDraft,
    ToolFinished,
)
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.budget import BudgetMeter
from ctxagent.agent.loop.model_roles import ModelRoles
from ctxagent.agent.loop.model_session import ModelSession, last_text, reply_entry
from ctxagent.agent.loop.open_log import SessionRecord
from ctxagent.agent.models.base import Model, Reply, abilities_of, text_of
from ctxagent.agent.session.entries import Assistant, Block, Usage

REQUEST = Request(
    model="claude-sonnet-5-5", system=[], tools=[], messages=[], max_tokens=100,
    origin={"upto": 7},
)  # fmt: skip
REPLY = Reply(
    [{"type": "text", "text": "hi"}], "end_turn", Usage(input=1_000_000, output=10),
    "claude-sonnet-5-5", message_id="m1", broken={"t": "{"},
    sent={"sha256": "abc", "gaps": ["images"], "parameters": {"max_tokens": 100}},
)  # fmt: skip
TAKEN = Accepted({"input": 50, "output": 1}, sent={"sha256": "abc"})
WORDS = "word " * 40


class Played:
    """A model that streams these deltas. An exception among them is raised."""

    id = "claude-sonnet-5-5"
    abilities = abilities_of(id)

    def __init__(self, *deltas: Delta | Reply | BaseException) -> None:
        self.deltas, self.is_closed = deltas, False

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        try:
            for delta in self.deltas:
                if isinstance(delta, BaseException):
                    raise delta
                yield delta
        finally:
            self.is_closed = True


class Kept:
    """A record that collects the entries of replies. `ratio` is the number of real tokens per
    estimated token.
    """

    def __init__(self, ratio: float) -> None:
        self.entries: list[Assistant] = []
        self.record, self.view = self.entries.append, View(ratio=ratio)
        self.emit = lambda event: None


def played(
    *deltas: Delta | Reply | BaseException, ratio: float = 1.0
) -> tuple[Reply | BaseException, list[Assistant], list[Any]]:
    """The reply or the error, the entries that were kept, and the events."""
    events: list[Any] = []
    model, record = Played(*deltas), Kept(ratio)
    session = ModelSession(
        ModelRoles(cast(Model, model)),
        cast(SessionRecord, record),
        BudgetMeter(Budget()),
    )
    call = session.ask(REQUEST, "turn", events.append)
    try:
        result: Reply | BaseException = asyncio.run(as_task(call))
    except (ModelError, asyncio.CancelledError) as error:
        result = error
    assert model.is_closed
    return result, record.entries, events


async def as_task(call: Any) -> Any:
    return await call


def test_a_reply_is_kept_at_once_and_its_deltas_are_passed_on() -> None:
    deltas = [TAKEN, ThinkingDelta("hm"), TextDelta("hi")]
    result, (entry,), events = played(*deltas, REPLY, TextDelta("never"))
    assert result is REPLY
    assert events == deltas
    assert entry == reply_entry(REPLY, REQUEST, "turn")


def test_the_entry_of_a_reply() -> None:
    entry = reply_entry(REPLY, REQUEST, "summary")
    assert (entry.content, entry.stop_reason, entry.model) == (
        REPLY.content,
        "end_turn",
        REPLY.model,
    )
    assert (entry.purpose, entry.message_id, entry.broken) == ("summary", "m1", {"t": "{"})
    assert entry.usage == REPLY.usage.to_json()
    assert (entry.request["upto"], entry.request["sha256"]) == (7, "abc")
    assert entry.request["gaps"] == ["images"]
    assert "max_tokens" in entry.request["parameters"]
    assert entry.cost_usd is not None
    assert entry.cost_usd > 1


def test_a_reply_under_another_name_has_the_price_of_the_requested_model() -> None:
    other = Reply([], "end_turn", REPLY.usage, "gateway/unknown", sent={})
    entry = reply_entry(other, REQUEST, "turn")
    assert entry.cost_usd == reply_entry(REPLY, REQUEST, "turn").cost_usd
    assert entry.request == {}


def test_a_reply_that_is_interrupted_is_kept_as_far_as_it_came() -> None:
    result, (entry,), _ = played(
        TAKEN, TextDelta("so "), TextDelta("far"), asyncio.CancelledError()
    )
    assert isinstance(result, asyncio.CancelledError)
    assert entry.content == [{"type": "text", "text": "so far"}]
    assert (entry.stop_reason, entry.purpose) == ("interrupted", "turn")
    assert entry.usage["input"] == 50


def test_the_output_before_an_interrupt_is_estimated() -> None:
    def output(*deltas: Delta, ratio: float = 1.0) -> int:
        _, (entry,), _ = played(TAKEN, *deltas, asyncio.CancelledError(), ratio=ratio)
        return entry.usage["output"]

    words = output(TextDelta(WORDS))
    assert words >= 40
    assert output(ThinkingDelta(WORDS)) == words
    assert output(TextDelta(WORDS), ThinkingDelta(WORDS)) == 2 * words
    assert output(TextDelta(WORDS), ratio=2.0) == 2 * words
    one = output(ToolDraft("Bash", 1_000))
    assert one > 100
    assert output(ToolDraft("Bash", 400), ToolDraft("Bash", 1_000)) == one
    assert output(ToolDraft("Bash", 1_000), ToolDraft("Bash", 999)) >= 2 * one - 2
    assert output() == 1


def test_searches_before_an_interrupt_count() -> None:
    def ended(is_error: bool) -> ToolFinished:
        return ToolFinished("s", "WebSearch", "q", is_error, "", 0.0)

    deltas = [TAKEN, ended(False), ended(True), ended(False), asyncio.CancelledError()]
    _, (entry,), _ = played(*deltas)
    assert entry.usage["web_searches"] == 2


def test_an_interrupt_before_anything_came_leaves_nothing() -> None:
    assert played(asyncio.CancelledError())[1] == []
    taken = played(TAKEN, asyncio.CancelledError())[1]
    assert [entry.content for entry in taken] == [[]]


def test_a_failed_attempt_is_recorded_with_its_cost() -> None:
    retry = Retrying(1, 3, 0.0, "overloaded")
    result, kept, events = played(TAKEN, TextDelta(WORDS), retry, TAKEN, TextDelta("hi"), REPLY)
    assert result is REPLY
    attempt, entry = kept
    assert (attempt.purpose, attempt.content, attempt.stop_reason) == ("attempt", [], None)
    assert attempt.usage["output"] >= 40
    assert entry.purpose == "turn"
    assert retry in events
    assert len(played(retry, TAKEN, REPLY)[1]) == 1


def test_an_error_is_passed_on() -> None:
    result, kept, _ = played(TAKEN, TextDelta("x"), ModelError("gone"))
    assert isinstance(result, ModelError)
    assert [entry.purpose for entry in kept] == ["attempt"]
    assert played(ModelError("gone"))[1] == []
    result, kept, _ = played(TAKEN)
    assert "ended its stream without a reply" in str(result)
    assert kept == []


def text(words: str) -> Block:
    return {"type": "text", "text": words}


FOUND = {"type": "web_search_tool_result", "content": []}


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([], ""), ([text("a"), {"type": "thinking", "thinking": "x"}, text("b")], "ab"),
        ([text("I look."), FOUND, text("It is.")], "It is."),
        ([text("I look."), FOUND, text(" ")], "I look. "),
        ([text("a"), FOUND, text("b"), FOUND, text("c")], "c"), ([text("a"), FOUND], "a"),
    ],
)  # fmt: skip
def test_the_text_of_a_reply(blocks: list[Block], words: str) -> None:
    assert text_of(blocks) == words


def item(role: Any, *blocks: Block, source: str = "") -> Item:
    return Item(seq=1, role=role, blocks=list(blocks), size=1, source=source)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], ""), ([item("user", text("q"), source="person"), item("assistant", text("a"))], "a"),
        ([item("assistant", text("a")), item("user", text("q"), source="person")], ""),
        ([item("assistant", text("a")), item("user", text("n"), source="notice")], "a"),
        ([item("assistant", text("a")), item("user", text("p"), source="plan")], "a"),
        ([item("assistant", text("a")), item("user", text("p"), source="skill")], "a"),
        ([item("assistant", text("a")), item("user", text("p"), source="skill list")], "a"),
        ([item("assistant", text("a")), item("user", {"type": "tool_result"})], "a"),
        ([item("assistant", text("a")), item("assistant", {"type": "tool_use"})], "a"),
        ([item("assistant", text("a")), item("assistant", text("b"))], "b"),
    ],
)  # fmt: skip
def test_the_newest_words_of_the_model(items: Sequence[Item], words: str) -> None:
    assert last_text(items) == words
