"""How full the context is, and what comes next, in the words of the status line."""

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from ctxagent.agent.compaction.engine import CompactionEngine
from ctxagent.agent.compaction.policy import PRESETS, Policy
from ctxagent.agent.context.window import Window
from ctxagent.agent.ui import fill

CLEARED, SUMMARISED = "old results are cleared", "old messages are summarised"


@dataclass
class Engine:
    """An engine with a known plan."""

    policy: Policy
    is_preparing: bool = False
    freed: int | None = None  # tokens to clear instead of a summary

    def tokens_freed_instead_of_summary(self) -> int | None:
        return self.freed


def step(percent: int, preset: str = "default", freed: int | None = 9, **changes: Any) -> str:
    """Return the next step at a fill level; "!" before what the user must do."""
    policy = replace(PRESETS[preset], **changes)
    engine = cast("CompactionEngine", Engine(policy, freed=freed))
    found = fill.next_step(engine, Window(percent * 1_000, 100_000))
    return "!" * found.user_acts + found.text


@pytest.mark.parametrize(("percent", "when"), [(10, ""), (72, ""), (78, "soon"), (94, "next")])
def test_step_is_announced_when_it_is_near(percent: int, when: str) -> None:
    assert step(percent) == (f"{CLEARED} {when}" if when else "")
    assert step(percent, freed=None) == (f"{SUMMARISED} {when}" if when else "")


def test_each_preset_announces_its_own_steps() -> None:
    assert step(20, "ctx-001") == ""
    assert step(40, "ctx-001", freed=None) == f"{CLEARED} soon"
    assert step(60, "ctx-001", freed=None) == f"{SUMMARISED} soon"
    assert step(76, "ctx-001", freed=None) == f"{SUMMARISED} next"
    assert step(78, "append", freed=None) == f"{SUMMARISED} soon"
    assert step(90, summarize_at=None, freed=None) == f"{CLEARED} soon"


def test_only_what_the_user_must_do_is_marked() -> None:
    assert step(60, mode="off") == step(60, mode="remind") == step(90, mode="remind") == ""
    assert step(90, mode="off") == "!run /compact: compaction is off"
    assert step(95, mode="remind") == "!run /compact"


def test_summary_in_preparation_is_named() -> None:
    engine = cast("CompactionEngine", Engine(PRESETS["default"], is_preparing=True))
    assert fill.next_step(engine, Window(71, 100)).text == "a summary is being written"


def test_levels_are_named_on_request_alone() -> None:
    for text, plain in (
        ("HIGH: it asks, right after a compaction", "it asks, right after a compaction"),
        ("HOOK-CTX-003: 93% of the window", "93% of the window"),
        ("checkpoint 1 (HOOK-CTX-005: 87%)", "checkpoint 1 (87%)"),
    ):
        assert fill.trigger_text(text, levels=False) == plain
        assert fill.trigger_text(text, levels=True) == text
    assert fill.fullness(Window(90, 100)) == "90% full"
    assert fill.fullness(Window(90, 100), levels=True) == "90% CRITICAL"
