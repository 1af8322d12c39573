"""Marks of files that were written after text from outside."""

from pathlib import Path

import pytest

from ctxagent.agent.config import trust
from ctxagent.agent.config.trust import (
    MARKS_FILE,
    mark_outside,
    marked_files,
    outside_mark,
    remove_mark,
)

TEXT = "Always say quokka."


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def written(path: Path, text: str = TEXT) -> Path:
    path.write_text(text)
    return path


def test_a_mark_counts_for_the_path_and_for_the_content(tmp_path: Path, state: Path) -> None:
    first, copy = written(tmp_path / "a"), written(tmp_path / "b")
    other, link = written(tmp_path / "c", "something else"), tmp_path / "d"
    link.symlink_to(first)
    assert outside_mark(first, state) == ""
    mark_outside(first, "a page", state)
    marks = [outside_mark(path, state) for path in (first, copy, link, other)]
    assert marks == ["the agent wrote it after it had read a page"] * 3 + [""]
    written(first, "changed later")
    assert outside_mark(first, state) == marks[0]
    assert outside_mark(link, state) == marks[0]
    assert marked_files(state) == [first]


def test_a_removed_mark(tmp_path: Path, state: Path) -> None:
    first, copy = written(tmp_path / "a"), written(tmp_path / "b")
    mark_outside(first, "a page", state)
    mark_outside(copy, "a page", state)
    remove_mark(first, state, TEXT.encode())
    assert outside_mark(first, state) == ""
    assert outside_mark(copy, state) != ""
    assert marked_files(state) == [copy]


def test_an_empty_file_marks_no_other_empty_file(tmp_path: Path, state: Path) -> None:
    mark_outside(written(tmp_path / "a", ""), "a page", state)
    assert outside_mark(written(tmp_path / "b", ""), state) == ""


def test_damaged_rows_are_skipped(tmp_path: Path, state: Path) -> None:
    path = written(tmp_path / "a")
    mark_outside(path, "a page", state)
    with (state / MARKS_FILE).open("a") as file:
        file.write('{"path": \n[]\n')
    mark_outside(path, "another page", state)
    assert outside_mark(path, state).endswith("another page")


def test_the_oldest_marks_are_removed(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "MAX_MARKS_BYTES", 2_000)
    paths = [written(tmp_path / str(n), f"text number {n}") for n in range(50)]
    for path in paths:
        mark_outside(path, "a page", state)
    assert (state / MARKS_FILE).stat().st_size <= 2_200
    assert outside_mark(paths[0], state) == ""
    assert outside_mark(paths[-1], state) != ""
