"""Keeps the prompt cache warm while the person reads or thinks.

After a turn the newest prompt is read again, by a request without an answer, shortly before the
cache would drop it; see `models.cache_warming` for when, and for when that ends. Nothing is done
where a miss would cost next to nothing, where the server has no cache, and where it is not known
what a reading costs. Words of the person's end it at once, also in the middle of a request.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from ..errors import CtxagentError, RequestRejected
from ..events import Notice
from ..models.cache_warming import LEAST_MISS_USD, miss_usd, reading_usd, warming_times
from ..models.catalog import cache_life
from ..models.server_gaps import EMPTY_REPLIES, GAPS
from .agent import MAX_WHY_CHARS, AgentState, PromptRead

LONGEST_SLEEP_S = 20.0  # a machine that sleeps stops the clock that sleeps go by


class CacheWarmer:
    """Keeps the prompt cache of one conversation warm in its pauses."""

    def __init__(
        self,
        agent: AgentState,
        seconds: float,
        redraw: Callable[[], None],
        failed: Callable[[Exception], None],
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Keep it warm for so many `seconds` of a pause. `redraw` is called when `minutes` may have
        changed, `failed` with a fault of the program. `clock` gives Unix time."""
        self._agent = agent
        self._seconds = seconds
        self._redraw = redraw
        self._failed = failed
        self._clock = clock
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self._warm_until = 0.0
        self._left_out: set[str] = set()  # models for which it makes no sense, as was told

    @property
    def minutes(self) -> int:
        """The minutes for which the cache will stay warm, begun ones included; 0 until a prompt was
        read again in this pause."""
        return max(0, math.ceil((self._warm_until - self._clock()) / 60))

    def begin(self) -> None:
        """Begin a pause."""
        self.end()
        self._task = asyncio.create_task(self.run())
        self._task.add_done_callback(self._done)

    def end(self) -> None:
        """End the pause, if there is one."""
        self._warm_until = 0.0
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def run(self) -> None:
        """Keep the cache warm for one pause."""
        read = self._agent.prompt_read
        if read is None or not self._pays(read):
            return
        model, life = read.request.model, cache_life(read.request.model)
        times = [*warming_times(model, read.at, self._clock() + self._seconds)]
        try:
            for at in times:
                await self._wait(at)
                if not await self._read_again(life, reading_usd(model, read.usage.prompt) or 0.0):
                    return
                self._warm_until = times[-1] + life
                self._redraw()
            await self._wait(self._warm_until)
        except CtxagentError as error:
            self._learn(model, error)
        finally:
            self._warm_until = 0.0
            self._redraw()

    def _pays(self, read: PromptRead) -> bool:
        """Tell whether a miss would cost enough, as far as is known."""
        agent, model, usage = self._agent, read.request.model, read.usage
        lacks_it = {"cache", EMPTY_REPLIES} & {*agent.model.gaps.names}
        if lacks_it or model in self._left_out:
            return False
        if not (usage.cache_read or usage.cache_creation):
            self._leave_out(model, "the server tells of no cache")
            return False
        miss = miss_usd(model, usage.prompt)
        if miss is None:
            self._leave_out(model, f"no price of {model} is known; models.toml can have it")
        return miss is not None and miss >= LEAST_MISS_USD

    async def _wait(self, until: float) -> None:
        while (left := until - self._clock()) > 0:
            await self._sleep(min(left, LONGEST_SLEEP_S))
            if self._warm_until:
                self._redraw()

    async def _read_again(self, life: float, dollars: float) -> bool:
        """Have the prompt read again, and tell whether it was in the cache. Nothing is done when
        the cache has ended meanwhile, as after a suspend, or the budget has no room for it."""
        agent, read, now = self._agent, self._agent.prompt_read, self._clock()
        if read is None or now - read.at >= life:
            return False
        if agent.budget_meter.is_spent or not agent.budget_meter.allows(dollars):
            return False
        reply = await agent.read_prompt_again(now)
        if reply is None:
            return False
        if reply.usage.output > 1:  # some count one for none
            self._note_gap("it answers all the same")
        elif not (reply.usage.cache_read or reply.usage.cache_creation):
            self._leave_out(reply.model, "the server has read nothing from its cache")
        return bool(reply.usage.cache_read) and reply.usage.output <= 1

    def _learn(self, model: str, error: CtxagentError) -> None:
        """Note what a failed request says. One that could not be made says nothing."""
        if not isinstance(error, RequestRejected):
            return
        why = error.message[:MAX_WHY_CHARS]
        if "max_tokens" in why:
            self._note_gap(why)
        else:
            self._leave_out(model, why)

    def _note_gap(self, why: str) -> None:
        gaps = self._agent.model.gaps
        gaps.add(EMPTY_REPLIES)
        self._leave_out(self._agent.model.id, f"the server takes {GAPS[EMPTY_REPLIES]}: {why}")

    def _leave_out(self, model: str, why: str) -> None:
        """Do nothing more for a model, and say so, once."""
        if model not in self._left_out:
            self._left_out.add(model)
            self._agent.emit(Notice("info", f"the prompt cache is not kept warm: {why}"))

    def _done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._failed(error)
