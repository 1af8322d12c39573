"""Lists of sessions: what a person knows a session by, at the cost of a few reads.

The two ends of a log are read, unless the catalogue has what they said. At its beginning the first
line, which holds the system prompt and the tools, is not parsed beyond what stands before them;
from its end it is read back no further than to the newest words. Logs may grow, or go, while they
are listed.
"""

import json
import os
from collections.abc import Iterable, Iterator, Reversible
from contextlib import suppress
from fcntl import LOCK_NB, LOCK_SH, flock
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from ...tools.system.files import open_kept, replace_file
from ..lazy import dataclass, regex
from .entries import Assistant, Entry, User
from .log import try_parse_entry
from .store import content_text
from .titles import kept_title

CATALOGUE_NAME = "sessions.json"
CATALOGUE_VERSION = 1
MIN_CARDS_TO_SAVE = 50  # fewer new cards are not worth writing the file
MAX_UNSAVED_CARDS = 1_000  # the file is written after so many new cards
CARD_TYPES = [int, int, str, str, int, str, str]

# Size and time of change in nanoseconds, then title, last words, entries, branch and directory.
SessionCard = tuple[int, int, str, str, int, str, str]

MAX_WORDS_CHARS = 200  # of the words in a row
_MAX_HEAD_BYTES = 1 << 20  # from the beginning, in which the first words are looked for
# The newest words are looked for so many bytes back from the end: first near, then far.
_NEAR_END_BYTES = 1 << 15
_FAR_END_BYTES = 1 << 19
_LINE_HEAD = regex(rb'\{"v": \d{1,9}, "seq": (\d{1,18}), "at": "[^"]{0,40}", "kind": "(\w+)"')
_LARGE_FIELDS = b', "system": '  # begins what is large in a line that opens a session


class Catalogue:
    """The cache of the session cards of one project, by the names of its sessions."""

    def __init__(self, project: Path) -> None:
        self._path = project / CATALOGUE_NAME
        self._cards: dict[str, Any] = {}
        self.unsaved = 0  # cards that are not in the file
        with suppress(OSError, ValueError, RecursionError):
            with open_kept(self._path) as file:
                kept = json.load(file)
            cards = kept.get("cards") if isinstance(kept, dict) else None
            if isinstance(cards, dict) and kept.get("v") == CATALOGUE_VERSION:
                self._cards = cards

    def get(self, name: str, size: int, changed: int) -> SessionCard | None:
        """Return the card of a session, or None unless its log has this size and time of change."""
        card = self._cards.get(name)
        if not isinstance(card, list) or [*map(type, card)] != CARD_TYPES:
            return None
        found: SessionCard = tuple(card)
        return found if found[:2] == (size, changed) else None

    def put(self, name: str, card: SessionCard) -> None:
        self._cards[name] = [*card]
        self.unsaved += 1

    def save(self) -> None:
        """Write the cards of the sessions that still exist, if the file can be written."""
        with suppress(OSError):
            existing = {path.name for path in self._path.with_name("sessions").iterdir()}
            cards = {name: card for name, card in self._cards.items() if name in existing}
            text = json.dumps({"v": CATALOGUE_VERSION, "cards": cards})
            replace_file(self._path, text.encode(), durable=False)
        self.unsaved = 0


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session in a list."""

    id: str
    log: Path
    title: str = ""  # what the person named it, else what they said first
    last: str = ""  # what was said last, by the person or the agent
    size: int = 0  # bytes of the log
    changed: float = 0.0  # seconds since the epoch
    entries: int = 0
    branch: str = ""  # at which the session was opened last, as far as that is known
    cwd: str = ""
    in_use: bool = False  # another process has the session open


def session_rows(logs: Iterable[Path]) -> Iterator[SessionRow]:
    """Yield a row for each of these logs that can be read, and keep the cards for the next time."""
    catalogues: dict[Path, Catalogue] = {}
    for log in logs:
        project = log.parents[2]
        catalogue = catalogues.get(project) or catalogues.setdefault(project, Catalogue(project))
        with suppress(OSError):
            yield session_row(log, catalogue)
        if catalogue.unsaved >= MAX_UNSAVED_CARDS:
            catalogue.save()
    for catalogue in catalogues.values():
        if catalogue.unsaved >= MIN_CARDS_TO_SAVE:
            catalogue.save()


def session_row(log: Path, catalogue: Catalogue | None = None) -> SessionRow:
    """Return what a list shows of a session. Raises OSError when its log cannot be read."""
    stat = log.stat()
    name = log.parent.name
    card = catalogue.get(name, stat.st_size, stat.st_mtime_ns) if catalogue else None
    if card is None:
        card = _read_card(log)
        if catalogue:
            catalogue.put(name, card)
    size, changed, title, last, entries, branch, cwd = card
    in_use = is_in_use(log.with_name("lock"))
    return SessionRow(name, log, title, last, size, changed / 1e9, entries, branch, cwd, in_use)


def newest_entries(log: Path) -> list[Entry]:
    """Return the last entries of a log, as far back as a row is read; none if it is unreadable."""
    with suppress(OSError), open_kept(log) as file:
        lines = [*chain.from_iterable(_line_groups(file, os.fstat(file.fileno()).st_size))]
        return [entry for line in reversed(lines) if (entry := try_parse_entry(line))]
    return []


def last_exchange(entries: Reversible[Entry]) -> tuple[str, str]:
    """Return the user's last words and the last answer to them, "" for what there is none of."""
    answer = ""
    for entry in reversed(entries):
        if isinstance(entry, User) and entry.source == "person":
            return content_text(entry.content), answer
        answer = answer or _answer(entry)
    return "", answer


