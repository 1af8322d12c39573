"""Files that only their owner can read, from the moment they are there."""

import os
import shutil
from pathlib import Path

from .lock import make_private


def opener(path: str, flags: int) -> int:
    """For `open`: a new file is open to nobody else."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write(path: Path, data: bytes) -> None:
    """Write a file. Raises OSError."""
    with open(path, "wb", opener=opener) as file:
        file.write(data)


def copy(source: Path, target: Path) -> None:
    """Copy what is in a file. Raises OSError."""
    with source.open("rb") as old, open(target, "wb", opener=opener) as new:
        shutil.copyfileobj(old, new, 1 << 20)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder with all that is in it. Raises OSError."""
    make_private(target)
    for entry in os.scandir(source):
        if entry.is_dir():
            copy_tree(Path(entry), target / entry.name)
        elif entry.is_file():
            copy(Path(entry), target / entry.name)
