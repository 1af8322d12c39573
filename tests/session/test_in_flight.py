"""Cost of requests without a recorded reply."""

import pytest

from ctxagent.agent.session.entries import Assistant
from ctxagent.agent.session.totals import FIRST_OUTPUT_TOKENS, InFlight, Totals, request_note


def reply(purpose: str = "turn", output: int = 10) -> Assistant:
    usage = {"input": 5, "cache_read": 10, "output": output}
    return Assistant(content=[], usage=usage, stop_reason="end_turn", model="m", cost_usd=1.0,
                     purpose=purpose)  # fmt: skip


def test_a_request_counts_until_its_reply_is_there() -> None:
    totals = Totals()
    totals.add(request_note("turn", "a", 0.5))
    totals.add(request_note("summary", "a", 2.0))
    assert totals.all.cost_usd == 2.5
    totals.add(reply())
    assert totals.all.cost_usd == 3.0
    assert totals.own.cost_usd == 1.0
    totals.add(request_note("summary", "a", None, replaces=True))
    assert totals.all.cost_usd == 1.0


def test_a_killed_request_counts_once_the_session_continues() -> None:
    totals = Totals()
    totals.add(request_note("turn", "a", 0.5))
    totals.add(request_note("turn", "a", 0.75, replaces=True))
    totals.add(request_note("turn", "b", 0.25))
    assert totals.all.cost_usd == 1.0
    totals.add(reply())
    assert totals.all.cost_usd == 1.75
    assert totals.all.calls == 1


def test_a_broken_attempt_leaves_the_request_in_flight() -> None:
    totals = Totals()
    totals.add(request_note("turn", "a", 0.5))
    totals.add(reply("attempt"))
    assert totals.all.cost_usd == 1.5
    totals.add(reply())
    assert totals.all.cost_usd == 2.0


def test_replies_say_what_is_usual() -> None:
    found = InFlight()
    assert found.usual_output == FIRST_OUTPUT_TOKENS
    for output in (10, 30):
        found.add(reply(output=output))
    found.add(reply("summary", 9_000))
    assert (found.usual_output, found.prompt) == (20, 15)


@pytest.mark.parametrize("cost", [None, "x", -1, [], {}])
def test_a_garbled_cost_counts_as_nothing(cost: object) -> None:
    found = InFlight()
    note = request_note("turn", "a", 0.5)
    note.data["cost_usd"] = cost
    found.add(note)
    assert found.dollars == 0
