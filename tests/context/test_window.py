"""What the server's answers show about its window."""

import pytest

from ctxagent.agent.context.window import CutPrompts, window_named


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("Your request exceeded model token limit: 24000", 24_000),
        ("Range of input length should be [1, 24,000]", 24_000),
        ("Trying to keep the first 30100 tokens, loaded with only 24000 tokens", 24_000),
        ("error 1261 of 2026-11-28", None),  # below what was accepted
        ("no more than 64000 tokens", None),  # above what was refused
        ("version 24000.1.2, id abc24000", None),
        ("", None),
    ],
)
def test_the_window_is_a_number_between_what_was_accepted_and_refused(
    words: str, named: int | None
) -> None:
    assert window_named(words, least=20_000, prompt=30_000) == named


@pytest.mark.parametrize(
    ("prompts", "cut_at"),
    [
        ([(5_000, 4_000), (6_000, 4_096), (7_000, 4_096), (8_000, 4_090)], 4_096),
        ([(5_000, 4_096), (6_000, 4_096)], None),  # too few
        ([(5_000, 5_000), (6_000, 6_000), (7_000, 7_000), (8_000, 8_000)], None),
        ([(5_000, 4_096), (5_100, 4_096), (5_200, 4_096)], None),  # did not grow
        ([(5_000, 4_096), (9_000, 4_096), (4_000, 4_096), (4_800, 4_096)], None),  # was compacted
        ([(5_000, 0), (6_000, 0), (9_000, 0), (12_000, 0)], None),  # no usage
    ],
)
def test_a_count_that_stays_the_same_shows_where_the_server_cuts(
    prompts: list[tuple[int, int]], cut_at: int | None
) -> None:
    watch = CutPrompts()
    assert [*filter(None, (watch.add(*each) for each in prompts))][-1:] == [cut_at] * bool(cut_at)
