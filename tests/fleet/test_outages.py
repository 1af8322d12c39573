"""The circuit breakers of a fleet: when they open and close, and which failures count against a
task.
"""

from ctxagent.addons.fleet.outages import EXECUTOR, SERVER, Breaker, OutageRules, Outages


class Clock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_breaker_closes_with_the_first_attempt_that_works() -> None:
    clock = Clock()
    breaker = Breaker(EXECUTOR, OutageRules(), clock)
    breaker.record_failure("a", "gone", 0)
    assert breaker.is_open
    assert not breaker.allows_start()
    clock.sleep(2)
    assert breaker.allows_start()
    breaker.probe = "b"
    assert not breaker.allows_start(), "one at a time"
    breaker.release_probe("b")
    assert breaker.allows_start()
    assert breaker.record_success("c")
    assert not breaker.record_success("c")
    assert breaker.allows_start()


def test_failures_far_apart_are_not_an_outage() -> None:
    clock = Clock()
    breaker = Breaker(SERVER, OutageRules(), clock)
    for _ in range(3):
        breaker.record_failure("a", "down", 0)
        assert not breaker.is_open
        clock.sleep(121)
    breaker.record_failure("a", "down", 0)
    clock.sleep(60)
    breaker.record_failure("b", "down", 0)
    assert breaker.is_open
    assert not breaker.lasts_too_long
    clock.sleep(3_600)
    assert breaker.lasts_too_long


def test_a_failure_counts_if_others_work_and_the_task_makes_no_progress() -> None:
    clock = Clock()
    breaker = Breaker(SERVER, OutageRules(), clock)
    found = []
    for progress in (0, 0, 0, 5, 5):
        found.append(breaker.record_failure("a", "down", progress))
        clock.sleep(1)
        breaker.record_success("b")
        clock.sleep(1)
    assert found == [0, 1, 2, 0, 1]
    breaker.record_success("a")
    assert breaker.record_failure("a", "down", 5) == 0


def test_the_loss_of_an_executor_never_counts() -> None:
    clock = Clock()
    breaker = Breaker(EXECUTOR, OutageRules(), clock)
    for _ in range(5):
        assert breaker.record_failure("a", "gone", 0) == 0
        clock.sleep(1)
        assert breaker.record_success("b")
        clock.sleep(1)


def test_an_attempt_needs_its_own_server_and_what_all_share() -> None:
    clock = Clock()
    outages = Outages(OutageRules(), clock)
    for id in ("a", "b"):
        outages.breaker(SERVER, "own").record_failure(id, "down", 0)
    assert not outages.allow_start("own")
    assert outages.allow_start("")
    assert outages.seconds_left == 2
    outages.breaker(EXECUTOR, "own").record_failure("a", "gone", 0)
    assert not outages.allow_start("")
    clock.sleep(2)
    assert outages.begin_probe("c", "own") == [SERVER, EXECUTOR]
    assert outages.seconds_left is None
    assert not outages.allow_start("")
