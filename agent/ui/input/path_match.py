"""Finding the paths of a project that match what is typed, best first, among a hundred thousand
while the person types: in small steps, and cancelled once the result is not wanted.

First come paths with a part that begins with what was typed, the name before its folders; then
those that contain it, in the name before elsewhere; then those that have its letters in order.
Upper and lower case are the same.
"""

import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK_CHARS = 1 << 16  # of paths, searched between two checks whether to go on
MAX_CANDIDATES = 4_000  # that match, among which the best are chosen
MAX_GAP_COST = 8  # characters between two letters past which more of them cost the same

Rank = tuple[int, int, int, str]  # cost, depth, length, the path


@dataclass(frozen=True, slots=True)
class _Block:
    """Paths, each between `\\n/` and the next line, as they are and in lower case."""

    text: str
    low: str


class Paths:
    """The files of a project and their folders, by relative paths. Paths that are not printable
    (control characters, bytes that are not UTF-8) are left out."""

    def __init__(self, files: Iterable[str]) -> None:
        depths: dict[int, list[str]] = {}
        for path in _with_folders(files):
            depths.setdefault(path.rstrip("/").count("/"), []).append(path)
        self._blocks = list(_blocks(path for depth in sorted(depths) for path in depths[depth]))
        self._top = [path for depth in sorted(depths)[:2] for path in depths[depth]]

    def rank(
        self, typed: str, limit: int, unwanted: Callable[[], bool] = lambda: False
    ) -> list[str]:
        """Return the best `limit` paths; fewer once they are unwanted."""
        wanted = _lower(typed)
        if not wanted:
            return self._top[:limit]
        found: dict[str, Rank] = {}
        ways = ((_containing, f"/{wanted}"), (_containing, wanted), (_scattered, wanted))
        for search, part in ways:
            for block in self._blocks:
                if unwanted() or len(found) >= MAX_CANDIDATES:
                    break
                for path, low in search(block, part):
                    if path not in found:
                        found[path] = (_cost(low, wanted), path.count("/"), len(path), path)
            if len(found) >= limit:
                break
        return [path for *_, path in heapq.nsmallest(limit, found.values())]


def match_cost(path: str, typed: str) -> int | None:
    """Return how badly a path matches: 0 is best, None is no match."""
    low, wanted = _lower(path), _lower(typed)
    return _cost(low, wanted) if re.match(_letters(wanted), f"\n/{low}") else None


def folder_entries(typed: str, cwd: Path, limit: int) -> list[str]:
    """Return what is in the folder that was typed, for a path that leads out of the project."""
    folder, slash, name = typed.rpartition("/")
    try:
        with os.scandir(cwd / Path(folder + slash).expanduser()) as entries:
            names = [entry.name + "/" * entry.is_dir() for entry in entries]
    except (OSError, RuntimeError):  # also the home of an unknown user
        return []
    near = [each for each in names if _lower(each).startswith(_lower(name)) and each.isprintable()]
    return [folder + slash + each for each in sorted(near)[:limit]]


def _with_folders(files: Iterable[str]) -> Iterator[str]:
    folders = set()
    for path in files:
        if not path.isprintable():
            continue
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            yield f"{folder}/"
            folder = folder.rpartition("/")[0]
        yield path


def _blocks(paths: Iterable[str]) -> Iterator[_Block]:
    some: list[str] = []
    size = 0
    for path in paths:
        some.append(path)
        size += len(path) + 2
        if size >= BLOCK_CHARS:
            yield _block(some)
            some, size = [], 0
    if some:
        yield _block(some)


def _block(paths: Sequence[str]) -> _Block:
    lines = [f"\n/{path}" for path in paths]
    return _Block("".join(lines) + "\n", "".join(map(_lower, lines)) + "\n")


def _lower(text: str) -> str:
    """Return the text in lower case, or as it is if that has another length."""
    low = text.lower()
    return low if len(low) == len(text) else text


def _containing(block: _Block, part: str) -> Iterator[tuple[str, str]]:
    place = block.low.find(part)
    while place >= 0:
        start, end = block.low.rfind("\n", 0, place + 1) + 2, block.low.find("\n", place + 1)
        yield block.text[start:end], block.low[start:end]
        place = block.low.find(part, end)


def _scattered(block: _Block, wanted: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(_letters(wanted), block.low):
        start, end = found.start() + 2, block.low.find("\n", found.end())
        yield block.text[start:end], block.low[start:end]


def _letters(wanted: str) -> str:
    """Return a pattern for all letters in order within one line, without backtracking."""
    return r"\n/" + "".join(f"[^\n{re.escape(c)}]*{re.escape(c)}" for c in wanted)


def _cost(low: str, wanted: str) -> int:
    path = f"/{low}"
    begins = path.rfind(f"/{wanted}")
    if begins >= 0:
        return int("/" in path[begins + 1 + len(wanted) :].rstrip("/"))
    if wanted in low:
        return 2 + (wanted not in low[low.rstrip("/").rfind("/") + 1 :])
    return 4 + _gap_cost(low, wanted)


def _gap_cost(low: str, wanted: str) -> int:
    """Return how far apart the letters are, searched from the end: the sizes of gaps, with more for
    one that ends within a word and for a match that begins before the name."""
    cost, place = 0, len(low)
    for letter in reversed(wanted):
        after, place = place, low.rfind(letter, 0, place)
        gap = after - place - 1
        if gap and after < len(low):
            cost += min(gap, MAX_GAP_COST) + 2 * low[after - 1].isalnum()
    inside = 2 * (place > 0 and low[place - 1].isalnum())
    return cost + inside + MAX_GAP_COST * (place <= low.rstrip("/").rfind("/"))
