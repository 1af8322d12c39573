"""Retries: how long to wait after a fault, when to give up, and the messages."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ctxagent.agent.errors import ModelUnavailable
from ctxagent.agent.events import Retrying
from ctxagent.agent.models.retry import Fault, RetryPlan, RetryPolicy, requested_wait


def plan(**policy: float) -> RetryPlan:
    return RetryPlan(RetryPolicy(**policy), "URL")  # type: ignore[arg-type]


def given_up(tried: RetryPlan, fault: Fault, *, has_output: bool = False) -> ModelUnavailable:
    with pytest.raises(ModelUnavailable) as failed:
        tried.next_attempt(fault, has_output=has_output)
    return failed.value


class Overload:
    """The retry plan of a request with overloads only. The clock advances only by its waits."""

    def __init__(self, wait: float, **policy: float) -> None:
        self.now = 0.0
        self.plan = RetryPlan(RetryPolicy(**policy), "URL", wait, lambda: self.now)  # type: ignore[arg-type]

    def next(self, wait: float | None = None) -> Retrying:
        fault = Fault("the model is overloaded", wait, 529, overloaded=True)
        retrying = self.plan.next_attempt(fault)
        self.now += retrying.seconds
        return retrying


def test_an_overload_is_tried_again_until_its_time_is_up() -> None:
    overload = Overload(600)
    seen = [overload.next()]
    while overload.now < 599.999:
        seen.append(overload.next())
    with pytest.raises(ModelUnavailable) as failed:
        overload.next()
    assert overload.now == pytest.approx(600)
    for retrying, longest in zip(seen[:-1], [0.5, 1, 2, 4, 8, 16, *[30] * 50], strict=False):
        assert 0.75 * longest - 0.001 <= retrying.seconds <= longest
        assert retrying.of is None
    assert [retrying.attempt for retrying in seen] == list(range(1, len(seen) + 1))
    assert seen[0].left == 600
    assert f"tried {len(seen) + 1} times in 600 s" in failed.value.message
    assert "model.overload_wait" in failed.value.hint
    assert "network" not in failed.value.hint


def test_the_wish_of_an_overloaded_server_is_obeyed_while_there_is_time() -> None:
    overload = Overload(100)
    assert overload.next(70).seconds == 70
    assert overload.next(70).seconds == 30
    with pytest.raises(ModelUnavailable, match="tried 3 times in 100 s"):
        overload.next(70)
    with pytest.raises(ModelUnavailable, match="tried once in 0 s"):
        Overload(0).next()


def test_other_faults_keep_their_count_beside_overloads() -> None:
    overload = Overload(600, attempts=2)
    for _ in range(5):
        overload.next()
    counted = overload.plan.next_attempt(Fault("down"))
    assert (counted.attempt, counted.of, counted.left) == (6, 7, None)
    assert overload.next().attempt == 7
    with pytest.raises(ModelUnavailable, match=r"down \(tried 8 times"):
        overload.plan.next_attempt(Fault("down"))


def test_waits_grow_and_have_a_limit() -> None:
    plan = RetryPlan(RetryPolicy(attempts=8, first_wait=0.5, longest_wait=8), "URL")
    waits = [plan.next_attempt(Fault("down")).seconds for _ in range(7)]
    for wait, longest in zip(waits, [0.5, 1, 2, 4, 8, 8, 8], strict=True):
        assert 0.75 * longest <= wait <= longest
    with pytest.raises(ModelUnavailable, match="tried 8 times"):
        plan.next_attempt(Fault("down"))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "2", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 01 Jan 2020 00:00:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 01 Jan 10000000000000000000000 00:00:00 GMT"}, None),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "2", "retry-after-ms": "nan"}, 2.0),
        ({"retry-after": "1e9"}, 1e9),
    ],
)
def test_forms_of_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert requested_wait(headers) == seconds


def test_a_date_is_counted_from_now() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert requested_wait({"retry-after": soon}) == pytest.approx(90, abs=5)


def test_a_wish_to_wait_is_obeyed_up_to_the_cap() -> None:
    """The first wait that is too long is shortened, the second ends the retries."""
    tried = plan(longest_requested_wait=60)
    assert tried.next_attempt(Fault("busy", wait=60)).seconds == 60
    assert tried.next_attempt(Fault("busy", wait=60)).seconds == 60
    assert tried.next_attempt(Fault("busy", wait=3600)).seconds == 60
    assert tried.next_attempt(Fault("busy", wait=60)).seconds == 60
    error = given_up(tried, Fault("busy", wait=86_400))
    assert error.message == "busy; the server asks to wait 86400 s"
    assert "--model" in error.hint
    for _ in range(2):
        error = given_up(tried, Fault("busy", wait=86_401))
    assert error.message == "busy; the server asks to wait more than a day"


def test_the_wait_is_the_longer_of_the_wish_and_the_backoff() -> None:
    tried = plan(first_wait=4, longest_wait=4)
    assert tried.next_attempt(Fault("busy", wait=0.1)).seconds >= 3
    assert tried.next_attempt(Fault("busy", wait=9)).seconds == 9


def test_an_attempt_is_told_with_the_number_of_all() -> None:
    tried = plan(attempts=3, first_wait=0.001)
    seen = [tried.next_attempt(Fault("down")) for _ in range(2)]
    assert [(each.attempt, each.of, each.reason) for each in seen] == [
        (1, 3, "down"), (2, 3, "down"),
    ]  # fmt: skip
    error = given_up(tried, Fault("down", status=500, request_id="r"))
    assert error.message == "down (tried 3 times)"
    assert error.hint == (
        "Nothing recorded is lost: try again later, or use another model (--model): the server "
        "itself fails."
    )
    assert (error.status, error.request_id) == (500, "r")
    assert given_up(plan(attempts=1), Fault("down")).message == "down (tried once)"


def test_an_overload_without_a_limit_of_time_counts_like_any_fault() -> None:
    error = given_up(plan(attempts=1), Fault("overloaded", overloaded=True))
    assert error.hint == "Nothing recorded is lost: try again later."


def test_an_overload_after_words_counts_like_any_fault() -> None:
    overload = Overload(600, attempts=1)
    fault = Fault("overloaded", status=529, request_id="r", overloaded=True)
    assert given_up(overload.plan, fault, has_output=True).message == "overloaded (tried once)"
    assert overload.plan.overloads == 0


def test_an_overload_that_is_given_up_names_the_request_and_the_setting() -> None:
    overload = Overload(10)
    overload.next(10)
    error = given_up(overload.plan, Fault("full", 1, 529, "r", overloaded=True))
    assert error.message == "full (tried 2 times in 10 s)"
    assert "tries longer than 10 s, such as -c model.overload_wait=3600." in error.hint
    assert (error.status, error.request_id) == (529, "r")


def test_the_time_of_an_overload_begins_with_the_first_one() -> None:
    overload = Overload(100)
    overload.now = 50
    assert overload.next(10).left == 100
    assert overload.next(10).left == 90


def test_waits_do_not_overflow() -> None:
    overload = Overload(10**9, first_wait=1e-3, longest_overload_wait=1e-3)
    overload.plan.overloads = 5_000
    assert 0 < overload.next().seconds <= 1e-3


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        (Fault("cut"), "check the network and URL"),
        (Fault("limit", status=429), "another model (--model) or key"),
        (Fault("broken", status=500), "the server itself fails"),
        (Fault("empty", no_reply=True), "the server itself fails"),
        (Fault("none", no_server=True), "Start the model server, or set its address with URL."),
    ],
)
def test_the_advice_fits_the_fault(fault: Fault, hint: str) -> None:
    assert hint in given_up(plan(attempts=1, local_attempts=1), fault).hint


def test_a_server_that_does_not_run_is_tried_a_few_times() -> None:
    tried = plan(first_wait=0.001)
    for _ in range(2):
        tried.next_attempt(Fault("none", no_server=True))
    assert given_up(tried, Fault("none", no_server=True)).message == "none (tried 3 times)"


def test_equal_failures_may_be_due_to_the_request() -> None:
    """A different failure in between starts the count again."""
    tried = plan(first_wait=0.001)
    tried.same_failures = 2
    tried.next_attempt(Fault("broken", status=500))
    tried.next_attempt(Fault("other", status=500))
    error = given_up(tried, Fault("other", status=500))
    assert error.may_refuse
    assert not given_up(plan(attempts=1), Fault("cut")).may_refuse
