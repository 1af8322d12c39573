"""The calls and dollars of a run, compared with its budget."""

import pytest

from ctxagent.agent.errors import LimitReached
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.budget import BudgetMeter


def test_calls_are_counted_up_to_the_limit() -> None:
    meter = BudgetMeter(Budget(calls=2))
    assert [meter.call(), meter.call()] == [1, 2]
    assert meter.is_spent
    with pytest.raises(LimitReached, match="the limit of 2 model calls has been reached") as error:
        meter.call()
    assert meter.calls == 2
    assert error.value.limit == "turns"
    assert "--max-turns" in error.value.hint


def test_dollars_are_spent_up_to_the_limit() -> None:
    meter = BudgetMeter(Budget(dollars=0.5))
    meter.pay(0.25)
    assert not meter.is_spent
    meter.pay(0.25)
    assert meter.is_spent
    with pytest.raises(LimitReached, match=r"the budget of \$0.5 is spent \(\$0.5000\)") as error:
        meter.check()
    assert error.value.limit == "budget"
    assert "--max-budget-usd" in error.value.hint


def test_without_a_budget_nothing_ends() -> None:
    meter = BudgetMeter()
    for number in range(1, 100):
        meter.pay(10)
        assert meter.call() == number
    assert not meter.is_spent
    assert meter.dollars == 990


def test_spending_also_counts_in_the_outer_meter() -> None:
    outer = BudgetMeter(Budget(calls=3, dollars=1.0))
    inner = BudgetMeter(Budget(calls=2), within=outer, hint="Ask for less.")
    assert inner.call() == 1
    inner.pay(0.5)
    assert (outer.calls, outer.dollars) == (1, 0.5)
    outer.call()
    assert (inner.calls, inner.is_spent) == (1, False)
    inner.call()
    with pytest.raises(LimitReached, match=r"limit of [23] model calls"):
        inner.call()
    outer.calls = 0
    with pytest.raises(LimitReached, match="2 model calls") as error:
        inner.call()
    assert error.value.hint == "Ask for less."
    other = BudgetMeter(within=outer)
    other.pay(0.5)
    assert other.is_spent


def test_no_calls_at_all() -> None:
    assert BudgetMeter(Budget(calls=0)).is_spent
    assert BudgetMeter(Budget(dollars=0.0)).is_spent


def test_reserved_dollars_count_for_all_users_of_a_budget() -> None:
    meter = BudgetMeter(Budget(dollars=0.5))
    one, other = BudgetMeter(within=meter), BudgetMeter(within=meter)
    one.reserve(0.5)
    assert other.is_spent
    one.reserve(-0.5)
    assert not other.is_spent
