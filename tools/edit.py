"""Edit: replace a text in a file.

An empty text creates the file, as Write does. Any other text must occur exactly once, unless
`replace_all` is set. The exact match proves that the model knows the file. Matching ignores the
kind of line end; the result keeps the file's line ends. All bytes outside the match stay unchanged.
If nothing matches, a single text that looks the same counts as a match (`look_alikes`). Otherwise
the error shows the most similar text. An addition that stands in the file already is refused.

With `lines`, it replaces these lines, and `old_string` has only the first and the last of them
(`line_range`). The model must have seen the file as it is.

Explain why a text was not found in a file, so that the model's next Edit succeeds.

There are four causes: the text contains Read's line numbers, differs only in characters that look
the same, differs only in whitespace, or differs in a few words. The cost is bounded for any file.
"""

import json
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from ..agent.errors import ToolError
from ..agent.lazy import dataclass, regex
from . import text as texts
from .base import Brief, Context, Output, Params, Tool
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
    locate,
)
from .line_range import LineRange, replaced_span
from .look_alikes import LookAlike, look_alikes, with_characters_of
from .offered import EVERY, READ_AGAIN, READ_FIRST, SEARCH_FILE, Offered, Wording
from .redaction_marks import lost, not_found
from .system.take_turn import in_thread
from .text import Form
from .whole_file import draft_whole, report

MAX_PLACES = 3
MAX_LINES_SHOWN = 20  # lines of the file in one message
MAX_CHARS_SHOWN = 2_000  # characters of a whole file in one message
MAX_COMPARED_LINES = 4_000  # lines of the file passed to difflib
MAX_COMPARED_CHARS = 2_000  # characters of one text passed to difflib
MIN_LIKENESS = 0.6

_NUMBERED = regex(r"^ *\d+\t")


def explain(
    name: str, text: str, old: str, like: Sequence[LookAlike] = (), offered: Offered = EVERY
) -> str:
    """Return a message for the model that explains why `old` is not in `text`. `like` has the texts
    that look the same.

    Both texts have LF line ends.
    """
    lost = f"old_string is not in {name}."
    lines = texts.split(text)
    if _numbered(old):
        bare = "\n".join(_NUMBERED.sub("", line, count=1) for line in old.split("\n"))
        there = " Without them it is there." if bare in text else ""
        return (
            f"{lost} It holds the line numbers{offered.say(' that {Read} shows')} (`12<tab>`)."
            f"{there} Leave the numbers and the tab out."
        )
    if like:
        where = [texts.line_at(text, each.start) for each in like]
        shown = _quote(lines, [*dict.fromkeys(where)], old)
        return f"{lost} It is there with other characters: {like[0].named}. {shown}"
    places = _same_words(lines, old)
    if places:
        return f"{lost} It is there with other whitespace. {_quote(lines, places, old)}"
    place = _most_similar(lines, old)
    if place:
        return f"{lost} Most like it: {_quote(lines, [place], old)}"
    if _is_short(text):
        return f"{lost} Nothing in the file is like it. {_quote(lines, [1], text)}"
    return f"{lost} Nothing in the file is like it: {offered.say(SEARCH_FILE)}."


def _is_short(text: str) -> bool:
    """Return True if a message can show the whole file."""
    return 0 < len(text) <= MAX_CHARS_SHOWN and text.strip("\n").count("\n") < MAX_LINES_SHOWN


def _numbered(old: str) -> bool:
    lines = [line for line in old.split("\n") if line]
    return bool(lines) and all(_NUMBERED.match(line) for line in lines)


def _same_words(lines: list[str], old: str) -> list[int]:
    """Return the line numbers where `old` begins if each run of whitespace counts as one blank."""
    wanted = "\n".join(map(_folded, old.strip("\n").split("\n")))
    if not wanted.strip():
        return []
    folded = "\n".join(map(_folded, lines))
    places: list[int] = []
    place = folded.find(wanted)
    while place >= 0 and len(places) < MAX_PLACES:
        places.append(texts.line_at(folded, place))
        place = folded.find(wanted, place + len(wanted))
    return places


def _folded(line: str) -> str:
    return " ".join(line.split())


def _most_similar(lines: list[str], old: str) -> int | None:
    """Return the line number of the text most similar to `old`; None if nothing is similar."""
    wanted = old.strip("\n").split("\n")
    whole = _stripped(wanted)
    for search in (_aligned, _near_longest_line):
        best, likeness = None, MIN_LIKENESS
        for start in search(lines, wanted):
            there = _stripped(lines[start : start + len(wanted)])
            ratio = SequenceMatcher(None, whole, there, autojunk=False).ratio()
            if ratio > likeness:
                best, likeness = start + 1, ratio
        if best:
            return best
    return None


