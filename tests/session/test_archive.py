"""Content that left the context, kept in files of the session's folder."""

import errno
import re
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.session import archive

from ..support.disk import small_disk


def test_a_text_is_kept_once_and_privately(tmp_path: Path) -> None:
    path = tmp_path / "offloaded" / "a.md"
    archive.offload(path, "text\ud800\n")
    assert path.read_bytes() == "text\ud800\n".encode("utf-8", "surrogatepass")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        archive.offload(path, "other")
    assert path.read_bytes().startswith(b"text")


def test_an_image_is_named_by_its_content(tmp_path: Path) -> None:
    name = archive.offload_image(tmp_path, b"image", "png")
    assert re.fullmatch(r"offloaded/[0-9a-f]{32}\.png", name)
    assert (tmp_path / name).read_bytes() == b"image"
    assert archive.offload_image(tmp_path, b"image", "png") == name
    assert archive.offload_image(tmp_path, b"other", "png") != name


def test_a_part_of_an_image_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / archive.offload_image(tmp_path, b"image", "png")
    path.write_bytes(b"im")
    archive.offload_image(tmp_path, b"image", "png")
    assert path.read_bytes() == b"image"


def test_a_full_folder_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_OFFLOADED_BYTES", 10)
    monkeypatch.setattr(archive, "spare_bytes", lambda folder: 0)
    archive.offload(tmp_path / "a", "x" * 6)
    archive.offload(tmp_path / "b", "x" * 5)
    with pytest.raises(OSError, match="has offloaded") as error:
        archive.offload(tmp_path / "c", "x")
    assert error.value.errno == errno.EDQUOT
    assert not (tmp_path / "c").exists()
    (tmp_path / "b").unlink()
    archive.offload(tmp_path / "c", "x")
    monkeypatch.setattr(archive, "spare_bytes", lambda folder: 1)
    archive.offload(tmp_path / "d", "x" * 20)
    archive.offload(tmp_path / "e", "x")


def test_a_part_of_a_text_does_not_pass_for_the_whole(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        archive.offload(disk.path / "first", "x")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            archive.offload(disk.path / "second", "x" * 10_000)
        assert not (disk.path / "second").exists()


def test_the_output_of_a_running_call_is_found_by_the_call(tmp_path: Path) -> None:
    assert archive.find_partial(tmp_path, "call") is None
    for text in (b"one", b"two"):
        file = archive.open_partial(tmp_path, "Bash", "call", 100)
        file.feed(text)
        file.close()
    found = archive.find_partial(tmp_path, "call")
    assert found is not None
    assert re.fullmatch(r"\d{8}_\d{6}_Bash_[0-9a-f]{8}_[0-9a-f]{12}\.partial\.md", found.name)
    assert found.parent == tmp_path / "offloaded"
    assert archive.find_partial(tmp_path, "other") is None
    newer = found.with_name("9" + found.name[1:])
    newer.touch()
    assert archive.find_partial(tmp_path, "call") == newer


def test_summaries_are_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "session" / archive.SUMMARY_NAME
    archive.write_archive_file(path, "one\ud800")
    archive.write_archive_file(path, "two")
    assert path.read_text() == "two\n"
    assert [each.name for each in path.parent.iterdir()] == [archive.SUMMARY_NAME]
    (tmp_path / "blocked").write_text("")
    with pytest.raises(RecordError, match="cannot write"):
        archive.write_archive_file(tmp_path / "blocked" / "a", "x")
