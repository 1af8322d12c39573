"""Delete unneeded objects from the store: content of scans that no snapshot kept.

Kept snapshots and the newest trees of every active session are needed; each session lists its trees
in a file `live/<session>`. Objects younger than MIN_AGE_S are never deleted, because a scan may
still be adding them. If a session has not scanned for MAX_IDLE_S, its trees may be deleted; its
next scan then stages everything again.

The snapshots of deleted sessions are dropped unless a copy of the session needs them.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...tools.system.files import replacing
from ..lazy import regex
from .object_store import ObjectStore

MIN_AGE_S = 300  # younger objects are kept: longer than any scan takes
MAX_IDLE_S = 7 * 86_400  # time since its last scan after which a session counts as inactive
SWEEP_INTERVAL_S = 3_600  # minimum time between two sweeps at the start of a session
SWEEP_AFTER_BYTES = 256 << 20  # staged bytes after which a running session clears the store
MAX_NEWEST_TREES = 4  # kept per session, because they may still be compared
MAX_RECORD_BYTES = 4_096  # of one session's record of trees, about 100 trees
PUBLISHED = "published"  # name for the trees of the index that later sessions start from

_STAMP = "swept"
_SNAPSHOTS = "refs/kept"  # refs to snapshots: `refs/kept/SESSION/NUMBER-SNAPSHOT`
_TREE_NAME = regex(r"(?<!\S)[0-9a-f]{40}(?!\S)")


def protect_trees(store: ObjectStore, name: str, trees: Iterable[str], *, by: str = "") -> None:
    """Record the trees in use by `name`, and the session that recorded them."""
    with suppress(OSError):
        folder = store.folder / "live"
        folder.mkdir(mode=0o700, exist_ok=True)
        _remove_left_parts(folder)
        part = f"{store.session}.{os.getpid()}.part"
        with replacing(folder / name, part_name=part, durable=False) as file:
            lines = [*trees, *([f"by {by}"] if by else [])]
            file.write("".join(f"{line}\n" for line in lines).encode("ascii"))


def protect_one_more(store: ObjectStore, name: str, tree: str) -> bool:
    """Append a tree to the trees in use by `name`. Return False if the record is missing or full
    and must be rewritten. Appending avoids the disk write that replacing a file costs.
    """
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
    """Remove part files of killed processes."""
    for part in folder.glob("*.part"):
        pid = part.name.split(".")[-2]
        try:
            os.kill(int(pid), 0)
        except (OverflowError, ProcessLookupError, ValueError):
            part.unlink(missing_ok=True)
        except PermissionError:  # a running process of another user
            continue


def is_sweep_due(store: ObjectStore) -> bool:
    """Return True if a starting session should clear the store."""
    stamp = store.folder / _STAMP
    try:
        return (
            abs(time.time() - stamp.stat().st_mtime) > SWEEP_INTERVAL_S
        )  # a clock may have been set back
    except OSError:
        with suppress(OSError):
            stamp.touch(mode=0o600)  # a new store, still empty
        return False


def sweep(store: ObjectStore, young: float = MIN_AGE_S) -> None:
    """Delete unneeded objects older than `young` seconds. Raises GitFailed and OSError. A failure
    never deletes a needed object.
    """
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


def drop_snapshots(
    store: ObjectStore, sessions: Callable[[], Collection[str]], needed: Collection[str]
) -> bool:
    """Drop the snapshots of all sessions that do not exist, except the snapshots in `needed`, and
    the index that such a session published. Return True if any snapshot stays. Raises GitFailed.
    """
    found = list(_snapshots(store))
    existing = sessions()  # read after the snapshots: a session exists before its first snapshot
    gone = [ref for ref, session, tree in found if session not in existing and tree not in needed]
    if gone:
        given = "".join(f"delete {ref}\n" for ref in gone)
        store.run("update-ref", "--stdin", given=given.encode())
    for path in (store.folder / "live").glob("*"):
        if path.name != PUBLISHED and path.name not in existing and path.suffix != ".part":
            path.unlink(missing_ok=True)
    if _publisher(store) not in ("", *existing):
        unpublish(store)
    return len(gone) < len(found)


def unpublish(store: ObjectStore) -> None:
    """Delete the index that later sessions start from."""
    for path in (store.folder / "live" / PUBLISHED, store.folder / "index"):
        path.unlink(missing_ok=True)


def remove_empty_folders(store: ObjectStore) -> None:
    """Remove the empty folders of objects. Git may be writing to them while a session runs."""
    for folder in (store.folder / "objects").glob("[0-9a-f][0-9a-f]"):
        with suppress(OSError):  # it is not empty
            folder.rmdir()


def _publisher(store: ObjectStore) -> str:
    """Return the session that published the index for later sessions, or "" if unknown."""
    with suppress(OSError):
        text = (store.folder / "live" / PUBLISHED).read_text("ascii", "replace")
        return text.rpartition("\nby ")[2].strip() if "\nby " in text else ""
    return ""


def snapshot_bytes(store: ObjectStore) -> dict[str, int]:
    """Return the size of the objects that only one session's snapshots need, by session. Raises
    GitFailed.
    """
    trees: dict[str, list[str]] = {}
    for _, session, tree in _snapshots(store):
        trees.setdefault(session, []).append(tree)
    asked = ("rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--stdin")
    needs = {
        session: set(store.run(*asked, given="\n".join(some).encode()).decode().split())
        for session, some in trees.items()
    }
    users = Counter(name for names in needs.values() for name in names)
    sizes = dict.fromkeys(needs, 0)
    for session, names in needs.items():
        for name in names:
            if users[name] == 1:
                with suppress(FileNotFoundError):  # a borrowed object
                    sizes[session] += store.place(name).stat().st_size
    return sizes


def _snapshots(store: ObjectStore) -> Iterator[tuple[str, str, str]]:
    """Yield (ref, session, snapshot) for each snapshot."""
    for ref in store.run("for-each-ref", "--format=%(refname)", _SNAPSHOTS).decode().split():
        parts = ref.split("/")
        yield ref, parts[2], parts[-1].rpartition("-")[2]


def _live(store: ObjectStore) -> Iterator[str]:
    for path in (store.folder / "live").glob("*"):
        with suppress(FileNotFoundError):
            if path.name != PUBLISHED and time.time() - path.stat().st_mtime > MAX_IDLE_S:
                path.unlink()
            else:
                named = _TREE_NAME.findall(path.read_text("ascii", "replace"))
                yield from [*dict.fromkeys(reversed(named))][:MAX_NEWEST_TREES]
