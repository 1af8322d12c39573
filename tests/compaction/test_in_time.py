"""The policy for a server whose price is time."""

from dataclasses import replace

from ctxagent.agent.compaction.in_time import policy_in_time
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, policy_of
from ctxagent.agent.config.settings import CompactSettings, Settings
from ctxagent.agent.context.window import Window
from ctxagent.agent.session.server_speed import TokenSeconds

SLOW = TokenSeconds(0.02, 0, 0.1, 0, 500, 100)
FAST = TokenSeconds(0.0005, 0, 0.01, 0, 500, 100)
SMALL, LARGE = Window(4_000, 8_192), Window(10_000, 32_768)


def test_without_a_speed_nothing_changes() -> None:
    assert policy_in_time(DEFAULT, None, SMALL) is DEFAULT


def test_a_slow_server_reads_no_large_result_and_writes_no_summary() -> None:
    large = policy_in_time(DEFAULT, SLOW, LARGE)
    assert (large.moves_above("Bash"), large.moves_above("Read")) == (1_000, 3_000)
    assert (large.preview_chars, large.summarizer) == (1_000, "mechanical")
    small = policy_in_time(DEFAULT, SLOW, SMALL)
    assert (small.moves_above("Bash"), small.moves_above("Read")) == (819, 1_638)


def test_a_fast_server_with_a_large_window_is_as_before() -> None:
    assert policy_in_time(DEFAULT, FAST, Window(10_000, 65_536)) == DEFAULT
    assert policy_in_time(DEFAULT, FAST, LARGE).summarizer == "model"


def test_published_presets_and_settings_of_the_user_stay() -> None:
    for name in ("v5", "ctx-001", "anchored", "ledger"):
        assert policy_in_time(PRESETS[name], SLOW, SMALL) is PRESETS[name]
    given = policy_of(Settings(compact=CompactSettings(summarizer="model")))
    assert given == DEFAULT
    assert policy_in_time(given, SLOW, SMALL).summarizer == "model"
    assert policy_in_time(replace(DEFAULT, model="claude-haiku-4-5"), SLOW, SMALL).model
    assert policy_in_time(replace(DEFAULT, move_above=None), SLOW, SMALL).move_above is None
