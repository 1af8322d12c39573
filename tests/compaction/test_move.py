"""The reference that replaces an oversized result."""

from dataclasses import replace
from datetime import datetime

import pytest

from ctxagent.agent.compaction.layers import move
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, Policy
from ctxagent.agent.context.tokens import estimate

LOG = "".join(f"line {n} of the log\n" for n in range(20_000))


def reference(text: str, policy: Policy = DEFAULT) -> list[str]:
    plan = move.plan(text, path="/s/offloaded/x.md", policy=policy)
    assert plan is not None
    assert plan.saved == estimate(text) - estimate(plan.reference) > 0
    return plan.reference.split("\n")


def quoted(lines: list[str]) -> list[str]:
    return [line[2:] for line in lines if line.startswith("> ")]


def test_the_name_of_the_file() -> None:
    assert (
        move.file_name("Bash", 42, datetime(2026, 1, 29, 14, 25, 30))
        == "20260129_142530_Bash_42.md"
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_moves_above_its_own_number(preset: str) -> None:
    policy = PRESETS[preset]
    assert policy.move_above is not None
    text = "a " * policy.move_above
    assert estimate(text) == policy.move_above
    assert move.plan(text, path="p", policy=policy) is None
    assert move.plan(text + "a", path="p", policy=policy) is not None


def test_off_moves_nothing() -> None:
    assert move.plan(LOG, path="p", policy=replace(DEFAULT, move_above=None)) is None


@pytest.mark.slow
def test_both_ends_in_whole_lines() -> None:
    lines = reference(LOG)
    assert lines[1] == "**File:** /s/offloaded/x.md"
    assert lines[3].endswith(f"the beginning and the end of 20,000 lines, {len(LOG):,} characters")
    preview = quoted(lines)
    assert preview[:2] == ["line 0 of the log", "line 1 of the log"]
    assert preview[-2:] == ["line 19999 of the log", ""]
    assert all(line in (*LOG.split("\n"), "[…]") for line in preview)
    assert 3_900 < len("\n".join(preview)) <= 4_010
    assert "offset and limit" in lines[-1]


def test_one_long_line_is_cut_where_it_must() -> None:
    assert quoted(reference("ab " * 20_000)) == [("ab " * 800)[:2000], "[…]", ("ab " * 800)[-2000:]]


def test_the_limit_for_reads_is_higher() -> None:
    text = "a " * 9_000
    for tool in ("Bash", "Job", "Grep", "mcp__a__b"):
        assert move.plan(text, path="p", policy=DEFAULT, tool=tool) is not None
    for tool in ("Read", "Recall", "WebFetch", "Skill"):
        assert move.plan(text, path="p", policy=DEFAULT, tool=tool) is None
        assert move.plan(text + "a " * 1_001, path="p", policy=DEFAULT, tool=tool) is not None
    above = replace(DEFAULT, move_above=20_000)  # one number for both, where it is the larger
    assert move.plan("a " * 15_000, path="p", policy=above, tool="Read") is None
    assert move.plan(text, path="p", policy=replace(DEFAULT, move_above=None)) is None


def test_the_first_ten_lines_and_no_end() -> None:
    lines = reference(LOG, PRESETS["ctx-001"])
    assert "the first 10 of 20,000 lines" in lines[3]
    assert quoted(lines) == [f"line {n} of the log" for n in range(10)]


def test_long_lines_among_the_first_ten_are_shortened() -> None:
    text = "short\n" + "word " * 20_000 + "\nend"
    assert quoted(reference(text, PRESETS["ctx-001"])) == ["short", "word " * 40 + "…", "end"]


@pytest.mark.parametrize("chars", [0, 1])
def test_no_preview(chars: int) -> None:
    lines = reference(LOG, replace(DEFAULT, preview_chars=chars))
    assert quoted(lines) == []
    assert len(lines) == 6


def test_a_reference_that_saves_nothing_is_not_used() -> None:
    text = "a " * 12_000
    assert move.plan("a b c", path="p", policy=replace(DEFAULT, move_above=1)) is None
    assert move.plan(text, path="p", policy=replace(DEFAULT, preview_chars=100_000)) is None


def test_v5_shows_the_beginning_alone() -> None:
    lines = LOG * 2
    preview = quoted(reference(lines, PRESETS["v5"]))
    assert "\n".join(preview) == f"{lines[:2_000]}..."


@pytest.mark.parametrize(("limit", "moved"), [(5_000, True), (20_000, False), (None, False)])
def test_a_tool_with_less_room_has_the_policys_limit_too(limit: int | None, moved: bool) -> None:
    text = "line of the log\n" * 2_000
    policy = replace(DEFAULT, move_above=limit)
    found = move.plan_within(text, path="p", policy=policy, room=20_000)
    assert (found is not None) == moved


def test_a_reference_fits_into_the_room_of_its_tool() -> None:
    for room in (200, 1_000):
        found = move.plan_within(LOG, path="p", policy=DEFAULT, room=room)
        assert found is not None
        assert estimate(found.reference) <= room
