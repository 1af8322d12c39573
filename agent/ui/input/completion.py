"""What may follow the words that are typed: `/commands` with their help, what they take, `#refs`,
and `@paths` of the project.

Typing never waits for any of it. The files are listed, and those that match are found, in threads;
a listing serves while the next one is made. What is looked for is given up with the next key.
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

from ..commands import COMMANDS, Offer
from ..screen.base import Host
from ..visible import clean
from .paths import Paths, around, worth

FILES = 200_000  # paths that a completion looks at
FRESH = 5.0  # seconds for which a listing of the files is used before the next one is made,
SHARE = 20  # and this many times what it has taken
KEPT = 1.0  # seconds for which what fits in a place is kept
SHOWN = 40  # completions offered
LAST = 1_000  # how well a match by what a thing is counts

_MENTION = re.compile(r"""(?:^|(?<=[\s(\["'`,;]))@("(?:[^"\n\\]|\\.)*|[^\s"]*)$""")
_REF = re.compile(r"(?:^|(?<=[\s(\[,]))#(\d*)$")
_COMMAND = re.compile(r"/([\w-]*)")
_ARGUMENT = re.compile(r"/([\w-]+) +([^\n]*)")
_PLAIN = re.compile(r'[^\s"\\]+')  # paths that can be told from the words around them


class WordsCompleter(Completer):
    def __init__(self, host: Host, cwd: Path) -> None:
        self._host = host
        self._cwd = cwd
        self._paths: Paths | None = None
        self._stale_at = 0.0
        self._listing: asyncio.Future[None] | None = None
        self._wanted = object()  # the newest that was asked for
        self._offers: dict[str, tuple[float, Sequence[Offer]]] = {}

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        return ()  # they come one by one, as they are found

    async def get_completions_async(
        self, document: Document, event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        wanted = self._wanted = object()
        typed = document.text_before_cursor
        if found := _COMMAND.fullmatch(document.text):
            commands = [(command.name, command.help) for command in COMMANDS.values()]
            for name, help in _matching(commands, found[1]):
                yield _completion(f"/{name}", typed, help)
        elif found := _ARGUMENT.fullmatch(typed):
            for text, what in _matching(await self._offered(f"/{found[1]}"), found[2]):
                yield _completion(text, found[2], what)
        elif found := _REF.search(typed):
            for ref, what in _matching(await self._offered("#"), found[1]):
                yield _completion(f"#{ref}", found[0], what)
        if found := _MENTION.search(typed):
            name = _unquoted(found[1])
            async for path, what in self._find(name, wanted):
                if path != name:
                    yield _completion(_mention(path), found[0], what, shown=path)

    def give_up(self) -> None:
        """What is being looked for is no longer wanted."""
        self._wanted = object()

    async def _offered(self, place: str) -> Sequence[Offer]:
        """What fits in a place, asked for once in a while."""
        at, offers = self._offers.get(place, (-KEPT, ()))
        if time.monotonic() - at > KEPT:
            offers = await self._host.offers(place)
            self._offers = {place: (time.monotonic(), offers)}
        return offers

    async def _find(self, typed: str, wanted: object) -> AsyncGenerator[Offer, None]:
        """Paths that match, those first that the session has to do with."""
        if typed.startswith(("/", "~", "..")):
            for path in await asyncio.to_thread(around, typed, self._cwd, SHOWN):
                yield path, ""
            return
        known = dict(_matching(await self._offered("@"), typed))
        for offer in known.items():
            yield offer
        while (paths := self._newest()) is None:
            await asyncio.wait([self._list()], timeout=0.1)
            if self._wanted is not wanted:
                return

        def unwanted() -> bool:
            return self._wanted is not wanted

        for path in await asyncio.to_thread(paths.rank, typed, SHOWN, unwanted):
            if path not in known:
                yield path, ""

    def _newest(self) -> Paths | None:
        if time.monotonic() > self._stale_at:
            self._list()
        return self._paths

    def _list(self) -> "asyncio.Future[None]":
        """Begin to list the files, if that is not under way; done with the listing."""
        if self._listing is None:
            loop, began = asyncio.get_running_loop(), time.monotonic()
            listing = self._listing = loop.create_future()

            def finish(paths: Paths | None) -> None:
                now = time.monotonic()
                self._paths, self._listing = paths or self._paths or Paths([]), None
                self._stale_at = now + max(FRESH, SHARE * (now - began))
                listing.set_result(None)

            def make() -> None:
                from ....tools.listing import survey

                paths = None
                with contextlib.suppress(OSError):  # a folder that is gone, or not ours to read
                    paths = Paths(asyncio.run(survey(self._cwd, FILES)).paths)
                try:
                    loop.call_soon_threadsafe(finish, paths)
                except RuntimeError:  # the REPL has ended meanwhile
                    return

            threading.Thread(target=make, daemon=True).start()
        return self._listing


def _completion(text: str, typed: str, what: str, *, shown: str = "") -> Completion:
    """The text in place of what is typed."""
    return Completion(text, -len(typed), display=clean(shown or text), display_meta=clean(what))


def _matching(offers: Iterable[Offer], typed: str) -> list[Offer]:
    """Those that match, best first, else in their order: by what may be typed, and from three
    letters on by what it is."""
    found = []
    low = typed.lower()
    for offer in offers:
        text, what = offer
        how = 0 if text.lower().startswith(low) else worth(text, typed)
        if how is None and len(typed) > 2 and low in what.lower():
            how = LAST
        if how is not None and (how == 0 or len(typed) > 1):
            found.append((how, offer))
    return [offer for _, offer in sorted(found, key=lambda pair: pair[0])][:SHOWN]


def _unquoted(typed: str) -> str:
    return re.sub(r"\\(.)", r"\1", typed[1:]) if typed.startswith('"') else typed


def _mention(path: str) -> str:
    """A path so that it can be told from the words around it."""
    if _PLAIN.fullmatch(path):
        return f"@{path}"
    escaped = re.sub(r'(["\\])', r"\\\1", path)
    return f'@"{escaped}' + '"' * (not path.endswith("/"))
