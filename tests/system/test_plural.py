"""Numbers with their nouns and units."""

import pytest

from ctxagent.tools.system.phrasing import count_of, format_size


def test_a_number_has_its_noun() -> None:
    assert [count_of(n, "file") for n in (0, 1, 1_204)] == ["0 files", "1 file", "1,204 files"]
    assert count_of(2, "reply", "replies") == "2 replies"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 kB"), (1, "1 kB"), (1_600, "2 kB"), (999_400, "999 kB"), (60_000_000, "60.0 MB"),
        (5_000_000_000, "5.0 GB"),
    ],
)  # fmt: skip
def test_a_size_has_its_unit(size: int, text: str) -> None:
    assert format_size(size) == text
