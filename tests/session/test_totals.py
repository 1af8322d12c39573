"""Totals over a log: the usage of a session and its subagents."""

from datetime import UTC, datetime

from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Mask,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Usage,
    User,
)
from ctxagent.agent.session.totals import Counts, Totals


def totals(*entries: Entry) -> Totals:
    found = Totals()
    for entry in entries:
        found.add(entry)
    return found


def reply(cost: float | None = 0.5, at: str = "", purpose: str = "turn") -> Assistant:
    usage = {"input": 1, "output": 2}
    return Assistant(
        content=[], usage=usage, stop_reason=None, model="m", cost_usd=cost, at=at, purpose=purpose
    )


def run(id: str, cost: float | None = 0.25, calls: int = 1) -> SubagentRun:
    return SubagentRun(
        id=id, type="t", prompt="p", log="l", usage={"input": 3}, cost_usd=cost, calls=calls,
        tool_calls=2, compaction={"demoted": 4, "tokens_saved": 100},
    )  # fmt: skip


def test_calls_costs_and_turns() -> None:
    found = totals(
        User(content="a"), reply(), ToolResult(tool_use_id="t", content=""),
        User(content="b", mid_turn=True), reply(1.0), User(content="c", source="notice"),
    )  # fmt: skip
    assert (found.turns, found.own.calls, found.own.tool_calls) == (1, 2, 1)
    assert found.own.cost_usd == 1.5
    assert found.own.usage == Usage(input=2, output=4)


def test_one_call_of_an_unknown_price_makes_the_sum_unknown() -> None:
    assert totals(reply(), reply(None), reply()).own.cost_usd is None
    assert totals(run("a", None, calls=1)).all.cost_usd is None
    assert totals(run("a", None, calls=0)).all.cost_usd == 0.0
    assert totals(reply(None), run("a")).all.cost_usd is None


def test_what_compaction_did() -> None:
    counts = {"demote": 1, "truncate": 2, "microcompact": 3, "later": 4, "outline": 5}
    masks = [
        Mask(layer=layer, targets=[{}] * count, tokens_before=50, tokens_after=20, trigger="")
        for layer, count in counts.items()
    ]
    summary = Summary(
        document={}, text="", covers=[1, 2], keep_from=3, tokens_before=500, tokens_after=100
    )
    offloaded = ToolResult(
        tool_use_id="t", content="", offloaded="offloaded/a", details={"tokens_saved": 7}
    )
    shell = User(content="", source="shell", offloaded="offloaded/b", details={"tokens_saved": "x"})
    found = totals(*masks, summary, offloaded, shell, ToolResult(tool_use_id="t", content=""))
    assert found.own.compaction == {
        "demoted": 1 + 2, "truncated": 2, "outlined": 5, "microcompacted": 3, "later": 4,
        "summaries": 1,
        "tokens_saved": 5 * 30 + 400 + 7,
    }  # fmt: skip


def test_the_newest_state_of_each_subagent_counts() -> None:
    found = totals(run("a"), run("a", 0.5, calls=3), run("b"), reply())
    assert found.agents.calls == 4
    assert found.agents.tool_calls == 4
    assert found.agents.cost_usd == 0.75
    assert found.all.calls == 5
    assert found.all.cost_usd == 1.25
    assert found.all.usage == Usage(input=7, output=2)
    assert found.all.compaction["demoted"] == 8
    assert found.own.calls == 1


def test_differences_and_garbled_counts() -> None:
    one = Counts(5, 3, Usage(input=4), 2.0)
    other = Counts(2, 1, Usage(input=1), 0.5)
    assert one - other == Counts(3, 2, Usage(input=3), 1.5)
    assert (one - Counts(cost_usd=None)).cost_usd is None
    garbled = SubagentRun(id="a", type="t", prompt="", log="", compaction={"demoted": "x"})  # type: ignore[dict-item]
    assert Counts.of(garbled).compaction["demoted"] == 0


def test_counts_are_recorded_in_a_subagents_entry() -> None:
    entry = one = Counts(5, 3, Usage(input=4), 2.0).recorded_in(run("a"))
    assert Counts.of(entry) == Counts(5, 3, Usage(input=4), 2.0)
    assert (one.id, one.prompt) == ("a", "p")


def session(model: str) -> Session:
    return Session(id="i", cwd="/", version="1", model=model)


def test_the_time_of_a_models_last_reply() -> None:
    at = "2026-01-01T00:00:00.000Z"
    found = totals(
        session("a"), reply(at=at), reply(at="2027-01-01T00:00:00Z", purpose="summary"),
        session("b"), reply(at="garbled"), session("c"), reply(at=""),
    )  # fmt: skip
    assert found.model == "c"
    assert found.replied_at("a") == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert [found.replied_at(model) for model in "bcd"] == [None, None, None]
    warmed = totals(session("a"), reply(at=at, purpose="warm"))
    assert warmed.replied_at("a") == found.replied_at("a")
