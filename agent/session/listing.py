"""Lists of sessions, read cheaply.

Only the beginning and the end of a log are read, and only if the catalogue has no card for it. In
the first line, only the small fields before the system prompt and the tools are parsed. The end is
read backwards up to the newest message. Logs may grow or disappear while they are listed.
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
from .entries import Assistant, End, Entry, User
from .log import try_parse_entry
from .store import content_text
from .titles import saved_title

CATALOGUE_NAME = "sessions.json"
CATALOGUE_VERSION = 3
MIN_CARDS_TO_SAVE = 50  # the file is not written for fewer new cards
MAX_UNSAVED_CARDS = 1_000  # new cards after which the file is written during the listing
CARD_TYPES = [int, int, str, str, int, str, str, str, bool]

# Size in bytes, modification time in ns, title, last message, entries, branch, directory, the
# session that this one is a copy of, and whether it failed.
SessionCard = tuple[int, int, str, str, int, str, str, str, bool]

MAX_MESSAGE_CHARS = 200  # of a message in a row
_MAX_HEAD_BYTES = 1 << 20  # searched from the beginning for the first message
# Bytes searched from the end for the newest message: first near, then far.
_NEAR_END_BYTES = 1 << 15
_FAR_END_BYTES = 1 << 19
_LINE_HEAD = regex(rb'\{"v": \d{1,9}, "seq": (\d{1,18}), "at": "[^"]{0,40}", "kind": "(\w+)"')
_LARGE_FIELDS = b', "system": '  # start of the large fields in a session's opening line


class Catalogue:
    """The cache of the session cards of one project, by session ID."""

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
        """Return the card of a session, or None if it is missing or its log's size or modification
        time differs.
        """
        card = self._cards.get(name)
        if not isinstance(card, list) or [*map(type, card)] != CARD_TYPES:
            return None
        found: SessionCard = tuple(card)
        return found if found[:2] == (size, changed) else None

    def put(self, name: str, card: SessionCard) -> None:
        self._cards[name] = [*card]
        self.unsaved += 1

    def save(self) -> None:
        """Write the cards of the sessions that still exist. Ignore write errors."""
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
    title: str = ""  # given by the user, else the user's first message
    last: str = ""  # the last message of the user or the agent
    size: int = 0  # bytes of the log
    changed: float = 0.0  # seconds since the epoch
    entries: int = 0
    branch: str = ""  # git branch when the session was last opened, if known
    cwd: str = ""
    in_use: bool = False  # another process has the session open
    copy_of: str = ""  # ID of the session that this one was first copied from
    has_failed: bool = False  # the first message ended in an error, and no other followed


def session_rows(logs: Iterable[Path]) -> Iterator[SessionRow]:
    """Yield a row for each readable log, and cache the cards."""
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
    """Return the row of a session. Raises OSError if its log cannot be read."""
    stat = log.stat()
    name = log.parent.name
    card = catalogue.get(name, stat.st_size, stat.st_mtime_ns) if catalogue else None
    if card is None:
        card = _read_card(log)
        if catalogue:
            catalogue.put(name, card)
    size, changed, title, last, entries, branch, cwd, copy_of, has_failed = card
    in_use = is_in_use(log.with_name("lock"))
    facts = (title, last, size, changed / 1e9, entries, branch, cwd, in_use, copy_of, has_failed)
    return SessionRow(name, log, *facts)


def newest_entries(log: Path) -> list[Entry]:
    """Return the last entries of a log, from the same range that a row is read from. Return [] if
    the log is unreadable.
    """
    with suppress(OSError), open_kept(log) as file:
        lines = [*chain.from_iterable(_line_groups(file, os.fstat(file.fileno()).st_size))]
        return [entry for line in reversed(lines) if (entry := try_parse_entry(line))]
    return []


def last_exchange(entries: Reversible[Entry]) -> tuple[str, str]:
    """Return the user's last message and the last answer to it, each "" if missing."""
    answer = ""
    for entry in reversed(entries):
        if isinstance(entry, User) and entry.source == "person":
            return content_text(entry.content), answer
        answer = answer or _answer(entry)
    return "", answer


def last_answer(entries: Reversible[Entry], since: int) -> str:
    """Return the last answer after entry `since`, or "". Earlier entries are not read."""
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
        opened, title, first = _read_beginning(file)
        reopened, last, entries, failed = _read_end(file, stat.st_size)
    id = opened.get("id", "")
    copy_of = id if id != log.parent.name else ""
    opened |= reopened
    branch, cwd = opened.get("branch", ""), opened.get("cwd", "")
    title = saved_title(log.parent) or title or last
    facts = (title, last, entries, branch, cwd, copy_of, first == failed > 0)
    return (stat.st_size, stat.st_mtime_ns, *facts)


def _read_beginning(file: BinaryIO) -> tuple[dict[str, str], str, int]:
    """Return how the session was opened (see `_parse_opening`), and the user's first message with
    the number of its entry.
    """
    opened: dict[str, str] = {}
    while file.tell() < _MAX_HEAD_BYTES and (line := file.readline(_MAX_HEAD_BYTES)):
        head = _LINE_HEAD.match(line)
        if head and head[2] == b"session" and not opened:
            opened = _parse_opening(line)
        elif head and head[2] == b"user" and (words := _text_of_line(line)):
            return opened, words, int(head[1])
    return opened, "", 0


def _read_end(file: BinaryIO, size: int) -> tuple[dict[str, str], str, int, int]:
    """Return how the session was last opened (if recorded near the end), the last message, the
    number of the last entry, and the number of the last message if its turn failed, else 0.
    """
    opened: dict[str, str] = {}
    last, entries, failed = "", 0, 0
    has_ended = False  # in an error, without a reply
    for lines in _line_groups(file, size):
        for line in lines:
            head = _LINE_HEAD.match(line)
            if head is None:
                continue
            entries = entries or int(head[1])
            if head[2] == b"session" and not opened:
                opened = _parse_opening(line)
            elif head[2] == b"end" and not last:
                entry = try_parse_entry(line)
                has_ended = isinstance(entry, End) and entry.status == "error"
            elif head[2] in (b"user", b"assistant") and not last:
                last = _text_of_line(line)
                has_ended = has_ended and head[2] == b"user"
                failed = int(head[1]) if last and has_ended else 0
        if last:
            break
    return opened, last, entries, failed


def _line_groups(file: BinaryIO, size: int) -> Iterator[list[bytes]]:
    """Yield the whole lines of a log of `size` bytes, last line first: first those near the end,
    then those further back. Earlier lines are skipped.
    """
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
    """Return `id`, `cwd` and `branch` from the line of a session's opening. Parse only the part
    before its large fields.
    """
    before, large, _ = line.partition(_LARGE_FIELDS)
    try:
        data: Any = json.loads(before + b"}" if large else line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    found = {key: data.get(key) for key in ("id", "cwd", "branch")}
    return {key: value for key, value in found.items() if isinstance(value, str) and value}


def _text_of_line(line: bytes) -> str:
    """Return the user's or the agent's text in an entry, on one line."""
    entry = try_parse_entry(line)
    if isinstance(entry, User) and entry.source == "person":
        text = content_text(entry.content)
    else:
        text = _answer(entry)
    return " ".join(text[: 4 * MAX_MESSAGE_CHARS].split())[:MAX_MESSAGE_CHARS]


def is_in_use(lock: Path) -> bool:
    """Return True if another running process has a session open. The lock is tried only if the
    process in the lock file exists, because trying it holds it for a moment.
    """
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
