"""The entries that are recorded before the first turn of a session."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from ..errors import CtxagentError
from ..session.entries import Entry


class StartupEntries:
    """Entries that are collected once, in a thread, and recorded once.

    The thread cannot be stopped. After an interrupt, the next call of `complete` waits for the same
    thread, so no result is lost.
    """

    def __init__(
        self, collect: Callable[[], Sequence[Entry]], record: Callable[[Entry], Entry]
    ) -> None:
        self._collect, self._record = collect, record
        self._collecting: Future[Sequence[Entry]] | None = None
        self._unrecorded: list[Entry] = []
        self.is_over = False

    async def complete(self) -> None:
        """Collect and record the entries. After an interrupt, a later call continues. Raises
        RecordError and the errors of `collect`.
        """
        if not (self.is_over or self._unrecorded):
            self._unrecorded = list(await self._found())
        while self._unrecorded:
            self._record(self._unrecorded[0])
            del self._unrecorded[0]
        self.is_over = True

    async def close(self) -> None:
        """Complete the collection if it has begun, ignoring errors."""
        if self._collecting or self._unrecorded:
            with suppress(CtxagentError, OSError):
                await self.complete()

    async def _found(self) -> Sequence[Entry]:
        if self._collecting is None:
            thread = ThreadPoolExecutor(1, "startup")
            self._collecting = thread.submit(self._collect)
            thread.shutdown(wait=False)
        done = asyncio.wrap_future(self._collecting)
        done.add_done_callback(lambda d: d.cancelled() or d.exception())  # errors are raised below
        await asyncio.wait([done])
        finished, self._collecting = self._collecting, None
        return finished.result()
