"""Changes since a point in a log: saved files, files the session changed, and stale files.

These facts are computed from entries without disk access. They also have the commands that may have
changed more files. A stale file changed on disk since the session last read or changed it. The
search for stale files blocks; its work is bounded, however many files the session used.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Reversible
from dataclasses import field, replace
from itertools import takewhile
from typing import Any

from ...tools.system.phrasing import count_of
from ..lazy import dataclass
from ..permissions.shell.parser import parse
from ..permissions.shell.read_only import changes_no_file
from ..worktree import SavedFile, first_saved
from ..worktree.diff import blob_digest, file_sha256
from .change_rows import change_rows
from .entries import Entry, Note, Session, ToolResult, User
from .ledger import CHANGED_BY_TOPIC, Ledger
from .titles import path_after, renames_in

MAX_FILES_CHECKED = 2_000  # the files used last
MAX_BYTES_HASHED = 100 << 20  # in all files together


def list_stale_files(ledger: Ledger) -> list[str]:
    """Return the files that changed on disk since the session last read or changed them, as display
    paths. Files too large to hash are left out.
    """
    found, bytes_left = [], MAX_BYTES_HASHED
    for path, known in list(ledger.contents.items())[: -MAX_FILES_CHECKED - 1 : -1]:
        size = _size(path) if known else 0
        if size > bytes_left:
            continue
        bytes_left -= size
        if is_changed(path, known):
            found.append(ledger.display_path(path))
    return found[::-1]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - paths are plain strings here
    except (OSError, ValueError):
        return 0


def is_changed(path: str, known: str) -> bool:
    """Return True if a file's content differs from `known`, a value of `Ledger.contents`."""
    if not known:  # it was deleted
        return os.path.lexists(path)
    kind, _, digest = known.partition(":")
    return (blob_digest(path) if kind == "blob" else file_sha256(path)) != digest


SAVED_TOPIC = "saved"  # topic of the note that files were saved before a call
EDIT, COMMAND = "edit", "command"  # cause: an edit changes the files, a command may change them


@dataclass(frozen=True, slots=True)
class FactsSincePoint:
    """The facts of a session since a point."""

    saved: Mapping[str, SavedFile] = field(default_factory=dict)  # first state of each path
    own: frozenset[str] = frozenset()  # paths that the session certainly changed
    uncertain: frozenset[str] = frozenset()  # paths that changed while its commands ran
    commands: tuple[str, ...] = ()  # commands that may have changed files, oldest first

    @property
    def unsaved_by_reason(self) -> dict[str, list[str]]:
        """Paths whose content could not be saved, by the reason."""
        found: dict[str, list[str]] = {}
        for path, file in sorted(self.saved.items()):
            if file.why:
                found.setdefault(file.why, []).append(path)
        return found

    @property
    def not_saved(self) -> list[str]:
        """Changed files whose earlier content was not saved."""
        kept = {path for path, file in self.saved.items() if not file.why}
        return sorted((self.own | self.uncertain | self.saved.keys()) - kept)


def read_facts_since(entries: Reversible[Entry], seq: int) -> FactsSincePoint:
    """Compute the facts from the entries after `seq`. Malformed data is ignored."""
    later = list(takewhile(lambda entry: entry.seq > seq, reversed(entries)))[::-1]
    renames = renames_in(later)

    def now(path: str, entry: Entry) -> str:
        return path_after(path, entry.seq, renames)

    rows = [(now(row["path"], entry), row) for entry in later for row in _changes(entry)]
    own = {path for path, row in rows if row.get("certain", True)}
    own |= {
        now(file.path, entry) for entry in later if _is_edit(entry) for file in saved_files(entry)
    }
    saved = first_saved(
        replace(file, path=now(file.path, entry), above=now(file.above, entry))
        for entry in later
        for file in _first_states(entry)
    )
    return FactsSincePoint(
        saved,
        frozenset(own),
        frozenset(path for path, _ in rows) - own,
        tuple(dict.fromkeys(_commands(later))),
    )


def saved_files(entry: Entry) -> Iterator[SavedFile]:
    """Yield the saved file states in an entry."""
    if isinstance(entry, Note) and entry.topic == SAVED_TOPIC and isinstance(entry.data, dict):
        rows = entry.data.get("files")
        for row in rows if isinstance(rows, list) else ():
            if file := SavedFile.from_json(row):
                yield file


def _first_states(entry: Entry) -> Iterator[SavedFile]:
    """Yield the file states before an entry's changes: saved states, and an absent file for each
    file that a call has certainly created.
    """
    yield from saved_files(entry)
    for row in _changes(entry):
        if row["action"] == "created" and row.get("certain", True):
            yield SavedFile(row["path"])


@dataclass(frozen=True, slots=True)
class Lineage:
    """The sessions that a session was copied from, and the time when the copy was opened."""

    sessions: frozenset[str] = frozenset()
    until: str = ""  # time when the copy was opened, "" if it was not


def read_lineage(entries: Iterable[Entry], session: str) -> Lineage:
    """Return the sessions that session `session` was copied from. Their calls before the copy count
    as its own.
    """
    earlier = set[str]()
    for entry in entries:
        if isinstance(entry, Session) and entry.id != session:
            earlier.add(entry.id)
        elif isinstance(entry, Session):
            return Lineage(frozenset(earlier), entry.at)
    return Lineage(frozenset(earlier))


def saved_note(files: Iterable[SavedFile], by: str) -> Note:
    """Return the note that records saved file states; `by` is the cause, EDIT or COMMAND."""
    rows = [file.to_json() for file in files]
    text = f"{count_of(len(rows), 'file')} saved before a change"
    return Note(topic=SAVED_TOPIC, text=text, data={"by": by, "files": rows})


def _is_edit(entry: Entry) -> bool:
    return isinstance(entry, Note) and isinstance(entry.data, dict) and entry.data.get("by") == EDIT


def _changes(entry: Entry) -> Iterator[Mapping[str, Any]]:
    if isinstance(entry, ToolResult | User):
        yield from change_rows(entry.details)
    elif isinstance(entry, Note) and entry.topic in CHANGED_BY_TOPIC:
        yield from change_rows(entry.data)


def _commands(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, ToolResult | User):
            command = entry.details.get("command")
            if isinstance(command, str) and not changes_no_file(parse(command)):
                yield command
