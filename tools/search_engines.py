r"""Two engines that search files for a regular expression: ripgrep, and `python_grep.py` in a
child.

Both take a `Search`, run in its root, respect ignore files, read hidden files but not `.git`, skip
binary files and links, and hand over `GrepHit`s sorted by path. They differ in their regular
expressions alone: ripgrep takes those of Rust (and of PCRE2 where it was built with it),
`python_grep.py` those of Python. Look-around and back-references are sure to work in the second
only, `\p{…}` and `[[:alpha:]]` in the first only; and where matches span lines, a line end of CRLF
is one character for Python's, and empty matches are counted in other places. A glob narrows a
search and brings nothing back that is ignored.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from .glob_patterns import compile_wildcard
from .system.child import child, pieces
from .system.project_files import MAX_FILES, Listing, in_order, is_ignored, survey, tracked_ignored

Mode = Literal["files", "content", "count"]

MAX_LINE_BYTES = 16 << 20  # bytes that are kept of one line; more of it is never looked at
PYTHON_GREP = Path(__file__).with_name("python_grep.py")

_PLACE = re.compile(rb"(\d+)(?::(\d+):|-)")  # a match has a column, a line of context has none
_UNREADABLE = "(os error "

# Types whose files are not simply named *.TYPE.
TYPES = {
    "c": ("*.[ch]",),
    "cpp": ("*.{cpp,cc,cxx,hpp,hh,hxx,h,inl}",),
    "csharp": ("*.cs",),
    "docker": ("*Dockerfile*", "*.dockerfile"),
    "elixir": ("*.{ex,exs}",),
    "haskell": ("*.{hs,lhs}",),
    "html": ("*.{html,htm}",),
    "javascript": ("*.{js,jsx,mjs,cjs,vue}",),
    "js": ("*.{js,jsx,mjs,cjs,vue}",),
    "jupyter": ("*.{ipynb,jpynb}",),
    "kotlin": ("*.{kt,kts}",),
    "make": ("[Mm]akefile*", "GNUmakefile", "*.{mk,mak}"),
    "markdown": ("*.{md,markdown,mdx}",),
    "md": ("*.{md,markdown,mdx}",),
    "perl": ("*.{pl,pm,t}",),
    "py": ("*.{py,pyi}",),
    "python": ("*.{py,pyi}",),
    "ruby": ("*.{rb,rake,gemspec}", "Gemfile", "Rakefile"),
    "rust": ("*.rs",),
    "sh": ("*.{sh,bash,zsh,ksh}", ".bashrc", ".zshrc", ".profile"),
    "terraform": ("*.{tf,tfvars}",),
    "ts": ("*.{ts,tsx,mts,cts}",),
    "typescript": ("*.{ts,tsx,mts,cts}",),
    "yaml": ("*.{yaml,yml}",),
}


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for in which files."""

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
    inside: Path = Path()  # the root, as it was entered
    bounds: Callable[[], None] | None = None  # what is given up before ripgrep is started

    @property
    def type_globs(self) -> tuple[str, ...]:
        return TYPES.get(self.type, (f"*.{self.type}",)) if self.type else ()

    @property
    def unwanted(self) -> bool:
        """Whether the glob says which files are left out."""
        return self.glob is not None and self.glob.startswith("!")


@dataclass(frozen=True, slots=True)
class GrepHit:
    """A line, or a file. `path` is relative to the root. `number` is the line's, or the count of
    matches in the file. `start` is where a match starts in `text`, None for a line of context."""

    path: str
    number: int = 0
    text: str = ""
    start: int | None = None


class Refused(Exception):
    """The engine does not take the pattern; the message says why."""


Take = Callable[[GrepHit], bool]  # whether to go on


async def search_with_ripgrep(program: str, search: Search, take: Take) -> list[str]:
    """Hand over hits until there are no more, or no more are wanted.

    Returns notes on what was not searched. Raises Refused, and OSError if ripgrep cannot run.
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

    def take_chosen(hit: GrepHit) -> bool:
        return take(hit) if search.only or chosen(hit.path) else True

    return _notes(await _run(argv, search, take_chosen))


async def search_with_python(search: Search, take: Take) -> list[str]:
    """Do what `search_with_ripgrep` does, where there is no ripgrep."""
    listing = Listing([search.only] if search.only else [])
    if not search.only:
        listing = await survey(search.inside, env=search.env)
        forced = await tracked_ignored(search.inside, search.env)
        chosen = _chooser(search)
        listing.paths = in_order(p for p in listing.paths if p not in forced and chosen(p))
    job = {
        "pattern": search.pattern,
        "mode": search.mode,
        "ignore_case": search.ignore_case,
        "multiline": search.multiline,
        "before": search.before,
        "after": search.after,
    }
    given = json.dumps(job).encode() + b"\n" + b"\0".join(map(os.fsencode, listing.paths))
    argv = [sys.executable, "-I", "-S", "-B", str(PYTHON_GREP)]
    notes = _notes(listing.unreadable + await _run(argv, search, take, given))
    if not listing.complete:
        notes.append(f"only {MAX_FILES:,} files were listed; narrow the path for the rest")
    return notes


def _notes(unreadable: int) -> list[str]:
    return [f"files or directories that could not be read: {unreadable:,}"] if unreadable else []


async def _run(argv: list[str], search: Search, take: Take, given: bytes = b"") -> int:
    """Run an engine; return how many files and directories it could not read."""
    separator = b"\0" if search.mode == "files" else b"\n"
    give_up = None if given else search.bounds
    async with child(
        argv, cwd=search.inside, env=search.env, given=given, give_up=give_up
    ) as engine:
        async with contextlib.aclosing(pieces(engine.out, separator, MAX_LINE_BYTES)) as found:
            async for piece in found:
                hit = _hit(piece, search.mode)
                if hit and not take(hit):
                    return 0
        code, complaints = await engine.end()
    unreadable = complaints.count(_UNREADABLE)
    if code not in (0, 1) and not unreadable:
        raise Refused(complaints.strip() or f"{argv[0]} ended with code {code}")
    return unreadable


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
    # A wanted `--glob` would outrank ignore files and types: only an unwanted one is given.
    if search.unwanted:
        yield f"--glob={search.glob}"
    yield "--glob=!.git"
    names = search.type_globs or _names_of(search)
    for name in names:
        yield f"--type-add=wanted:{name}"
    if names:
        yield "--type=wanted"


def _names_of(search: Search) -> tuple[str, ...]:
    """Return a wildcard that the names of all wanted files match, where the glob's end is one."""
    directory, _, name = (search.glob or "").rpartition("/")
    if not name or search.unwanted or ":" in name or any(c in directory for c in "{[\\"):
        return ()
    return (name,)


def _chooser(search: Search) -> Callable[[str], bool]:
    """Return a function that tells whether a path is to be searched, by glob and type."""
    types = [compile_wildcard(glob) for glob in search.type_globs]
    regex = compile_wildcard((search.glob or "**").removeprefix("!"))

    def chosen(path: str) -> bool:
        if types and not any(kind.fullmatch(path) for kind in types):
            return False
        if search.unwanted:  # a directory that is left out takes along all that is in it
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
