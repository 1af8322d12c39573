"""Search files for a regular expression with the bundled ripgrep.

A search runs in its root, respects ignore files, reads hidden files but not `.git`, skips binary
files and links, and passes on `GrepHit`s sorted by path. A glob narrows the search; it does not
include ignored files. Patterns use Rust's syntax, or PCRE2 if Rust's does not support them.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from ..agent.lazy import dataclass, regex
from .system.child import child, pieces
from .system.glob_patterns import compile_wildcard
from .system.kept_text import KeptText
from .system.project_files import is_ignored

Mode = Literal["files", "content", "count"]

MAX_LINE_BYTES = 16 << 20  # bytes of one line; the rest is ignored
BLOCK_CHARS = 8 << 20  # characters searched at once
MAX_OFFSET_BYTES = 32  # of an output line, which begins with the offset of a match
MAX_EXCERPT_CHARS = 300  # around a match in a text
CHARS_BEFORE_MATCH = 100  # part of MAX_EXCERPT_CHARS before the match

_PLACE = regex(rb"(\d+)(?::(\d+):|-)")  # a match has a column, a line of context has none
_UNREADABLE = "(os error "


@dataclass(frozen=True, slots=True)
class Search:
    """The pattern, files and options of a search."""

    root: Path
    pattern: str
    mode: Mode
    only: str | None = None
    glob: str | None = None
    type: str | None = None
    ignore_case: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0
    env: Mapping[str, str] | None = None
    inside: Path = Path()  # an unchangeable path of the root (see `listed`)
    bounds: Callable[[], None] | None = None  # restricts the thread before it starts ripgrep

    @property
    def unwanted(self) -> bool:
        """Whether the glob excludes files."""
        return self.glob is not None and self.glob.startswith("!")


@dataclass(frozen=True, slots=True)
class GrepHit:
    """A line or a file. `path` is relative to the root. `number` is the line number, or the number
    of matches in the file. `start` is the offset of a match in `text`, None for a context line.
    """

    path: str
    number: int = 0
    text: str = ""
    start: int | None = None


class Refused(Exception):
    """ripgrep rejects the pattern or the type. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A match in a text, with the line around it."""

    start: int  # characters of the text before the match
    excerpt: str
    excerpt_end: int  # characters of the text before the end of the excerpt


Take = Callable[[GrepHit], bool]  # returns True to continue


async def search_files(program: str, search: Search, take: Take) -> int:
    """Run ripgrep and pass hits to `take` until there are no more or `take` returns False.

    Returns the number of unreadable files and directories. Raises Refused, and OSError if ripgrep
    cannot run.
    """
    argv = [
        program,
        *_options(search),
        *(["--no-ignore-parent"] if await asyncio.to_thread(is_ignored, search.inside) else []),
        f"--regexp={search.pattern}",
        "--",
        f"./{search.only or ''}",
    ]
    chosen = cache(_chooser(search))
    separator = b"\0" if search.mode == "files" else b"\n"
    async with child(argv, cwd=search.inside, env=search.env, restrict=search.bounds) as engine:
        async with contextlib.aclosing(pieces(engine.out, separator, MAX_LINE_BYTES)) as found:
            async for piece in found:
                hit = _hit(piece, search.mode)
                if hit and (search.only or chosen(hit.path)) and not take(hit):
                    return 0
        code, complaints = await engine.end()
    unreadable = complaints.count(_UNREADABLE)
    if code not in (0, 1) and not unreadable:
        raise Refused(" ".join(complaints.split()) or f"ripgrep ended with code {code}")
    return unreadable


async def search_text(
    program: str, pattern: str, text: KeptText
) -> AsyncGenerator[TextMatch, None]:
    """Yield the matches in a text, in order. A match never spans lines. Raises Refused, and OSError
    if ripgrep cannot run.
    """
    options = ("--no-config", "--crlf", "--color=never", "--text", "--engine=auto")
    shown = ("--only-matching", "--byte-offset", "--no-line-number", "--no-filename")
    argv = (program, *options, *shown, f"--regexp={pattern}", "-")
    blocks, before = _blocks(text), 0  # characters in finished blocks
    while block := await asyncio.to_thread(next, blocks, ""):
        data = block.encode("utf-8", "replace")  # a lone surrogate becomes one byte
        async with child(argv, cwd=Path("/"), given=data) as engine:
            at = start = 0  # the same place, in bytes and in characters of the block
            async with contextlib.aclosing(pieces(engine.out, b"\n", MAX_OFFSET_BYTES)) as found:
                async for piece in found:
                    offset = int(piece.partition(b":")[0])
                    start += len(data[at:offset].decode("utf-8", "replace"))
                    at = offset
                    yield _text_match(block, before, start)
            code, complaints = await engine.end()
        if code not in (0, 1):
            raise Refused(" ".join(complaints.split()) or f"ripgrep ended with code {code}")
        before += len(block)


def _blocks(text: KeptText) -> Iterator[str]:
    """Yield a text in blocks of whole lines. A line longer than a block is split."""
    held = ""
    for piece in text.pieces():
        held += piece
        if len(held) >= BLOCK_CHARS:
            end = held.rfind("\n") + 1 or len(held)
            yield held[:end]
            held = held[end:]
    if held:
        yield held


def _text_match(block: str, before: int, start: int) -> TextMatch:
    first = max(block.rfind("\n", 0, start) + 1, start - CHARS_BEFORE_MATCH)
    line_end = block.find("\n", start)
    last = min(len(block) if line_end < 0 else line_end, first + MAX_EXCERPT_CHARS)
    return TextMatch(before + start, block[first:last], before + last)


def _options(search: Search) -> Iterator[str]:
    yield from ("--no-config", "--no-require-git", "--no-ignore-messages", "--hidden", "--crlf")
    yield from ("--color=never", "--null", "--with-filename", "--no-heading", "--sort=path")
    yield from ("--engine=auto", "--ignore-case" if search.ignore_case else "--case-sensitive")
    if search.mode == "files":
        yield "--files-with-matches"
    elif search.mode == "count":
        yield "--count-matches" if search.multiline else "--count"
    else:
        yield from ("--line-number", "--column", "--no-context-separator")
        yield from (f"--before-context={search.before}", f"--after-context={search.after}")
    if search.multiline:
        yield from ("--multiline", "--multiline-dotall")
    # An including `--glob` would override ignore files and types: pass only an excluding one.
    if search.unwanted:
        yield f"--glob={search.glob}"
    yield "--glob=!.git"
    if search.type:
        yield f"--type={search.type}"
    elif name := _name_of(search):
        yield from (f"--type-add=wanted:{name}", "--type=wanted")


def _name_of(search: Search) -> str:
    """Return a wildcard for the file names that the glob matches; "" if the glob gives none."""
    directory, _, name = (search.glob or "").rpartition("/")
    if search.unwanted or ":" in name or any(c in directory for c in "{[\\"):
        return ""
    return name


def _chooser(search: Search) -> Callable[[str], bool]:
    """Return a function that tests whether the glob includes a path."""
    regex = compile_wildcard((search.glob or "**").removeprefix("!"))

    def chosen(path: str) -> bool:
        if search.unwanted:  # excluding a directory excludes everything in it
            return not any(regex.fullmatch(path[:end]) for end in _ends(path))
        return regex.fullmatch(path) is not None

    return chosen


def _ends(path: str) -> Iterator[int]:
    yield from (place for place, character in enumerate(path) if character == "/")
    yield len(path)


def _hit(piece: bytes, mode: Mode) -> GrepHit | None:
    """Return the hit of a record; None for ripgrep's remarks, such as on binary files."""
    name, nul, rest = piece.partition(b"\0")
    path = name.removeprefix(b"./").decode("utf-8", "replace")
    if mode == "files":
        return GrepHit(path)
    if not nul:
        return None
    if mode == "count":
        return GrepHit(path, int(rest))
    place = _PLACE.match(rest)
    if not place:
        return None
    raw, column = rest[place.end() :].removesuffix(b"\r"), place[2]
    text = raw.decode("utf-8", "replace")
    if column is None:
        return GrepHit(path, int(place[1]), text)
    start = len(raw[: int(column) - 1].decode("utf-8", "replace"))
    return GrepHit(path, int(place[1]), text, start)
