"""Search for a pattern in a text: matches with their offsets in characters."""

import asyncio
from pathlib import Path

import pytest

from ctxagent.tools.search import engine as module
from ctxagent.tools.search.engine import search_text
from ctxagent.tools.search.request import Refused, TextMatch
from ctxagent.tools.search.ripgrep import Ripgrep
from ctxagent.tools.system.kept_text import KeptText

from ..support.ripgreps import KINDS, ripgrep_of


@pytest.fixture
def ripgrep(tmp_path: Path) -> Ripgrep:
    return ripgrep_of("program", tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_each_ripgrep(tmp_path: Path, kind: str) -> None:
    assert offsets(ripgrep_of(kind, tmp_path), "b+", "abba") == [1]


def matches(ripgrep: Ripgrep, pattern: str, text: str | KeptText) -> list[TextMatch]:
    async def run() -> list[TextMatch]:
        kept = KeptText(text) if isinstance(text, str) else text
        return [match async for match in search_text(ripgrep, pattern, kept)]

    return asyncio.run(run())


def offsets(ripgrep: Ripgrep, pattern: str, text: str | KeptText) -> list[int]:
    return [match.start for match in matches(ripgrep, pattern, text)]


def test_a_match_has_its_offset_and_its_line(ripgrep: Ripgrep) -> None:
    text = "first line\nsecond line\n"
    assert matches(ripgrep, "line", text) == [
        TextMatch(6, "first line", 10),
        TextMatch(18, "second line", 22),
    ]
    assert matches(ripgrep, "nothing", text) == []
    assert matches(ripgrep, "line", "") == []


def test_offsets_are_in_characters(ripgrep: Ripgrep) -> None:
    text = "é🙂 one\nlone \ud800 and \x00 two, one\r\nthree one"
    assert offsets(ripgrep, "one", text) == [
        place for place in range(len(text)) if text[place:][:3] == "one"
    ]
    assert len(offsets(ripgrep, "one", text)) == 4
    assert offsets(ripgrep, r"two, one$", text) == [text.index("two")]  # \r\n ends a line


def test_a_long_line_is_cut_around_its_match(ripgrep: Ripgrep) -> None:
    text = "a" * 1_000 + "HERE" + "b" * 1_000
    (match,) = matches(ripgrep, "HERE", text)
    assert match.start == 1_000
    first = match.start - module.CHARS_BEFORE_MATCH
    assert match.excerpt == text[first : first + module.MAX_EXCERPT_CHARS]
    assert match.excerpt_end == first + module.MAX_EXCERPT_CHARS


def test_every_match_of_a_line_is_given(ripgrep: Ripgrep) -> None:
    assert offsets(ripgrep, "ab", "ab ab\nab") == [0, 3, 6]
    assert offsets(ripgrep, "x*", "abc") == [0, 1, 2]  # also one of no characters


def test_pcre2_is_used_for_patterns_that_need_it(ripgrep: Ripgrep) -> None:
    assert offsets(ripgrep, r"(?<=port )\d+", "port 80, part 81, port 82") == [5, 23]


def test_blocks_have_whole_lines_and_offsets_go_on(
    ripgrep: Ripgrep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_CHARS", 100)
    text = "".join(f"{'é' * (number % 40)} match {number}\n" for number in range(2_000))
    file = tmp_path / "text"
    file.write_text(text)
    kept = KeptText(open_file=lambda: file.open("rb"))
    found = matches(ripgrep, r"match \d+$", kept)
    assert [match.start for match in found] == [
        place for place in range(len(text)) if text.startswith("match", place)
    ]
    assert found[-1].excerpt.endswith("match 1999")


def test_a_line_longer_than_a_block_is_cut(
    ripgrep: Ripgrep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_CHARS", 10)
    pieces = iter(["0123456789", "match", "\nmatch"])
    text = KeptText()
    monkeypatch.setattr(KeptText, "pieces", lambda self: pieces)
    assert offsets(ripgrep, "match", text) == [10, 16]


def test_a_pattern_that_is_not_valid_is_refused(ripgrep: Ripgrep) -> None:
    with pytest.raises(Refused, match="unclosed group"):
        matches(ripgrep, "((", "text")


def test_a_missing_program_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="No such file"):
        matches(Ripgrep("/nowhere/rg"), "x", "x")
