"""Trust in files: the contents that the user has accepted, and the files that need it.

`trusted.json` in the state folder maps the path of a file to the SHA-256 of its accepted content.
After a change the file is no longer trusted.
"""

import errno
import grp
import hashlib
import json
import os
import pwd
import stat
from pathlib import Path

from ...tools.system.files import make_private_folder, replace_file, write_private
from ..errors import ConfigError
from .outside_marks import outside_mark, remove_mark

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
    return ConfigError(f"not trusted: {error.strerror}", where=str(error.filename or path))


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
