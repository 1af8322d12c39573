"""Files that are replaced atomically."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from ctxagent.tools.system.files import (
    edit_file,
    is_part_name,
    remove_used_folder,
    replace_file,
    replacing,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("single_writer", [False, True])
def test_a_replaced_file_is_private_and_leaves_no_part(tmp_path: Path, single_writer: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    (tmp_path / "file.part").write_bytes(b"left by a kill") if single_writer else None
    replace_file(path, b"new", single_writer=single_writer)
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="full"), replacing(path) as file:  # noqa: PT012
        file.write(b"new")
        raise OSError("full")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_part_has_a_name_that_snapshots_know(tmp_path: Path) -> None:
    with replacing(tmp_path / "file") as file:
        (part,) = tmp_path.iterdir()
        assert is_part_name(part.name)
        assert mode(part) == 0o600
        file.write(b"new")
    assert not is_part_name("file")


def test_a_file_of_the_person_keeps_its_mode_and_a_new_one_follows_the_umask(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "folder" / "new"
    old.write_bytes(b"old")
    old.chmod(0o751)
    before = os.umask(0o027)
    try:
        edit_file(old, b"1")
        edit_file(new, b"2")
    finally:
        os.umask(before)
    assert (mode(old), mode(new)) == (0o751, 0o640)


def test_a_new_file_gets_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with replacing(tmp_path / "file", new_mode=0o644, keep_mode=True) as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o644


def test_a_used_folder_is_removed_with_what_appears_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "used"
    (folder / "below").mkdir(parents=True)
    remove, late = shutil.rmtree, [tmp_path / "used-removed" / "late"]

    def remove_and_create(path: Path, ignore_errors: bool = False) -> None:
        remove(path / "below", ignore_errors=True)
        if late:
            late.pop().touch()
        else:
            remove(path, ignore_errors)

    monkeypatch.setattr("shutil.rmtree", remove_and_create)
    remove_used_folder(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_used_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        remove_used_folder(tmp_path / "missing")
