"""Detection of repeated text."""

import pytest

from ctxagent.agent.loop.repeated_text import (
    CHECKED_CHARS,
    MAX_TAIL_CHARS,
    MIN_CHARS,
    MIN_PLAIN_CHARS,
    RepeatedText,
)

SENTENCE = "Let me look at the file again and think about it. "
TABLE_ROW = "| name | yes | no | maybe |\n"


def stopped_at(text: str, piece: int = 20) -> int:
    """Return after how many characters the repetition is found, 0 for never."""
    stream = RepeatedText()
    for begin in range(0, len(text), piece):
        if stream.add(text[begin : begin + piece]):
            return min(len(text), begin + piece)
    return 0


@pytest.mark.parametrize("piece", [1, 7, 400, 100_000])
def test_a_sentence_over_and_over_is_found_soon(piece: int) -> None:
    at = stopped_at("The plan is clear. " + SENTENCE * 2_000, piece)
    assert 0 < at < MIN_CHARS + CHECKED_CHARS + max(piece, 100)


@pytest.mark.parametrize(
    "sentence", ["我再看一下这个文件的内容。", "もう一度ファイルを見てみます。"]
)
def test_a_script_without_spaces_has_sentences_too(sentence: str) -> None:
    assert 0 < stopped_at(sentence * 2_000) < MIN_PLAIN_CHARS


def test_the_repeated_text_is_returned() -> None:
    stream = RepeatedText()
    found = stream.add("Hm. " + SENTENCE * 100)
    assert found == SENTENCE


@pytest.mark.parametrize("length", [2, 90, 700, 2_500])
def test_a_long_text_over_and_over_is_found(length: int) -> None:
    unit = "".join(f"line {n}, and then some words about it\n" for n in range(100))[:length]
    assert stopped_at(unit * (20_000 // length))


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE * 40,
        TABLE_ROW * (MIN_PLAIN_CHARS // len(TABLE_ROW) - 10),
        "+" + "-" * 5_000 + "+",
        "    {0x00, 0x00, 0x00, 0x00},\n" * 200,
        "".join(f"{n}. Look at file {n} and think about it.\n" for n in range(2_000)),
        "".join(f"{SENTENCE} It is number {n}.\n" * 5 for n in range(200)),
        "a" * 10,
        "",
    ],
    ids=["lines", "table", "rule", "array", "counted", "five times", "short", "empty"],
)
def test_text_that_may_repeat(text: str) -> None:
    assert stopped_at(text) == 0


def test_a_repetition_that_has_ended_does_not_count() -> None:
    text = SENTENCE * 50 + "".join(f"Then I read part {n}.\n" for n in range(50))
    assert stopped_at(text * 2) == 0


def test_only_the_end_is_kept() -> None:
    stream = RepeatedText()
    for n in range(20_000):
        stream.add(f"word {n} ")
    assert len(stream._tail) <= MAX_TAIL_CHARS + CHECKED_CHARS + 20
