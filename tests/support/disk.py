"""A small file system that can be filled and made read-only, to test a full disk without a mock. It
is mounted in a mount namespace that lives as long as the test. `shimmed` makes C library calls fail
as on file systems that are not available here.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from .machine import skip_without

_HOLD = 'mount -t tmpfs -o size="$1",mode=700 none "$0" && echo mounted && exec cat'


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted disk: `folder` is its path for a command that runs `inside`, `path` its path for
    other processes.
    """

    folder: Path
    holder: int

    @property
    def path(self) -> Path:
        return Path(f"/proc/{self.holder}/root") / self.folder.relative_to("/")

    def inside(self, command: Sequence[str], cwd: Path) -> list[str]:
        """Return the command that runs another command in the disk's mount namespace."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        enter = ["nsenter", "--target", str(self.holder), "--mount", *user]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', str(cwd), *command]

    def fill(self, name: str = "filler", *, but: int = 0) -> None:
        """Fill the disk up to `but` bytes of free space, rounded up to pages."""
        with (self.path / name).open("ab", buffering=0) as file:
            with suppress(OSError):
                while file.write(bytes(1 << 12)):
                    pass
            file.truncate(max(0, file.tell() // 4_096 * 4_096 - but))

    def free(self, name: str = "filler") -> None:
        (self.path / name).unlink()

    def remount(self, how: str) -> None:
        """Make the disk read-only ("ro") or writable ("rw"). Skip the test if the user may not."""
        command = ["mount", "-o", f"remount,{how}", str(self.folder)]
        done = subprocess.run(self.inside(command, Path("/")), check=os.geteuid() == 0)
        if done.returncode:
            pytest.skip("an ordinary user cannot make a file system read-only here")


@contextmanager
def small_disk(folder: Path, size: int = 256 << 10) -> Iterator[Disk]:
    """Mount a disk of `size` bytes at `folder`. Skip the test if mounting is impossible."""
    folder.mkdir(exist_ok=True)
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", "--mount", *user, "sh", "-c", _HOLD, str(folder), str(size)]
    skip_without("unshare")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        if holder.stdout.readline() != b"mounted\n":
            pytest.skip("no file system can be mounted here")
        try:
            yield Disk(folder, holder.pid)
        finally:
            holder.stdin.close()


def shimmed(folder: Path, source: str) -> dict[str, str]:
    """Return an environment in which functions of the C source replace those of the C library."""
    library = folder / "shim.so"
    compiler = ["gcc", "-shared", "-fPIC", "-o", str(library), "-x", "c", "-"]
    subprocess.run(compiler, input=source, text=True, check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}
