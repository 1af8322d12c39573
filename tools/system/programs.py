"""Find the programs that the agent itself starts: git, rg, bash.

They run outside the sandbox, so none is taken from a folder that commands may write to: a command
could have planted it. These folders are set once per process, before the first program starts. A
program found only there counts as missing.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping

_distrusted: set[str] = set()


def distrust(folders: Iterable[str]) -> None:
    """Do not take programs from these folders and everything below them. They need not exist."""
    for folder in folders:
        _distrusted.update((os.path.abspath(folder), os.path.realpath(folder)))  # noqa: PTH100


def program(name: str, path: str | None) -> str:
    """Return the absolute path of a trusted program in the folders of `path` (None: the system's);
    "" if there is none.
    """
    for folder in _folders(path):
        file = f"{folder}/{name}"
        if shutil.which(name, path=folder) and not any(
            map(is_writable_by_commands, links_of(file))
        ):
            return file
    return ""


def describe_program(name: str, path: str | None) -> str:
    """Return a program's path, or why it is not used; "" if there is none."""
    found = program(name, path)
    other = "" if found else shutil.which(name, path=path)
    return found or (other and f"{other} is not used: commands may write there") or ""


def isolated_python() -> list[str]:
    """Return the command of this Python that does not import from the working directory and ignores
    all PYTHON* variables.
    """
    return [sys.executable, "-E", "-P"]


def own_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with a PATH that contains only trusted folders."""
    return {**env, "PATH": ":".join(_folders(env.get("PATH"))) or os.defpath}


def within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _folders(path: str | None) -> Iterator[str]:
    """Yield the trusted folders with links resolved, so that a later change of a link has no
    effect.
    """
    for folder in (os.defpath if path is None else path).split(":"):
        real = os.path.realpath(folder)
        named = os.path.normpath(folder)
        if folder.startswith("/") and not any(map(is_writable_by_commands, (named, real))):
            yield real


def links_of(file: str) -> Iterator[str]:
    """Yield the file, and each file that its links lead to.

    Only folders are resolved: file names stay, as some programs depend on the name.
    """
    for _ in range(40):
        yield file
        if not os.path.islink(file):  # noqa: PTH114
            return
        folder, _, name = os.path.join(os.path.dirname(file), os.readlink(file)).rpartition("/")  # noqa: PTH115, PTH118, PTH120
        file = f"{os.path.realpath(folder or '/')}/{name}"


def is_writable_by_commands(path: str) -> bool:
    """Return True if a command may write to an absolute path, so that programs there are not
    trusted.
    """
    return within(path, _distrusted)
