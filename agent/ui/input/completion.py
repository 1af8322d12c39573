"""Completion of typed text: `/commands` with their help, their arguments, `#refs`, and `@paths` of
the project.

Typing never waits, even with a hundred thousand paths. Files are listed and matched in threads, in
small steps. A listing is reused until the next one is ready, and the next key cancels a search.

Paths with a part that begins with the text come first (file name before folders), then paths that
contain it (file name first), then paths with its letters in order. Case is ignored. Binary files
and ignored paths come after all others.
"""

import asyncio
import contextlib
import heapq
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ....tools.system.unicode import clean
from ...lazy import regex
from ..screen import Offer, ScreenHost

STEP_PATHS = 250  # paths searched at a time
MAX_CANDIDATES = 4_000  # the best paths are chosen among so many matches
MAX_GAP_COST = 8  # a larger gap between two letters costs no more

Rank = tuple[bool, int, int, int, str]  # comes last, cost, depth, length, the path
# Files that cannot be shown as text or image.
_BINARY = regex(
    r"(?<=[^/])\.(pyc|pyo|pyd|o|a|so|obj|lib|dll|dylib|exe|bin|class|jar|war|wasm|node|zip|tar|t?gz|bz2|xz|"
    r"zst|7z|rar|whl|egg|deb|rpm|iso|dmg|img|db|sqlite3?|mdb|pack|idx|npy|npz|pkl|pt|pth|onnx|"
    r"gguf|safetensors|h5|parquet|woff2?|ttf|otf|eot|mp[34]|m4a|ogg|wav|flac|avi|mkv|mov|webm)(\.\d+)*$",
    re.IGNORECASE,
)


class Paths:
    """The files and folders of a project as relative paths. Paths with control characters or
    invalid UTF-8 are left out.
    """

    def __init__(self, files: Iterable[str], ignored: Iterable[str] = ()) -> None:
        files = list(files)
        wanted = set(_with_folders(file for file in files if not _BINARY.search(file)))
        self._last = {*_with_folders(files), *filter(str.isprintable, ignored)} - wanted
        self._paths = [*sorted(wanted, key=_depth), *sorted(self._last, key=_depth)]
        self._low = [f"/{_lower(path)}" for path in self._paths]
        self._top = [path for path in self._paths if _depth(path)[0] < 2]

    def rank(
        self, typed: str, limit: int, unwanted: Callable[[], bool] = lambda: False
    ) -> list[str]:
        """Return the best `limit` paths; fewer if `unwanted` becomes true."""
        wanted = _lower(typed)
        if not wanted:
            return self._top[:limit]
        found: dict[str, Rank] = {}
        for pattern in (re.escape(f"/{wanted}"), re.escape(wanted), _letters(wanted)):
            search = re.compile(pattern, re.MULTILINE).search
            for start in range(0, len(self._low), STEP_PATHS):
                if unwanted() or len(found) >= MAX_CANDIDATES:
                    break
                step = slice(start, start + STEP_PATHS)
                if not search("\n".join(self._low[step])):  # most steps have no match
                    continue
                for path, low in zip(self._paths[step], self._low[step], strict=True):
                    if path not in found and search(low):
                        cost, depth = _cost(low, wanted), path.count("/")
                        found[path] = (path in self._last, cost, depth, len(path), path)
            if len(found.keys() - self._last) >= limit:
                break
        return [path for *_, path in heapq.nsmallest(limit, found.values())]


def match_cost(path: str, typed: str) -> int | None:
    """Return the match cost of a path: 0 is best, None is no match."""
    low, wanted = f"/{_lower(path)}", _lower(typed)
    return _cost(low, wanted) if re.search(_letters(wanted), low) else None


def folder_entries(typed: str, cwd: Path, limit: int) -> list[str]:
    """Return the matching entries of the typed folder, for paths outside the project."""
    folder, slash, name = typed.rpartition("/")
    try:
        with os.scandir(cwd / Path(folder + slash).expanduser()) as entries:
            names = [entry.name + "/" * entry.is_dir() for entry in entries]
    except (OSError, RuntimeError):  # RuntimeError: the home of an unknown user
        return []
    near = [each for each in names if _lower(each).startswith(_lower(name)) and each.isprintable()]
    return [folder + slash + each for each in sorted(near)[:limit]]


