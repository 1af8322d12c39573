"""Kept output: clean text, and a file for long output."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.security.redaction import Redaction
from ctxagent.tools.system.capture import (
    FILED_BYTES,
    MAX_HELD_CHARS,
    Capture,
    KeptOutput,
    OutputFile,
    Sink,
    clean,
)

LINES = b"".join(b"\x1b[1m%07d\x1b[0m\n" % n for n in range(20_000))


def heard(
    data: bytes,
    path: Path | None = None,
    *,
    chunk: int = 65_536,
    kept: int = 1 << 19,
    sieve: Callable[[Sink], Sink] = lambda sink: sink,
) -> KeptOutput:
    async def scene() -> KeptOutput:
        made = (lambda: OutputFile(path)) if path else None
        capture = Capture(kept=kept, open_file=made, sieve=sieve)
        for start in range(0, len(data), chunk):
            capture.feed(data[start : start + chunk])
        capture.close()
        return capture.output

    return asyncio.run(scene())


def test_a_short_output_makes_no_file(tmp_path: Path) -> None:
    capture = heard(b"x" * FILED_BYTES, tmp_path / "out")
    assert capture.file is None
    assert list(tmp_path.iterdir()) == []


def test_all_of_a_long_one_is_in_the_file_as_a_terminal_would_have_left_it(tmp_path: Path) -> None:
    capture = heard(LINES, tmp_path / "out", kept=1_000, chunk=997)
    text = clean(LINES.decode())
    assert (tmp_path / "out").read_text() == text
    assert (capture.cut, capture.lines, capture.characters) == (None, 20_000, len(text))
    assert f"[{len(text) - 2_000:,} bytes left out here; there]" in capture.text("there")


def test_characters_are_counted_not_bytes(tmp_path: Path) -> None:
    assert heard("aé漢🙂".encode() * 9, chunk=5).characters == 36


def test_where_there_can_be_no_file_what_is_missing_is_told(tmp_path: Path) -> None:
    capture = heard(b"x\n" * 100_000, tmp_path / "not" / "there", kept=1_000)
    assert capture.file is None
    assert capture.cut is not None
    assert capture.cut.details() == {
        "printed_bytes": 200_000,
        "kept_bytes": 2_000,
        "cut_by": "No such file or directory",
    }


def test_a_secret_that_cleaning_brings_together_is_not_written(tmp_path: Path) -> None:
    redaction = Redaction({"hunter2-hunter2-hunter2": "TOKEN"})
    secret = b"hunter2-\x1b[31mhunter2-\x1b[0mhunter2\n"
    heard(b"x" * 70_000 + b"\n" + secret * 9, tmp_path / "out", sieve=redaction.filtered_sink)
    data = (tmp_path / "out").read_bytes()
    assert b"hunter2-hunter2" not in data
    assert data.count(b"[redacted: TOKEN]\n") == 9


def test_a_line_without_an_end_goes_to_the_file_too(tmp_path: Path) -> None:
    capture = heard(b"x" * 1_000_000, tmp_path / "out", kept=1_000)
    assert (tmp_path / "out").read_bytes() == b"x" * 1_000_000
    assert capture.lines == 1


@pytest.mark.slow
def test_of_a_line_that_is_redrawn_the_last_state_is_kept(tmp_path: Path) -> None:
    drawn = b"".join(b"\r%6d of 100000" % n for n in range(100_000))
    assert heard(drawn, tmp_path / "out", chunk=1_001).text("") == " 99999 of 100000"
    erased = b"".join(b"\r\x1b[K%d left" % n for n in range(100_000, -1, -1))
    assert heard(erased, tmp_path / "out", chunk=1_001).text("") == "0 left"
    assert list(tmp_path.iterdir()) == []


def test_a_long_line_that_is_drawn_over_is_not_lost() -> None:
    text = heard(b"x" * (3 * MAX_HELD_CHARS) + b"\rnew\n").text("")
    assert text.replace("\n", "").startswith("x" * (2 * MAX_HELD_CHARS))
    assert "new" in text


PARTS = st.sampled_from(
    ["a", "bc ", "\n", "\r", "\r\n", "\b", "\0", "\x1b", "\x1b[2K", "\x1b[K", "\x1b[31m",
     "\x1b[1G", "\x1b]0;t\x07", "\x1bPq", "\x1b\\", "\x9b1m", "é", "🙂", "\x85", "P", "["]
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(PARTS, max_size=30).map("".join), st.integers(1, 7))
def test_cleaned_as_it_comes_it_is_as_if_cleaned_at_the_end(text: str, chunk: int) -> None:
    assert heard(text.encode(), chunk=chunk).text("") == clean(text)
