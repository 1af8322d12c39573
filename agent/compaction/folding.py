"""Folding: what of a summary grows with the session is made to fit by counting what has no room.

Changed files stand by name while there is room for them; those that were worked on least go by
folder then: one row says how many there are below it, and which file of the archive names each.
Facts that have no room are counted in one line. A path that stays is never abbreviated.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..context.tokens import estimate
from ..record.archive import FILES
from ..record.ledger import FileFact
from .document import Document, FileRow, row_line

TABLE = 2  # times a summary's cap: what the paths of changed files may take beside it
FOLDERS = 0.25  # of that room, for the rows that stand for many
LEAST_ROW = 8  # tokens of the shortest row
WORKED = {"Edit": 2, "Write": 2, "Task": 1}  # on purpose; a command may change many at once

_ROOTS = ("./", "/")
_COUNT = re.compile(r"(\d+) (?:files? )?(created|modified|deleted)")
_OLDER = re.compile(r"(\d+) older facts: Recall finds them")


def standing(files: Mapping[str, FileFact], room: int | None) -> tuple[FileRow, ...]:
    """The rows of changed files for so many tokens, None for all: as many by name as fit, in the
    order in which they were first changed, and the others by folder. The agent's own edits stay the
    longest, then what was changed more often, then the newest."""
    rows = [FileRow(path, fact.action) for path, fact in files.items()]
    if room is None:
        return tuple(rows)
    ranks = [(WORKED.get(fact.tool, 0), fact.times, fact.ref) for fact in files.values()]
    return folded(rows, ranks, room)


def folded(
    rows: Sequence[FileRow], ranks: Sequence[tuple[int, ...]], room: int
) -> tuple[FileRow, ...]:
    """The rows in so many tokens, but for what is said of the change in one file: those that rank
    highest as they are, the others by folder, the deepest folders together first. Where nothing
    fits there are two rows at most."""
    order = sorted(range(len(rows)), key=ranks.__getitem__, reverse=True)
    count, _ = _fitting((rows[n] for n in order), room)
    if count == len(rows):
        return tuple(rows)
    count, used = _fitting((rows[n] for n in order), int((1 - FOLDERS) * room))
    named, rest = sorted(order[:count]), sorted(order[count:])
    return (*(rows[n] for n in named), *_by_folder([rows[n] for n in rest], room - used))


def stands_for_many(row: FileRow) -> bool:
    return row.path.endswith("/")


def weight(rows: Iterable[FileRow]) -> int:
    """Tokens of the rows, but for what is said of the change in one file."""
    return sum(map(_weight, rows))


def fewer_facts(
    document: Document, stays: Callable[[str], bool], fits: Callable[[Document], bool]
) -> Document:
    """The document without as many of its oldest facts as need to go, of those that need not stay,
    and with a line that says how many older ones there are."""
    counted = [int(found[1]) for text in document.facts if (found := _OLDER.fullmatch(text))]
    facts = [text for text in document.facts if not is_count(text)]
    loose = [place for place, text in enumerate(facts) if not stays(text)]

    def without(count: int) -> Document:
        gone, older = set(loose[:count]), max(counted, default=0) + count
        line = [f"{older} older facts: Recall finds them"] if older else []
        left = (text for place, text in enumerate(facts) if place not in gone)
        return replace(document, facts=(*line, *left))

    return without(bisect_left(range(len(loose)), True, key=lambda count: fits(without(count))))


def is_count(fact: str) -> bool:
    """Whether a fact is the line that says how many older ones there are."""
    return _OLDER.fullmatch(fact) is not None


def _fitting(rows: Iterable[FileRow], room: int) -> tuple[int, int]:
    """How many of the first rows have room, and the tokens they take."""
    count = used = 0
    for row in rows:
        needed = _weight(row)
        if used + needed > room:
            break
        count, used = count + 1, used + needed
    return count, used


def _weight(row: FileRow) -> int:
    return estimate(row_line(row if stands_for_many(row) else replace(row, change=""))) + 1


def _by_folder(rows: Sequence[FileRow], room: int) -> list[FileRow]:
    groups: dict[str, list[FileRow]] = {}
    for row in rows:
        groups.setdefault(_folder(row.path), []).append(row)
    while True:
        deepest = max(map(_depth, groups), default=0)
        if not deepest or len(groups) * LEAST_ROW <= room:
            made = [_row(folder, below) for folder, below in groups.items()]
            if not deepest or weight(made) <= room:
                return made
        for folder in [name for name in groups if _depth(name) == deepest]:
            below = groups.pop(folder)
            groups.setdefault(_parent(folder), []).extend(below)


def _row(folder: str, below: Sequence[FileRow]) -> FileRow:
    """The row of a folder; a single file stands by its name, unless that is the longer."""
    counts: Counter[str] = Counter()
    for row in below:
        counts.update(_counted(row))
    total = counts.total()
    files = f"{total} files" if total > 1 else "1 file"
    told = ", ".join(f"{count} {action}" for action, count in counts.most_common())
    action = below[0].action if len(counts) == 1 else "modified"
    what = f" {action}" if len(counts) == 1 else f": {told}"
    made = FileRow(folder, action, f"{files}{what} (Recall `{FILES}` names each)")
    if len(below) == 1 and _weight(below[0]) <= _weight(made):
        return below[0]
    return made


def _counted(row: FileRow) -> Mapping[str, int]:
    """How many files a row stands for, by what was done to them."""
    found = _COUNT.findall(row.change) if stands_for_many(row) else []
    return {action: int(count) for count, action in found} or {row.action: 1}


def _folder(path: str) -> str:
    return path[: path.rfind("/") + 1] or "./"


def _parent(folder: str) -> str:
    return _folder(folder[:-1])


def _depth(folder: str) -> int:
    return 0 if folder in _ROOTS else folder.count("/")