def _stripped(lines: list[str]) -> str:
    return "\n".join(map(str.strip, lines))[:MAX_COMPARED_CHARS]


def _aligned(lines: list[str], wanted: list[str]) -> list[int]:
    """Return the start lines at which most lines of `wanted` match in order; blank lines are
    ignored.
    """
    rows: dict[str, list[int]] = {}
    for row, line in enumerate(map(str.strip, wanted)):
        if line and len(rows.setdefault(line, [])) < MAX_PLACES:
            rows[line].append(row)
    votes: Counter[int] = Counter()
    for place, line in enumerate(map(str.strip, lines)):
        votes.update(max(0, place - row) for row in rows.get(line, ()))
    return [start for start, _ in votes.most_common(MAX_PLACES)]


def _near_longest_line(lines: list[str], wanted: list[str]) -> list[int]:
    """Return possible start lines of `wanted`, from the lines most similar to its longest line."""
    row = max(range(len(wanted)), key=lambda n: len(wanted[n].strip()))
    model = wanted[row].strip()[:500]
    matcher = SequenceMatcher(None, "", model)
    scores: list[tuple[float, int]] = []
    for place, line in enumerate(lines[:MAX_COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:500])
        if matcher.real_quick_ratio() > MIN_LIKENESS and matcher.quick_ratio() > MIN_LIKENESS:
            scores.append((matcher.ratio(), place))
    return [max(0, place - row) for _, place in sorted(scores, reverse=True)[:MAX_PLACES]]


