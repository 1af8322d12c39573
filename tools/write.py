"""Write: create a file, or replace the whole content of a file that the model has read."""

import os
from functools import partial
from typing import Any

from ..agent.errors import ToolError
from . import text as texts
from .base import Context, Output, Params, Tool
from .file_access import (
    Change,
    Place,
    Replacement,
    applied,
    check_bytes_kept,
    check_text,
    contents,
    decoded,
    draft,
    draft_new,
    locate,
)
from .project_encodings import ProjectEncodings
from .redaction_marks import lost
from .system.phrasing import count_of
from .system.take_turn import in_thread
from .text import Form, new_form


class WriteParams(Params):
    path: str
    content: str
    encoding: str | None = None


class WriteTool(Tool[WriteParams]):
    name = "Write"
    description = (
        "Writes a whole file and creates missing folders. Read an existing file first; it keeps "
        "its mode, encoding and line ends. To change a part, use Edit."
    )
    effect = "edit"
    Params = WriteParams

    def subject(self, params: WriteParams) -> str:
        return params.path

    async def run(self, params: WriteParams, context: Context) -> Output:
        change = await in_thread(_plan, params, context)
        return await applied(change, context, partial(_report, change, params.content))

    async def preview(self, params: WriteParams, context: Context) -> dict[str, Any]:
        change = await in_thread(_plan, params, context)
        return {"diff": change.diff.whole}


def _plan(params: WriteParams, context: Context) -> Change:
    check_text("content", params.content)
    place = locate(context, params.path)
    if not os.path.lexists(place.path):
        return draft_new(place, None, params.content, _new_form(params, place))
    data = contents(place)
    before, form = decoded(place, data)
    _check_seen(place, data, context)
    check_bytes_kept(place, params.content, before)
    if refusal := lost(place.name, params.content, before):
        raise ToolError(refusal)
    if params.encoding:
        form = _new_form(params, place)
        return draft_new(place, before, _with_form_of(params.content, before, form), form)
    content = _with_form_of(params.content, before, form)
    return draft(place, data, before, [Replacement(0, len(before), content)], form)


def _new_form(params: WriteParams, place: Place) -> Form:
    """Return the form that the call or the project states. Raises ToolError."""
    try:
        return new_form(params.encoding or ProjectEncodings().stated(place.path))
    except ValueError as error:
        raise ToolError(f"{place.name} cannot be written: {error}.") from None


def _check_seen(place: Place, data: bytes, context: Context) -> None:
    if context.seen.changed(place.path, data):
        raise ToolError(
            f"{place.name} has changed on disk since you saw it. Read it again, then write."
        )
    if data and place.path not in context.seen:
        raise ToolError(
            f"{place.name} exists and you have not seen it. Read it first; to change a part of "
            "it, use Edit."
        )


def _with_form_of(content: str, before: str, form: Form) -> str:
    """Return the content with the line ends of the replaced file, and without a second BOM."""
    if form.bom:
        content = content.removeprefix("\ufeff")
    if "\r\n" not in content and texts.line_end(before) == "\r\n":
        return content.replace("\n", "\r\n")
    return content


def _report(change: Change, content: str) -> str:
    count = texts.count_lines(change.after)
    lines = count_of(count, "line")
    if change.before is None:
        where = (
            f" Outside of the sandbox it is {change.place.path}." if change.place.is_moved else ""
        )
        return f"Created {change.place.name}: {lines}.{where}"
    diff = change.diff
    text = f"Wrote {change.place.name}: {lines} (+{diff.added:,} -{diff.removed:,})."
    if "\r\n" in change.after and "\r\n" not in content:
        text += " Its line ends stay CRLF."
    if change.form.encoding != "utf-8":
        text += f" Its encoding stays {change.form.encoding}."
    return text
