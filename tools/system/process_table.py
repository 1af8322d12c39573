"""The processes of this machine: name, parent, session, start time and environment, and whether a
process writes to a pipe. On Linux this uses proc(5), elsewhere psutil. Without either, no process
is found.
"""

import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

_PROC = Path("/proc")


class ProcessRow(NamedTuple):
    """A process that is not a zombie. `born` tells it from a later one with the same PID."""

    parent: int
    session: int  # 0 if unknown
    born: bytes


class ProcessTable(Protocol):
    """A source of process data. Ended and inaccessible processes are left out."""

    def numbers(self) -> Iterable[int]: ...

    def row(self, pid: int) -> ProcessRow | None: ...

    def environment(self, pid: int) -> bytes:
        """Return the process's initial environment, as rows that end with NUL."""
        ...

    def name(self, pid: int) -> str:
        """Return the name of its program, "" if unknown."""
        ...

    def may_write(self, pid: int, pipe: os.stat_result) -> bool:
        """Return True if it can write to a pipe. If that is unknown, return True if it may be a
        neighbour in a pipeline. Raises OSError for an ended process.
        """
        ...


class _ProcTable:
    def numbers(self) -> Iterable[int]:
        with suppress(OSError):
            return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
        return ()

    def row(self, pid: int) -> ProcessRow | None:
        try:
            stat = (_PROC / str(pid) / "stat").read_bytes()
        except OSError:
            return None
        # "pid (name) state ppid pgrp session …", start time 22nd: the name may contain anything
        fields = stat.rpartition(b")")[2].split()
        zombie = fields[0] in (b"Z", b"X")
        return None if zombie else ProcessRow(int(fields[1]), int(fields[3]), fields[19])

    def environment(self, pid: int) -> bytes:
        try:
            return (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            return b""

    def name(self, pid: int) -> str:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip()

    def may_write(self, pid: int, pipe: os.stat_result) -> bool:
        try:
            descriptors = list((_PROC / str(pid) / "fd").iterdir())
        except PermissionError:  # another user's process
            return _is_neighbour(pid)
        for each in descriptors:
            with suppress(OSError):
                if each.lstat().st_mode & stat.S_IWUSR and os.path.samestat(each.stat(), pipe):
                    return True
        return False


class PsutilTable:
    """Processes from psutil (https://psutil.readthedocs.io)."""

    def numbers(self) -> Iterable[int]:
        import psutil

        return psutil.pids()

    def row(self, pid: int) -> ProcessRow | None:
        import psutil

        session = 0
        with suppress(OSError):
            session = os.getsid(pid)
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    return None
                born = repr(process.create_time()).encode()
                return ProcessRow(process.ppid(), session, born)
        except psutil.Error:
            return None

    def environment(self, pid: int) -> bytes:
        import psutil

        try:
            found = psutil.Process(pid).environ()
        except (psutil.Error, OSError):
            return b""
        return b"".join(os.fsencode(f"{name}={value}\0") for name, value in found.items())

    def name(self, pid: int) -> str:
        import psutil

        with suppress(psutil.Error):
            return psutil.Process(pid).name()
        return ""

    def may_write(self, pid: int, pipe: os.stat_result) -> bool:
        return _is_neighbour(pid)  # psutil lists files, but no pipes


def _is_neighbour(pid: int) -> bool:
    """Return True if a process is in our process group, like the programs of a shell pipeline.
    Raises OSError for an ended process.
    """
    return os.getpgid(pid) == os.getpgid(0)


TABLE: ProcessTable = _ProcTable() if sys.platform.startswith("linux") else PsutilTable()


def all_processes() -> dict[int, ProcessRow]:
    """Return the processes by PID."""
    return {pid: row for pid in TABLE.numbers() if (row := TABLE.row(pid))}


def birth(pid: int) -> bytes | None:
    """Return the start time of a process, None if it has ended."""
    row = TABLE.row(pid)
    return row.born if row else None
