"""Search for project paths that match typed text, best first. It handles a hundred thousand paths
while the user types: it works in small steps, and is cancelled when its result is no longer needed.

Paths with a part that begins with the text come first (file name before folders), then paths that
contain it (file name first), then paths with its letters in order. Case is ignored.
"""

import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

STEP_PATHS = 250  # paths searched at a time
MAX_CANDIDATES = 4_000  # the best paths are chosen among so many matches
MAX_GAP_COST = 8  # a larger gap between two letters costs no more

Rank = tuple[int, int, int, str]  # cost, depth, length, the path


class Paths:
    """The files and folders of a project as relative paths. Paths with control characters or
    invalid UTF-8 are left out.
    """

    def __init__(self, files: Iterable[str]) -> None:
        depths: dict[int, list[str]] = {}
        for path in _with_folders(files):
            depths.setdefault(path.rstrip("/").count("/"), []).append(path)
        self._paths = [path for depth in sorted(depths) for path in depths[depth]]
        self._low = [f"/{_lower(path)}" for path in self._paths]
        self._top = [path for depth in sorted(depths)[:2] for path in depths[depth]]

    def rank(
        self, typed: str, limit: int, unwanted: Callable[[], bool] = lambda: False
    ) -> list[str]:
        """Return the best `limit` paths; fewer if `unwanted` becomes true."""
        wanted = _lower(typed)
        if not wanted:
            return self._top[:limit]
        found: dict[str, Rank] = {}
        for pattern in (re.escape(f"/{wanted}"), re.escape(wanted), _letters(wanted)):
            search = re.compile(pattern, re.MULTILINE).search
            for start in range(0, len(self._low), STEP_PATHS):
                if unwanted() or len(found) >= MAX_CANDIDATES:
                    break
                step = slice(start, start + STEP_PATHS)
                if not search("\n".join(self._low[step])):  # most steps have no match
                    continue
                for path, low in zip(self._paths[step], self._low[step], strict=True):
                    if path not in found and search(low):
                        found[path] = (_cost(low, wanted), path.count("/"), len(path), path)
            if len(found) >= limit:
                break
        return [path for *_, path in heapq.nsmallest(limit, found.values())]


def match_cost(path: str, typed: str) -> int | None:
    """Return the match cost of a path: 0 is best, None is no match."""
    low, wanted = f"/{_lower(path)}", _lower(typed)
    return _cost(low, wanted) if re.search(_letters(wanted), low) else None


def folder_entries(typed: str, cwd: Path, limit: int) -> list[str]:
    """Return the matching entries of the typed folder, for paths outside the project."""
    folder, slash, name = typed.rpartition("/")
    try:
        with os.scandir(cwd / Path(folder + slash).expanduser()) as entries:
            names = [entry.name + "/" * entry.is_dir() for entry in entries]
    except (OSError, RuntimeError):  # RuntimeError: the home of an unknown user
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


def _lower(text: str) -> str:
    """Return the text in lower case, or unchanged if that would change its length."""
    low = text.lower()
    return low if len(low) == len(text) else text


def _letters(wanted: str) -> str:
    """Return a pattern that matches all letters in order within one line, without backtracking."""
    return "^/" + "".join(f"[^\n{re.escape(c)}]*{re.escape(c)}" for c in wanted)


def _cost(low: str, wanted: str) -> int:
    begins = low.rfind(f"/{wanted}")
    if begins >= 0:
        return int("/" in low[begins + 1 + len(wanted) :].rstrip("/"))
    if wanted in low:
        return 2 + (wanted not in low[low.rstrip("/").rfind("/") + 1 :])
    return 4 + _gap_cost(low, wanted)


def _gap_cost(low: str, wanted: str) -> int:
    """Return the cost of the gaps between the letters, searched from the end. A gap that ends
    inside a word costs more, and so does a match that begins before the file name.
    """
    cost, place = 0, len(low)
    for letter in reversed(wanted):
        after, place = place, low.rfind(letter, 0, place)
        gap = after - place - 1
        if gap and after < len(low):
            cost += min(gap, MAX_GAP_COST) + 2 * low[after - 1].isalnum()
    inside = 2 * (place > 0 and low[place - 1].isalnum())
    return cost + inside + MAX_GAP_COST * (place <= low.rstrip("/").rfind("/"))
