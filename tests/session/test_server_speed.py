"""The speed of a server, from the timings in a log."""

from typing import Any

import pytest

from ctxagent.agent.session.entries import Assistant, Mask, decode, encode
from ctxagent.agent.session.server_speed import ServerSpeed, TokenSeconds
from ctxagent.agent.session.totals import Totals

TRUE = TokenSeconds(0.018, 2e-6, 0.09, 4e-6, 0, 0)


def reply(cached: int, read: int, written: int, **more: Any) -> Assistant:
    timings = {
        "cached": cached, "read": read, "written": written,
        "read_s": read * TRUE.prefill_at(cached + read // 2),
        "written_s": written * TRUE.output_at(cached + read + written // 2),
        "by": "server", **more,
    }  # fmt: skip
    return Assistant(content=[], usage={}, stop_reason="end_turn", model="m", timings=timings)


def test_both_speeds_are_fitted_with_their_attention() -> None:
    speed = ServerSpeed()
    assert speed.per_token() is None
    for cached, read in ((0, 2_000), (2_000, 500), (6_000, 1_000), (12_000, 300)):
        speed.add(reply(cached, read, 100))
    found = speed.per_token()
    assert found is not None
    assert found.prefill == pytest.approx(TRUE.prefill, rel=0.01)
    assert found.prefill_behind == pytest.approx(TRUE.prefill_behind, rel=0.02)
    assert found.output_at(9_000) == pytest.approx(TRUE.output_at(9_000), rel=0.01)
    assert (found.read_per_call, found.written_per_call) == (950, 100)
    assert found.kept() == pytest.approx(950 * 2e-6 + 100 * 4e-6, rel=0.02)
    assert found.seconds(1_000, 500, 50) == pytest.approx(TRUE.seconds(1_000, 500, 50), rel=0.01)


def test_a_fit_is_never_negative() -> None:
    speed = ServerSpeed()
    for cached, seconds in ((0, 20.0), (4_000, 10.0), (8_000, 1.0)):
        speed.add(reply(cached, 500, 50, read_s=seconds))
    found = speed.per_token()
    assert found is not None
    assert found.prefill_behind == 0
    assert found.prefill > 0


def test_slow_short_reads_leave_a_price_for_every_token() -> None:
    speed = ServerSpeed()
    for cached, read, seconds in ((0, 800, 1.0), (800, 50, 60.0), (900, 50, 90.0)):
        speed.add(reply(cached, read, 50, read_s=seconds))
    found = speed.per_token()
    assert found is not None
    assert found.prefill >= 151.0 / 900 / 2


@pytest.mark.parametrize("bad", [{"read": "x"}, {"read_s": None}, {"read": -1}, {"read": 3}])
def test_bad_and_tiny_timings_do_not_count(bad: dict[str, Any]) -> None:
    speed = ServerSpeed()
    found = reply(0, 500, 50)
    found.timings.update(bad)
    speed.add(found)
    assert speed.per_token() is None


def test_without_a_count_of_the_cache_the_growth_was_read() -> None:
    totals = Totals(model="m")
    first = reply(0, 2_000, 100, by="clock")
    second = reply(0, 2_600, 100, by="clock", read_s=10.0)
    for each in (first, second):
        del each.timings["cached"]
        totals.add(each)
    found = totals.speeds["m"].per_token()
    assert found is not None
    assert found.prefill_at(2_350) == pytest.approx(0.02)
    totals.add(Mask(layer="m", targets=[], tokens_before=2, tokens_after=1, trigger=""))
    totals.add(second)
    assert totals.speeds["m"]._read.tokens == 500, "after an edit, the growth is not known"


def test_the_log_keeps_timings_and_old_entries_have_none() -> None:
    line = encode(reply(1, 2, 3))
    assert decode({**line, "seq": 1}).timings["read"] == 2  # type: ignore[attr-defined]
    del line["timings"]
    assert decode({**line, "seq": 1}).timings == {}  # type: ignore[attr-defined]
