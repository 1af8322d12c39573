"""Search files and texts for a regular expression, with ripgrep.

A search of files runs in its root and passes on `GrepHit`s sorted by path. A glob narrows the
search; it does not include ignored files.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from ...agent.lazy import regex
from ..system.child import child, pieces
from ..system.glob_patterns import compile_wildcard, path_ends
from ..system.kept_text import KeptText
from .decoded_files import decoded_files, open_decoded
from .request import DecodedFile, Gaps, GrepHit, Mode, Refused, Search, SearchCommand, TextMatch
from .ripgrep import Ripgrep

MAX_LINE_BYTES = 16 << 20  # bytes of one line; the rest is ignored
BLOCK_CHARS = 8 << 20  # characters searched at once
MAX_OFFSET_BYTES = 32  # of an output line, which begins with the offset of a match
MAX_EXCERPT_CHARS = 300  # around a match in a text
CHARS_BEFORE_MATCH = 100  # part of MAX_EXCERPT_CHARS before the match

# The number of a line; for a match with a NUL and, if it is known, the column.
_PLACE = regex(rb"(\d+)(?:-|\0(?:(\d+)\0)?)")
_UNREADABLE = "(os error "
# What ripgrep says about a line of an ignore file above the root. It goes on without the line.
_BAD_RULE = regex(r"^.*: line \d+: error parsing glob .*\n?", re.MULTILINE)

Take = Callable[[GrepHit], bool]  # returns True to continue


async def search_files(ripgrep: Ripgrep, search: Search, take: Take) -> Gaps:
    """Search files and pass hits to `take` until there are no more or `take` returns False.

    Files that are not UTF-8 are listed first. ripgrep gets their text as UTF-8, decoded as Read
    decodes it. If the list takes too long, the rest of these files is searched as UTF-8.

    Raises Refused, and OSError if the program cannot run.
    """
    chosen, end = cache(_chooser(search)), time.monotonic() + search.listing_s

    def is_wanted(path: str) -> bool:
        return bool(search.only) or chosen(path)

    listing = _Run(search, ripgrep.encoding_command)
    paths, is_listed = list[str](), False
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(search.listing_s),
            contextlib.aclosing(listing.pieces(b"\0")) as names,
        ):
            async for piece in names:
                if is_wanted(path := _path(piece)):
                    paths.append(path)
        is_listed = True
    waiting = iter(paths)
    decoded = await asyncio.to_thread(decoded_files, search, waiting, end)
    is_listed = is_listed and not next(waiting, "")
    run = _Run(search, ripgrep.command)
    skipped = {file.path for file in decoded}
    async with (
        contextlib.aclosing(run.hits()) as some,
        contextlib.aclosing(_decoded_hits(ripgrep, search, decoded)) as others,
        contextlib.aclosing(_merged(some, others)) as found,
    ):
        async for hit, is_decoded in found:
            wanted = is_wanted(hit.path) and (is_decoded or hit.path not in skipped)
            if wanted and not take(hit):
                break
    return Gaps(run.unreadable, as_utf8=not is_listed)


class _Run:
    """One run of ripgrep."""

    def __init__(self, search: Search, command: Callable[[Search], SearchCommand]) -> None:
        self.unreadable = 0  # files and directories, known at the end
        self._search = search
        self._command = command

    async def hits(self) -> AsyncGenerator[GrepHit, None]:
        """Yield the hits. Raises Refused, and OSError if the program cannot run."""
        separator = b"\0" if self._search.mode == "files" else b"\n"
        async with contextlib.aclosing(self.pieces(separator)) as found:
            async for piece in found:
                if hit := _hit(piece, self._search.mode):
                    yield hit

    async def pieces(self, separator: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the records of the output."""
        search = self._search
        command = await asyncio.to_thread(self._command, search)
        async with child(
            command.argv,
            cwd=search.inside,
            env=search.env,
            given=command.given,
            passed=command.passed,
            restrict=search.bounds,
        ) as program:
            async with contextlib.aclosing(pieces(program.out, separator, MAX_LINE_BYTES)) as found:
                async for piece in found:
                    yield piece
            code, complaints = await program.end()
        self.unreadable = complaints.count(_UNREADABLE)
        reason = _BAD_RULE.sub("", complaints).strip()
        if code not in (0, 1) and not self.unreadable and (reason or reason == complaints):
            raise Refused(" ".join(reason.split()) or f"ripgrep ended with code {code}")


