"""Trust in project files: which contents a person has accepted.

`trusted.json` in the state folder maps the path of a project file to the SHA-256 of the content
that was accepted; a file that has changed since is not trusted any more.
"""

import errno
import hashlib
import json
import os
import stat
from pathlib import Path

from .errors import ConfigError
from .record.lock import make_private

LARGEST = 100_000  # bytes of a file that can be trusted


def reach(cwd: Path, home: Path) -> list[Path]:
    """The folders whose files count as those of the project in `cwd`, the nearest first: up to the
    root of the repository or, outside of any, to the home directory; elsewhere only `cwd` counts,
    since anyone may write to folders above it."""
    way = [cwd, *cwd.parents]
    ends = (at for at, folder in enumerate(way) if folder == home or (folder / ".git").exists())
    return way[: next(ends, 0) + 1]


def content(path: Path) -> bytes:
    """What is in a file that anyone may have put there: a pipe, a device or a file without end is
    refused, not waited for. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        data = b""
        while len(data) <= LARGEST and (part := os.read(file, LARGEST + 1 - len(data))):
            data += part
    finally:
        os.close(file)
    if len(data) > LARGEST:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST:,} bytes", str(path))
    return data


def is_trusted(path: Path, data: bytes, state_dir: Path) -> bool:
    """Whether `data`, the content of the file at `path`, was accepted."""
    return _accepted(state_dir).get(_name(path)) == hashlib.sha256(data).hexdigest()


def trust(path: Path, state_dir: Path) -> None:
    """Accept the file as it stands now. Raises ConfigError when it cannot be read or the
    acceptance cannot be kept."""
    try:
        data = content(path)
    except OSError as error:
        raise _untrusted(path, error) from None
    accept(path, data, state_dir)


def accept(path: Path, data: bytes, state_dir: Path) -> None:
    """Accept the file with this content and no other. Raises ConfigError when the acceptance
    cannot be kept."""
    digest = hashlib.sha256(data).hexdigest()
    try:
        _write(state_dir, {**_accepted(state_dir), _name(path): digest})
    except OSError as error:
        raise _untrusted(path, error) from None


def _untrusted(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"not trusted: {error.strerror}", where=str(error.filename or path))


def _store(state_dir: Path) -> Path:
    return state_dir / "trusted.json"


def _name(path: Path) -> str:
    # A symlink is accepted by its own name: what is trusted elsewhere is not trusted here.
    return str(path.parent.resolve() / path.name)


def _accepted(state_dir: Path) -> dict[str, str]:
    """What was accepted; nothing when there is no such file, or one that makes no sense."""
    try:
        kept = json.loads(_store(state_dir).read_bytes())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(state_dir: Path, accepted: dict[str, str]) -> None:
    import tempfile

    make_private(state_dir)
    handle, temporary = tempfile.mkstemp(prefix=".trusted-", dir=state_dir)  # 0600 from the start
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(accepted, file, indent=1, sort_keys=True)
        Path(temporary).replace(_store(state_dir))
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
