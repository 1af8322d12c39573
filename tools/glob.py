"""Glob: find files by name, newest first. Only matching files are checked on disk."""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from ..agent.errors import ToolError
from ..agent.lazy import regex
from .base import Context, Output, Params, Tool, unstated
from .file_access import Place, listed, locate, opened
from .system.glob_patterns import compile_wildcard, literal_first, normalize
from .system.project_files import Listing, ignored_notice, list_files, printable
from .system.safe_open import folder_descriptor
from .system.take_turn import in_thread

MAX_PATHS = 200
WINDOW_SHARE = 0.02  # of the context window, for the paths of one answer
MIN_PATHS = 10  # are shown in any window
CHARS_PER_TOKEN = 3  # of a path
MAX_FOLDERS = 4  # named with a list that is cut
LISTING_TIMEOUT_S = 30.0

_WILD = regex(r"[*?\[{\\]")


class GlobParams(Params):
    pattern: str
    path: str = Field(".", json_schema_extra=unstated)


class GlobTool(Tool[GlobParams]):
    name = "Glob"
    description = (
        "Finds files by name, newest first; `*.py` matches at any depth. "
        "Skips what .gitignore excludes unless path is in it."
    )
    effect = "read"
    Params = GlobParams

    def subject(self, params: GlobParams) -> str:
        return _split(params)[0] or "."

    def title(self, params: GlobParams) -> str:
        return f"{params.pattern} in {params.path or '.'}"

    async def run(self, params: GlobParams, context: Context) -> Output:
        path, pattern = _split(params)
        place = locate(context, path)
        await asyncio.to_thread(_check_directory, place)
        env = context.env or None
        with listed(place) as inside:
            try:
                async with asyncio.timeout(LISTING_TIMEOUT_S):
                    listing = await list_files(inside, env=env)
            except TimeoutError:
                raise ToolError(
                    f"The files in {place.name} could not be listed in {LISTING_TIMEOUT_S:g} s. "
                    "Give a directory further down as path."
                ) from None
            regex = _compiled(await in_thread(literal_first, pattern, listing.paths))
            matching = [p for p in listing.paths if p == pattern or regex.fullmatch(p)]
            shown = [p for p in matching if not context.is_denied(f"{place.path}/{p}")]
            newest = await asyncio.to_thread(_newest_first, inside, shown)
            shown_count = 0
            if newest:
                text, shown_count = _page(place, newest, context.window_tokens())
            else:
                text = _nothing(place, pattern) + await ignored_notice(inside, env)
        return Output(
            text + _notes(listing), {"files": len(newest), "truncated": shown_count < len(newest)}
        )


def _split(params: GlobParams) -> tuple[str, str]:
    """Return the directory to search and the pattern in it.

    A pattern that starts outside `path` moves its leading plain folders to the directory.
    """
    if not params.pattern.startswith(("/", "~/", "../")):
        return params.path, params.pattern
    parts = params.pattern.split("/")
    wild = (n for n, part in enumerate(parts) if _WILD.search(part))
    first = min(next(wild, len(parts)), len(parts) - 1)
    directory = "/".join(parts[:first]) or "/"
    if directory.startswith(".."):
        directory = f"{params.path}/{directory}"
    return directory, "/" + "/".join(parts[first:])


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return compile_wildcard(normalize(pattern))
    except (ValueError, re.error) as error:
        raise ToolError(f"pattern: {error}.") from None


def _check_directory(place: Place) -> None:
    if not place.path.is_dir():
        with opened(place):  # reports another kind of file, or similar names
            way = place.offered.say(", or {Read} it")
            raise ToolError(f"{place.name} is a file. Give its directory as path{way}.")


def _newest_first(root: Path, paths: Iterable[str]) -> list[str]:
    """Return the existing paths, newest first. Paths through linked folders are left out."""
    times, folders = dict[str, int](), dict[str, list[str]]()
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    with folder_descriptor(root) as top:
        for folder, names in folders.items():
            with suppress(OSError), folder_descriptor(folder or ".", top) as at:
                for name in names:
                    with suppress(OSError):  # tracked by git but deleted
                        found = os.stat(name, dir_fd=at, follow_symlinks=False)
                        times[f"{folder}/{name}" if folder else name] = found.st_mtime_ns
    return sorted(times, key=lambda path: (-times[path], path))


def _page(place: Place, paths: list[str], window: int) -> tuple[str, int]:
    """Return the newest paths as text, and their number. In a small window of so many tokens, fewer
    paths are shown.
    """
    prefix = "" if place.name == "." else f"{place.name.rstrip('/')}/"
    room = int(WINDOW_SHARE * CHARS_PER_TOKEN * window) if window else None
    lines = list[str]()
    for path in paths[:MAX_PATHS]:
        line = prefix + printable(path)
        if room is not None:
            room -= len(line) + 1
            if room < 0 and len(lines) >= MIN_PATHS:
                break
        lines.append(line)
    count = len(lines)
    if more := len(paths) - count:
        lines.append(
            f"[{more:,} more, all older; narrow the pattern or the path to see them"
            f"{_folders(paths)}]"
        )
    return "\n".join(lines), count


def _folders(paths: Sequence[str]) -> str:
    """Return the folders with the most paths, which a narrower call may name."""
    counts = Counter(printable(path).split("/", 1)[0] for path in paths if "/" in path)
    most = [f"{name}/ ({count:,})" for name, count in counts.most_common(MAX_FOLDERS)]
    return f": most of {len(paths):,} are in {', '.join(most)}" if most else ""


def _notes(listing: Listing) -> str:
    notes = ""
    if not listing.complete:
        notes += f"\n[only {len(listing.paths):,} files were listed; narrow the path for the rest]"
    if listing.unreadable:
        notes += f"\n[directories that could not be read: {listing.unreadable:,}]"
    return notes


def _nothing(place: Place, pattern: str) -> str:
    where = "the project directory" if place.name == "." else place.name
    told = f"No files match {pattern} in {where}."
    if (place.path / pattern.strip("/")).is_dir():
        told += f" It is a directory: {pattern.strip('/')}/** matches the files in it."
    return told