async def _decoded_hits(
    ripgrep: Ripgrep, search: Search, files: Sequence[DecodedFile]
) -> AsyncGenerator[GrepHit, None]:
    """Yield the hits in the decoded text of files, which are sorted by path, in their order."""
    waiting = iter(files)
    while texts := await asyncio.to_thread(open_decoded, search, waiting):
        try:
            by_name = {text.name: text.path for text in texts}
            command = partial(ripgrep.text_files_command, texts)
            async with contextlib.aclosing(_Run(search, command).hits()) as hits:
                async for hit in hits:
                    yield replace(hit, path=by_name[hit.path])
        finally:
            for text in texts:
                text.file.close()


async def _merged(
    one: AsyncGenerator[GrepHit, None], two: AsyncGenerator[GrepHit, None]
) -> AsyncGenerator[tuple[GrepHit, bool], None]:
    """Yield the hits of two generators, which are sorted by path, in one order; with True for the
    second one.
    """
    first, second = await anext(one, None), await anext(two, None)
    while first or second:
        if first and (not second or first.path.split("/") <= second.path.split("/")):
            yield first, False
            first = await anext(one, None)
        elif second:
            yield second, True
            second = await anext(two, None)


async def search_text(
    ripgrep: Ripgrep, pattern: str, text: KeptText
) -> AsyncGenerator[TextMatch, None]:
    """Yield the matches in a text, in order. A match never spans lines. Raises Refused, and OSError
    if the program cannot run.
    """
    blocks, before = _blocks(text), 0  # characters in finished blocks
    while block := await asyncio.to_thread(next, blocks, ""):
        data = block.encode("utf-8", "replace")  # a lone surrogate becomes one byte
        command = await asyncio.to_thread(ripgrep.text_command, pattern, data)
        async with child(
            command.argv, cwd=Path("/"), given=command.given, passed=command.passed
        ) as program:
            at = start = 0  # the same place, in bytes and in characters of the block
            async with contextlib.aclosing(pieces(program.out, b"\n", MAX_OFFSET_BYTES)) as found:
                async for piece in found:
                    offset = int(piece.partition(b":")[0])
                    start += len(data[at:offset].decode("utf-8", "replace"))
                    at = offset
                    yield _text_match(block, before, start)
            code, complaints = await program.end()
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


def _chooser(search: Search) -> Callable[[str], bool]:
    """Return a function that tests whether the glob includes a path."""
    regex = compile_wildcard((search.glob or "**").removeprefix("!"))

    def chosen(path: str) -> bool:
        if search.unwanted:  # excluding a directory excludes everything in it
            return not any(regex.fullmatch(path[:end]) for end in path_ends(path))
        return regex.fullmatch(path) is not None

    return chosen


def _path(name: bytes) -> str:
    return name.removeprefix(b"./").decode("utf-8", "replace")


def _hit(piece: bytes, mode: Mode) -> GrepHit | None:
    """Return the hit of a record; None for ripgrep's remarks, such as on binary files."""
    name, nul, rest = piece.partition(b"\0")
    path = _path(name)
    if mode == "files":
        return GrepHit(path)
    if not nul:
        return None
    if mode == "count":
        return GrepHit(path, int(rest))
    place = _PLACE.match(rest)
    if not place:
        return None
    raw, column = rest[place.end() :].removesuffix(b"\r"), int(place[2] or 1)
    text = raw.decode("utf-8", "replace")
    if place[0].endswith(b"-"):
        return GrepHit(path, int(place[1]), text)
    start = len(raw[: column - 1].decode("utf-8", "replace"))
    return GrepHit(path, int(place[1]), text, start)
