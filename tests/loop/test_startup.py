"""Entries before the first turn: collected once and recorded once, even after interrupts."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from ctxagent.agent.errors import RecordError, SessionError
from ctxagent.agent.loop.agent import StartupEntries
from ctxagent.agent.session.entries import Entry, Note

NOTES = [Note(topic="t", text=str(n)) for n in range(3)]


class Source:
    """Returns the notes when the test allows it, and stores recorded entries."""

    def __init__(self, error: Exception | None = None) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.collected = 0
        self.recorded: list[Entry] = []
        self.fails_at = -1  # the number of records before one fails
        self._error = error

    def collect(self) -> Sequence[Entry]:
        self.begun.set()
        self.gate.wait(60)
        self.collected += 1
        if self._error is not None:
            raise self._error
        return NOTES

    def record(self, entry: Entry) -> Entry:
        if len(self.recorded) == self.fails_at:
            self.fails_at = -1
            raise RecordError("the disk is full")
        self.recorded.append(entry)
        return entry

    def entries(self) -> StartupEntries:
        return StartupEntries(self.collect, self.record)


def test_they_are_collected_and_recorded_once() -> None:
    source = Source()
    source.gate.set()
    entries = source.entries()

    async def run() -> None:
        await entries.complete()
        await entries.complete()
        await entries.close()

    assert not entries.is_over
    asyncio.run(run())
    assert entries.is_over
    assert (source.recorded, source.collected) == (NOTES, 1)


def test_an_interrupt_loses_nothing_that_is_found() -> None:
    source = Source()
    entries = source.entries()

    async def interrupted() -> None:
        task = asyncio.ensure_future(entries.complete())
        await asyncio.to_thread(source.begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    assert (source.recorded, entries.is_over) == ([], False)
    source.gate.set()
    asyncio.run(entries.complete())  # in another event loop
    assert (source.recorded, source.collected) == (NOTES, 1)


def test_unrecorded_entries_are_recorded_next_time() -> None:
    source = Source()
    source.gate.set()
    source.fails_at = 1
    entries = source.entries()
    with pytest.raises(RecordError):
        asyncio.run(entries.complete())
    assert source.recorded == NOTES[:1]
    asyncio.run(entries.complete())
    assert (source.recorded, source.collected) == (NOTES, 1)


def test_closing_completes_what_has_begun_and_nothing_else() -> None:
    source = Source()
    source.gate.set()
    asyncio.run(source.entries().close())
    assert source.collected == 0
    source.fails_at = 2
    entries = source.entries()
    with pytest.raises(RecordError):
        asyncio.run(entries.complete())
    asyncio.run(entries.close())
    assert source.recorded == NOTES


def test_an_error_is_raised_and_the_next_try_collects_again() -> None:
    source = Source(SessionError("no"))
    source.gate.set()
    entries = source.entries()
    for _ in range(2):
        with pytest.raises(SessionError):
            asyncio.run(entries.complete())
    assert source.collected == 2
    asyncio.run(entries.close())
    assert source.recorded == []
