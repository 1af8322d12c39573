import asyncio
from itertools import pairwise

import pytest

from ctxagent.tools.system.take_turn import take_turn


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
