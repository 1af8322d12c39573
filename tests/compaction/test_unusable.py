"""A model that writes unusable summaries is asked less and less often."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.summary.writer import UnusableSummaries
from ctxagent.agent.errors import CompactionFailed, ModelUnavailable
from ctxagent.agent.events import Notice
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.base import Abilities
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, Summary

from ..support.sessions.conversation import Conversation
from .test_writer import RECORD

FEW = replace(DEFAULT, keep_messages=1, keep_tokens=0, clear_when="off", summarize_when="full")
LONG = "".join(f"I see word {n}. " for n in range(500))
BAD, GOOD = Step(text="No."), Step(text=RECORD)


def summary(probes: dict[str, Any]) -> Summary:
    return Summary(document={}, text="", covers=[1, 1], keep_from=2, probes=probes)


def test_the_count_of_one_model_in_a_row() -> None:
    count = UnusableSummaries()
    assert count.to_check() == {}
    count.add("a")
    assert not count.should_skip("a")
    count.add("b")
    assert (count.model, count.count) == ("b", 1)
    count.add("b")
    assert count.should_skip("b")
    assert not count.should_skip("a")
    assert UnusableSummaries.from_summary(summary(count.to_check())) == count
    count.skip()
    assert not count.should_skip("b")
    assert (count.attempts("a"), count.attempts("b")) == (2, 1)
    assert UnusableSummaries.from_summary(summary(count.to_check())) == count
    for to_skip in (2, 4, 8, 16, 16):
        count.add("b")
        assert (count.to_skip, count.skipped) == (to_skip, 0)
    count.clear()
    assert not count.should_skip("b")
    assert count.attempts("b") == 2


@pytest.mark.parametrize("probes", [{}, {"unusable": 2}, {"unusable": {"model": "m"}}])
def test_a_summary_without_a_count(probes: dict[str, Any]) -> None:
    assert UnusableSummaries.from_summary(None) == UnusableSummaries()
    assert UnusableSummaries.from_summary(summary(probes)) == UnusableSummaries()


class Writer(ScriptedModel):
    """Answers summary requests with these steps, and all other requests with a long text."""

    def __init__(self, *records: Step, slots: int = 0, id: str = "scripted") -> None:
        super().__init__(self.play, id=id)
        self.records = list(records)
        self.asked = 0
        self.slots = slots

    def play(self, request: Any) -> Step:
        if "about to be compressed" not in str(request.messages[-1]["content"][-1].get("text")):
            return Step(text=LONG)
        self.asked += 1
        return self.records.pop(0)

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, slots=self.slots)


def begun(project: Path, model: Writer) -> Conversation:
    return Conversation(project, model=model, policy=FEW)


def compact(talk: Conversation, times: int) -> Sequence[str]:
    """Make summaries, and return the notices about the unusable ones."""
    for _ in range(times):
        talk.say("Go on.")
        talk.say("And on.")
        asyncio.run(talk.agent.engine.compact())
    return [event.text for event in talk.seen(Notice) if "not usable" in event.text]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_after_two_unusable_summaries_the_ledger_writes_them(project: Path) -> None:
    model = Writer(*[BAD] * 5, GOOD)
    talk = begun(project, model)
    first, second = compact(talk, 3)
    assert model.asked == 4  # two attempts for each of two summaries
    assert first.endswith("; made from the ledger")
    assert second.endswith(
        "scripted is not asked for the next 1 summary; /model selects another model"
    )
    assert len(talk.of(Summary)) == 3
    third = compact(talk, 3)[-1]
    assert model.asked == 5  # the fourth summary, with one attempt
    assert "scripted is not asked for the next 2 summaries" in third
    compact(talk, 1)
    assert model.asked == 6
    assert talk.of(Summary)[-1].document["decisions"] == ["Use SQLite."]


def test_a_usable_summary_between_them_counts_again(project: Path) -> None:
    model = Writer(BAD, BAD, GOOD, BAD, BAD, GOOD)
    assert len(compact(begun(project, model), 4)) == 2
    assert model.asked == 6


def test_a_server_that_cannot_be_reached_says_nothing_of_the_model(project: Path) -> None:
    model = Writer(*[Step(error=ModelUnavailable("overloaded"))] * 3, GOOD)
    talk = begun(project, model)
    assert len(compact(talk, 3)) == 3
    compact(talk, 1)
    assert model.asked == 4


def test_a_resumed_session_does_not_ask_again(project: Path) -> None:
    first = begun(project, Writer(*[BAD] * 4))
    compact(first, 2)
    first.agent.log.close()
    model = Writer()
    assert compact(begun(project, model), 1) == []
    assert model.asked == 0


def test_another_model_is_asked(project: Path) -> None:
    talk = begun(project, Writer(*[BAD] * 4))
    compact(talk, 2)
    other = Writer(GOOD, id="other")
    talk.use(other)
    compact(talk, 1)
    assert other.asked == 1


def test_a_summary_that_would_make_nothing_smaller_is_not_asked_for(project: Path) -> None:
    talk = Conversation(project, [Step(text="Yes.")] * 2, policy=FEW)
    talk.say("Hello.")
    talk.say("Hello again.")
    for made in (talk.agent.engine.compact, talk.agent.engine.draft_summary):
        with pytest.raises(CompactionFailed, match="the context would not get smaller"):
            asyncio.run(made())
    assert [entry for entry in talk.of(Assistant) if entry.purpose == "summary"] == []


@pytest.mark.parametrize("slots", [0, 1, 4])
def test_a_server_with_one_slot_is_not_asked_in_the_background(project: Path, slots: int) -> None:
    model = Writer(GOOD, slots=slots)
    policy = replace(FEW, prepare_at=0.01, summarize_at=0.9, keep_messages=2)
    talk = Conversation(project, model=model, policy=policy)

    async def says(count: int) -> None:
        for n in range(count):
            await run_turn(talk.agent, f"Go on, {n}.")
        await talk.agent.engine.wait_for_background()

    asyncio.run(says(8))
    assert model.asked == (slots != 1)
