"""Edit: replace a text in a file.

The text must occur exactly once, unless `replace_all` is set. The exact match proves that the model
knows the file. Matching ignores the kind of line end; the result keeps the file's line ends. All
bytes outside the match stay unchanged. If nothing matches, a single text that looks the same counts
as a match (`look_alikes`). Otherwise the error shows the most similar text (`edit_hints`).
"""

from bisect import bisect_left
from functools import partial
from typing import Any

from ..agent.errors import ToolError
from ..agent.lazy import dataclass
from . import text as texts
from .base import Brief, Context, Output, Params, Tool
from .edit_hints import MAX_PLACES, explain
from .file_access import (
    Change,
    Replacement,
    applied,
    check_bytes_kept,
    check_text,
    contents,
    decoded,
    draft,
    locate,
)
from .look_alikes import look_alikes, with_characters_of
from .redaction_marks import lost, not_found
from .system.take_turn import in_thread

MAX_LINES_NAMED = 10  # line numbers listed in a message
_LEFT_AS_IS = "What new_string leaves unchanged keeps the characters of the file."
SNIPPET_HALF_LINES = 12  # lines shown at either end of a long replacement


class EditParams(Params):
    path: str
    old_string: str
    new_string: str
    replace_all: bool = False
    encoding: str | None = None


@dataclass(frozen=True, slots=True)
class _Edited:
    """A change, its number of replacements, and the bounds of the first one in the new text."""

    change: Change
    count: int
    start: int
    end: int
    note: str = ""  # for the model, behind the report


class EditTool(Tool[EditParams]):
    name = "Edit"
    description = (
        "Replaces text in a file. old_string must match the file exactly, with indentation and "
        "without the line numbers of Read, and occur once: include enough lines around it, or set "
        "replace_all."
    )
    brief = Brief(
        "Replaces old_string with new_string in a file. Copy old_string from the file, without "
        "the line numbers of Read. It must occur once.",
        ("path", "old_string", "new_string"),
    )
    effect = "edit"
    Params = EditParams

    def subject(self, params: EditParams) -> str:
        return params.path

    async def run(self, params: EditParams, context: Context) -> Output:
        edited = await in_thread(_plan, params, context)
        report = partial(_report, edited)
        return await applied(edited.change, context, report, replacements=edited.count)

    async def preview(self, params: EditParams, context: Context) -> dict[str, Any]:
        edited = await in_thread(_plan, params, context)
        return {"diff": edited.change.diff.whole}


def _plan(params: EditParams, context: Context) -> _Edited:
    old, new = _checked(params)
    place = locate(context, params.path)
    data = contents(place)
    if context.seen.changed(place.path, data):
        raise ToolError(
            f"{place.name} has changed on disk since you saw it. Read it again, then edit."
        )
    before, form = decoded(place, data, params.encoding)
    check_bytes_kept(place, old + new, before)
    text = texts.unix(before)
    found, there, note = _find(text, old, every=params.replace_all), old, ""
    if not found and (why := not_found(place.name, old)):
        raise ToolError(why)
    if not found:
        like = look_alikes(text, old, MAX_PLACES)
        kept = with_characters_of(like[0].text, old, new) if len(like) == 1 else None
        if kept is None:
            raise ToolError(explain(place.name, text, old, like))
        found, there, new = [like[0].start], like[0].text, kept
        note = f"\n[The text in the file differs from old_string: {like[0].named}. {_LEFT_AS_IS}]"
    if refusal := lost(place.name, new, text):
        raise ToolError(refusal)
    if len(found) > 1 and not params.replace_all:
        raise ToolError(_ambiguous(place.name, text, found))
    parts = _replacements(before, found, len(there), new)
    start = parts[0].start
    change = draft(place, data, before, parts, form)
    return _Edited(change, len(found), start, start + len(parts[0].text), note)


def _checked(params: EditParams) -> tuple[str, str]:
    """Return the old and the new text with LF line ends. Raises ToolError."""
    for name in ("old_string", "new_string"):
        check_text(name, getattr(params, name))
    old, new = texts.unix(params.old_string), texts.unix(params.new_string)
    if not old:
        raise ToolError(
            "old_string is empty. Give the text to replace; to make a whole file, use Write."
        )
    if old == new:
        what = "are the same" if params.old_string == params.new_string else "differ in line ends"
        raise ToolError(
            f"old_string and new_string {what}: there is nothing to change. Edit keeps a file's "
            "line ends; Bash (sed) can convert them."
        )
    return old, new


def _find(text: str, old: str, *, every: bool) -> list[int]:
    """Return the offsets of `old`. With `every` they do not overlap, so that each can be replaced.
    Otherwise overlapping occurrences are found, too, since any second one makes `old` ambiguous.
    """
    found = []
    place = text.find(old)
    while place >= 0:
        found.append(place)
        place = text.find(old, place + (len(old) if every else 1))
    return found


def _replacements(before: str, found: list[int], length: int, new: str) -> list[Replacement]:
    """Return the replacement of each text by `new`.

    `found` and `length` are offsets in the text with LF line ends; `before` may have CRLF.
    """
    pairs = _crlf_places(before)
    usual = texts.line_end(before)
    parts: list[Replacement] = []
    for offset in found:
        start = offset + bisect_left(pairs, offset)
        end = offset + length + bisect_left(pairs, offset + length)
        ends = _ends(before[start:end], usual)
        parts.append(Replacement(start, end, new.replace("\n", ends)))
    return parts


def _crlf_places(text: str) -> list[int]:
    """Return the offsets of the CRLFs of a text, counted in the text with LF line ends."""
    places: list[int] = []
    place = text.find("\r\n")
    while place >= 0:
        places.append(place - len(places))
        place = text.find("\r\n", place + 2)
    return places


def _ends(replaced: str, usual: str) -> str:
    """Return the line end for a replacement: that of the replaced text, or the file's usual one."""
    return texts.line_end(replaced) if "\n" in replaced else usual


def _ambiguous(name: str, text: str, found: list[int]) -> str:
    lines = dict.fromkeys(texts.line_at(text, offset) for offset in found[:MAX_LINES_NAMED])
    named = ", ".join(map(str, lines))
    more = " …" if len(found) > MAX_LINES_NAMED else ""
    return (
        f"old_string occurs {len(found):,} times in {name}, in lines {named}{more}. Add lines "
        "around it until it is unique, or set replace_all."
    )


def _report(edited: _Edited) -> str:
    change = edited.change
    after = change.after
    first = texts.line_at(after, edited.start)
    last = texts.line_at(after, max(edited.start, edited.end - 1))
    where = f", {edited.count:,} replacements; the first:" if edited.count > 1 else ":"
    head = f"Edited {change.place.name} (+{change.diff.added:,} -{change.diff.removed:,}){where}"
    return f"{head}\n{_snippet(texts.split(after), first, last)}".rstrip() + edited.note


def _snippet(lines: list[str], first: int, last: int) -> str:
    """Return the numbered lines `first` to `last` with their context, without a long middle."""
    start, end = max(1, first - texts.CONTEXT_LINES), min(len(lines), last + texts.CONTEXT_LINES)
    left_out = end - start + 1 - 2 * SNIPPET_HALF_LINES
    if left_out <= 0:
        return texts.number(lines[start - 1 : end], start)
    head, tail = start + SNIPPET_HALF_LINES, end - SNIPPET_HALF_LINES
    return (
        f"{texts.number(lines[start - 1 : head - 1], start)}\n… {left_out:,} more lines …\n"
        f"{texts.number(lines[tail:end], tail + 1)}"
    )
