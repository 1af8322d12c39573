import asyncio
import threading
from itertools import pairwise

import pytest

from ctxagent.tools.system.take_turn import in_thread, starting_programs, take_turn


def test_one_task_begins_work_in_an_iteration_of_the_loop() -> None:
    async def play() -> list[int]:
        loop, iteration, begun = asyncio.get_running_loop(), 0, list[int]()

        def count() -> None:
            nonlocal iteration
            iteration += 1
            loop.call_soon(count)

        async def work() -> None:
            await take_turn()
            begun.append(iteration)

        loop.call_soon(count)
        await asyncio.gather(*(work() for _ in range(9)))
        return begun

    begun = asyncio.run(play())
    assert len(begun) == 9
    assert all(before < after for before, after in pairwise(begun))


def test_a_task_that_is_cancelled_leaves_its_turn_to_the_next() -> None:
    async def play() -> None:
        first, second = (asyncio.ensure_future(take_turn()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(play())


def test_threads_work_one_after_another() -> None:
    working, most = 0, 0

    def work() -> int:
        nonlocal working, most
        working += 1
        most = max(most, working)
        working -= 1
        return most

    async def play() -> list[int]:
        return await asyncio.gather(*(in_thread(work) for _ in range(30)))

    assert asyncio.run(play()) == [1] * 30


def test_slow_work_delays_neither_programs_nor_later_work_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ctxagent.tools.system.take_turn.MAX_HELD_S", 0.01)
    begun, end = threading.Event(), threading.Event()

    def slow() -> bool:
        begun.set()
        return end.wait(30)

    async def play() -> tuple[str, str]:
        first = asyncio.ensure_future(in_thread(slow))
        await asyncio.to_thread(begun.wait, 30)
        others = await starting_programs(str, "git"), await in_thread(str, "read")
        assert not first.done()
        end.set()
        assert await first
        return others

    assert asyncio.run(play()) == ("git", "read")


def test_work_that_is_cancelled_while_it_waits_does_not_begin() -> None:
    begun, end = threading.Event(), threading.Event()
    never: list[int] = []

    def slow() -> bool:
        begun.set()
        return end.wait(30)

    async def play() -> str:
        first = asyncio.ensure_future(in_thread(slow))
        await asyncio.to_thread(begun.wait, 30)
        second, third = (asyncio.ensure_future(in_thread(never.append, n)) for n in range(2))
        await asyncio.sleep(0)
        second.cancel()
        third.cancel()
        end.set()
        await first
        await asyncio.gather(second, third, return_exceptions=True)
        return await in_thread(str, "next")

    assert asyncio.run(play()) == "next"
    assert never == []
