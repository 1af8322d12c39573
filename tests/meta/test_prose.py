"""The check of prose finds what it is for, and nothing in code."""

import pytest

from .prose import MAX_WORDS, broken_rules

SENTENCE = " ".join(["word"] * MAX_WORDS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# Why it pays", ["heading 'Why it pays': name the topic with a noun"]),
        ("The agent mends it.\nBeside that.", ["'mends': write fix", "'Beside': write next to"]),
        (f"{SENTENCE} word.", [f"{MAX_WORDS + 1} words: word"]),
        ("Tell whether a file is there.", ["'Tell whether': write return True if"]),
    ],
)
def test_a_broken_rule_is_found(text: str, found: list[str]) -> None:
    for start, (_, why) in zip(found, broken_rules(f"Intro.\n\n{text}"), strict=True):
        assert why.startswith(start)


def test_short_sentences_and_code_are_left_alone() -> None:
    text = f"{SENTENCE}; {SENTENCE}\n\n- {SENTENCE}\n\n    mend {SENTENCE}\n\n`mend` | {SENTENCE}"
    assert list(broken_rules(text)) == []


def test_a_place_is_named() -> None:
    text = "One line.\n\nAnother line, made anew."
    [(at, _)] = broken_rules(text)
    assert text[at:].startswith("anew")
