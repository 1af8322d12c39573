"""Completion of typed text: `/commands` with their help, their arguments, `#refs`, and `@paths` of
the project.

Typing never waits. Files are listed and matched in threads, a listing is reused until the next one
is ready, and the next key cancels a search.
"""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ....tools.system.unicode import clean
from ...lazy import regex
from ..screen import Offer, ScreenHost
from .path_match import Paths, folder_entries, match_cost

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

        for path in await asyncio.to_thread(paths.rank, typed, MAX_COMPLETIONS, unwanted):
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
                from ....tools.system.project_files import list_files

                paths = None
                with contextlib.suppress(OSError):  # the folder is gone or unreadable
                    paths = Paths(asyncio.run(list_files(self._cwd, MAX_FILES)).paths)
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
