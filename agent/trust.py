"""Trust in project files: which contents a person has accepted.

`trusted.json` in the state folder maps the path of a project file to the SHA-256 of the content
that was accepted; a file that has changed since is not trusted any more.
"""

import hashlib
import json
import os
from pathlib import Path

from .errors import ConfigError


def is_trusted(path: Path, data: bytes, state_dir: Path) -> bool:
    """Whether `data`, the content of the file at `path`, was accepted."""
    return _accepted(state_dir).get(_name(path)) == hashlib.sha256(data).hexdigest()


def trust(path: Path, state_dir: Path) -> None:
    """Accept the file as it stands now. Raises ConfigError when it cannot be read or the
    acceptance cannot be kept."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        _write(state_dir, {**_accepted(state_dir), _name(path): digest})
    except OSError as error:
        where = str(error.filename or path)
        raise ConfigError(f"not trusted: {error.strerror}", where=where) from None


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

    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".trusted-", dir=state_dir)  # 0600 from the start
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(accepted, file, indent=1, sort_keys=True)
        Path(temporary).replace(_store(state_dir))
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
