"""The metrics of compaction, by session and in total."""

from typing import Any

from ctxagent.agent.compaction.history import (
    Act,
    Rate,
    left_less_than_half,
    session_metrics,
    total_metrics,
)
from ctxagent.agent.session.entries import Assistant, Entry, Mask, Summary


def summary(seq: int, before: int, after: int, **probes: Any) -> Summary:
    return Summary(
        seq=seq, document={}, text="", covers=[1, 2], keep_from=3, tokens_before=before,
        tokens_after=after, probes=probes,
    )  # fmt: skip


def call(purpose: str, cost: float | None) -> Assistant:
    return Assistant(
        content=[], usage={}, stop_reason=None, model="m", purpose=purpose, cost_usd=cost
    )


TALLY = {
    "file": {"asked": 4, "before": 2, "after": 4},
    "rule": {"asked": 1, "before": 0, "after": 0},
}
ENTRIES: list[Entry] = [
    Mask(seq=4, layer="demote", targets=[{}], tokens_before=90, tokens_after=40, trigger="t"),
    summary(
        5, 1_000, 400, tally=TALLY,
        sections={"critical": 6, "kept": 5}, recovery={"asked": 3, "ok": 3},
    ),
    summary(6, 1_000, 500, tally={"file": {"asked": 1, "before": 1, "after": 1}}),
    call("summary", 0.5), call("verify", 0.25), call("turn", 9.0),
]  # fmt: skip


def test_one_session() -> None:
    found = session_metrics(ENTRIES)
    assert found.sessions == 1
    assert found.cost_usd == 0.75
    assert dict(found.probes) == {"file": Rate(5, 3, 5), "rule": Rate(1, 0, 0)}
    assert found.sections == Rate(6, 5, 5)
    assert found.recovery == Rate(3, 3, 3)
    assert found.halved == Rate(2, 1, 1)
    assert [(act.seq, act.before, act.after) for act in found.summaries] == [
        (5, 1_000, 400),
        (6, 1_000, 500),
    ]


def test_rates_that_are_met() -> None:
    assert Rate().met is None
    assert Rate(3, 1, 3).met is True
    assert Rate(3, 3, 2).met is False


def test_several_sessions_add_up() -> None:
    one, other = session_metrics(ENTRIES), session_metrics([])
    both = total_metrics([one, other, one])
    assert both.sessions == 3
    assert both.cost_usd == 1.5
    assert dict(both.probes)["file"] == Rate(10, 6, 10)
    assert both.sections == Rate(12, 10, 10)
    assert both.recovery == Rate(6, 6, 6)
    assert len(both.summaries) == 4
    assert both.saved == tuple((layer, 2 * acts, 2 * tokens) for layer, acts, tokens in one.saved)
    assert total_metrics([other]).saved == ()


def test_an_unknown_price_makes_the_sum_unknown() -> None:
    assert session_metrics([call("summary", None), call("summary", 1.0)]).cost_usd is None
    assert session_metrics([call("turn", None)]).cost_usd == 0
    assert (
        total_metrics([session_metrics([call("verify", None)]), session_metrics([])]).cost_usd
        is None
    )


def test_garbled_figures_count_as_none() -> None:
    found = session_metrics([summary(5, 10, 1, tally=[1], sections="x", recovery={"asked": "y"})])
    assert (found.probes, found.sections, found.recovery) == ((), Rate(), Rate())


def test_half_is_not_less_than_half() -> None:
    acts = session_metrics([summary(1, 100, 49), summary(2, 100, 50)]).summaries
    assert list(map(left_less_than_half, acts)) == [True, False]
    assert isinstance(acts[0], Act)


def test_as_json() -> None:
    found = session_metrics(ENTRIES).to_json()
    assert found["sessions"] == 1
    assert found["summaries"][0] == {"ref": 5, "tokens_before": 1_000, "tokens_after": 400}
    assert found["below_half"]["asked"] == 2
    assert found["critical_sections"]["met"] is False
    assert found["recovery"]["met"] is True
    assert found["probes"]["rule"]["after"] == 0
    assert found["saved"]["demote"] == {"acts": 1, "tokens": 50}
    assert found["cost_usd"] == 0.75
