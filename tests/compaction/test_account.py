"""When a summary pays, by its cost account, in the presets that use the account."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ctxagent.addons.replay.player import Terms
from ctxagent.addons.replay.player import play as replay
from ctxagent.agent.compaction.layers.layer import WITH_SUMMARY
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS
from ctxagent.agent.compaction.summary.background import SummaryAccount, SummaryCost
from ctxagent.agent.session.entries import Mask, Summary
from ctxagent.agent.ui.compaction_report import next_lines

from ..support.sessions.workday import workday
from .test_engine import Player, play


def test_a_summary_pays_when_reading_has_cost_its_price() -> None:
    account, cost = SummaryAccount(), SummaryCost(reading=1_000, price=4_500)
    left = []
    while not account.pays(cost):
        left.append(account.calls_left(cost))
        account.charge(cost)
    assert left == [5, 4, 3, 2, 1]
    assert account.calls_left(cost) == 0
    assert SummaryAccount().calls_left(SummaryCost(0, 4_500)) is None
    assert not SummaryAccount(spent=9_999).pays(SummaryCost(0, 4_500))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.mark.slow
def test_lean_summarises_long_before_the_window_is_full(project: Path) -> None:
    lean = replace(PRESETS["lean"], clear_when="off", truncate_at=None)
    talk = play(project, Player(60, 2_000), lean, window=200_000)
    found = talk.of(Summary)
    assert found
    for summary in found:
        assert summary.trigger == "it pays"
        assert summary.tokens_before < 0.5 * 200_000
        assert summary.tokens_after < 0.5 * summary.tokens_before
    assert talk.agent.engine.policy.summarize_at == DEFAULT.summarize_at


@pytest.mark.slow
def test_context_says_when_a_summary_pays(project: Path) -> None:
    lean = replace(PRESETS["lean"], clear_when="off", truncate_at=None)
    talk = play(project, Player(12, 2_000), lean, window=200_000)
    calls = talk.agent.engine.calls_until_summary_pays()
    assert calls is not None
    assert calls > 1
    told = f"a summary pays in about {calls} calls like the last"
    assert told in " ".join(next_lines(talk.agent))


@pytest.mark.slow
def test_the_default_preset_makes_no_summary_there(project: Path) -> None:
    talk = play(project, Player(60, 2_000), replace(DEFAULT, clear_when="off"), window=200_000)
    assert talk.of(Summary) == []
    assert talk.agent.engine.calls_until_summary_pays() is None


@pytest.mark.slow
def test_a_prepared_summary_is_dropped_after_clearing_freed_enough() -> None:
    """The summary is written just before most of its span is cleared. Another one follows later.
    The window decides whether the two meet.
    """
    assert any(map(_has_dropped_summary, (120_000, 180_000, 200_000)))


def _has_dropped_summary(window: int) -> bool:
    run = replay(workday(), Terms("lean", PRESETS["lean"], "claude-sonnet-5", window, "", ()))
    written = [call.number for call in run.priced if call.purpose == "summary"]
    applied = [act.number for act in run.acts if act.layer == "summary"]
    cleared = [a.number for a in run.acts if a.layer == "microcompact" and a.trigger == "it pays"]
    dropped = [
        number
        for number, later in pairwise(written)
        if not any(number < at <= later for at in applied)
    ]
    return any(number < at <= number + 2 for number in dropped for at in cleared)


@pytest.mark.slow
def test_profitable_masks_are_applied_with_the_summary() -> None:
    """The next call writes everything after a summary to the cache, so an edit there is free."""
    late = replace(PRESETS["lean"], edit_margin=2.0, clear_keep=3)  # else nothing is left for it
    terms = Terms("late", late, "claude-sonnet-5-5", 200_000, "", (), fills=0)
    acts = replay(workday(), terms).acts
    (place,) = (n for n, act in enumerate(acts) if act.trigger == WITH_SUMMARY)
    assert acts[place - 1].layer == "summary"
    assert acts[place - 1].number == acts[place].number
    assert acts[place].after < acts[place].before == acts[place - 1].after


@pytest.mark.slow
def test_append_edits_nothing(project: Path) -> None:
    talk = play(project, Player(60, 2_000), PRESETS["append"], window=200_000)
    assert talk.of(Summary)
    assert talk.of(Mask) == []
