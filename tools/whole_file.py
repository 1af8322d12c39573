"""Write a whole file: the change that Write makes, and Edit for a new file."""

import os

from ..agent.errors import ToolError
from . import text as texts
from .base import Context
from .file_access import (
    Change,
    Place,
    Replacement,
    check_bytes_kept,
    contents,
    decoded,
    draft,
    draft_new,
)
from .offered import READ_AGAIN, READ_FIRST
from .project_encodings import ProjectEncodings
from .redaction_marks import lost
from .system.phrasing import count_of
from .text import Form, new_form


def draft_whole(place: Place, content: str, encoding: str | None, context: Context) -> Change:
    """Compute the change that gives a file this content. An existing file keeps its form unless the
    call states an encoding. Raises ToolError.
    """
    if not os.path.lexists(place.path):
        return draft_new(place, None, content, _new_form(encoding, place))
    data = contents(place)
    before, form = decoded(place, data)
    _check_seen(place, data, context)
    check_bytes_kept(place, content, before)
    if refusal := lost(place.name, content, before, context.offered):
        raise ToolError(refusal)
    if encoding:
        form = _new_form(encoding, place)
        return draft_new(place, before, _with_form_of(content, before, form), form)
    whole = Replacement(0, len(before), _with_form_of(content, before, form))
    return draft(place, data, before, [whole], form)


def report(change: Change, content: str) -> str:
    """Return the result of a call that wrote this content to a whole file."""
    count = texts.count_lines(change.after)
    lines = count_of(count, "line")
    if change.before is None:
        where = (
            f" Outside of the sandbox it is {change.place.path}." if change.place.is_moved else ""
        )
        return f"Created {change.place.name}: {lines}.{where}"
    diff = change.diff
    text = f"Wrote {change.place.name}: {lines} (+{diff.added:,} -{diff.removed:,})."
    if change.before == change.after:
        text = f"{change.place.name} had this text already: {lines}, none changed."
    if "\r\n" in change.after and "\r\n" not in content:
        text += " Its line ends stay CRLF."
    if change.form.encoding != "utf-8":
        text += f" Its encoding stays {change.form.encoding}."
    return text


def _new_form(encoding: str | None, place: Place) -> Form:
    """Return the form that the call or the project states. Raises ToolError."""
    try:
        return new_form(encoding or ProjectEncodings().stated(place.path))
    except ValueError as error:
        raise ToolError(f"{place.name} cannot be written: {error}.") from None


def _check_seen(place: Place, data: bytes, context: Context) -> None:
    if context.seen.changed(place.path, data):
        raise ToolError(
            f"{place.name} has changed on disk since you saw it. "
            f"{context.offered.say(READ_AGAIN)}, then write."
        )
    if data and place.path not in context.seen:
        raise ToolError(
            f"{place.name} exists and you have not seen it. "
            + context.offered.say(READ_FIRST, "; to change a part of it, use {Edit}", ".")
        )


def _with_form_of(content: str, before: str, form: Form) -> str:
    """Return the content with the line ends of the replaced file, and without a second BOM."""
    if form.bom:
        content = content.removeprefix("\ufeff")
    if "\r\n" not in content and texts.line_end(before) == "\r\n":
        return content.replace("\n", "\r\n")
    return content