def last_answer(entries: Reversible[Entry], since: int) -> str:
    """Return the last answer after entry `since`, "" for none. Nothing before it is read."""
    for entry in reversed(entries):
        if entry.seq <= since:
            break
        if answer := _answer(entry):
            return answer
    return ""


def _answer(entry: Entry | None) -> str:
    if isinstance(entry, Assistant) and entry.purpose == "turn":
        return content_text([block for block in entry.content if block.get("type") == "text"])
    return ""


def _read_card(log: Path) -> SessionCard:
    with open_kept(log) as file:
        stat = os.fstat(file.fileno())
        opened, title = _read_beginning(file)
        reopened, last, entries = _read_end(file, stat.st_size)
    opened |= reopened
    branch, cwd = opened.get("branch", ""), opened.get("cwd", "")
    title = kept_title(log.parent) or title or last
    return (stat.st_size, stat.st_mtime_ns, title, last, entries, branch, cwd)


def _read_beginning(file: BinaryIO) -> tuple[dict[str, str], str]:
    """Return how the session was opened, and what the user said first."""
    opened: dict[str, str] = {}
    while file.tell() < _MAX_HEAD_BYTES and (line := file.readline(_MAX_HEAD_BYTES)):
        head = _LINE_HEAD.match(line)
        if head and head[2] == b"session" and not opened:
            opened = _parse_opening(line)
        elif head and head[2] == b"user" and (words := _words_of_line(line)):
            return opened, words
    return opened, ""


def _read_end(file: BinaryIO, size: int) -> tuple[dict[str, str], str, int]:
    """Return how the session was opened last, if that stands near the end; what was said last; and
    the number of the last entry."""
    opened: dict[str, str] = {}
    last, entries = "", 0
    for lines in _line_groups(file, size):
        for line in lines:
            head = _LINE_HEAD.match(line)
            if head is None:
                continue
            entries = entries or int(head[1])
            if head[2] == b"session" and not opened:
                opened = _parse_opening(line)
            elif head[2] in (b"user", b"assistant") and not last:
                last = _words_of_line(line)
        if last:
            break
    return opened, last, entries


def _line_groups(file: BinaryIO, size: int) -> Iterator[list[bytes]]:
    """Yield the whole lines of a log of `size` bytes, last first: those near the end, then those
    further back. The rest of the log is left out."""
    seen = 0
    for reach in (_NEAR_END_BYTES, _FAR_END_BYTES):
        start = max(0, size - reach)
        file.seek(start)
        lines = file.read(size - start).split(b"\n")[bool(start) : -1]
        yield lines[len(lines) - seen - 1 :: -1] if seen < len(lines) else []
        seen = len(lines)
        if not start:
            return


def _parse_opening(line: bytes) -> dict[str, str]:
    """Return where a session was opened, from the part of the line before what is large in it."""
    before, large, _ = line.partition(_LARGE_FIELDS)
    try:
        data: Any = json.loads(before + b"}" if large else line)
    except (ValueError, RecursionError):
        return {}
    found = {key: data.get(key) for key in ("cwd", "branch")} if isinstance(data, dict) else {}
    return {key: value for key, value in found.items() if isinstance(value, str) and value}


def _words_of_line(line: bytes) -> str:
    """Return what the user or the agent says in an entry, on one line."""
    entry = try_parse_entry(line)
    if isinstance(entry, User) and entry.source == "person":
        text = content_text(entry.content)
    else:
        text = _answer(entry)
    return " ".join(text[: 4 * MAX_WORDS_CHARS].split())[:MAX_WORDS_CHARS]


def is_in_use(lock: Path) -> bool:
    """Return whether another living process has a session open. The lock is tried only if the
    process that it names exists: to try is to hold it for a moment."""
    try:
        file = os.open(lock, os.O_RDONLY)
        try:
            pid = int(os.read(file, 32))
            if pid == os.getpid():
                return False
            os.kill(pid, 0)
            flock(file, LOCK_SH | LOCK_NB)
        finally:
            os.close(file)
    except BlockingIOError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False
