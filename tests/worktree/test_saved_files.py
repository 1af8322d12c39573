"""Files saved one by one: which are saved, restored and refused."""

import os
import stat
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.worktree import SavedFile, SavedFiles, first_saved, saved_files


@pytest.fixture
def saved(tmp_path: Path) -> SavedFiles:
    return SavedFiles(tmp_path / "session" / "saved")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_content_mode_and_links_come_back(saved: SavedFiles, work: Path) -> None:
    (work / "run").write_bytes(b"\0\r\nx")
    (work / "run").chmod(0o750)
    (work / "link").symlink_to("run")
    (work / "gone").write_text("gone\n")
    paths = [str(work / name) for name in ("run", "link", "gone", "deep/er/new")]
    files = saved.save(paths)
    assert stat.S_IMODE(saved.folder.stat().st_mode) == 0o700
    assert {path.stat().st_mode & 0o777 for path in saved.folder.iterdir()} == {0o600}
    (work / "run").write_text("other")
    (work / "run").chmod(0o600)
    (work / "link").unlink()
    (work / "link").write_text("no link")
    (work / "gone").unlink()
    (work / "deep" / "er").mkdir(parents=True)
    (work / "deep" / "er" / "new").write_text("new\n")
    wanted = ["modified", "modified", "created", "deleted"]
    assert [change.action for change in saved.changes(files)] == wanted
    assert "+gone" in saved.diff(files)
    assert [change.action for change in saved.restore(files)] == wanted
    assert (work / "run").read_bytes() == b"\0\r\nx"
    assert (work / "run").stat().st_mode & 0o777 == 0o750
    assert str((work / "link").readlink()) == "run"
    assert (work / "gone").read_text() == "gone\n"
    assert not (work / "deep").exists()
    assert saved.changes(files) == []


def test_only_the_permissions_come_back(saved: SavedFiles, work: Path) -> None:
    (work / "a").write_text("a")
    (work / "a").chmod(0o644)
    files = saved.save([str(work / "a")])
    (work / "a").chmod(0o600)
    moment = (work / "a").stat().st_mtime_ns
    assert [change.action for change in saved.restore(files)] == ["modified"]
    assert (work / "a").stat().st_mode & 0o777 == 0o644
    assert (work / "a").stat().st_mtime_ns == moment


def test_what_cannot_be_saved_says_why(
    saved: SavedFiles, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_files, "MAX_SAVED_BYTES", 3)
    (work / "large").write_text("four")
    (work / "folder").mkdir()
    os.mkfifo(work / "pipe")
    (file,) = saved.save([str(work / name) for name in ("large", "folder", "pipe")])
    assert "at most" in file.why
    (work / "large").write_text("other")
    assert saved.changes([file]) == []
    assert saved.restore([file]) == []


def test_a_full_disk_is_reported_and_stops_nothing(saved: SavedFiles, work: Path) -> None:
    saved.folder.parent.mkdir()
    saved.folder.write_text("in the way")
    (work / "a").write_text("a")
    (file,) = saved.save([str(work / "a")])
    assert file.why


@pytest.mark.parametrize("harm", ["elsewhere", "folder", "lost"])
def test_nothing_is_touched_where_one_file_cannot_come_back(
    saved: SavedFiles, work: Path, tmp_path: Path, harm: str
) -> None:
    (work / "in").mkdir()
    for name in ("a", "in/b"):
        (work / name).write_text("old")
    files = saved.save([str(work / name) for name in ("a", "in/b")])
    (work / "a").write_text("new")
    (work / "in" / "b").unlink()
    if harm == "elsewhere":
        (work / "in").rename(tmp_path / "moved")
        (work / "in").symlink_to(tmp_path / "moved")
    elif harm == "folder":
        (work / "in" / "b").mkdir()
    else:
        for path in saved.folder.iterdir():
            path.unlink()
    with pytest.raises(RecordError):
        saved.restore(files)
    assert (work / "a").read_text() == "new"


def test_a_folder_that_came_in_place_of_nothing_stays(saved: SavedFiles, work: Path) -> None:
    files = saved.save([str(work / "new")])
    (work / "new").mkdir()
    assert saved.restore(files) == []
    assert (work / "new").is_dir()


def test_the_first_state_of_a_path_counts() -> None:
    rows = [SavedFile("/a", "1" * 40), SavedFile("/b"), SavedFile("/a", "2" * 40)]
    assert first_saved(rows) == {"/a": rows[0], "/b": rows[1]}


@pytest.mark.parametrize(
    "row",
    [
        None, [], {}, {"path": "a"}, {"path": 1}, {"path": "/a", "blob": "../../x"},
        {"path": "/a", "blob": 5}, {"path": "/a", "mode": "x"}, {"path": "/a", "why": []},
    ],
)  # fmt: skip
def test_a_damaged_row_is_ignored(row: object) -> None:
    assert SavedFile.from_json(row) is None


def test_a_row_comes_back_as_it_was() -> None:
    for file in (
        SavedFile("/a", "1" * 40, 0o100644),
        SavedFile("/a", above="/"),
        SavedFile("/a", why="x"),
    ):
        assert SavedFile.from_json(file.to_json()) == file


@pytest.fixture
def large(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a file that counts as large."""
    monkeypatch.setattr(saved_files, "MAX_SMALL_BYTES", 10)
    return work / "data.bin"


def save_versions(saved: SavedFiles, path: Path, *texts: str) -> list[SavedFile]:
    files = []
    for text in texts:
        path.write_text(text * 20)
        files += saved.save([str(path)])
    return files


def contents(saved: SavedFiles) -> set[str]:
    return {path.read_text()[:1] for path in saved.folder.rglob("*") if path.is_file()}


def test_only_the_newest_versions_of_a_large_file_are_kept(saved: SavedFiles, large: Path) -> None:
    files = save_versions(saved, large, "a", "b", "c", "d")
    assert contents(saved) == {"c", "d"}
    assert [saved.has(file) for file in files] == [False, False, True, True]
    assert saved.room.added == 40
    other = large.with_name("other.bin")
    save_versions(saved, other, "x", "y", "z")
    assert contents(saved) == {"c", "d", "y", "z"}
    large.write_text("new")
    saved.restore([files[2]])
    assert large.read_text() == "c" * 20
    with pytest.raises(RecordError, match=r"the saved content of .* is gone"):
        saved.restore([files[0]])


def test_a_version_that_returns_is_the_newest_one(saved: SavedFiles, large: Path) -> None:
    save_versions(saved, large, "a", "b", "a", "c")
    assert contents(saved) == {"a", "c"}


def test_all_versions_of_small_files_are_kept(saved: SavedFiles, work: Path) -> None:
    save_versions(saved, work / "a", "1", "2", "3", "4")
    assert contents(saved) == {"1", "2", "3", "4"}


def test_a_rewind_drops_no_version(saved: SavedFiles, large: Path) -> None:
    save_versions(saved, large, "a", "b")
    large.write_text("c" * 20)
    saved.room.left = 0
    (file,) = saved.save([str(large)], drop=False)
    assert file.blob
    assert contents(saved) == {"a", "b", "c"}


def test_a_large_file_without_room_replaces_its_older_versions(
    saved: SavedFiles, large: Path
) -> None:
    saved.room.left = 30
    files = save_versions(saved, large, "a", "b")
    assert contents(saved) == {"b"}
    assert [file.why for file in files] == ["", ""]
    (refused,) = save_versions(saved, large.with_name("other.bin"), "x")
    assert "state.max_gb" in refused.why
    assert save_versions(saved, large.with_name("small"), "")[0].blob
