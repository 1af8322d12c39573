"""The search in texts that are too large for the index."""

from pathlib import Path

import pytest

from ctxagent.agent.session.entries import Note, ToolResult, User
from ctxagent.agent.session.search import query
from ctxagent.agent.session.search.query import best_place, is_large
from ctxagent.tools.system.kept_text import KeptText

FILLER = "lorem ipsum dolor\n" * 500


def place(text: str, *words: str) -> tuple[int, str] | None:
    found = best_place(KeptText(text), words)
    if found is None:
        return None
    assert text[found.offset :].startswith(found.region)
    return found.level, found.region


@pytest.mark.parametrize(
    ("text", "words", "level"),
    [
        ("a needle here", ["needle"], 1), ("a needle there", ["needle", "there"], 0),
        ("there a Needle", ["needle", "there"], 1),
        ("needle", ["needle", "there"], 2), ("needles", ["needle"], None),
        ("a_needle", ["needle"], 1), ("xneedle", ["needle"], None),
        ("needle(x)", ["needle"], 1), ("--needle", ["--needle"], 1), ("the cat", ["cat"], 1),
        ("concat", ["cat"], None), ("a.cat", ["cat"], 1),
        ("needle", ["cat", "needle"], 1), ("(needle)", ["(needle)"], 1),
        ("nothing", ["needle"], None), ("needle", ["..."], None),
        ("a b c", ["b"], 1), ("NEEDLE", ["needle"], 1), ("İ needle", ["needle"], 1),
        ("a::needle::b", ["a::needle::b"], 1),
    ],
)  # fmt: skip
def test_match_levels(text: str, words: list[str], level: int | None) -> None:
    found = place(text, *words)
    assert (found and found[0]) == level


def test_the_region_is_around_the_place() -> None:
    found = place(FILLER + "the needle " + FILLER, "needle")
    assert found is not None
    assert found[1].index("needle") == 4_000
    assert len(found[1]) == 8_000
    early = place("the needle " + FILLER, "needle")
    assert early is not None
    assert early[1].index("needle") == 4


def test_words_that_stand_near_each_other_come_before_lone_ones() -> None:
    apart = f"needle\n{FILLER}thread"
    assert place(apart, "needle", "thread") == (2, apart[:4_000])
    together = f"needle\n{FILLER}needle and thread"
    found = place(together, "thread", "needle")
    assert found is not None
    assert found[0] == 1
    assert "needle and thread" in found[1]


def test_a_phrase_comes_before_words_that_stood_earlier() -> None:
    found = place(f"thread needle\n{FILLER}needle thread", "needle", "thread")
    assert found is not None
    assert found[0] == 0
    assert found[1].endswith("needle thread")


def test_a_place_over_two_pieces_is_found() -> None:
    class Pieces(KeptText):
        def pieces(self, size: int = 0):  # type: ignore[no-untyped-def]
            yield from ("x" * 600 + " nee", "dle y", " thread")

    found = best_place(Pieces(""), ["needle"])
    assert found is not None
    assert found.offset == 104  # what is carried over from the piece before
    assert found.region.endswith(" needle y")
    both = best_place(Pieces(""), ["needle", "thread"])
    assert both is not None
    assert both.level == 1


def test_the_longest_words_are_looked_for() -> None:
    assert place("needle at it", "at", "needle", "nowhere") == (2, "needle at it")
    words = [f"word{number:02}" for number in range(12)]
    assert place(" ".join(reversed(words[:8])), *words) is not None
    assert place(words[-1], *words) is None


def test_texts_in_large_files(tmp_path: Path) -> None:
    (tmp_path / "offloaded").mkdir()
    path = tmp_path / "offloaded" / "a"
    result = ToolResult(tool_use_id="t", content="", offloaded="offloaded/a")
    assert not is_large(result, tmp_path)
    with path.open("wb") as file:
        file.truncate(query.LARGE_TEXT_BYTES)
    assert not is_large(result, tmp_path)
    with path.open("wb") as file:
        file.truncate(query.LARGE_TEXT_BYTES + 1)
    assert is_large(result, tmp_path)
    assert is_large(User(content="", offloaded="offloaded/a"), tmp_path)
    assert not is_large(ToolResult(tool_use_id="t", content=""), tmp_path)
    assert not is_large(Note(topic="a", text="b"), tmp_path)
    assert not is_large(User(content="", offloaded="a\0b"), tmp_path)
