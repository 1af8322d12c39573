"""Denied calls in the notes of the topic `permission`."""

from .entries import Note


def is_denial(note: Note) -> bool:
    """Return True if a permission note records a denied call."""
    answer = note.data.get("answer") if isinstance(note.data, dict) else None
    return answer in (None, "", "no", "hook")


def denial_reason(denial: Note) -> str:
    """Return the user's reason for denying a call, on one line, or "" if the user gave none."""
    data = denial.data if isinstance(denial.data, dict) else {}
    return " ".join(str(data.get("reason") or "").split()) if data.get("answer") == "no" else ""
