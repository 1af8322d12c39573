"""Arrival: what a session learns of the place where it begins or goes on, before its first words
are answered.

It is looked for once, in a thread that cannot be stopped: what it has done and found is never lost
to an interrupt. The next one who asks waits for the same thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from .errors import CtxagentError
from .record.entries import Entry


class Arrival:
    """`look` gives the entries, blocking; each is recorded once."""

    def __init__(
        self, look: Callable[[], Sequence[Entry]], record: Callable[[Entry], Entry]
    ) -> None:
        self._look, self._record = look, record
        self._looking: Future[Sequence[Entry]] | None = None
        self._left: list[Entry] = []  # to record
        self.is_over = False

    async def complete(self) -> None:
        """Look, and record what was found. Raises what the look does, and RecordError: then what
        is still missing is made up for when it is called again."""
        if not (self.is_over or self._left):
            self._left = list(await self._found())
        while self._left:
            self._record(self._left[0])
            del self._left[0]
        self.is_over = True

    async def close(self) -> None:
        """Complete what has begun, as well as it can be."""
        if self._looking or self._left:
            with suppress(CtxagentError, OSError):
                await self.complete()

    async def _found(self) -> Sequence[Entry]:
        if self._looking is None:
            thread = ThreadPoolExecutor(1, "arrival")
            self._looking = thread.submit(self._look)
            thread.shutdown(wait=False)
        done = asyncio.wrap_future(self._looking)
        done.add_done_callback(lambda d: d.cancelled() or d.exception())  # it is told below
        await asyncio.wait([done])
        looked, self._looking = self._looking, None
        return looked.result()
