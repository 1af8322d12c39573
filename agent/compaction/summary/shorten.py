"""Shorten a summary to its limit, and count what is dropped.

The least critical content is dropped first. Changed files are listed by name while they fit. The
others are grouped by folder, deepest folders first, with the number of files and the archive file
that lists them. Dropped facts are counted in one line. Paths are never abbreviated.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from ...context.tokens import estimate
from ...lazy import regex
from ...session.archive import FILES_NAME
from ...session.ledger import FileFact
from ..document import (
    FileRow,
    SummaryDocument,
    SummaryFact,
    fact_text,
    older_facts,
    render,
    row_line,
)
from ..recall_hints import names_each
from .facts import resolved_error

FILE_TABLE_FACTOR = 2  # limit for the paths of changed files, as a multiple of the summary's cap
FOLDER_ROWS_SHARE = 0.25  # of the room for changed files, for the rows of folders
MIN_CAP_TOKENS = 200  # of a document besides its changed files: titles alone take half of it
MIN_ROW_TOKENS = 8  # of the shortest row
TOOL_RANKS = {"Edit": 2, "Write": 2, "Task": 1}  # change files on purpose; others rank 0
TEXT_LIMITS = (1_000, 400, 160, 60)  # characters kept of a text, tried in turn
INTENT_LIMITS = (240, 120, 60, 30, 10, 3, 1)  # the same for the intent, as the last resort
FACT_SHARE_CHARS = 160  # of each fact, counted towards FACTS_SHARE
FACTS_SHARE = 0.5  # of a summary, for facts; more facts are dropped before other content
FILE_ROW_SHARES = (0.5, 0.25, 0.125, 0.0)  # of a summary, for changed files, tried in turn

_ROOTS = ("./", "/")
_FILE_COUNT = regex(r"(\d+) (?:files? )?(created|modified|deleted)")
_LINE_COUNT = regex(r"(?:\+\d+ −\d+ lines )?\(\w+, #\d+\)")

Fits = Callable[[SummaryDocument], bool]  # True if a document is short enough


def shortened_to(
    document: SummaryDocument,
    cap_tokens: int,
    is_probed: Callable[[str], bool] = lambda fact: False,
) -> SummaryDocument:
    """Shorten the document until it renders in at most `cap_tokens` estimated tokens
    (MIN_CAP_TOKENS or more).

    First, the oldest facts are dropped until all facts fit in their share; probed facts and denials
    stay. Then the oldest items of each section go, in this order: other notes of the model, files
    read, finished work, line counts, resolved errors, other errors, references, decisions. Then
    long texts are cut, the intent least. If that is not enough, more facts are dropped and changed
    files are grouped by folder.
    """

    line_tokens = cache(lambda line: estimate(f"\n{line}"))  # most lines repeat between tries

    def fits(candidate: SummaryDocument) -> bool:
        lines = render(candidate).split("\n")
        return sum(map(line_tokens, lines)) - 1 <= cap_tokens  # 1 less: no newline before the first

    def must_stay(fact: SummaryFact) -> bool:
        return fact.is_recorded or is_probed(fact.text)

    def facts_fit(candidate: SummaryDocument) -> bool:
        room = max(cap_tokens - row_tokens(document.modified), cap_tokens / (FILE_TABLE_FACTOR + 1))
        facts = "\n".join(
            shorten_at_gap(fact_text(fact), FACT_SHARE_CHARS) for fact in candidate.facts
        )
        return estimate(facts) <= FACTS_SHARE * room

    if fits(document):
        return document
    document = drop_oldest_facts(document, must_stay, facts_fit)
    open_last = sorted(document.errors, key=lambda error: resolved_error(error) is None)
    document = replace(document, errors=tuple(open_last))
    for name in ("other", "read", "done", "modified", "errors", "recovery", "decisions"):
        document = _without_oldest(document, name, fits)
        if fits(document):
            return document
    for limit in TEXT_LIMITS:
        document = _with_short_texts(document, limit)
        if fits(document):
            return document
    return _minimal(drop_oldest_facts(document, must_stay, fits), cap_tokens, fits)


def drop_oldest_facts(
    document: SummaryDocument,
    must_stay: Callable[[SummaryFact], bool],
    fits: Fits,
) -> SummaryDocument:
    """Drop and count facts, except facts that must stay, until the document fits. The model's notes
    go first, then the oldest facts.
    """
    counted = max((fact.older_count for fact in document.facts), default=0)
    facts = [fact for fact in document.facts if not fact.older_count]
    loose = [place for place, fact in enumerate(facts) if not must_stay(fact)]
    loose.sort(key=lambda place: (not facts[place].is_note, -facts[place].age))

    def left(count: int) -> list[SummaryFact]:
        gone, older = set(loose[:count]), counted + count
        line = [older_facts(older)] if older else []
        return [*line, *(fact for place, fact in enumerate(facts) if place not in gone)]

    return _drop_until_fits(document, "facts", left, len(loose), fits)


def is_line_count(change: str) -> bool:
    """Return True if a change's description is only the ledger's line count."""
    return _LINE_COUNT.fullmatch(change) is not None


def shorten_at_gap(text: str, limit: int) -> str:
    """Cut a text to `limit` characters, between words if possible, so that no path is cut."""
    if len(text) <= limit:
        return text
    gap = re.match(r".*\s", text[: limit + 1], re.DOTALL)
    return f"{text[: gap.end() if gap else limit].rstrip()} …"


def _drop_until_fits(
    document: SummaryDocument,
    name: str,
    left: Callable[[int], Sequence[Any]],
    max_count: int,
    fits: Fits,
) -> SummaryDocument:
    """Drop as few items of a section as needed to fit, at most `max_count`. `left(n)` returns the
    remaining items after `n` are dropped.
    """

    def without(count: int) -> SummaryDocument:
        changed: dict[str, Any] = {name: tuple(left(count))}
        return replace(document, **changed)

    return without(bisect_left(range(max_count), True, key=lambda count: fits(without(count))))


def _without_oldest(document: SummaryDocument, name: str, fits: Fits) -> SummaryDocument:
    """Drop a section's oldest items until the document fits. For changed files, drop only line
    counts.
    """
    items: tuple[Any, ...] = getattr(document, name)

    def left(count: int) -> Sequence[Any]:
        if name != "modified":
            return items[count:]
        bare = (replace(r, change="") if is_line_count(r.change) else r for r in items[:count])
        return [*bare, *items[count:]]

    return _drop_until_fits(document, name, left, len(items), fits)


def _without_last(
    document: SummaryDocument, name: str, fits: Fits, min_items: int
) -> SummaryDocument:
    """Drop a section's last items until the document fits. The first items matter most."""
    items: tuple[str, ...] = getattr(document, name)
    max_count = max(0, len(items) - min_items)
    return _drop_until_fits(
        document, name, lambda count: items[: len(items) - count], max_count, fits
    )


