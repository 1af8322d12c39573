"""Trust in files: the contents that the user has accepted, and the files that need it.

Three files in the state folder record it:

- `trusted.json` maps the path of a file to the SHA-256 of its accepted content. After a change the
  file is no longer trusted.
- `pinned.json` has the SHA-256 of each accepted file that hooks, servers and other programs run, by
  its path, and the command lines whose files were recorded.
- `outside.jsonl` marks files that the agent wrote after text from outside, such as a web page, had
  entered the context.

Each row of `outside.jsonl` has the path, the SHA-256 of the content, and the source of the text,
newest last. A row without a source removes the mark. A mark counts for its path, and for its
content at any path: a file can be renamed, copied, linked or checked out elsewhere before an agent
reads it as instructions.
"""

import errno
import fcntl
import grp
import hashlib
import json
import os
import pwd
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...tools.system.files import (
    make_private_folder,
    open_kept,
    private_opener,
    replace_file,
    write_private,
)
from ..errors import ConfigError
from ..lazy import dataclass

MARKS_FILE, LOCK_FILE = "outside.jsonl", "outside.lock"
MAX_MARKS_BYTES = 4_000_000  # beyond, the oldest half of the rows is removed
MAX_SOURCE_CHARS = 300
MAX_HASHED_BYTES = 10_000_000  # the mark of a larger file counts for its path alone
MIN_MARKED_BYTES = 8  # a shorter content says nothing, and many files have it


def mark_outside(path: Path, source: str, state_dir: Path, data: bytes | None = None) -> None:
    """Mark a file as written after text from `source` was read. `data` is its content, by default
    what the file has now. Raises OSError.
    """
    _append([_row(path, source[:MAX_SOURCE_CHARS], data)], state_dir)


def outside_mark(path: Path, state_dir: Path) -> str:
    """Return a short description of the mark of a file or its content, or "" if it has none."""
    marks = _marks(state_dir)
    if not marks:
        return ""
    row = _row(path, "", None)
    keys = (row["path"], str(path.resolve()), row["sha256"])
    source = next(filter(None, map(marks.get, filter(None, keys))), "")
    return f"the agent wrote it after it had read {source}" if source else ""


def marked_files(state_dir: Path) -> list[Path]:
    """Return the files that have a mark, in all projects."""
    marks = _marks(state_dir)
    return [Path(key) for key, source in marks.items() if source and key[:1] == "/"]


def remove_mark(path: Path, state_dir: Path, data: bytes | None = None) -> None:
    """Remove the mark of a file, and that of its accepted content. Raises OSError."""
    marks, row = _marks(state_dir), _row(path, "", data or b"")
    if any(marks.get(row[kind]) for kind in ("path", "sha256")):
        _append([row], state_dir)


def _row(path: Path, source: str, data: bytes | None) -> dict[str, str]:
    digest = ""
    if data is None:
        with suppress(OSError), open_kept(path.resolve()) as file:
            if MIN_MARKED_BYTES <= os.fstat(file.fileno()).st_size <= MAX_HASHED_BYTES:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
    elif len(data) >= MIN_MARKED_BYTES:
        digest = hashlib.sha256(data).hexdigest()
    return {"path": str(path.parent.resolve() / path.name), "sha256": digest, "source": source}


