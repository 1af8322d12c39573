"""Clearing the store of what nobody needs: content that was only looked at, and changed again
before any snapshot was kept of it.

Kept snapshots are needed, and the newest trees of every session at work: each names them in a file
of its own, `live/<session>`. What is younger than a moment stays in any case, for it may be on its
way into one of these. A session that did not look for days may find its tree gone: then it is taken
in anew.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ..private import write
from .store import Store

YOUNG = 300  # seconds that an object stays whoever needs it: a look takes less
LEFT = 7 * 86_400  # seconds after its last look that a session counts as left
EVERY = 3_600  # seconds between two sessions that clear the store as they begin
AFTER = 256 << 20  # bytes taken in after which a session clears it meanwhile
PUBLISHED = "published"  # stands for the index that later sessions start from

_STAMP = "swept"


def remember(store: Store, name: str, trees: Iterable[str]) -> None:
    """Say which trees are at work under a name."""
    with suppress(OSError):
        folder = store.folder / "live"
        folder.mkdir(mode=0o700, exist_ok=True)
        part = folder / f"{store.session}.part"  # one process has a session: kills leave no heap
        write(part, "".join(f"{tree}\n" for tree in trees).encode("ascii"))
        part.replace(folder / name)


def due(store: Store) -> bool:
    """Whether it is time to clear the store, as a session begins."""
    stamp = store.folder / _STAMP
    try:
        return abs(time.time() - stamp.stat().st_mtime) > EVERY  # a clock may have been set back
    except OSError:
        with suppress(OSError):
            stamp.touch(mode=0o600)  # there was no store: nothing is in it yet
        return False


def sweep(store: Store, young: float = YOUNG) -> None:
    """Delete what nobody needs and is older than `young` seconds. Raises GitFailed and OSError;
    whatever stops it, nothing is lost that is needed."""
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


def _live(store: Store) -> Iterator[str]:
    for path in (store.folder / "live").glob("*"):
        with suppress(FileNotFoundError):
            if path.name != PUBLISHED and time.time() - path.stat().st_mtime > LEFT:
                path.unlink()
            else:
                yield from _names(path)


def _names(path: Path) -> list[str]:
    return [name for name in path.read_text("ascii", "replace").split() if _is_name(name)]


def _is_name(text: str) -> bool:
    return len(text) == 40 and all(c in "0123456789abcdef" for c in text)
