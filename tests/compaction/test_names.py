"""The frequent names of a text, as an index for a result that went to a file."""

import pytest

from ctxagent.agent.compaction.layers.move import MAX_NAMES_TOKENS, plan
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS
from ctxagent.agent.compaction.words import MAX_NAME_CHARS, frequent_names
from ctxagent.agent.context.tokens import estimate

CODE = """
const projectRoot = findRoot(process.env.ANTHROPIC_API_KEY)
loadSession(projectRoot, "src/größe/金額.py"); short_x; plain words only; 12_345_678
"""


def test_names_have_several_parts_and_the_most_frequent_come_first() -> None:
    assert frequent_names(CODE, 1_000) == [
        "projectRoot", "findRoot", "ANTHROPIC_API_KEY", "loadSession", "src/größe/金額.py",
    ]  # fmt: skip


def test_names_that_are_known_or_too_long_are_left_out() -> None:
    long = "a_" * MAX_NAME_CHARS + "b"
    assert frequent_names(f"{CODE} {long}", 1_000, known="the projectRoot and findRoot") == [
        "ANTHROPIC_API_KEY", "loadSession", "src/größe/金額.py",
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["x", "x.", "x-", "a/", "aB", "_", "x1", "@"])
def test_a_long_run_is_no_name_and_ends(unit: str) -> None:
    assert frequent_names(f"{unit * 400_000} a_known_name", 1_000) == []
    assert frequent_names(f"a_known_name {unit * 400_000}", 1_000) == ["a_known_name"]


def test_the_room_is_a_limit() -> None:
    text = " ".join(f"value_number_{n}" for n in range(400))
    names = frequent_names(text, 60)
    assert names == [f"value_number_{n}" for n in range(len(names))]
    assert 3 < len(names) < 30
    assert frequent_names(text, 0) == []


@pytest.mark.parametrize("preset", ["default", "lean", "v5", "ctx-001"])
def test_a_reference_has_the_names_that_its_preview_lacks(preset: str) -> None:
    rows = [f"row {n} of many plain words" for n in range(9_000)]
    rows[0] = "def shown_at_once(): ..."
    rows[4_000:4_000] = ["def hidden_in_the_middle(): shown_at_once()"] * 3
    found = plan("\n".join(rows), path="/s/x.md", policy=PRESETS[preset], tool="Bash")
    assert found is not None
    lines = [line for line in found.reference.split("\n") if line.startswith("**Frequent Names")]
    published = preset in ("v5", "ctx-001")
    assert lines == ([] if published else ["**Frequent Names:** hidden_in_the_middle"])


def test_the_line_of_names_is_bounded() -> None:
    text = "\n".join(f"value_number_{n} is a name of this row" for n in range(9_000))
    found = plan(text, path="/s/x.md", policy=DEFAULT, tool="Bash")
    assert found is not None
    (line,) = (x for x in found.reference.split("\n") if x.startswith("**Frequent Names"))
    assert estimate(line) <= 1.2 * MAX_NAMES_TOKENS
