"""Lists of sessions: what a person knows a session by, at the cost of a few reads.

The two ends of a log are read, unless the catalogue has what they said. At its beginning the first
line, which holds the system prompt and the tools, is not parsed beyond what stands before them;
from its end it is read back no further than to the newest words. Logs may grow, or go, while they
are listed.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Reversible
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_NB, LOCK_SH, flock
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from .catalogue import Card, Catalogue
from .entries import Assistant, Entry, User
from .log import parse_line
from .sessions import plain

WORDS = 200  # characters of words in a row
FEW, MANY = 50, 1_000  # rows that are worth being kept, and those after which it must be done
_HEAD = 1 << 20  # bytes from the beginning in which the first words are looked for
_NEAR, _FAR = 1 << 15, 1 << 19  # bytes back from the end in which the newest ones are
_BEGINS = re.compile(rb'\{"v": \d{1,9}, "seq": (\d{1,18}), "at": "[^"]{0,40}", "kind": "(\w+)"')
_LARGE = b', "system": '  # from here on a line that opens a session is large


@dataclass(frozen=True, slots=True)
class Row:
    """A session in a list. `title` is what the person said first, `last` what was said last, "" for
    what there is none of. `size` is the log's, in bytes, `entries` what it holds; `changed` in
    seconds since the epoch. `branch` and `cwd` are those it was opened at, the newest known.
    `in_use`: another process has it open."""

    id: str
    log: Path
    title: str = ""
    last: str = ""
    size: int = 0
    changed: float = 0.0
    entries: int = 0
    branch: str = ""
    cwd: str = ""
    in_use: bool = False


def rows(logs: Iterable[Path]) -> Iterator[Row]:
    """A row for each of these logs; those that cannot be read have none. What was read is kept, for
    the next time."""
    catalogues: dict[Path, Catalogue] = {}
    for log in logs:
        project = log.parents[2]
        catalogue = catalogues.get(project) or catalogues.setdefault(project, Catalogue(project))
        with suppress(OSError):
            yield row(log, catalogue)
        if catalogue.fresh >= MANY:
            catalogue.save()
    for catalogue in catalogues.values():
        if catalogue.fresh >= FEW:
            catalogue.save()


def row(log: Path, catalogue: Catalogue | None = None) -> Row:
    """What a list shows of a session. Raises OSError when its log cannot be read."""
    stat = log.stat()
    name = log.parent.name
    card = catalogue.get(name, stat.st_size, stat.st_mtime_ns) if catalogue else None
    if card is None:
        card = _card(log)
        if catalogue:
            catalogue.put(name, card)
    size, changed, title, last, entries, branch, cwd = card
    held = in_use(log.with_name("lock"))
    return Row(name, log, title, last, size, changed / 1e9, entries, branch, cwd, held)


def _card(log: Path) -> Card:
    """What the log itself says."""
    with log.open("rb", buffering=_NEAR) as file:
        stat = os.fstat(file.fileno())
        opened, title = _first(file)
        told, last, entries = _last(file, stat.st_size)
    opened |= told
    branch, cwd = opened.get("branch", ""), opened.get("cwd", "")
    return (stat.st_size, stat.st_mtime_ns, title or last, last, entries, branch, cwd)


def ending(log: Path) -> list[Entry]:
    """The newest entries of a log, no further back than for a row; none when it cannot be read."""
    with suppress(OSError), log.open("rb") as file:
        lines = [*chain.from_iterable(_backwards(file, os.fstat(file.fileno()).st_size))]
        return [entry for line in reversed(lines) if (entry := parse_line(line))]
    return []


def last_exchange(entries: Reversible[Entry]) -> tuple[str, str]:
    """The person's last words and the last answer to them, "" for what there is none of."""
    answer = ""
    for entry in reversed(entries):
        if isinstance(entry, User) and entry.source == "person":
            return plain(entry.content), answer
        answer = answer or _answer(entry)
    return "", answer


def last_answer(entries: Reversible[Entry], since: int) -> str:
    """The last answer after an entry, "" for none. Nothing before it is read."""
    for entry in reversed(entries):
        if entry.seq <= since:
            break
        if answer := _answer(entry):
            return answer
    return ""


def _answer(entry: Entry) -> str:
    if isinstance(entry, Assistant) and entry.purpose == "turn":
        return plain([block for block in entry.content if block.get("type") == "text"])
    return ""


def _first(file: BinaryIO) -> tuple[dict[str, str], str]:
    """How the session was opened, and what the person said first."""
    opened: dict[str, str] = {}
    while file.tell() < _HEAD and (line := file.readline(_HEAD)):
        begins = _BEGINS.match(line)
        if begins and begins[2] == b"session" and not opened:
            opened = _opened(line)
        elif begins and begins[2] == b"user" and (words := _words(line)):
            return opened, words
    return opened, ""


def _last(file: BinaryIO, size: int) -> tuple[dict[str, str], str, int]:
    """How the session was opened last, if that stands near the end; what was said last; and the
    number of the last entry."""
    opened: dict[str, str] = {}
    last, entries = "", 0
    for lines in _backwards(file, size):
        for line in lines:
            begins = _BEGINS.match(line)
            if begins is None:
                continue
            entries = entries or int(begins[1])
            if begins[2] == b"session" and not opened:
                opened = _opened(line)
            elif begins[2] in (b"user", b"assistant") and not last:
                last = _words(line)
        if last:
            break
    return opened, last, entries


def _backwards(file: BinaryIO, size: int) -> Iterator[list[bytes]]:
    """The whole lines of a log that was `size` bytes long, the last one first, in parts: those near
    the end, then those further back, where the rest of the log is left out."""
    seen = 0
    for reach in (_NEAR, _FAR):
        start = max(0, size - reach)
        file.seek(start)
        lines = file.read(size - start).split(b"\n")[bool(start) : -1]
        yield lines[len(lines) - seen - 1 :: -1] if seen < len(lines) else []
        seen = len(lines)
        if not start:
            return


def _opened(line: bytes) -> dict[str, str]:
    """Where a session was opened, from the part of the line before what is large in it."""
    before, large, _ = line.partition(_LARGE)
    try:
        data: Any = json.loads(before + b"}" if large else line)
    except (ValueError, RecursionError):
        return {}
    found = {key: data.get(key) for key in ("cwd", "branch")} if isinstance(data, dict) else {}
    return {key: value for key, value in found.items() if isinstance(value, str) and value}


def _words(line: bytes) -> str:
    """What the person or the agent says in an entry, in one line."""
    entry = parse_line(line)
    if isinstance(entry, User) and entry.source == "person":
        said = plain(entry.content)
    elif isinstance(entry, Assistant) and entry.purpose == "turn":
        said = plain([block for block in entry.content if block.get("type") == "text"])
    else:
        return ""
    return " ".join(said[: 4 * WORDS].split())[:WORDS]


def in_use(lock: Path) -> bool:
    """Whether another process that lives has a session open. Its lock is tried only if the process
    that it names exists: to try it is to hold it for a moment."""
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