def _quote(lines: list[str], places: list[int], old: str) -> str:
    """Return the file's lines at each place, and advice on the next step."""
    count = min(old.strip("\n").count("\n") + 1, max(1, MAX_LINES_SHOWN // len(places)))
    shown = [
        line
        for place in places
        for line in (f"From line {place} on:", *lines[place - 1 : place - 1 + count])
    ]
    return "\n".join([*shown, "Copy the text to replace from these lines."])


MAX_LINES_NAMED = 10  # line numbers listed in a message
_LEFT_AS_IS = "What new_string leaves unchanged keeps the characters of the file."
SNIPPET_HALF_LINES = 12  # lines shown at either end of a long replacement


class EditParams(Params):
    path: str
    old_string: str
    new_string: str
    lines: Annotated[int | str | None, WithJsonSchema({"type": "string"})] = Field(
        None,
        description="12-40 replaces these lines; old_string is then the first and the last",
    )
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
    description = Wording(
        "Replaces text in a file. old_string must match exactly, without ",
        ("the line numbers of {Read}", "line numbers"),
        ", and occur once, or set replace_all. For a long text, use lines.",
    )
    brief = Brief(
        Wording(
            "Replaces old_string with new_string in a file. Copy old_string from the file, "
            "without ",
            ("the line numbers of {Read}", "line numbers"),
            ". It must occur once. With an empty old_string it creates the file.",
        ),
        ("path", "old_string", "new_string"),
    )
    effect = "edit"
    Params = EditParams

    def subject(self, params: EditParams) -> str:
        return params.path

    def title(self, params: EditParams) -> str:
        return f"{params.path}:{params.lines}" if params.lines else params.path

    async def run(self, params: EditParams, context: Context) -> Output:
        if _creates(params):
            change = await in_thread(_plan_new, params, context)
            return await applied(change, context, partial(report, change, params.new_string))
        edited = await in_thread(_plan, params, context)
        return await applied(
            edited.change, context, partial(_report, edited), replacements=edited.count
        )

    async def preview(self, params: EditParams, context: Context) -> dict[str, Any]:
        if _creates(params):
            return {"diff": (await in_thread(_plan_new, params, context)).diff.whole}
        edited = await in_thread(_plan, params, context)
        return {"diff": edited.change.diff.whole}


def _creates(params: EditParams) -> bool:
    return not params.old_string and params.lines is None


def _plan_new(params: EditParams, context: Context) -> Change:
    """Return the change that gives a missing or empty file its first text. Raises ToolError."""
    check_text("new_string", params.new_string)
    place = locate(context, params.path)
    if os.path.lexists(place.path) and (data := contents(place)):
        text = texts.unix(decoded(place, data)[0])
        raise ToolError(_not_empty(place.name, text, params.new_string, context.offered))
    return draft_whole(place, params.new_string, params.encoding, context)


def _not_empty(name: str, text: str, new: str, offered: Offered) -> str:
    """Return a message for the model that says how to edit a file that has text."""
    way = f"Give the text to replace{offered.say('; to make a whole file, use {Write}', '')}."
    last = text.rstrip("\n").rpartition("\n")[2]
    if _is_short(text) and text.count(last) == 1 and len(new) <= MAX_CHARS_SHOWN:
        at_end = json.dumps(
            {"old_string": last, "new_string": f"{last}\n{new}"}, ensure_ascii=False
        )
        way += f" To add new_string at the end: {at_end}"
    return f"old_string is empty, and {name} is not. {way}"


def _plan(params: EditParams, context: Context) -> _Edited:
    old, new = _checked(params, context)
    place = locate(context, params.path)
    data = contents(place)
    if context.seen.changed(place.path, data):
        raise ToolError(
            f"{place.name} has changed on disk since you saw it. "
            f"{context.offered.say(READ_AGAIN)}, then edit."
        )
    before, form = decoded(place, data, params.encoding)
    check_bytes_kept(place, old + new, before)
    text = texts.unix(before)
    if params.lines is not None:
        return _plan_lines(params, place, data, before, form, context)
    found, there, note = _find(text, old, every=params.replace_all), old, ""
    if not found and (why := not_found(place.name, old)):
        raise ToolError(why)
    if not found:
        like = look_alikes(text, old, MAX_PLACES)
        kept = with_characters_of(like[0].text, old, new) if len(like) == 1 else None
        if kept is None:
            raise ToolError(explain(place.name, text, old, like, context.offered))
        found, there, new = [like[0].start], like[0].text, kept
        note = f"\n[The text in the file differs from old_string: {like[0].named}. {_LEFT_AS_IS}]"
    if refusal := lost(place.name, new, text, context.offered):
        raise ToolError(refusal)
    if len(found) > 1 and not params.replace_all:
        raise ToolError(_ambiguous(place.name, text, found))
    if all(_stands(text, each, there, new) for each in found):
        raise ToolError(
            f"new_string is in {place.name} already, where old_string is: nothing was changed. "
            "If the file is as it should be, the change is done. To insert the text once more, "
            "give more lines around it."
        )
    parts = _replacements(before, found, len(there), new)
    return _edited(draft(place, data, before, parts, form), parts, note)


def _stands(text: str, start: int, old: str, new: str) -> bool:
    """Return True if an edit that adds words around `old` was made already: `new` is in `text`,
    with its `old` at this offset.

    Blank lines and closing brackets can be repeated on purpose.
    """
    before, there, after = new.partition(old)
    if not there or not any(map(str.isalnum, before + after)):
        return False
    return text.startswith(new, max(0, start - len(before))) and start >= len(before)


def _edited(change: Change, parts: list[Replacement], note: str = "") -> _Edited:
    start = parts[0].start
    return _Edited(change, len(parts), start, start + len(parts[0].text), note)


def _plan_lines(
    params: EditParams, place: Place, data: bytes, before: str, form: Form, context: Context
) -> _Edited:
    """Return the change of the lines that a call names. Raises ToolError."""
    lines = LineRange.read(str(params.lines))
    if params.replace_all:
        raise ToolError("lines names the only place to change. Leave replace_all out.")
    if place.path not in context.seen:
        raise ToolError(
            f"lines needs the numbers of {place.name} as it is. "
            f"{context.offered.say(READ_FIRST)}, or leave lines out and give the whole old text."
        )
    text, new = texts.unix(before), texts.unix(params.new_string)
    start, end = replaced_span(place.name, text, lines, texts.unix(params.old_string))
    if refusal := lost(place.name, new, text, context.offered):
        raise ToolError(refusal)
    if not new:  # the line end is deleted too
        end = min(end + 1, len(text))
    elif (new := new.removesuffix("\n")) == text[start:end]:
        raise ToolError(f"Lines {lines} of {place.name} are new_string already: nothing to change.")
    parts = _replacements(before, [start], end - start, new)
    return _edited(draft(place, data, before, parts, form), parts)


def _checked(params: EditParams, context: Context) -> tuple[str, str]:
    """Return the old and the new text with LF line ends. Raises ToolError."""
    for name in ("old_string", "new_string"):
        check_text(name, getattr(params, name))
    old, new = texts.unix(params.old_string), texts.unix(params.new_string)
    if old == new and params.lines is None:
        what = "are the same" if params.old_string == params.new_string else "differ in line ends"
        raise ToolError(
            f"old_string and new_string {what}: there is nothing to change. If the file is as it "
            "should be, the change is done. "
            + context.offered.say(
                "{Edit} keeps a file's line ends", "; {Bash} (sed) can convert them", "."
            )
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
