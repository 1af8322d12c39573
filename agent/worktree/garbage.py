"""Clearing the store of objects that nobody needs: content that was only looked at, and changed
again before any snapshot was kept of it.

Kept snapshots are needed, and the newest trees of every session at work: each names them in a file
of its own, `live/<session>`. Objects younger than MIN_AGE_S stay in any case: they may be on their
way into one of these. A session that did not look for days may find its tree gone and then stages
everything again.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...tools.system.files import replacing
from ..lazy import regex
from .object_store import ObjectStore

MIN_AGE_S = 300  # objects stay so long, needed or not: a look takes less
MAX_IDLE_S = 7 * 86_400  # after its last look; then a session counts as left
SWEEP_INTERVAL_S = 3_600  # between two sessions that clear the store as they begin
SWEEP_AFTER_BYTES = 256 << 20  # staged, after which a running session clears the store
MAX_NEWEST_TREES = 4  # of a session stay, because a difference may still be asked of them
MAX_RECORD_BYTES = 4_096  # of the trees of one session, about 100
PUBLISHED = "published"  # stands for the index that later sessions start from

_STAMP = "swept"
_TREE_NAME = regex(r"(?<!\S)[0-9a-f]{40}(?!\S)")


def protect_trees(store: ObjectStore, name: str, trees: Iterable[str]) -> None:
    """Record under a name which trees are in use."""
    with suppress(OSError):
        folder = store.folder / "live"
        folder.mkdir(mode=0o700, exist_ok=True)
        _remove_left_parts(folder)
        part = f"{store.session}.{os.getpid()}.part"
        with replacing(folder / name, part_name=part, durable=False) as file:
            file.write("".join(f"{tree}\n" for tree in trees).encode("ascii"))


def protect_one_more(store: ObjectStore, name: str, tree: str) -> bool:
    """Add a tree to those recorded under a name. Return False where it takes a new record: there is
    none, or it has become long. To put a file in the place of another costs a write to the disk."""
    with suppress(OSError):
        path = store.folder / "live" / name
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size < MAX_RECORD_BYTES:
                return os.write(file, f"{tree}\n".encode("ascii")) == len(tree) + 1
        finally:
            os.close(file)
    return False


def _remove_left_parts(folder: Path) -> None:
    """Remove files that a process was writing as it was killed."""
    for part in folder.glob("*.part"):
        pid = part.name.split(".")[-2]
        try:
            os.kill(int(pid), 0)
        except (OverflowError, ProcessLookupError, ValueError):
            part.unlink(missing_ok=True)
        except PermissionError:  # somebody else's, who is there
            continue


def is_sweep_due(store: ObjectStore) -> bool:
    """Return whether it is time to clear the store, as a session begins."""
    stamp = store.folder / _STAMP
    try:
        return (
            abs(time.time() - stamp.stat().st_mtime) > SWEEP_INTERVAL_S
        )  # a clock may have been set back
    except OSError:
        with suppress(OSError):
            stamp.touch(mode=0o600)  # there was no store: nothing is in it yet
        return False


def sweep(store: ObjectStore, young: float = MIN_AGE_S) -> None:
    """Delete objects that nobody needs and that are older than `young` seconds. Raises GitFailed
    and OSError; whatever stops it, nothing is lost that is needed."""
    before = time.time() - young
    (store.folder / _STAMP).touch(mode=0o600)
    asked = ("--objects", "--no-object-names", "--missing=allow-any", "--ignore-missing")
    given = "".join(f"{tree}\n" for tree in _live(store)).encode()
    needed = set(store.run("rev-list", *asked, "--all", "--stdin", given=given).decode().split())
    for path in (store.folder / "objects").glob("[0-9a-f][0-9a-f]/*"):
        if path.parent.name + path.name not in needed:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()


def _live(store: ObjectStore) -> Iterator[str]:
    for path in (store.folder / "live").glob("*"):
        with suppress(FileNotFoundError):
            if path.name != PUBLISHED and time.time() - path.stat().st_mtime > MAX_IDLE_S:
                path.unlink()
            else:
                named = _TREE_NAME.findall(path.read_text("ascii", "replace"))
                yield from [*dict.fromkeys(reversed(named))][:MAX_NEWEST_TREES]
