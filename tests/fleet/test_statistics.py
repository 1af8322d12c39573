"""Rates, intervals and tests, compared with SciPy and with known rates."""

import random

import pytest

from ctxagent.addons.fleet import results
from ctxagent.addons.fleet.results import Estimate


@pytest.mark.parametrize(
    ("passed", "count", "low", "high"),
    [
        (0, 20, 0.0, 0.1684334709830853),
        (3, 20, 0.0320709371854637, 0.37892682654531396),
        (20, 20, 0.8315665290169146, 1.0),
        (7.5, 33.2, 0.09959704178013062, 0.40380573244470036),
    ],
)
def test_the_exact_interval_equals_scipys(
    passed: float, count: float, low: float, high: float
) -> None:
    assert results.clopper_pearson(passed, count) == pytest.approx((low, high), abs=1e-12)


def test_other_statistics_equal_scipys() -> None:
    assert results.t_quantile(1) == pytest.approx(12.706204736174694)
    assert results.t_quantile(19) == pytest.approx(2.0930240544082883)
    assert results.beta(250, 3, 0.99) == pytest.approx(0.5380259010264788)
    assert results.sign_test(8, 2) == results.sign_test(2, 8) == 0.109375
    assert (results.sign_test(0, 0), results.sign_test(5, 0)) == (1.0, 0.0625)


def test_pass_at_k_is_the_share_of_choices_with_a_pass() -> None:
    assert results.pass_at_k(5, 2, 1) == pytest.approx(0.4)
    assert results.pass_at_k(5, 2, 3) == pytest.approx(1 - 1 / 10)
    assert (results.pass_at_k(5, 0, 5), results.pass_at_k(5, 1, 5)) == (0.0, 1.0)


def test_the_effective_number_of_attempts_depends_on_the_variance() -> None:
    alike = results.rate([1.0, 0.0] * 10, 100)
    assert (alike.low, alike.high) == pytest.approx((0.254, 0.746), abs=1e-3), "as 18, not as 100"
    spread = results.rate([0.6, 0.4] * 10, 100)
    assert (spread.low, spread.high) == pytest.approx((0.398, 0.602), abs=0.01), "as 100"
    assert results.rate([0.6], 5).high == pytest.approx(results.clopper_pearson(3, 5)[1])


@pytest.mark.full
@pytest.mark.parametrize("rates", [(0.7, 0.7), (0.95, 0.95), (0.2, 0.9), (0.0, 1.0)])
def test_the_interval_covers_the_true_rate(rates: tuple[float, float]) -> None:
    chance, found = random.Random(7), 0
    for _ in range(400):
        tasks = [chance.choice(rates) for _ in range(20)]
        values = [sum(chance.random() < rate for _ in range(5)) / 5 for rate in tasks]
        estimate = results.rate(values, 100)
        assert estimate.low is not None
        assert estimate.high is not None
        found += estimate.low <= sum(rates) / 2 <= estimate.high
    assert found / 400 > 0.93


def test_a_difference_has_an_interval_where_tasks_differ() -> None:
    assert results.difference([0.1] * 4) == Estimate(pytest.approx(0.1), None, None)
    found = results.difference([0.0, 0.2, 0.4, 0.2])
    assert (found.value, found.low, found.high) == pytest.approx((0.2, -0.0598, 0.4598), abs=1e-3)
