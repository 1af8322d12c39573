"""What the server's answers show about its window."""

import pytest

from ctxagent.agent.context.view import fold
from ctxagent.agent.context.window import (
    MIN_OUTPUT_TOKENS,
    CutPrompts,
    LearnedWindow,
    Window,
    learn_from_refusal,
    measure,
    window_named,
)
from ctxagent.agent.session.entries import Assistant, User


@pytest.mark.parametrize(
    ("tokens", "level"),
    [
        (0, "GREEN"), (24_999, "GREEN"),
        (25_000, "YELLOW"), (49_999, "YELLOW"),
        (50_000, "ORANGE"), (74_999, "ORANGE"),
        (75_000, "RED"), (84_999, "RED"),
        (85_000, "CRITICAL"), (120_000, "CRITICAL"),
    ],
)  # fmt: skip
def test_the_level_tells_how_full_the_window_is(tokens: int, level: str) -> None:
    window = Window(tokens, 100_000)
    assert window.level == level
    assert window.share == tokens / 100_000


@pytest.mark.parametrize(
    ("tokens", "error", "reserve", "room"),
    [
        (60_000, 0, 2_000, 38_000),
        (60_000, 5_000, 5_000, 35_000),  # a larger error of the estimate takes the place
        (99_000, 0, 2_000, -1_000),
    ],
)
def test_room_is_what_fits_if_the_estimate_is_too_low(
    tokens: int, error: int, reserve: int, room: int
) -> None:
    window = Window(tokens, 100_000, error)
    assert (window.reserve, window.room) == (reserve, room)
    assert window.free == max(0, room)


def test_a_reply_is_limited_to_what_fits() -> None:
    window = Window(60_000, 100_000)
    assert [window.max_output(wanted) for wanted in (8_000, 64_000)] == [8_000, 38_000]
    full = Window(window.full_at, 100_000)
    last = Window(window.full_at - 1, 100_000)
    assert full.max_output(8_000) == 0
    assert last.max_output(8_000) == MIN_OUTPUT_TOKENS
    assert full.max_output(100) == 100  # no more was wanted


def test_only_additions_since_the_last_usage_can_be_misjudged() -> None:
    asked = User(seq=1, content="word " * 4_000)
    size = fold([asked]).size
    usage = {"input": size, "output": 100}
    reply = Assistant(
        seq=2, content=[{"type": "text", "text": "Yes."}], usage=usage, stop_reason="end_turn",
        model="",
    )  # fmt: skip
    view = fold([asked, reply])
    assert measure(view, 100_000) == Window(size + 100, 100_000, 0)
    view.add(User(seq=3, content="word " * 1_000))
    window = measure(view, 100_000)
    assert window.tokens == view.prompt_tokens()[0]
    assert window.error == round(view.items[-1].size * view.error)


def test_an_accepted_prompt_disproves_a_smaller_window() -> None:
    learned = LearnedWindow()
    assert learned.limit(200_000) == 200_000
    assert learned.accept(30_000) is None
    learned.size = 24_000
    assert [learned.limit(size) for size in (200_000, 8_000)] == [24_000, 8_000]
    assert learned.accept(24_000) is None
    assert (learned.accept(24_001), learned.size) == (24_000, None)
    assert learned.accepted == 30_000, "the largest prompt"
    assert learned.forget() is None


@pytest.mark.parametrize(
    ("tokens", "maximum", "learned"),
    [
        (30_000, 24_000, (24_000, 1.5)),
        (None, 24_000, (24_000, 1.0)),
        (10_000, 8_000, (8_000, 1.0)),  # never assume that the prompt is smaller than estimated
        (60_000, 24_000, (24_000, 3.0)),
        (60_001, 24_000, (None, 2.5)),  # the figures are of another prompt
        (6_000, 24_000, (None, 2.5)),
        (30_000, None, (None, 2.5)),  # larger than the window that was assumed
        (30_000, 999, (None, 2.5)),  # less than was accepted
        (30_000, 1_000, (1_000, 1.5)),
    ],
)
def test_a_refusal_teaches_the_window_and_the_size_of_the_prompt(
    tokens: int | None, maximum: int | None, learned: tuple[int | None, float]
) -> None:
    window = Window(20_000, 49_999)
    assert learn_from_refusal(window, tokens, maximum, least=1_000) == learned


def test_a_refusal_of_a_prompt_that_seemed_to_fill_the_window_teaches_no_smaller_prompt() -> None:
    assert learn_from_refusal(Window(60_000, 49_999), None, None) == (None, 1.0)
    assert learn_from_refusal(Window(0, 99), None, None) == (None, 100.0)


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
