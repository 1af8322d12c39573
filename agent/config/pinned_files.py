"""Pinned files: the accepted contents of the files that hooks, servers and other programs run.

`pinned.json` in the state folder has the SHA-256 of each accepted file by its path, and the command
lines whose files were recorded.
"""

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from ...tools.project_encodings import text_of
from ...tools.system.files import (
    make_private_folder,
    open_kept,
    private_opener,
    replace_file,
)
from ...tools.text import NotText
from ..errors import ConfigError
from ..lazy import dataclass
from .trust import (
    CONTENTS_FOLDER,
    accepted_digests,
    keep_content,
    kept_content,
    read_untrusted,
)

PINS_FILE = "pinned.json"
LOCK_FILE = "pinned.lock"
MAX_KEPT_PINS = 2_000  # beyond, pins of missing files are removed
MAX_DIFF_LINES = 200  # of one file
# A file changed less than this before it was read may change again in the same tick of the clock.
_CLOCK_TICK_NS = 2_000_000_000

_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs from its accepted content."""

    path: str
    digest: str  # of the current content
    data: bytes | None  # the current content; None if it is too large for a diff
    accepted: bytes | None = None  # None if the file was never accepted, or was too large
    is_new: bool = False  # never accepted

    def _text(self, data: bytes) -> str:
        try:
            return text_of(Path(self.path), data)
        except NotText:
            return data.decode("utf-8", "replace")

    def diff(self) -> str:
        """Return the change as a unified diff."""
        from difflib import unified_diff

        if self.data is None or (self.accepted is None and not self.is_new):
            return f"{self.path}: its accepted content is not kept, so there is no diff\n"
        before, after = (
            self._text(data).splitlines(keepends=True) for data in (self.accepted or b"", self.data)
        )
        lines = [*unified_diff(before, after, "/dev/null" if self.is_new else self.path, self.path)]
        if len(lines) > MAX_DIFF_LINES:
            lines[MAX_DIFF_LINES:] = [f"… {len(lines) - MAX_DIFF_LINES:,} more lines\n"]
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@dataclass
class PinnedFiles:
    """The pins in a state folder. Pins that cannot be written count in this process only."""

    state_dir: Path
    _digests: dict[str, tuple[_Stamp, str]] = field(default_factory=dict)
    _unwritten: dict[str, Any] = field(default_factory=lambda: {"files": {}, "starts": {}})

    def is_known(self, start: str) -> bool:
        """Return True if the files of a command line were recorded."""
        return start in self._read()["starts"]

    def changes(self, paths: Iterable[str]) -> list[FileChange]:
        """Return the files that differ from their accepted content or were never accepted."""
        known, found = self._read()["files"], list[FileChange]()
        for path in paths:
            digest = self._digest(path)
            if known.get(path) != digest:
                found.append(self._change(path, digest, known.get(path)))
        return found

    def copy_pins(self, source: Path, target: Path) -> None:
        """Accept the files in the folder `target` that equal the accepted ones in `source`. Raises
        ConfigError.
        """
        same = list[FileChange]()
        for path, known in self._read()["files"].items():
            if Path(path).is_relative_to(source):
                copied = str(target / Path(path).relative_to(source))
                same += [each for each in self.changes([copied]) if each.digest == known]
        if same:
            self.accept("", same)

    def accept(self, start: str, changes: Sequence[FileChange]) -> None:
        """Accept files as they were found, for the command line `start`. Raises ConfigError if this
        cannot be recorded; then it counts in this process only.
        """
        new = {"files": {each.path: each.digest for each in changes}, "starts": {start: True}}
        for kind, rows in new.items():
            self._unwritten[kind].update(rows)
        try:
            make_private_folder(self.state_dir)
            with self._locked():
                kept = _merged(self._written(), self._unwritten)
                for data in filter(None, (each.data for each in changes)):
                    keep_content(data, self.state_dir)
                if len(kept["files"]) > MAX_KEPT_PINS:
                    self._remove_missing(kept)
                data = json.dumps(kept, indent=1).encode()
                replace_file(self.state_dir / PINS_FILE, data, durable=False)
        except OSError as error:
            where = str(error.filename or self.state_dir / PINS_FILE)
            raise ConfigError(f"not recorded: {error.strerror}", where=where) from None
        self._unwritten = {"files": {}, "starts": {}}

    def _change(self, path: str, digest: str, known: str | None) -> FileChange:
        data = None
        with suppress(OSError):
            if hashlib.sha256(content := _content(path)).hexdigest() == digest:
                data = content
        accepted = kept_content(known, self.state_dir) if known else None
        return FileChange(path, digest, data, accepted, known is None)

    def _digest(self, path: str) -> str:
        """Return the SHA-256 of a file, or of the target of a link. A file that did not change
        since it was read is not read again: users cannot set the change time.
        """
        try:
            found = os.lstat(path)
            times = found.st_mtime_ns, found.st_ctime_ns
            stamp = found.st_dev, found.st_ino, found.st_size, *times
            if (kept := self._digests.get(path)) and kept[0] == stamp:
                return kept[1]
            read_at = time.time_ns()
            if stat.S_ISLNK(found.st_mode):
                return hashlib.sha256(_content(path)).hexdigest()
            with open_kept(Path(path)) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"unreadable: {error.strerror}"
        if found.st_ctime_ns + _CLOCK_TICK_NS < read_at:
            self._digests[path] = stamp, digest
        return digest

    def _read(self) -> Mapping[str, Mapping[str, Any]]:
        return _merged(self._written(), self._unwritten)

    def _written(self) -> Mapping[str, Any]:
        try:
            kept = json.loads((self.state_dir / PINS_FILE).read_bytes())
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def _remove_missing(self, kept: dict[str, dict[str, Any]]) -> None:
        """Remove the pins and contents of files that no longer exist, and the oldest starts."""
        kept["files"] = {path: each for path, each in kept["files"].items() if os.path.exists(path)}  # noqa: PTH110
        kept["starts"] = dict([*kept["starts"].items()][-MAX_KEPT_PINS:])
        used = {*kept["files"].values(), *accepted_digests(self.state_dir).values()}
        for path in (self.state_dir / CONTENTS_FOLDER).iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that processes take to change the pins."""
        with open(self.state_dir / LOCK_FILE, "wb", opener=private_opener) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _merged(written: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {kind: written.get(kind) for kind in ("files", "starts")}
    return {k: {**(v if isinstance(v, dict) else {}), **more[k]} for k, v in found.items()}


def _content(path: str) -> bytes:
    """Return the content of a file or the target of a link. Raises OSError."""
    if os.path.islink(path):  # noqa: PTH114
        return f"link to {os.path.realpath(path)}\n".encode()
    return read_untrusted(Path(path))
