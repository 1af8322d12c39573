"""Pinned files: what changed since the user accepted it, and copies of pins."""

from pathlib import Path

import pytest

from ctxagent.agent.config.trust import CONTENTS_FOLDER, PinnedFiles
from ctxagent.agent.errors import ConfigError


def test_a_state_folder_that_cannot_be_written_counts_for_the_process(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    script = tmp_path / "a.sh"
    script.write_text("one")
    pins = PinnedFiles(tmp_path / "state")
    with pytest.raises(ConfigError):
        pins.accept("start", pins.changes([str(script)]))
    assert pins.changes([str(script)]) == []
    assert pins.is_known("start")


def test_pins_of_a_copy_with_the_same_content(tmp_path: Path) -> None:
    pins = PinnedFiles(tmp_path / "state")
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name in ("same.sh", "other.sh"):
            path = tmp_path / folder / name
            path.write_text(folder * (name == "other.sh"))
            paths.append(str(path))
    pins.accept("", pins.changes(paths[:2]))
    pins.copy_pins(tmp_path / "a", tmp_path / "b")
    assert [each.path for each in pins.changes(paths)] == [paths[3]]


def test_a_damaged_copy_of_the_content_gives_no_wrong_diff(tmp_path: Path) -> None:
    pins, script = PinnedFiles(tmp_path / "state"), tmp_path / "a.sh"
    script.write_text("echo one\n")
    pins.accept("", pins.changes([str(script)]))
    (copy,) = (tmp_path / "state" / CONTENTS_FOLDER).iterdir()
    copy.write_text("something else")
    script.write_text("echo two\n")
    (change,) = pins.changes([str(script)])
    assert change.diff() == f"{script}: its accepted content is not kept, so there is no diff\n"


def test_a_link_with_another_target_is_a_change(tmp_path: Path) -> None:
    pins, link = PinnedFiles(tmp_path / "state"), tmp_path / "link"
    for name in ("a", "b"):
        (tmp_path / name).write_text("same")
    link.symlink_to("a")
    pins.accept("", pins.changes([str(link)]))
    assert pins.changes([str(link)]) == []
    link.unlink()
    link.symlink_to("b")
    (change,) = pins.changes([str(link)])
    assert f"+link to {tmp_path / 'b'}" in change.diff()


def test_a_diff_is_cut_and_a_new_file_has_one(tmp_path: Path) -> None:
    pins, script = PinnedFiles(tmp_path / "state"), tmp_path / "a.sh"
    script.write_text("x\n" * 1000)
    (change,) = pins.changes([str(script)])
    assert change.is_new
    assert change.diff().startswith("--- /dev/null\n")
    assert change.diff().endswith("more lines\n")