def _with_folders(files: Iterable[str]) -> Iterator[str]:
    folders = set()
    for path in files:
        if not path.isprintable():
            continue
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            yield f"{folder}/"
            folder = folder.rpartition("/")[0]
        yield path


def _depth(path: str) -> tuple[int, str]:
    return path.rstrip("/").count("/"), path


def _lower(text: str) -> str:
    """Return the text in lower case, or unchanged if that would change its length."""
    low = text.lower()
    return low if len(low) == len(text) else text


def _letters(wanted: str) -> str:
    """Return a pattern that matches all letters in order within one line, without backtracking."""
    return "^/" + "".join(f"[^\n{re.escape(c)}]*{re.escape(c)}" for c in wanted)


def _cost(low: str, wanted: str) -> int:
    begins = low.rfind(f"/{wanted}")
    if begins >= 0:
        return int("/" in low[begins + 1 + len(wanted) :].rstrip("/"))
    if wanted in low:
        return 2 + (wanted not in low[low.rstrip("/").rfind("/") + 1 :])
    return 4 + _gap_cost(low, wanted)


def _gap_cost(low: str, wanted: str) -> int:
    """Return the cost of the gaps between the letters, searched from the end. A gap that ends
    inside a word costs more, and so does a match that begins before the file name.
    """
    cost, place = 0, len(low)
    for letter in reversed(wanted):
        after, place = place, low.rfind(letter, 0, place)
        gap = after - place - 1
        if gap and after < len(low):
            cost += min(gap, MAX_GAP_COST) + 2 * low[after - 1].isalnum()
    inside = 2 * (place > 0 and low[place - 1].isalnum())
    return cost + inside + MAX_GAP_COST * (place <= low.rstrip("/").rfind("/"))


MAX_FILES = 200_000  # listed files
MIN_LISTING_AGE_S = 5.0  # the files are listed again after this time,
LISTING_TIME_FACTOR = 20  # or after this multiple of the time the listing took
OFFERS_AGE_S = 1.0  # offers are cached for this time
MAX_COMPLETIONS = 40
DESCRIPTION_MATCH_COST = 1_000  # cost of a match only in the description

_MENTION = regex(r"""(?:^|(?<=[\s(\["'`,;]))@("(?:[^"\n\\]|\\.)*|[^\s"]*)$""")
_REF = regex(r"(?:^|(?<=[\s(\[,]))#(\d*)$")
_COMMAND = regex(r"/([\w:-]*)")
_ARGUMENT = regex(r"/([\w:-]+) +([^\n]*)")
_PLAIN = regex(r'[^\s"\\]+')  # paths that need no quotes


