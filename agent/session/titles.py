"""Notes about the session in its log: its title, renames of its folder, and denied calls.

The user gives the title. A small file next to the log has a copy, so that a list of sessions need
not search for the note. Absolute paths in entries before a rename are below the old path. Denied
calls are notes of the topic `permission`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ...tools.system.files import open_kept, replace_file
from ...tools.system.unicode import clean
from ..errors import RecordError, UsageError
from .entries import Entry, Note


def is_denial(note: Note) -> bool:
    """Return True if a permission note records a denied call."""
    answer = note.data.get("answer") if isinstance(note.data, dict) else None
    return answer in (None, "", "no", "hook")


def denial_reason(denial: Note) -> str:
    """Return the user's reason for denying a call, on one line, or "" if the user gave none."""
    data = denial.data if isinstance(denial.data, dict) else {}
    return " ".join(str(data.get("reason") or "").split()) if data.get("answer") == "no" else ""


RENAME_TOPIC = "renamed"


def rename_note(old: str, new: str) -> Note:
    """Return the note that the project's folder was renamed."""
    text = f"the project folder {old} is now {new}"
    return Note(topic=RENAME_TOPIC, text=text, data={"from": old, "to": new})


def rename_of(entry: Entry) -> tuple[str, str] | None:
    """Return the old and the new path if the entry is a rename."""
    if not (isinstance(entry, Note) and entry.topic == RENAME_TOPIC):
        return None
    old, new = (entry.data.get(key) for key in ("from", "to"))
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def renames_in(entries: Iterable[Entry]) -> list[tuple[int, str, str]]:
    """Return (seq, old path, new path) of each rename."""
    return [(entry.seq, *found) for entry in entries if (found := rename_of(entry))]


def path_after(path: str, seq: int, renames: Sequence[tuple[int, str, str]]) -> str:
    """Return the present path of a file that entry `seq` names."""
    for at, old, new in renames:
        if at > seq:
            path = moved_path(path, old, new)
    return path


def moved_path(path: str, old: str, new: str) -> str:
    """Return a path after a folder was renamed."""
    return new + path.removeprefix(old) if path == old or path.startswith(f"{old}/") else path


TITLE_TOPIC = "title"  # topic of the note
TITLE_NAME = "title"  # name of the file
MAX_TITLE_CHARS = 100


def title_note(words: str) -> Note:
    """Return the note that gives a session this title. Raises UsageError for an empty or too long
    title.
    """
    title = " ".join(clean(words).split())
    if not title:
        raise UsageError(
            "the title is empty", hint="/rename NAME, ctxagent sessions rename ID NAME"
        )
    if len(title) > MAX_TITLE_CHARS:
        raise UsageError(
            f"a title has at most {MAX_TITLE_CHARS} characters, not {len(title):,}",
            hint="Give a shorter title.",
        )
    return Note(topic=TITLE_TOPIC, text=title)


def save_title(folder: Path, title: str) -> None:
    """Save the title of the session in `folder` for lists. Raises RecordError."""
    try:
        replace_file(folder / TITLE_NAME, title.encode("utf-8", "replace"), durable=False)
    except OSError as error:
        raise RecordError(
            f"cannot save the title in {folder}: {error.strerror}",
            hint="The log has the title. Rename the session again when there is disk space.",
        ) from error


def saved_title(folder: Path) -> str:
    """Return the saved title of the session in `folder`, or ""."""
    try:
        with open_kept(folder / TITLE_NAME) as file:
            text = file.read(4 * MAX_TITLE_CHARS).decode("utf-8", "replace")
    except OSError:
        return ""
    return " ".join(clean(text).split())[:MAX_TITLE_CHARS]
