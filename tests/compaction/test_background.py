"""The summary that is written in the background."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.summary.background import BackgroundSummary
from ctxagent.agent.compaction.summary.request import Cut, find_cut
from ctxagent.agent.compaction.summary.writer import SummaryDraft
from ctxagent.agent.context.view import View
from ctxagent.agent.context.window import Window
from ctxagent.agent.errors import RecordError

from ..support.sessions.history import History, words

DRAFT = SummaryDraft(SummaryDocument(), 0.0, "model", "text")


class Host:
    """A conversation in memory, in a window of 1,000 tokens."""

    def __init__(self, exchanges: int = 9) -> None:
        history = History()
        for _ in range(exchanges):
            history.say(words(50))
            history.reply({"type": "text", "text": words(50)})
        self.view: View = history.view()
        self.tokens = 700

    def current_window(self) -> Window:
        return Window(self.tokens, 1_000)

    def cut(self) -> Cut:
        found = find_cut(self.view, DEFAULT, self.current_window())
        assert found is not None
        return found


def background(host: Host, *, leaves_room: bool = True) -> BackgroundSummary:
    return BackgroundSummary(cast(Any, host), lambda cut: leaves_room)


async def written() -> SummaryDraft:
    return DRAFT


async def failing() -> SummaryDraft:
    raise ValueError("no model")


async def unrecorded() -> SummaryDraft:
    raise RecordError("full")


async def endless() -> SummaryDraft:
    await asyncio.Event().wait()
    raise AssertionError


def run(check: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await check()

    asyncio.run(main())


def test_it_is_pending_and_then_ready() -> None:
    host = Host()

    async def check() -> None:
        summary = background(host)
        assert not summary.is_pending
        assert not summary.is_ready
        await summary.wait()
        summary.start(host.cut(), written())
        assert summary.is_pending
        assert not summary.is_ready
        await summary.wait()
        assert not summary.is_pending
        assert summary.is_ready
        prepared = summary.usable_summary()
        assert prepared is not None
        assert prepared.task.result() is DRAFT
        assert (prepared.cut, prepared.context_tokens) == (host.cut(), 700)
        summary.discard()
        assert summary.usable_summary() is None

    run(check)


def test_a_summary_that_leaves_too_little_room_is_not_usable() -> None:
    host = Host()

    async def check() -> None:
        summary = background(host, leaves_room=False)
        summary.start(host.cut(), written())
        await summary.wait()
        assert not summary.is_ready
        assert summary.usable_summary() is None

    run(check)


def test_a_failed_summary_is_not_usable_and_is_requested_again() -> None:
    host = Host()

    async def check() -> None:
        summary = background(host)
        assert summary.should_start(host.cut())
        summary.start(host.cut(), failing())
        assert not summary.should_start(host.cut())
        await summary.wait()
        assert not summary.is_ready
        assert summary.should_start(host.cut())
        summary.raise_record_error()
        summary.discard()

    run(check)


def test_its_span_must_be_in_the_view() -> None:
    host = Host()

    async def check() -> None:
        summary = background(host)
        summary.start(host.cut(), written())
        await summary.wait()
        whole, host.view = host.view, Host(exchanges=4).view
        assert not summary.is_ready
        assert summary.should_start(host.cut())
        host.view = whole
        assert summary.is_ready

    run(check)


@pytest.mark.parametrize(
    ("tokens", "attempts", "starts"), [(799, 1, False), (800, 1, True), (800, 2, False)]
)
def test_it_is_not_requested_often(tokens: int, attempts: int, starts: bool) -> None:
    host = Host()
    first, later = host.cut(), host.cut()

    async def check() -> None:
        summary = BackgroundSummary(cast(Any, host), lambda cut: cut is later)
        for _ in range(attempts):
            summary.start(first, written())
        await summary.wait()
        host.tokens = tokens
        assert summary.should_start(later) is starts
        assert not summary.should_start(first)
        summary.allow_attempts()
        assert summary.should_start(later) is (tokens == 800)

    run(check)


def test_a_log_that_cannot_be_written_is_an_error() -> None:
    host = Host()

    async def check() -> None:
        summary = background(host)
        summary.raise_record_error()
        summary.start(host.cut(), unrecorded())
        summary.raise_record_error()  # it is still being written
        await summary.wait()
        with pytest.raises(RecordError):
            summary.raise_record_error()
        summary.raise_record_error()

    run(check)


def test_close_and_discard_cancel_the_task() -> None:
    host = Host()

    async def check() -> None:
        summary = background(host)
        await summary.close()
        summary.start(host.cut(), endless())
        prepared = summary.usable_summary()
        assert prepared is not None
        await summary.close()
        assert prepared.task.cancelled()
        assert not summary.is_pending
        summary.start(host.cut(), endless())
        second = summary.usable_summary()
        summary.start(host.cut(), written())
        await summary.wait()
        assert second is not None
        assert second.task.cancelled()

    run(check)