class InputCompleter(Completer):
    def __init__(self, host: ScreenHost, cwd: Path) -> None:
        self._host = host
        self._cwd = cwd
        self._paths: Paths | None = None
        self._stale_at = 0.0
        self._listing: asyncio.Future[None] | None = None
        self._search = object()  # identifies the newest search
        self._offers: dict[str, tuple[float, Sequence[Offer]]] = {}

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        return ()  # the async method yields them as they are found

    async def get_completions_async(
        self, document: Document, event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        search = self._search = object()
        typed = document.text_before_cursor
        if found := _COMMAND.fullmatch(document.text):
            for name, help in _matching(await self._offered("/"), found[1]):
                yield _completion(f"/{name}", typed, help)
        elif found := _ARGUMENT.fullmatch(typed):
            for text, what in _matching(await self._offered(f"/{found[1]}"), found[2]):
                yield _completion(text, found[2], what)
        elif found := _REF.search(typed):
            for ref, what in _matching(await self._offered("#"), found[1]):
                yield _completion(f"#{ref}", found[0], what)
        if found := _MENTION.search(typed):
            name = found[1]
            if name.startswith('"'):
                name = re.sub(r"\\(.)", r"\1", name[1:])
            async for path, what in self._find(name, search):
                if path != name:
                    yield _completion(mention_of(path), found[0], what, shown=path)

    def is_unfinished(self, text: str) -> bool:
        """Return True if a text ends in a mention of nothing that exists."""
        from ...features.mentions import find_mentions

        if (found := _MENTION.search(text)) is None:
            return False
        _, offers = self._offers.get("@", (0.0, ()))
        return found[1] not in dict(offers) and not find_mentions(found[0], self._cwd)

    def cancel(self) -> None:
        """Cancel the search, because a key was pressed."""
        self._search = object()

    async def _offered(self, place: str) -> Sequence[Offer]:
        """Return the offers for a place, cached for OFFERS_AGE_S seconds."""
        at, offers = self._offers.get(place, (-OFFERS_AGE_S, ()))
        if time.monotonic() - at > OFFERS_AGE_S:
            offers = await self._host.offers(place)
            self._offers = {place: (time.monotonic(), offers)}
        return offers

    async def _find(self, typed: str, search: object) -> AsyncGenerator[Offer, None]:
        """Yield matching paths, those used in the session first."""
        if typed.startswith(("/", "~", "..")):
            for path in await asyncio.to_thread(folder_entries, typed, self._cwd, MAX_COMPLETIONS):
                yield path, ""
            return
        known = dict(_matching(await self._offered("@"), typed))
        for offer in known.items():
            yield offer
        while (paths := self._newest()) is None:
            await asyncio.wait([self._list()], timeout=0.1)
            if self._search is not search:
                return

        def unwanted() -> bool:
            return self._search is not search

        found = await asyncio.to_thread(paths.rank, typed, MAX_COMPLETIONS, unwanted)
        if "/" in typed and not {*found} - {typed}:  # perhaps in an ignored folder
            found = await asyncio.to_thread(folder_entries, typed, self._cwd, MAX_COMPLETIONS)
        for path in found:
            if path not in known:
                yield path, ""

    def _newest(self) -> Paths | None:
        if time.monotonic() > self._stale_at:
            self._list()
        return self._paths

    def _list(self) -> "asyncio.Future[None]":
        """Start listing the files, unless this is running, and return a future for its end."""
        if self._listing is None:
            loop, began = asyncio.get_running_loop(), time.monotonic()
            listing = self._listing = loop.create_future()

            def finish(paths: Paths | None) -> None:
                now = time.monotonic()
                self._paths, self._listing = paths or self._paths or Paths([]), None
                self._stale_at = now + max(MIN_LISTING_AGE_S, LISTING_TIME_FACTOR * (now - began))
                listing.set_result(None)

            def make() -> None:
                from ....tools.system.project_files import ignored_paths, list_files

                paths = None
                with contextlib.suppress(OSError):  # the folder is gone or unreadable
                    files = asyncio.run(list_files(self._cwd, MAX_FILES)).paths
                    paths = Paths(files, asyncio.run(ignored_paths(self._cwd)))
                try:
                    loop.call_soon_threadsafe(finish, paths)
                except RuntimeError:  # the REPL has ended
                    return

            threading.Thread(target=make, daemon=True).start()
        return self._listing


def _completion(text: str, typed: str, what: str, *, shown: str = "") -> Completion:
    """Return a completion that replaces the typed text."""
    return Completion(text, -len(typed), display=clean(shown or text), display_meta=clean(what))


def _matching(offers: Iterable[Offer], typed: str) -> list[Offer]:
    """Return the matching offers, best first. From three letters on, descriptions match too."""
    found = []
    low = typed.lower()
    for offer in offers:
        text, what = offer
        cost = 0 if text.lower().startswith(low) else match_cost(text, typed)
        if cost is None and len(typed) > 2 and low in what.lower():
            cost = DESCRIPTION_MATCH_COST
        if cost is not None and (cost == 0 or len(typed) > 1):
            found.append((cost, offer))
    return [offer for _, offer in sorted(found, key=lambda pair: pair[0])][:MAX_COMPLETIONS]


def mention_of(path: str) -> str:
    """Return a path as an `@` mention, quoted if it contains spaces or quotes."""
    if _PLAIN.fullmatch(path):
        return f"@{path}"
    escaped = re.sub(r'(["\\])', r"\\\1", path)
    return f'@"{escaped}' + '"' * (not path.endswith("/"))
