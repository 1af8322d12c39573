"""Which sessions are removed to meet the limits, and which need a question."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ctxagent.agent.config.compaction_settings import StateSettings
from ctxagent.agent.session.disk_budget import (
    DAY_S,
    enforce_limits,
    limit_bytes,
    measure_state,
    plan_removal,
    remove_sessions,
    stored_total,
)
from ctxagent.agent.session.lock import acquire_lock

MB = 1_000_000


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state directory with sessions of 1 MB, named after their age in days."""
    for days in (5, 20, 40, 60):
        log = log_of(tmp_path, days)
        log.parent.mkdir(parents=True)
        log.write_bytes(bytes(MB))
        then = time.time() - days * DAY_S
        os.utime(log, (then, then))
    return tmp_path


def log_of(state: Path, days: int) -> Path:
    return state / "projects" / f"p{days % 3}" / "sessions" / f"{days}" / "log.jsonl"


def planned(state: Path, settings: StateSettings) -> tuple[list[str], list[str]]:
    plan = plan_removal(measure_state(state), settings, time.time())
    return [each.id for each in plan.free], [each.id for each in plan.recent]


def left(state: Path) -> set[str]:
    return {path.name for path in state.glob("projects/*/sessions/*")}


PLANS: Mapping[str, tuple[float | None, int | None, list[str], list[str]]] = {
    "below both limits": (1, 90, [], []),
    "no limits": (None, None, [], []),
    "one too many": (0.0035, None, ["60"], []),
    "two too many": (0.0025, None, ["60", "40"], []),
    "recent ones too": (0.0015, None, ["60", "40"], ["20"]),
    "by age": (None, 30, ["60", "40"], []),
    "by age, recent": (None, 10, ["60", "40"], ["20"]),
    "by age first, then by size": (0.0015, 50, ["60", "40"], ["20"]),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_oldest_sessions_are_planned(state: Path, name: str) -> None:
    gigabytes, days, free, recent = PLANS[name]
    assert planned(state, StateSettings(max_gb=gigabytes, max_age_days=days)) == (free, recent)


def test_an_open_session_is_not_planned(state: Path) -> None:
    lock = acquire_lock(log_of(state, 60), [])
    try:
        assert planned(state, StateSettings(max_gb=0.0035)) == (["40"], [])
    finally:
        os.close(lock)


def test_a_session_that_was_used_meanwhile_stays(state: Path) -> None:
    plan = plan_removal(measure_state(state), StateSettings(max_gb=0.0025), time.time())
    os.utime(log_of(state, 60))
    lock = acquire_lock(log_of(state, 20), [])
    os.close(lock)
    assert [each.id for each in remove_sessions(plan.free)] == ["40"]
    assert left(state) == {"5", "20", "60"}


def test_only_what_needs_no_question_is_removed(state: Path) -> None:
    total, notice = enforce_limits(state, StateSettings(max_gb=0.0005))
    assert left(state) == {"5", "20"}
    assert "removed 2 sessions that no one used for 30 days (2." in notice
    assert "the state directory has 2.0 MB, and state.max_gb allows 500 kB" in notice
    assert "`ctxagent sessions prune` shows what can be removed" in notice
    assert stored_total(state)[0] == total
    assert 2 * MB <= total < 2.1 * MB
    assert not enforce_limits(state, StateSettings(max_gb=0.0005))[1].startswith("removed")


def test_no_notice_below_the_limits(state: Path) -> None:
    assert enforce_limits(state, StateSettings())[1] == ""
    assert left(state) == {"5", "20", "40", "60"}


def test_recent_sessions_above_the_age_are_named(state: Path) -> None:
    notice = enforce_limits(state, StateSettings(max_age_days=10))[1]
    assert "1 session older than state.max_age_days: `ctxagent sessions prune` removes" in notice
    assert left(state) == {"5", "20"}


def test_the_limit_in_bytes() -> None:
    assert limit_bytes(StateSettings()) == 5_000_000_000
    assert limit_bytes(StateSettings(max_gb=None)) is None
