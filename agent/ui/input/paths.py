"""Which paths of a project match what is typed, best first, among a hundred thousand of them while
somebody types: all is done in small steps, and given up as soon as nobody wants it any more.

A part of the path that begins with what was typed comes first, the name before its folders; then
what was typed anywhere, in the name or in the path; then its letters in order, those that stand
together or begin a word before others. Upper and lower case are one.
"""

import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

STEP = 1 << 16  # characters of paths that are looked at between two looks whether to go on
ENOUGH = 4_000  # paths that match, among which the best are chosen
FAR = 8  # characters between two letters past which it is all the same

Rank = tuple[int, int, int, str]  # how well it matches, how deep and how long it is, the path


@dataclass(frozen=True, slots=True)
class _Block:
    """Paths, each between `\\n/` and the next line, as they are and in lower case."""

    text: str
    low: str


class Paths:
    """The files of a project and the folders that they are in. Paths are relative; those that no
    terminal shows as they are (control characters, bytes that are not UTF-8) are left out."""

    def __init__(self, files: Iterable[str]) -> None:
        depths: dict[int, list[str]] = {}
        for path in _with_folders(files):
            depths.setdefault(path.rstrip("/").count("/"), []).append(path)
        self._blocks = list(_blocks(path for depth in sorted(depths) for path in depths[depth]))
        self._top = [path for depth in sorted(depths)[:2] for path in depths[depth]]

    def rank(
        self,
        typed: str,
        limit: int,
        unwanted: Callable[[], bool] = lambda: False,
    ) -> list[str]:
        """The best `limit` paths; fewer once they are unwanted."""
        wanted = _lower(typed)
        if not wanted:
            return self._top[:limit]
        found: dict[str, Rank] = {}
        for look in (_begins, _holds, _scattered):
            for block in self._blocks:
                if unwanted() or len(found) >= ENOUGH:
                    break
                for path, low in look(block, wanted):
                    if path not in found:
                        found[path] = (_worth(low, wanted), path.count("/"), len(path), path)
            if len(found) >= limit:
                break
        return [path for *_, path in heapq.nsmallest(limit, found.values())]


def worth(path: str, typed: str) -> int | None:
    """How well a path matches: the less the better, None when it does not."""
    low, wanted = _lower(path), _lower(typed)
    return _worth(low, wanted) if re.match(_letters(wanted), f"\n/{low}") else None


def around(typed: str, cwd: Path, limit: int) -> list[str]:
    """What is in the folder that was typed, for paths that lead out of the project: those with a
    `/`, `~` or `..` in front."""
    folder, slash, name = typed.rpartition("/")
    try:
        with os.scandir(cwd / Path(folder + slash).expanduser()) as entries:
            names = [entry.name + "/" * entry.is_dir() for entry in entries]
    except (OSError, RuntimeError):  # also a home of nobody's
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
        if size >= STEP:
            yield _block(some)
            some, size = [], 0
    if some:
        yield _block(some)


def _block(paths: Sequence[str]) -> _Block:
    lines = [f"\n/{path}" for path in paths]
    return _Block("".join(lines) + "\n", "".join(map(_lower, lines)) + "\n")


def _lower(text: str) -> str:
    """In lower case, of the same length."""
    low = text.lower()
    return low if len(low) == len(text) else text


def _begins(block: _Block, wanted: str) -> Iterator[tuple[str, str]]:
    return _with(block, f"/{wanted}")


def _holds(block: _Block, wanted: str) -> Iterator[tuple[str, str]]:
    return _with(block, wanted)


def _with(block: _Block, part: str) -> Iterator[tuple[str, str]]:
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
    """A pattern for all letters in order within one line; what it skips it never tries again."""
    return r"\n/" + "".join(f"[^\n{re.escape(c)}]*{re.escape(c)}" for c in wanted)


def _worth(low: str, wanted: str) -> int:
    path = f"/{low}"
    begins = path.rfind(f"/{wanted}")
    if begins >= 0:
        return int("/" in path[begins + 1 + len(wanted) :].rstrip("/"))
    if wanted in low:
        return 2 + (wanted not in low[low.rstrip("/").rfind("/") + 1 :])
    return 4 + _apart(low, wanted)


def _apart(low: str, wanted: str) -> int:
    """How far apart the letters stand, looked for from the end: gaps by their size, more for one
    that ends within a word, and for a beginning before the name."""
    cost, place = 0, len(low)
    for letter in reversed(wanted):
        after, place = place, low.rfind(letter, 0, place)
        gap = after - place - 1
        if gap and after < len(low):
            cost += min(gap, FAR) + 2 * low[after - 1].isalnum()
    inside = 2 * (place > 0 and low[place - 1].isalnum())
    return cost + inside + FAR * (place <= low.rstrip("/").rfind("/"))
