"""Copies of programs, in memory and in a file, that a command cannot change."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.tools.system import program_copy
from ctxagent.tools.system.program_copy import ProgramCopy, copy_program

from ..support.ripgreps import file_copy

Copy = Callable[[Path, Path], ProgramCopy]


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """A program that commands can change."""
    return Path(shutil.copy(str(shutil.which("echo")), tmp_path / "echo"))


def said_by(copy: ProgramCopy) -> str:
    copy.check()
    passed = () if copy.descriptor is None else (copy.descriptor,)
    done = subprocess.run([copy.path, "hello"], pass_fds=passed, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize("make", [copy_program, file_copy])
def test_a_change_of_the_program_does_not_change_the_copy(
    echo: Path, tmp_path: Path, make: Copy
) -> None:
    copy = make(echo, tmp_path / "state/programs")
    assert (copy.descriptor is None) == (make is file_copy)
    echo.write_text("#!/bin/sh\necho planted\n")
    assert said_by(copy) == "hello\n"
    echo.unlink()
    assert said_by(copy) == "hello\n"


def test_a_copy_in_memory_cannot_be_written(echo: Path, tmp_path: Path) -> None:
    copy = copy_program(echo, tmp_path / "state")
    assert copy.descriptor is not None
    for change in (
        lambda: os.pwrite(copy.descriptor, b"x", 0),
        lambda: os.ftruncate(copy.descriptor, 0),
        lambda: Path(copy.path).write_bytes(b"x"),
    ):
        with pytest.raises(PermissionError):
            change()
    assert not (tmp_path / "state").exists()
    assert not os.get_inheritable(copy.descriptor)


def test_a_copy_in_a_file_is_private_and_checked(echo: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state/programs"
    copy = file_copy(echo, folder)
    assert file_copy(echo, folder) == copy
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o700, 0o500]
    Path(copy.path).chmod(0o700)
    Path(copy.path).write_bytes(b"changed")
    with pytest.raises(OSError, match="its content has changed"):
        copy.check()
    assert file_copy(echo, folder) == copy  # the next start writes it again
    assert said_by(copy) == "hello\n"


def test_a_kernel_that_starts_no_programs_from_memory(
    echo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With vm.memfd_noexec, a file in memory loses its right of execution."""

    def not_executable() -> int:
        descriptor = os.memfd_create("program", os.MFD_ALLOW_SEALING)
        os.fchmod(descriptor, 0o666)
        return descriptor

    monkeypatch.setattr(program_copy, "_memory_file", not_executable)
    copy = copy_program(echo, tmp_path / "state")
    assert copy.descriptor is None
    assert said_by(copy) == "hello\n"


def test_a_script_is_not_copied(tmp_path: Path) -> None:
    script = tmp_path / "rg"
    script.write_text("#!/bin/sh\n")
    for make in (copy_program, file_copy):
        with pytest.raises(OSError, match="it is a script"):
            make(script, tmp_path)
