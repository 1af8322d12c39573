"""Titles that people give their sessions: a note in the log, which counts, and a small file next to
it, so that a list of sessions need not look for the note."""

from pathlib import Path

from ...tools.system.files import open_kept, replace_file
from ...tools.system.unicode import clean
from ..errors import RecordError, UsageError
from .entries import Note

TITLE_TOPIC = "title"  # of the note
TITLE_NAME = "title"  # of the file
MAX_TITLE_CHARS = 100


def title_note(words: str) -> Note:
    """Return the note that gives a session this title. Raises UsageError for one that is none."""
    title = " ".join(clean(words).split())
    if not title:
        raise UsageError(
            "a title needs words", hint="/rename NAME, ctxagent sessions rename ID NAME"
        )
    if len(title) > MAX_TITLE_CHARS:
        raise UsageError(f"a title has at most {MAX_TITLE_CHARS} characters, not {len(title):,}")
    return Note(topic=TITLE_TOPIC, text=title)


def keep_title(folder: Path, title: str) -> None:
    """Write the title of the session in `folder` for lists. Raises RecordError."""
    try:
        replace_file(folder / TITLE_NAME, title.encode("utf-8", "replace"), durable=False)
    except OSError as error:
        raise RecordError(
            f"the title cannot be kept in {folder}: {error.strerror}",
            hint="The log has it; rename the session again once there is room.",
        ) from error


def kept_title(folder: Path) -> str:
    """Return the title that was given to the session in `folder`; "" for none."""
    try:
        with open_kept(folder / TITLE_NAME) as file:
            text = file.read(4 * MAX_TITLE_CHARS).decode("utf-8", "replace")
    except OSError:
        return ""
    return " ".join(clean(text).split())[:MAX_TITLE_CHARS]
