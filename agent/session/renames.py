"""Renames of the project's folder, as notes in a log. Absolute paths in earlier entries are below
the old path.
"""

from collections.abc import Iterable, Sequence

from .entries import Entry, Note

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
