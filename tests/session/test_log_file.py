"""The file of a log: writes under the lock, and the reasons to refuse them."""

import errno
import gc
import os
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError, SessionBusy
from ctxagent.agent.session import lock as locks
from ctxagent.agent.session.log import LogFile

from ..support.disk import small_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s" / "log.jsonl"


def opened(path: Path, **options: bool) -> LogFile:
    file = LogFile(path, **options)
    assert file.lock() == []
    return file


def test_lines_are_appended_under_the_lock(path: Path) -> None:
    file = LogFile(path)
    assert not file.is_locked
    assert file.lock() == []
    assert file.is_locked
    file.write_line(b"one\n")
    file.write_line(b"two\n")
    file.sync()
    assert path.read_bytes() == b"one\ntwo\n"
    assert (path.parent / "lock").read_text() == f"{os.getpid()}\n"
    file.close()
    assert not file.is_locked


def test_a_closed_file_takes_no_more(path: Path) -> None:
    file = opened(path)
    assert file.refusal == ""
    file.check_writable()
    file.close()
    assert file.refusal == "this session is closed here"
    with pytest.raises(RecordError, match="closed here") as error:
        file.write_line(b"x\n")
    assert "/resume" in error.value.hint
    file.sync()


def test_a_read_only_file_is_never_written(path: Path) -> None:
    file = LogFile(path, read_only=True)
    with pytest.raises(RecordError, match="read-only here"):
        file.lock()
    file.close()
    assert file.refusal.startswith("this session is read-only here")
    assert not path.parent.exists()


def test_a_second_writer_is_told_who_has_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCK_PAUSE_S", 0)
    first = opened(path)
    with pytest.raises(SessionBusy, match=str(os.getpid())):
        LogFile(path).lock()
    first.close()
    opened(path).close()


def test_a_log_that_is_a_link_or_a_folder_is_not_opened(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    (tmp_path / "target").write_text("")
    path.symlink_to(tmp_path / "target")
    file = LogFile(path)
    with pytest.raises(RecordError, match="cannot record the session"):
        file.lock()
    assert not file.is_locked
    path.unlink()
    opened(path).close()  # the lock was released
    path.unlink()
    path.mkdir()
    with pytest.raises(RecordError, match="cannot record the session"):
        LogFile(path).lock()


def test_a_lock_that_is_no_file(path: Path) -> None:
    (path.parent / "lock").mkdir(parents=True)
    with pytest.raises(RecordError, match="is not a file that can be written") as error:
        LogFile(path).lock()
    assert "Remove it" in error.value.hint


def test_what_follows_the_known_size_is_cut_off(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"one\ntorn")
    file = opened(path)
    file.truncate(4)
    assert path.read_bytes() == b"one\n"
    file.write_line(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    file.truncate(100)
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_log_that_something_else_has_written_to_is_released(path: Path) -> None:
    file = opened(path)
    file.write_line(b"one\n")
    with path.open("ab") as other:
        other.write(b"other\n")
    with pytest.raises(RecordError, match="10 bytes found, 4 written") as error:
        file.write_line(b"two\n")
    assert "/resume" in error.value.hint
    assert not file.is_locked
    assert path.read_bytes() == b"one\nother\n"
    assert file.refusal.startswith("another program has changed the log")
    file.close()
    assert file.refusal.startswith("another program has changed the log")
    opened(path).close()


def test_a_log_that_is_gone_or_replaced_is_released(path: Path) -> None:
    file = opened(path)
    file.write_line(b"one\n")
    path.unlink()
    with pytest.raises(RecordError, match="the log is missing") as error:
        file.write_line(b"two\n")
    assert "Start a new one" in error.value.hint
    again = opened(path)
    again.write_line(b"one\n")
    path.rename(path.with_name("old"))
    path.write_bytes(b"one\n")
    with pytest.raises(RecordError, match="the log is missing"):
        again.write_line(b"two\n")
    assert path.read_bytes() == b"one\n"


def test_whether_the_file_is_as_it_was_left(path: Path) -> None:
    file = opened(path)
    assert file.unchanged_state is None  # nothing was written or cut yet
    file.truncate(0)
    assert file.unchanged_state is not None
    file.write_line(b"one\n")
    state = file.unchanged_state
    assert state is not None
    assert (state.size, state.inode) == (4, path.stat().st_ino)
    assert state.changed == path.stat().st_mtime_ns
    path.write_bytes(b"ONE\n")
    os.utime(path, (1, 1))
    assert file.unchanged_state is None
    file.write_line(b"two\n")
    assert file.unchanged_state is None  # what is before the new line is not known
    path.unlink()
    assert file.unchanged_state is None


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk.path / "s" / "log.jsonl"
        file = opened(path)
        file.write_line(b"one\n")
        disk.fill()
        with pytest.raises(RecordError, match="No space left") as error:
            file.write_line(b"x" * 20_000)
        assert "Free disk space" in error.value.hint
        assert path.read_bytes() == b"one\n"
        disk.free()
        file.write_line(b"two\n")
        assert path.read_bytes() == b"one\ntwo\n"
        file.close()


def test_a_session_whose_first_line_fails_is_removed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk.path / "s" / "log.jsonl"
        file = opened(path)
        disk.fill()
        with pytest.raises(RecordError, match="No space left"):
            file.write_line(b"x" * 20_000)
        assert not path.parent.exists()
        assert not file.is_locked
        disk.free()
        assert file.lock() == []
        file.write_line(b"one\n")
        assert path.read_bytes() == b"one\n"
        file.close()


def test_the_error_names_the_file_and_the_way_out(tmp_path: Path) -> None:
    error = locks.unwritable(tmp_path / "log", OSError(errno.ENOSPC, "full"))
    assert str(error).startswith(f"cannot record the session: {tmp_path}/log: full\n")
    named = locks.unwritable(tmp_path, OSError(errno.ENOSPC, "full", "/other"))
    assert "/other: full" in str(named)
    assert "CTXAGENT_STATE_DIR" in error.hint


def test_a_log_that_nobody_has_any_more_frees_its_lock(path: Path) -> None:
    log = opened(path)
    log.write_line(b"one\n")
    with pytest.raises(SessionBusy):
        opened(path)
    del log
    gc.collect()
    opened(path).close()
