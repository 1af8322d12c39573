"""The estimated cost of a request without a reply yet."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from ctxagent.agent.context.view import View
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.budget import BudgetMeter
from ctxagent.agent.loop.model_session import RequestInFlight
from ctxagent.agent.loop.open_log import SessionRecord
from ctxagent.agent.models.catalog import cost
from ctxagent.agent.session.entries import Assistant, Entry, Session, Usage, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.totals import Totals

MODEL = "claude-sonnet-5-5"


@dataclass
class Kept:
    """A session that folds its entries without writing them."""

    log: Log
    view: View = field(default_factory=View)
    totals: Totals = field(default_factory=Totals)

    def record(self, entry: Entry) -> Entry:
        self.view.add(entry)
        self.totals.add(entry)
        return entry


def session(state: Path, id: str) -> Kept:
    kept = Kept(Log(state / "projects" / "p" / "sessions" / id / "log.jsonl"))
    words = "You are an agent. " * 500
    kept.record(Session(seq=1, id=id, cwd="/p", version="1", model=MODEL, system=words, tools=[]))
    kept.record(User(seq=2, content="Go on."))
    return kept


def request(kept: Kept, meter: BudgetMeter) -> RequestInFlight:
    return RequestInFlight(cast(SessionRecord, kept), meter, "turn", MODEL)


def meter() -> BudgetMeter:
    return BudgetMeter(Budget(dollars=1.0), records_requests=True)


def test_the_estimate_is_corrected_and_ends_with_the_reply(tmp_path: Path) -> None:
    kept, paid = session(tmp_path, "a"), meter()
    one = request(kept, paid)
    one.begin()
    first = paid.in_flight
    assert first == one.dollars == kept.totals.all.cost_usd
    usage = Usage(input=9_000, output=1)
    one.accepted(usage)
    assert paid.in_flight == kept.totals.all.cost_usd > first
    one.accepted(usage)
    one.answered()
    kept.record(Assistant(content=[], usage=usage.to_json(), stop_reason="end_turn", model=MODEL,
                          cost_usd=cost(MODEL, usage)))  # fmt: skip
    assert paid.in_flight == 0
    assert kept.totals.all.cost_usd == kept.totals.own.cost_usd == cost(MODEL, usage)


def test_what_another_session_sent_is_in_the_cache(tmp_path: Path) -> None:
    first = request(session(tmp_path, "a"), meter())
    first.begin()
    cold = first.dollars
    first.accepted(Usage(cache_creation=2_000))
    second = request(session(tmp_path, "b"), meter())
    second.begin()
    assert second.dollars < 0.7 * cold


def test_a_request_that_is_given_up_is_not_billed(tmp_path: Path) -> None:
    kept, paid = session(tmp_path, "a"), meter()
    one = request(kept, paid)
    one.gave_up()
    assert kept.totals.in_flight.run == "", "nothing was sent"
    one.begin()
    one.begin()
    assert kept.totals.all.cost_usd == pytest.approx(paid.in_flight)
    one.gave_up()
    assert (kept.totals.all.cost_usd, paid.in_flight) == (0, 0)


def test_without_a_budget_nothing_is_recorded(tmp_path: Path) -> None:
    kept, paid = session(tmp_path, "a"), BudgetMeter()
    one = request(kept, paid)
    one.begin()
    one.accepted(Usage(input=100))
    one.gave_up()
    assert kept.totals.in_flight.run == ""
    assert paid.in_flight == 0