def _append(rows: Iterable[Mapping[str, str]], state_dir: Path) -> None:
    make_private_folder(state_dir)
    with open(state_dir / LOCK_FILE, "wb", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(state_dir / MARKS_FILE, "ab", opener=private_opener) as file:
            file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
            size = file.tell()
        if size > MAX_MARKS_BYTES:
            lines = (state_dir / MARKS_FILE).read_bytes().splitlines(keepends=True)
            replace_file(state_dir / MARKS_FILE, b"".join(lines[len(lines) // 2 :]))


def _marks(state_dir: Path) -> Mapping[str, str]:
    """Return the sources by path and by digest, "" for removed marks."""
    try:
        found = (state_dir / MARKS_FILE).stat()
    except OSError:
        return {}
    return _marks_of(state_dir / MARKS_FILE, (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=4)
def _marks_of(path: Path, stamp: tuple[int, ...]) -> Mapping[str, str]:
    marks = dict[str, str]()
    for line in path.read_bytes().splitlines():
        with suppress(ValueError, KeyError, TypeError):  # a line that a kill cut off
            row = json.loads(line)
            marks |= {str(row[kind]): str(row["source"]) for kind in ("path", "sha256")}
    marks.pop("", None)
    return marks


TRUST_FILE = "trusted.json"
CONTENTS_FOLDER = "accepted"  # the accepted contents by their SHA-256, for diffs
MAX_TRUSTED_BYTES = 100_000  # default limit for the size of a trusted file
LINK_LEAVES_PROJECT = (
    "it is a link that leads out of the project; copy the file there if it belongs to it"
)


def folders_within_project(cwd: Path, home: Path) -> list[Path]:
    """Return the folders from `cwd` up to the root of the project, nearest first. The root is the
    repository or, outside of a repository, the home directory. Elsewhere return only `cwd`, because
    anyone may write to the folders above.
    """
    way = [cwd, *cwd.parents]
    ends = (at for at, folder in enumerate(way) if folder == home or (folder / ".git").exists())
    return way[: next(ends, 0) + 1]


def read_untrusted(path: Path, max_bytes: int = MAX_TRUSTED_BYTES) -> bytes:
    """Return the content of a file from an untrusted source. Raises OSError for a pipe, a device
    and a file above `max_bytes`, without blocking.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        data = b""
        while len(data) <= max_bytes and (part := os.read(file, max_bytes + 1 - len(data))):
            data += part
    finally:
        os.close(file)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
    return data


def is_trusted(path: Path, data: bytes, state_dir: Path) -> bool:
    """Return True if the user accepted `data` as the content of the file at `path`."""
    return accepted_digests(state_dir).get(_trust_key(path)) == hashlib.sha256(data).hexdigest()


def is_file_trusted(path: Path, state_dir: Path) -> bool:
    """Return True if the user accepted the current content of a file. Return False for an
    unreadable file.
    """
    try:
        return is_trusted(path, read_untrusted(path), state_dir)
    except OSError:
        return False


def doubt_about(path: Path, state_dir: Path, *, is_shared: bool = True) -> str:
    """Return the reason to use a file only with content that the user has accepted, "" for none.
    Who else may write a file counts only if it `is_shared`. Raises OSError.
    """
    return outside_mark(path, state_dir) or (other_writer(path) if is_shared else "")


def other_writer(path: Path) -> str:
    """Return a short description of who else may write or replace a file, or "" if only its user
    and root may. For a symlink, check its target too. Raises OSError.
    """
    real = path.resolve()
    for place in dict.fromkeys((real, real.parent, path.parent)):
        found = place.stat()
        if found.st_uid not in _own_users():
            return f"{place} belongs to {_user_name(found.st_uid)}"
        if found.st_mode & stat.S_IWOTH:
            return f"everyone may write to {place}"
        if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
            return f"other users in its group may write to {place}"
    return ""


def _own_users() -> set[int]:
    """Return the user IDs whose files are trusted: root, the current user and, with sudo, the
    caller of sudo.
    """
    called_by = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return {0, os.geteuid(), *([int(called_by)] if called_by.isdecimal() else [])}


def _is_own_group(number: int) -> bool:
    """Return True if the user is the only member of a group. Many systems give each user a group of
    the same name.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"the user {number}"


def trust(path: Path, state_dir: Path, max_bytes: int = MAX_TRUSTED_BYTES) -> None:
    """Accept the current content of a file. Raises ConfigError if it cannot be read or recorded."""
    try:
        data = read_untrusted(path, max_bytes)
    except OSError as error:
        raise _not_trusted(path, error) from None
    accept(path, data, state_dir)


def accept(path: Path, data: bytes, state_dir: Path) -> None:
    """Accept the file with this content only. Raises ConfigError if this cannot be recorded."""
    digests = accepted_digests(state_dir) | {_trust_key(path): hashlib.sha256(data).hexdigest()}
    written = json.dumps(digests, indent=1, sort_keys=True).encode()
    try:
        make_private_folder(state_dir)
        keep_content(data, state_dir)
        replace_file(state_dir / TRUST_FILE, written, durable=False)
        remove_mark(path, state_dir, data)
    except OSError as error:
        raise _not_trusted(path, error) from None


def keep_content(data: bytes, state_dir: Path) -> None:
    """Keep an accepted content for a later diff. Raises OSError."""
    path = state_dir / CONTENTS_FOLDER / hashlib.sha256(data).hexdigest()
    make_private_folder(path.parent)
    if not path.exists():
        write_private(path, data)


def kept_content(digest: str, state_dir: Path) -> bytes | None:
    """Return an accepted content, or None if it is not kept or damaged."""
    try:
        data = read_untrusted(state_dir / CONTENTS_FOLDER / digest)
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == digest else None


def accepted_content(path: Path, state_dir: Path) -> bytes | None:
    """Return the content of a file that the user accepted last, or None if it is not known."""
    digest = accepted_digests(state_dir).get(_trust_key(path))
    return kept_content(digest, state_dir) if digest else None


def _not_trusted(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"not trusted: {error.strerror}",
        where=str(error.filename or path),
        hint="Check the permissions of the file.",
    )


def _trust_key(path: Path) -> str:
    # Keep the symlink's own path: trust in its target is not trust in the link.
    return str(path.parent.resolve() / path.name)


def accepted_digests(state_dir: Path) -> dict[str, str]:
    """Return the accepted digests by path, or {} if the list is missing or invalid."""
    try:
        kept = json.loads((state_dir / TRUST_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


PINS_FILE = "pinned.json"
PINS_LOCK_FILE = "pinned.lock"
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
        from ...tools.project_encodings import text_of
        from ...tools.text import NotText

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
            raise ConfigError(
                f"not recorded: {error.strerror}",
                where=where,
                hint="Check the permissions of the folder.",
            ) from None
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
        with open(self.state_dir / PINS_LOCK_FILE, "wb", opener=private_opener) as file:
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
