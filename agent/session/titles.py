"""Session titles given by the user. The title is a note in the log. A small file next to the log
has a copy, so that a list of sessions need not search for the note.
"""

from pathlib import Path

from ...tools.system.files import open_kept, replace_file
from ...tools.system.unicode import clean
from ..errors import RecordError, UsageError
from .entries import Note

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
        raise UsageError(f"a title has at most {MAX_TITLE_CHARS} characters, not {len(title):,}")
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
