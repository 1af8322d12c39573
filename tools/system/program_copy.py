"""Copy a program that commands could change later, and start the copy.

On Linux the copy is in memory and sealed (memfd_create(2)), so nothing can change it. Elsewhere, or
if the kernel does not start programs from memory, it is a file in a folder that no command can
write to. Its content is checked before each start.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ...agent.lazy import dataclass
from .files import make_private_folder, replacing

_EXECUTABLE = 0x10  # MFD_EXEC of linux/memfd.h
_CHUNK_BYTES = 1 << 24
_MODE = 0o500


@dataclass(frozen=True, slots=True)
class ProgramCopy:
    """A copy that can be started by its path."""

    path: str
    descriptor: int | None = None  # of the copy in memory; its process must inherit it
    digest: str = ""  # of the content of a file

    def check(self) -> None:
        """Raise OSError if the content of a file has changed."""
        if self.descriptor is None and _digest(Path(self.path).read_bytes()) != self.digest:
            raise OSError(0, "its content has changed", self.path)


def copy_program(source: Path, folder: Path) -> ProgramCopy:
    """Return a copy of a program: in memory, or else in a private folder that is created if
    necessary. Raises OSError, also for a script: its interpreter could read other files that
    commands can change.
    """
    with source.open("rb") as file:
        if file.read(2) == b"#!":
            raise OSError(0, "it is a script", str(source))
        with suppress(AttributeError, OSError):  # not Linux, or forbidden by vm.memfd_noexec
            return _in_memory(file.fileno())
        file.seek(0)
        return _in_folder(source.name, file.read(), folder)


def _in_memory(source: int) -> ProgramCopy:
    import fcntl

    descriptor = _memory_file()
    try:
        place = 0
        while count := os.sendfile(descriptor, source, place, _CHUNK_BYTES):
            place += count
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        return ProgramCopy(_startable(f"/proc/self/fd/{descriptor}"), descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _memory_file() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("program", flags | _EXECUTABLE)
    except OSError:  # Linux before 6.3 does not know the flag
        return os.memfd_create("program", flags)


def _in_folder(name: str, content: bytes, folder: Path) -> ProgramCopy:
    digest = _digest(content)
    path = folder / f"{name}-{digest[:16]}"
    make_private_folder(folder)
    if not path.is_file() or _digest(path.read_bytes()) != digest:
        with replacing(path, new_mode=_MODE) as file:
            file.write(content)
    return ProgramCopy(_startable(str(path)), digest=digest)


def _startable(path: str) -> str:
    """Return the path of a file that the kernel would start. Raises PermissionError."""
    if not os.access(path, os.X_OK):
        raise PermissionError(0, "programs cannot be started there", path)
    return path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
