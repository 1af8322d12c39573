"""The file of an output: its limit, its note on missing bytes, and a full disk."""

from pathlib import Path

import pytest

from ctxagent.tools.system import capture
from ctxagent.tools.system.capture import OutputFile

from ..support.disk import small_disk

LINES = b"".join(b"%07d\n" % n for n in range(100_000))


def fed(file: OutputFile, data: bytes, chunk: int = 10_007) -> OutputFile:
    for start in range(0, len(data), chunk):
        file.feed(data[start : start + chunk])
    file.close()
    return file


def test_all_is_in_the_file_up_to_the_limit(tmp_path: Path) -> None:
    file = fed(OutputFile(tmp_path / "out", limit=len(LINES)), LINES)
    assert file.path.read_bytes() == LINES
    assert file.cut is None
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_above_it_beginning_and_end_are_kept_and_the_file_says_how_much(tmp_path: Path) -> None:
    file = fed(OutputFile(tmp_path / "out", limit=200_000), LINES)
    assert file.cut is not None
    assert file.cut.details() == {
        "printed_bytes": 800_000,
        "kept_bytes": 200_000,
        "cut_by": "tools.max_output_bytes is 200,000",
    }
    head, line, tail = file.path.read_bytes().partition(
        b"\n[600,000 bytes are missing here: the command printed 800,000 bytes, 200,000 of them "
        b"are kept: tools.max_output_bytes is 200,000]\n"
    )
    assert line
    assert LINES.startswith(head)
    assert LINES.endswith(tail)
    assert len(head) + len(tail) == 200_000
    assert len(tail) > 40_000


def test_what_is_missing_is_known_while_the_command_runs(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "out", limit=1_000)
    file.feed(b"x" * 700)
    assert file.cut_so_far is None
    file.feed(b"x" * 700)
    assert file.cut_so_far is not None
    assert file.cut_so_far.printed == 1_400
    file.close()


@pytest.mark.parametrize("limit", range(1_000, 1_012))
def test_no_character_is_split(tmp_path: Path, limit: int) -> None:
    file = fed(OutputFile(tmp_path / "out", limit=limit), "aé漢🙂".encode() * 400, 101)
    text = file.path.read_bytes().decode()
    assert "are missing here" in text
    assert file.cut is not None
    whole = len(text.encode()) - len(text.split("\n")[1].encode()) - 2
    assert file.cut.kept == whole


def test_a_file_that_is_there_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("somebody else's")
    with pytest.raises(FileExistsError):
        OutputFile(tmp_path / "out")


def test_the_last_of_the_disk_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "DISK_RESERVE_BYTES", 1 << 62)
    file = fed(OutputFile(tmp_path / "out"), LINES * 4)
    assert file.cut is not None
    assert file.cut.why == "less than 1 GB of the disk is free"
    assert file.cut.printed == 3_200_000
    assert file.cut.kept == 1_048_576 + 65_536  # the first 1 MB, and the end
    assert file.path.read_bytes().endswith(LINES[-1_000:])


def test_a_full_disk_fails_nothing_and_is_told_in_the_file(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        file = fed(OutputFile(disk.path / "out"), LINES)
        data = file.path.read_bytes()
    assert file.cut is not None
    assert file.cut.why == "No space left on device"
    assert file.cut.printed == len(LINES)
    assert 200_000 < file.cut.kept < 262_144
    assert f"[{len(LINES) - file.cut.kept:,} bytes are missing here: ".encode() in data
    assert LINES.startswith(data[: data.index(b"\n[")])
    assert data.endswith(LINES[-1_000:])


def test_notes_stand_behind_the_output(tmp_path: Path) -> None:
    file = fed(OutputFile(tmp_path / "out"), b"one \n\n")
    file.add_note("")
    assert file.path.read_bytes() == b"one"
    file.add_note("[exit 1]")
    file.add_note("[more]")
    assert file.path.read_bytes() == b"one\n[exit 1]\n[more]"


def test_a_file_can_be_moved_while_it_is_written(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "out")
    file.feed(b"one\n")
    file.move(tmp_path / "other")
    file.feed(b"two\n")
    file.close()
    assert (tmp_path / "other").read_bytes() == b"one\ntwo\n"
    file.remove()
    assert list(tmp_path.iterdir()) == []
