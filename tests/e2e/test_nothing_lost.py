"""A whole session in a small window: what remains after useless summaries."""

from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.addons.replay.results import Share
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.verify import ProbeTally

from ..support.sessions.recording import USELESS, Played, made, play
from ..support.sessions.summarizers import SUMMARIZERS
from ..support.sessions.survivors import lost, survivors

BARE = "This was a session about amounts. It went on for a while."
SMALL = replace(DEFAULT.moving_above(2_000), clear_when="off", preview_chars=400)


@pytest.fixture(scope="module", params=[USELESS, BARE], ids=["with sections", "bare"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("recorded")
    return play(made(), folder, window=24_000, record=request.param, policy=SMALL)


@pytest.mark.variants
def test_there_were_several_summaries(played: Played) -> None:
    assert len(played.summaries) >= 3
    assert any(act.layer == "demote" for act in played.run.acts)
    assert played.run.stopped == ""


def test_every_changed_path_is_in_the_context(played: Played) -> None:
    assert played.run.paths == Share(30, 30)


def test_every_byte_of_every_result_comes_back_by_its_ref(played: Played) -> None:
    assert played.run.recovered == Share(120, 120)


def test_facts_missing_in_the_summary_were_added(
    played: Played, request: pytest.FixtureRequest
) -> None:
    for summary in played.summaries:
        tally = ProbeTally.from_json(summary.probes["tally"])
        asked, after = sum(tally.asked.values()), sum(tally.after.values())
        assert asked >= 20
        assert after >= 0.95 * asked, (asked, after)
        is_from_ledger = "bare" in request.node.name  # which has all of it before it is checked
        assert is_from_ledger or sum(tally.before.values()) < 0.95 * asked
        assert tally.after["artifact"] >= 0.95 * tally.asked["artifact"]


def test_rules_of_the_user_are_in_the_context(played: Played) -> None:
    context = played.context
    assert "Never touch migrations/0007_freeze.sql." in context
    assert "Do not change the column names of the CSV." in context
    assert "PAY-4711" in context


def test_every_summary_says_that_all_of_it_can_be_read_back(played: Played) -> None:
    for summary in played.summaries:
        recovery = summary.probes["recovery"]
        assert recovery["ok"] == recovery["asked"] > 0


@pytest.mark.variants
@pytest.mark.parametrize("name", SUMMARIZERS)
def test_rules_and_paths_survive_five_useless_summaries(tmp_path: Path, name: str) -> None:
    played = play(made(), tmp_path, window=16_000, record=SUMMARIZERS[name], policy=SMALL)
    assert len(played.summaries) >= 5
    assert played.run.stopped == ""
    assert survivors(played) == {
        "paths": Share(30, 30),
        "words": Share(2, 2),
        "rules": Share(2, 2),
        "errors": Share(15, 15),
    }, lost(played)
