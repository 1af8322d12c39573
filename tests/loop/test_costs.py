"""The bill: its lines add up to the totals, and the savings of the cache."""

from collections.abc import Iterable
from typing import Any

import pytest

from ctxagent.agent.loop.budget import SessionBill, session_bill
from ctxagent.agent.models.catalog import cost
from ctxagent.agent.session.entries import (
    WARMING,
    Assistant,
    Entry,
    Session,
    SubagentRun,
    Usage,
)
from ctxagent.agent.session.totals import Counts

MODEL = "claude-sonnet-5-5"  # 2 dollars in, 10 out, 0.10 from the cache, 2.50 to it
FIRST = Usage(cache_creation=100_000, output=1_000)
SECOND = Usage(input=1_000, cache_read=100_000, output=2_000)


def opened(model: str = MODEL) -> Session:
    return Session(id="s", cwd="/", version="1", model=model)


def call(usage: Usage, purpose: str = "turn", model: str = MODEL) -> Assistant:
    return Assistant(
        content=[], usage=usage.to_json(), stop_reason="end_turn", model=model, purpose=purpose,
        cost_usd=cost(model, usage),
    )  # fmt: skip


def agent(id: str, calls: Iterable[Assistant], **fields: Any) -> SubagentRun:
    counts = Counts(cost_usd=0.0)
    for each in calls:
        counts += Counts(1, 2, Usage.from_json(each.usage), each.cost_usd)
    started = SubagentRun(
        id=id, type="explore", prompt="?", log=id, description="find it", **fields
    )
    return counts.recorded_in(started)


def billed(entries: list[Entry], logs: dict[str, list[Entry]] | None = None) -> SessionBill:
    return session_bill(entries, lambda agent: (logs or {}).get(agent.log, []))


def check_sums(found: SessionBill) -> None:
    sum_of_lines = sum((line.counts for line in found.lines), Counts())
    whole = found.totals.all
    assert (sum_of_lines.calls, sum_of_lines.usage) == (whole.calls, whole.usage)
    assert sum_of_lines.cost_usd == pytest.approx(whole.cost_usd)


def test_lines_by_purpose_and_by_subagent() -> None:
    theirs: list[Entry] = [opened(), call(FIRST), call(SECOND)]
    entries: list[Entry] = [
        opened(),
        call(FIRST),
        SubagentRun(id="a", type="explore", prompt="?", log="a", description="find it"),
        agent("a", [call(FIRST), call(SECOND)]),
        call(SECOND),
        call(SECOND, "summary"),
        call(SECOND, "verify"),
    ]
    found = billed(entries, {"a": theirs})
    assert [(line.what, line.counts.calls) for line in found.lines] == [
        ("conversation", 2),
        ("compaction", 1),
        ("verification", 1),
        ("find it", 2),
    ]
    assert found.lines[-1].agent is not None
    check_sums(found)
    full, paid = 0.2 + 0.01 + (0.202 + 0.02), 0.25 + 0.01 + (0.012 + 0.02)
    more = 2 * ((0.202 + 0.02) - (0.012 + 0.02))
    assert found.saved == pytest.approx(2 * (full - paid) + more)


def test_a_purpose_without_calls_has_no_line() -> None:
    found = billed([opened(), call(FIRST)])
    assert [line.what for line in found.lines] == ["conversation"]
    assert found.saved == pytest.approx(-0.05), "so far the cache was only written"
    assert billed([]).lines == ()
    assert billed([]).saved == 0


def test_an_unknown_price_is_not_guessed() -> None:
    found = billed([opened("other"), call(FIRST, model="other"), call(SECOND, "summary")])
    conversation, compaction = found.lines
    assert conversation.counts.cost_usd is None
    assert compaction.counts.cost_usd == cost(MODEL, SECOND)
    assert found.totals.all.cost_usd is None
    assert found.saved is None


def test_a_server_that_answers_under_another_name() -> None:
    usage = Usage(cache_read=1_000_000)
    found = billed([opened(), call(usage, model="gateway-7")])
    assert found.saved == pytest.approx(2 - 0.1)


@pytest.mark.parametrize(
    "log", [[], [opened(), call(FIRST)], [opened("other"), call(FIRST, model="x"), call(SECOND)]]
)
def test_what_a_subagent_saved_is_not_guessed(log: list[Entry]) -> None:
    entries: list[Entry] = [opened(), call(FIRST), agent("a", [call(FIRST), call(SECOND)])]
    found = billed(entries, {"a": log})
    check_sums(found)
    assert found.saved is None


def test_a_price_that_rises_with_the_prompt() -> None:
    model = "claude-haiku-4-5"
    stepped = "claude-haiku-5-5"  # above 100,000 tokens five times as much
    usage = Usage(cache_read=150_000, output=100)
    for name, factor, price, read in ((model, 1, 1.0, 0.1), (stepped, 5, 0.1, 0.01)):
        found = billed([opened(name), call(usage, model=name)])
        assert found.saved == pytest.approx(factor * 0.15 * (price - read))


def test_requests_of_older_logs_that_kept_the_cache_warm() -> None:
    """Each cost a cent. Without a cache they would not have been made."""
    reading = call(Usage(cache_read=100_000), WARMING)
    found = billed([opened(), call(FIRST), reading, reading, call(SECOND), call(SECOND)])
    line = next(line for line in found.lines if line.what == "cache kept warm")
    assert (line.counts.calls, line.counts.cost_usd) == (2, pytest.approx(0.02))
    check_sums(found)
    without = billed([opened(), call(FIRST), call(SECOND), call(SECOND)])
    assert without.saved is not None
    assert found.saved == pytest.approx(without.saved - 0.02)
