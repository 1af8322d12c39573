"""Grep: find the files, lines or counts that match a regular expression.

The tool checks the arguments, runs the search engine, and collects a page of hits. The search stops
as soon as the page is full, which limits time and output. A cut page tells the model how to
continue.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from ..agent.errors import ToolError
from ..agent.lazy import dataclass, regex
from .base import Brief, Context, Output, Params, Tool, unstated
from .file_access import Place, binary, listed, locate, opened
from .search.decoded_files import is_binary
from .search.engine import search_files
from .search.installed import find_ripgrep, missing_ripgrep
from .search.request import Gaps, GrepHit, Mode, Refused, Search
from .search.ripgrep import Ripgrep
from .system.glob_patterns import compile_wildcard, literal_first, may_be_literal, normalize
from .system.project_files import ignored_notice, list_files
from .system.take_turn import in_thread
from .text import CHUNK_BYTES

SEARCH_TIMEOUT_S = 30.0
MAX_ANSWER_CHARS = 30_000  # per answer
MAX_LINE_CHARS = 500  # longer lines are cut around their match
CHARS_BEFORE_MATCH = 150  # part of MAX_LINE_CHARS before the match

_LINE_END = regex(r"\n|(?<!\\)(?:\\\\)*\\n")
_META = regex(r"[\\.+*?()|\[\]{}^$#&\-~]")
_NARROW = "narrow the search with path, glob or type"


class GrepParams(Params):
    pattern: str
    path: str = Field(".", json_schema_extra=unstated)
    output_mode: Mode = Field("files", json_schema_extra=unstated)
    glob: str | None = None
    type: str | None = Field(None, description="Such as py")
    ignore_case: bool = False
    literal: bool = False
    multiline: bool = False  # `.` matches line breaks
    context: int = Field(0, ge=0, le=1000, json_schema_extra=unstated)
    before: int = Field(0, ge=0, le=1000, json_schema_extra=unstated)
    after: int = Field(0, ge=0, le=1000, json_schema_extra=unstated)
    limit: int = Field(250, ge=1, json_schema_extra=unstated)
    offset: int = Field(0, ge=0)


def _advice(params: GrepParams) -> str:
    """Return what may help after a refusal, for each argument that ripgrep interprets."""
    advice = list[str]()
    if params.type:
        advice.append("type is the name of a language, such as py; leave it out to search all.")
    if not params.literal:
        advice.append(r"Escape characters meant as such, e.g. \( \[ \{, or set literal=true.")
    return " ".join(advice)


class GrepTool(Tool[GrepParams]):
    name = "Grep"
    description = (
        "Searches file contents by regular expression; escape braces or set literal. "
        "Skips what .gitignore excludes unless path names it."
    )
    brief = Brief(
        "Lists the files below path that match a regular expression.", ("pattern", "path")
    )
    effect = "read"
    Params = GrepParams

    def __init__(self, seconds: float = SEARCH_TIMEOUT_S) -> None:
        self._seconds = seconds

    def subject(self, params: GrepParams) -> str:
        return params.path or "."

    def title(self, params: GrepParams) -> str:
        pattern = params.pattern.replace("\n", "\\n")
        return f'"{pattern}" in {self.subject(params)}'

    async def run(self, params: GrepParams, context: Context) -> Output:
        place = locate(context, params.path)
        search = await in_thread(_plan, params, context, place)
        folder = replace(place, path=search.root, is_moved=False)
        with listed(folder) as inside:
            if search.glob and may_be_literal(search.glob):
                search = await self._with_literal_glob(search, inside)

            def prepared() -> tuple[Ripgrep | None, Search]:
                ripgrep = find_ripgrep(context.env.get("PATH"))
                bounds = context.search_bounds(search.root)
                listing_s = self._seconds / 3  # the rest is for the search itself
                return ripgrep, replace(search, inside=inside, bounds=bounds, listing_s=listing_s)

            ripgrep, search = await in_thread(prepared)
            if ripgrep is None:
                why = missing_ripgrep(context.env.get("PATH"))
                way = context.offered.say(" Use grep in {Bash}.")
                raise ToolError(f"{self.name} cannot be used: {why}.{way}")
            return await self._found(params, context, place, ripgrep, search)

    async def _with_literal_glob(self, search: Search, inside: Path) -> Search:
        """Return the search with escaped brackets in its glob, if a path has them in its name."""
        glob = search.glob or ""
        try:
            async with asyncio.timeout(self._seconds):
                listing = await list_files(inside, env=search.env)
        except TimeoutError:
            return search
        literal = await in_thread(literal_first, glob.removeprefix("!"), listing.paths)
        return replace(search, glob="!" * glob.startswith("!") + literal)

    async def _found(
        self,
        params: GrepParams,
        context: Context,
        place: Place,
        ripgrep: Ripgrep,
        search: Search,
    ) -> Output:
        page = _Page(search, place, params.offset, params.limit, context.is_denied)
        try:
            async with asyncio.timeout(self._seconds):
                gaps = await search_files(ripgrep, search, page.take)
            page.notes = [*_notes(gaps)]
        except TimeoutError:
            if not page.shown:
                raise ToolError(
                    f"Nothing was found in {self._seconds:g} s, and not all was searched. "
                    f"{_NARROW.capitalize()}, or simplify the pattern."
                ) from None
            page.end = f"stopped after {self._seconds:g} s; {_NARROW} for what is missing"
        except Refused as refusal:
            raise ToolError(
                f"ripgrep does not take this search: {refusal}. {_advice(params)}"
            ) from None
        except OSError as error:
            raise ToolError(f"Could not search {place.name}: {error.strerror}.") from error
        if page.seen:
            return Output(page.text(), page.details())
        notes = "".join(f"\n[{note}]" for note in page.notes)
        return Output(await _nothing(params, place, search) + notes, page.details())


@dataclass(slots=True)
class _Page:
    """The output lines for the model: at most `limit`, starting at `offset`."""

    search: Search
    place: Place  # the root, or the single file
    offset: int
    limit: int
    is_denied: Callable[[str], bool]
    left_out: set[str] = field(default_factory=set)  # files that a rule hides; never mentioned
    notes: list[str] = field(default_factory=list)  # about gaps of the search
    seen: int = 0  # hits, including those before the offset
    shown: int = 0
    matches: int = 0
    files: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    size: int = 0  # characters
    last: GrepHit | None = None
    cut_lines: bool = False
    end: str = ""  # why the page is cut

    def take(self, hit: GrepHit) -> bool:
        """Add a hit. Return False if the page has no room for it."""
        if not self.search.only and self._is_kept(hit.path):
            return True
        self.seen += 1
        if self.seen <= self.offset:
            return True
        line = self._line(hit)
        if self.shown == self.limit or self.size + len(line) > MAX_ANSWER_CHARS:
            unit = "lines" if self.search.mode == "content" else "files"
            self.end = (
                f"{unit} {self.offset + 1} to {self.offset + self.shown}; there are more: "
                f"go on with offset={self.offset + self.shown}, or {_NARROW}"
            )
            return False
        self.lines.append(line)
        self.size += len(line) + 1
        self.shown += 1
        self.files.add(hit.path)
        self.matches += hit.number if self.search.mode == "count" else hit.start is not None
        self.last = hit
        return True

    def _is_kept(self, path: str) -> bool:
        if path not in self.left_out:
            if not self.is_denied(f"{self.search.root}/{path}"):
                return False
            self.left_out.add(path)
        return True

    def _line(self, hit: GrepHit) -> str:
        path = self._path(hit)
        if self.search.mode == "files":
            return path
        if self.search.mode == "count":
            return f"{path}:{hit.number}"
        mark = "-" if hit.start is None else ":"
        line = f"{path}{mark}{hit.number}{mark}{self._around(hit)}"
        return f"--\n{line}" if self._gap(hit) else line

    def _path(self, hit: GrepHit) -> str:
        if self.search.only:
            return self.place.name
        name = self.place.name
        return hit.path if name == "." else f"{name.rstrip('/')}/{hit.path}"

    def _gap(self, hit: GrepHit) -> bool:
        """Return True if context is shown and lines are left out before this one."""
        if not self.last or not (self.search.before or self.search.after):
            return False
        return (self.last.path, self.last.number + 1) != (hit.path, hit.number)

    def _around(self, hit: GrepHit) -> str:
        length = len(hit.text)
        if length <= MAX_LINE_CHARS:
            return hit.text
        self.cut_lines = True
        first = max(0, min((hit.start or 0) - CHARS_BEFORE_MATCH, length - MAX_LINE_CHARS))
        last = first + MAX_LINE_CHARS
        return (
            f"{'…' if first else ''}{hit.text[first:last]}{'…' if last < length else ''}"
            f" [{MAX_LINE_CHARS} of {length:,} characters]"
        )

    def text(self) -> str:
        if not self.shown:
            return f"[nothing from offset={self.offset} on: there are {self.seen}]"
        notes = [self.end]
        if self.search.mode == "count" and not self.end and not self.offset:
            notes.append(f"matches: {self.matches:,}, files: {len(self.files):,}")
        if self.cut_lines:
            way = self.place.offered.say("; grep -o in {Bash} shows other parts of them")
            notes.append(f"long lines are cut{way}")
        notes += self.notes
        return "\n".join([*self.lines, *(f"[{note}]" for note in notes if note)])

    def details(self) -> dict[str, Any]:
        """Return the counts; `matches` is None in the mode `files`."""
        return {
            "matches": None if self.search.mode == "files" else self.matches,
            "files": len(self.files),
            "truncated": bool(self.end) or self.cut_lines,
        }


def _plan(params: GrepParams, context: Context, place: Place) -> Search:
    """Return the search for the parameters. Raises ToolError for invalid parameters."""
    for name in ("pattern", "glob", "type"):
        _check_text(name, getattr(params, name) or "")
    if not params.multiline and _LINE_END.search(params.pattern):
        raise ToolError("The pattern has a line end in it. Set multiline=true to match one.")
    if params.type and not re.fullmatch(r"[\w+-]+", params.type):
        raise ToolError(f"{params.type!r} is no type. Give a name such as py, or use glob.")
    only = None if place.path.is_dir() else _check_file(place)
    content = params.output_mode == "content"
    return Search(
        root=place.path.parent if only else place.path,
        only=only,
        pattern=_META.sub(r"\\\g<0>", params.pattern) if params.literal else params.pattern,
        mode=params.output_mode,
        glob=_glob(params.glob) if params.glob else None,
        type=params.type,
        ignore_case=params.ignore_case,
        multiline=params.multiline,
        before=max(params.before, params.context) if content else 0,
        after=max(params.after, params.context) if content else 0,
        env=context.env or None,
    )


def _check_text(name: str, text: str) -> None:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ToolError(f"{name} has a NUL or half a character in it, which no search can take.")


def _check_file(place: Place) -> str:
    """Return the name of a single file, which must exist and be text. Raises ToolError."""
    with opened(place) as file:
        start = file.read(CHUNK_BYTES)
        if is_binary(start):
            told = binary(place, start, os.fstat(file.fileno()).st_size)
            way = place.offered.say(" Search it in {Bash}, with strings or grep -a.")
            raise ToolError(f"{told}{way}")
    return place.path.name


def _notes(gaps: Gaps) -> Iterator[str]:
    if gaps.unreadable:
        yield f"files or directories that could not be read: {gaps.unreadable:,}"
    if gaps.as_utf8:
        yield f"too many files are not UTF-8: some were searched as UTF-8; {_NARROW}"


def _glob(given: str) -> str:
    unwanted = "!" if given.startswith("!") else ""
    pattern = normalize(given.removeprefix("!"))
    try:
        compile_wildcard(pattern)
    except (ValueError, re.error) as error:
        raise ToolError(f"glob: {error}.") from None
    return unwanted + pattern


async def _nothing(params: GrepParams, place: Place, search: Search) -> str:
    """Return a message without matches: the searched place, the filters and the files left out."""
    filters = [f"{k} {v}" for k, v in (("glob", params.glob), ("type", params.type)) if v]
    among = f" ({', '.join(filters)})" if filters else ""
    where = "the project directory" if place.name == "." else place.name
    told = f"No matches for {params.pattern!r} in {where}{among}."
    return told if search.only else told + await ignored_notice(search.inside, search.env)
