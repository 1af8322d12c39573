"""Entries before the first turn: collected once, recorded once, whatever interrupts it."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.loop.startup import StartupEntries
from ctxagent.agent.session.entries import Entry, Note

ENTRIES = [Note(topic="note", text=text) for text in "ab"]


class Recorder:
    def __init__(self, failures: int = 0) -> None:
        self.recorded: list[Entry] = []
        self.collections, self.failures = 0, failures

    def collect(self) -> Sequence[Entry]:
        self.collections += 1
        return ENTRIES

    def record(self, entry: Entry) -> Entry:
        if len(self.recorded) == 1 and self.failures:
            self.failures -= 1
            raise RecordError("full")
        self.recorded.append(entry)
        return entry


def test_they_are_collected_and_recorded_once() -> None:
    recorder = Recorder()
    startup = StartupEntries(recorder.collect, recorder.record)
    assert not startup.is_over
    for _ in range(2):
        asyncio.run(startup.complete())
        assert startup.is_over
    assert recorder.recorded == ENTRIES
    assert recorder.collections == 1


def test_what_could_not_be_recorded_is_recorded_the_next_time() -> None:
    recorder = Recorder(failures=1)
    startup = StartupEntries(recorder.collect, recorder.record)
    with pytest.raises(RecordError):
        asyncio.run(startup.complete())
    assert not startup.is_over
    asyncio.run(startup.complete())
    assert recorder.recorded == ENTRIES
    assert recorder.collections == 1


def test_an_interrupt_loses_nothing() -> None:
    recorder, may_go_on = Recorder(), threading.Event()

    def collect() -> Sequence[Entry]:
        may_go_on.wait(60)
        return recorder.collect()

    async def run() -> None:
        startup = StartupEntries(collect, recorder.record)
        task = asyncio.ensure_future(startup.complete())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert recorder.recorded == []
        may_go_on.set()
        await startup.complete()

    asyncio.run(run())
    assert recorder.recorded == ENTRIES
    assert recorder.collections == 1


def test_closing_completes_what_has_begun() -> None:
    recorder = Recorder(failures=1)
    startup = StartupEntries(recorder.collect, recorder.record)
    asyncio.run(startup.close())
    assert recorder.collections == 0
    with pytest.raises(RecordError):
        asyncio.run(startup.complete())
    asyncio.run(startup.close())
    assert recorder.recorded == ENTRIES
    failing = Recorder(failures=2)
    startup = StartupEntries(failing.collect, failing.record)
    with pytest.raises(RecordError):
        asyncio.run(startup.complete())
    asyncio.run(startup.close())
    assert failing.recorded == ENTRIES[:1]


def test_an_error_of_the_collection_is_passed_on_and_it_is_tried_again() -> None:
    recorder, errors = Recorder(), [OSError("gone")]

    def collect() -> Sequence[Entry]:
        if errors:
            raise errors.pop()
        return recorder.collect()

    startup = StartupEntries(collect, recorder.record)
    with pytest.raises(OSError, match="gone"):
        asyncio.run(startup.complete())
    asyncio.run(startup.complete())
    assert recorder.recorded == ENTRIES