def _minimal(document: SummaryDocument, cap_tokens: int, fits: Fits) -> SummaryDocument:
    """Drop critical content step by step until the document fits."""
    rows = document.modified
    ranks = [(place,) for place in range(len(rows))]
    for share in FILE_ROW_SHARES:
        if fits(document):
            return document
        document = replace(document, modified=rows_within(rows, ranks, int(share * cap_tokens)))
    for name, min_items in (("blocked", 0), ("in_progress", 0), ("next_steps", 1)):
        document = _without_last(document, name, fits, min_items)
    document = drop_oldest_facts(document, lambda fact: False, fits)
    if not fits(document):
        document = replace(document, phase="", facts=(), next_steps=())
    for limit in INTENT_LIMITS:
        if fits(document):
            break
        document = replace(document, intent=shorten_at_gap(document.intent, limit))
    return document


def _with_short_texts(document: SummaryDocument, limit: int) -> SummaryDocument:
    def shorten_all(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(shorten_at_gap(text, limit) for text in texts)

    return replace(
        document,
        intent=shorten_at_gap(document.intent, 4 * limit),
        modified=tuple(
            replace(row, change=shorten_at_gap(row.change, limit)) for row in document.modified
        ),
        phase=shorten_at_gap(document.phase, limit),
        in_progress=shorten_all(document.in_progress),
        blocked=shorten_all(document.blocked),
        facts=tuple(
            replace(fact, text=shorten_at_gap(fact.text, limit)) for fact in document.facts
        ),
        next_steps=shorten_all(document.next_steps),
    )


# The table of changed files


def changed_file_rows(files: Mapping[str, FileFact], room: int | None) -> tuple[FileRow, ...]:
    """Return the rows of changed files in `room` tokens; None for all rows.

    As many files as fit are listed by name, in the order of their first change; the others are
    grouped by folder. The agent's own edits are preferred for listing by name, then files changed
    more often, then newer changes.
    """
    rows = [FileRow(path, fact.action) for path, fact in files.items()]
    if room is None:
        return tuple(rows)
    ranks = [(TOOL_RANKS.get(fact.tool, 0), fact.times, fact.ref) for fact in files.values()]
    return rows_within(rows, ranks, room)


def rows_within(
    rows: Sequence[FileRow], ranks: Sequence[tuple[int, ...]], room: int
) -> tuple[FileRow, ...]:
    """Keep top-ranked rows by name, and group the rest by folder, within `room` tokens.

    Descriptions of changes do not count. At most two rows are returned if nothing fits.
    """
    order = sorted(range(len(rows)), key=ranks.__getitem__, reverse=True)
    count, _ = _count_fitting((rows[n] for n in order), room)
    if count == len(rows):
        return tuple(rows)
    count, used = _count_fitting((rows[n] for n in order), int((1 - FOLDER_ROWS_SHARE) * room))
    named, rest = sorted(order[:count]), sorted(order[count:])
    return (*(rows[n] for n in named), *_by_folder([rows[n] for n in rest], room - used))


def is_folder_row(row: FileRow) -> bool:
    """Return True if the row is for a folder."""
    return row.path.endswith("/")


def row_tokens(rows: Iterable[FileRow]) -> int:
    """Return the tokens of the rows, without the descriptions of changes."""
    return sum(map(_row_tokens, rows))


@lru_cache(maxsize=4096)  # the same rows are measured many times
def _row_tokens(row: FileRow) -> int:
    return estimate(row_line(row if is_folder_row(row) else replace(row, change=""))) + 1


def _count_fitting(rows: Iterable[FileRow], room: int) -> tuple[int, int]:
    """Return how many rows, counted from the first, fit in `room`, and their tokens."""
    count = used = 0
    for row in rows:
        needed = _row_tokens(row)
        if used + needed > room:
            break
        count, used = count + 1, used + needed
    return count, used


def _by_folder(rows: Sequence[FileRow], room: int) -> list[FileRow]:
    """Group the rows by folder. Merge the deepest folders into their parents until all rows fit."""
    groups: dict[str, list[FileRow]] = {}
    for row in rows:
        groups.setdefault(_folder(row.path), []).append(row)
    while True:
        deepest = max(map(_depth, groups), default=0)
        if not deepest or len(groups) * MIN_ROW_TOKENS <= room:
            made = [_folder_row(folder, below) for folder, below in groups.items()]
            if not deepest or row_tokens(made) <= room:
                return made
        for folder in [name for name in groups if _depth(name) == deepest]:
            groups.setdefault(_folder(folder[:-1]), []).extend(groups.pop(folder))


def _folder_row(folder: str, below: Sequence[FileRow]) -> FileRow:
    """Return the row of a folder. A single file keeps its own row unless that is longer."""
    counts: Counter[str] = Counter()
    for row in below:
        counts.update(_file_counts(row))
    total = counts.total()
    files = f"{total} files" if total > 1 else "1 file"
    if len(counts) == 1:
        action = below[0].action
        what = f" {action}"
    else:
        action = "modified"
        what = ": " + ", ".join(f"{count} {done}" for done, count in counts.most_common())
    made = FileRow(folder, action, f"{files}{what}{names_each(FILES_NAME)}")
    if len(below) == 1 and _row_tokens(below[0]) <= _row_tokens(made):
        return below[0]
    return made


def _file_counts(row: FileRow) -> Mapping[str, int]:
    """Return the number of files in a row, by action."""
    found = _FILE_COUNT.findall(row.change) if is_folder_row(row) else []
    return {action: int(count) for count, action in found} or {row.action: 1}


def _folder(path: str) -> str:
    return path[: path.rfind("/") + 1] or "./"


def _depth(folder: str) -> int:
    return 0 if folder in _ROOTS else folder.count("/")
