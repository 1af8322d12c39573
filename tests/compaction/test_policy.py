"""When each layer runs: thresholds, presets and settings."""

from dataclasses import replace
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import (
    DEFAULT,
    PRESETS,
    policy_of,
    reached,
    summary_due_at,
    threshold_tokens,
)
from ctxagent.agent.config.settings import Settings
from ctxagent.agent.context.window import Window

WINDOW = Window(500, 1_000)


@pytest.mark.parametrize(
    ("threshold", "is_reached", "tokens"),
    [(0.5, True, 500), (0.51, False, 510), (500, True, 500), (501, False, 501),
    (None, False, None), (1.0, False, 1_000)],
)  # fmt: skip
def test_thresholds(threshold: Any, is_reached: bool, tokens: float | None) -> None:
    assert reached(threshold, WINDOW) is is_reached
    assert threshold_tokens(threshold, WINDOW) == tokens


def test_a_summary_is_due_at_its_level_or_where_the_window_is_full() -> None:
    large, small = Window(0, 200_000), Window(0, 10_000)
    assert summary_due_at(DEFAULT, large) == 186_000
    assert summary_due_at(replace(DEFAULT, summarize_at=None), large) is None
    assert summary_due_at(replace(DEFAULT, summarize_at=1_000), large) == 1_000
    assert summary_due_at(replace(DEFAULT, summarize_at=1.0), small) == small.full_at
    assert summary_due_at(replace(DEFAULT, summarize_at=0.33331), small) == 3_334


def test_presets_have_the_numbers_of_the_table() -> None:
    """The table in the module's docstring, which the guide has too."""
    rows = {
        name: (p.move_above, p.clear_when, p.truncate_at, p.prepare_at, p.summarize_at)
        for name, p in PRESETS.items()
    }
    assert rows["default"] == (3_000, "pays", 0.01, 0.70, 0.93)
    assert rows["v5"] == (40_000, "every-call", None, None, 0.93)
    assert rows["ctx-001"] == (15_000, "from", 0.50, None, 0.75)
    assert rows["anchored"] == (10_000, "from", 0.85, 0.70, 0.85)
    assert rows["ledger"] == (10_000, "pays", 0.50, None, 0.95)
    checkpoints = {name: (p.checkpoint_at, p.checkpoint_always) for name, p in PRESETS.items()}
    assert checkpoints["default"] == (0.85, False)
    assert checkpoints["v5"] == (None, False)
    assert checkpoints["ctx-001"] == (0.75, False)
    assert checkpoints["anchored"] == checkpoints["ledger"] == (None, True)
    assert PRESETS["ctx-001"].fresh_at == 0.85
    assert (PRESETS["anchored"].turns, PRESETS["anchored"].boundaries) == (20, True)
    assert PRESETS["ledger"].at_end
    assert [PRESETS[name].keep_tokens for name in ("v5", "lean", "append")] == [0, 8_000, 8_000]
    assert all(name == policy.preset for name, policy in PRESETS.items())
    assert PRESETS["append"].summarizer == "api"


def test_settings_change_the_preset_of_their_choice() -> None:
    settings = Settings()
    assert policy_of(settings) == DEFAULT
    chosen = replace(
        settings,
        compact=replace(settings.compact, preset="v5", at=0.5, keep_messages=2, model="m"),
        move=replace(settings.move, above=77),
        clear=replace(settings.clear, when="auto", keep=9),
    )
    policy = policy_of(chosen)
    assert (policy.preset, policy.summarize_at, policy.keep_messages, policy.model) == (
        "v5",
        0.5,
        2,
        "m",
    )
    assert (policy.move_above, policy.clear_keep) == (77, 9)
    assert policy.clear_when == "every-call"
    assert policy.clear_above == PRESETS["v5"].clear_above
    off = replace(settings, clear=replace(settings.clear, when="off"))
    assert policy_of(off).clear_when == "off"


def test_each_setting_changes_its_threshold() -> None:
    settings = Settings()
    chosen = replace(
        settings,
        compact=replace(
            settings.compact, mode="off", prepare_at=0.2, keep_tokens=7, summarizer="mechanical"
        ),
        move=replace(settings.move, preview_chars=9),
        clear=replace(settings.clear, from_=0.4, above=11, tools=("Read",)),
        truncate=replace(settings.truncate, at=0.3),
        checkpoint=replace(settings.checkpoint, at=0.6),
    )
    policy = policy_of(chosen)
    assert (policy.mode, policy.prepare_at, policy.keep_tokens) == ("off", 0.2, 7)
    assert (policy.summarizer, policy.preview_chars) == ("mechanical", 9)
    assert (policy.clear_from, policy.clear_above, policy.clear_tools) == (0.4, 11, ("Read",))
    assert (policy.truncate_at, policy.checkpoint_at) == (0.3, 0.6)
