"""The prompt cache through a pause: a real server that charges as the API does, by a clock that a
test can turn."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import Notice
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.cache_warmer import CacheWarmer
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.anthropic import AnthropicModel
from ctxagent.agent.models.cache_warming import warming_times
from ctxagent.agent.models.catalog import cost
from ctxagent.agent.models.retry import RetryPolicy
from ctxagent.agent.replay.cache_prices import PromptCache
from ctxagent.agent.replay.request_check import check_log
from ctxagent.agent.session.entries import WARMING, Assistant, Usage

from ..support.server.loopback import Body, Fail, Say, Server, Step
from ..support.sessions.conversation import Conversation

MODEL = "claude-sonnet-5-5"  # reads at a twentieth of the input price
LONG = "a word " * 30_000  # tokens for which a miss costs more than the least that counts
HALF_AN_HOUR = 1800.0


class Pause:
    """A conversation with a server whose cache ends after five minutes, and the time."""

    def __init__(
        self,
        folder: Path,
        *,
        model: str = MODEL,
        seconds: float = HALF_AN_HOUR,
        reading: Step | Callable[[Body], Step] | None = None,
        replies: Sequence[str] = ("Yes.",) * 9,
    ) -> None:
        self.now = time.time()
        self.cache = PromptCache()
        self.charged: list[tuple[bool, Usage]] = []  # whether it had an answer, and its usage
        self._replies = iter(replies)
        self.server = Server(
            lambda body: self._charged(body, next(self._replies)),
            reading=reading or (lambda body: self._charged(body, "")),
        )
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": self.server.url}
        retry = RetryPolicy(attempts=2, first_wait=0.001, longest_wait=0.002)
        self.model = AnthropicModel(model, environ=environ, retry=retry)
        (folder / "p").mkdir()
        self.talk = Conversation(folder / "p", model=self.model, tools=[])
        self.agent = self.talk.agent
        self.redrawn = 0
        self.until: float | None = None  # when the person comes back
        self.back = asyncio.Event()
        self.warmer = CacheWarmer(
            self.agent, seconds, self._redraw, pytest.fail, clock=lambda: self.now,
            sleep=self._sleep,
        )  # fmt: skip
        self.shown: set[int] = set()

    def _redraw(self) -> None:
        self.shown.add(self.warmer.minutes)

    def _charged(self, body: Body, text: str) -> Say:
        bill = self.cache.charge(body, self.now)
        usage = bill.usage(len(text))
        self.charged.append((body["max_tokens"] > 0, usage))
        told = {"input_tokens": usage.input, "output_tokens": usage.output,
                "cache_read_input_tokens": usage.cache_read,
                "cache_creation_input_tokens": usage.cache_creation}  # fmt: skip
        return Say(text, usage=told)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.until is not None and self.now >= self.until:
            self.now = self.until
            self.back.set()
            await asyncio.Event().wait()  # until it is cancelled

    async def say(self, words: str) -> None:
        assert (await run_turn(self.agent, words)).status == "ok"

    async def rest(self, seconds: float) -> None:
        """Let the person be away for a while."""
        self.back.clear()
        self.until = self.now + seconds
        pausing = asyncio.create_task(self.warmer.run())
        await asyncio.wait(
            {pausing, asyncio.create_task(self.back.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        pausing.cancel()
        await asyncio.gather(pausing, return_exceptions=True)
        if pausing.done() and not pausing.cancelled() and pausing.exception():
            raise pausing.exception() or AssertionError
        self.now = self.until

    @property
    def warmings(self) -> list[Usage]:
        return [usage for answered, usage in self.charged if not answered]

    @property
    def told(self) -> list[str]:
        return [event.text for event in self.talk.seen(Notice)]


@contextmanager
def playing(
    monkeypatch: pytest.MonkeyPatch,
    pause: Pause,
    act: Callable[[], Coroutine[Any, Any, None]],
) -> Iterator[None]:
    """Run what the person does, by the clock of the pause."""
    monkeypatch.setattr(time, "time", lambda: pause.now)

    async def run() -> None:
        await act()
        await pause.agent.close()

    with pause.server:
        asyncio.run(run())
    assert pause.server.rejected == []
    yield


def test_the_call_after_a_pause_reads_the_whole_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(tmp_path)

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(1500)
        assert not pause.agent.engine.host.cache_is_cold()
        await pause.say("and?")

    with playing(monkeypatch, pause, act):
        first, *warm, last = (usage for _, usage in pause.charged)
    assert len(warm) == 5, "every 270 seconds of 1,500"
    for usage in warm:
        assert (usage.cache_read, usage.cache_creation, usage.input) == (first.prompt, 0, 0)
    assert last.cache_read == first.prompt
    assert pause.told == []
    sent = [entry for entry in pause.talk.of(Assistant) if entry.purpose == WARMING]
    assert [entry.usage for entry in sent] == [usage.to_json() for usage in warm]
    assert all(entry.content == [] and entry.cost_usd == cost(MODEL, warm[0]) for entry in sent)
    everything = sum((usage for _, usage in pause.charged), Usage())
    assert pause.agent.totals.all.usage == everything
    assert pause.agent.totals.all.cost_usd == pytest.approx(cost(MODEL, everything))
    assert pause.agent.budget_meter.dollars == pytest.approx(cost(MODEL, everything))
    check = check_log(pause.agent.log.path)
    assert check.holds
    assert check.counts[WARMING].equal == 5
    assert pause.shown >= {28, 20, 10, 0}, "minutes, down to none at the end"


def test_without_it_the_whole_prompt_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(tmp_path)

    async def act() -> None:
        await pause.say(LONG)
        pause.now += 1500
        await pause.say("and?")

    with playing(monkeypatch, pause, act):
        (_, first), (_, last) = pause.charged
    assert last.cache_read == 0
    assert last.cache_creation > first.prompt


def test_it_ends_with_the_time_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(tmp_path, seconds=600)

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(7200)
        assert pause.agent.engine.host.cache_is_cold()
        assert pause.warmer.minutes == 0

    with playing(monkeypatch, pause, act):
        assert len(pause.warmings) == 2, "at 270 and 540 of 600 seconds"


@pytest.mark.slow
@pytest.mark.parametrize(("model", "most"), [("claude-sonnet-5", 11), (MODEL, 23)])
def test_it_ends_before_it_costs_as_much_as_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, most: int
) -> None:
    pause = Pause(tmp_path, model=model, seconds=86_400)

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(86_400)

    with playing(monkeypatch, pause, act):
        assert len(pause.warmings) == most
    prompt = pause.warmings[0].prompt
    spent = sum(cost(model, usage) or 0.0 for usage in pause.warmings)
    miss = (cost(model, Usage(cache_creation=prompt)) or 0) - (cost(model, pause.warmings[0]) or 0)
    assert spent < miss <= spent + (cost(model, pause.warmings[0]) or 0) + 1e-9
    assert [*warming_times(model, 0.0, 86_400.0)] == [270.0 * n for n in range(1, most + 1)]


def test_the_budget_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = Pause(tmp_path)
    meter = pause.agent.budget_meter

    async def act() -> None:
        await pause.say(LONG)
        (_, usage), *_ = pause.charged
        reading = cost(MODEL, Usage(cache_read=usage.prompt)) or 0.0
        meter.budget = Budget(dollars=meter.dollars + 2.5 * reading)
        await pause.rest(1800)

    with playing(monkeypatch, pause, act):
        assert len(pause.warmings) == 2
    assert not meter.is_spent


def test_after_a_suspend_in_which_the_cache_ended_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(tmp_path)

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(260)
        pause.now += 100  # a laptop that was shut
        await pause.rest(1000)

    with playing(monkeypatch, pause, act):
        assert pause.warmings == []


def test_a_small_prompt_is_not_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = Pause(tmp_path)

    async def act() -> None:
        await pause.say("hello")
        await pause.rest(1800)

    with playing(monkeypatch, pause, act):
        assert pause.warmings == []
    assert pause.told == []


@pytest.mark.parametrize("change", ["effort", "model", "history"])
def test_a_prompt_that_no_call_will_begin_with_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    pause = Pause(tmp_path)

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(300)
        if change == "effort":
            pause.agent.effort = "high"
        elif change == "model":
            pause.model.id = "claude-opus-5-5"
        else:
            pause.agent.view.items.pop(0)
        await pause.rest(1200)

    with playing(monkeypatch, pause, act):
        assert len(pause.warmings) == 1


REFUSALS = [
    (Fail(400, "max_tokens: Input should be greater than or equal to 1"), "max_tokens: 0"),
    (Fail(422, "stream cannot be false here; max_tokens"), "max_tokens: 0"),
    (Fail(403, "not for you"), "not for you"),
    (Say("What a nice prompt this is, let me tell you about it."), "answers all the same"),
    (Say("", usage={"input_tokens": 30_000, "output_tokens": 0}), "nothing from its cache"),
]


@pytest.mark.parametrize(("reading", "words"), REFUSALS)
def test_a_server_that_does_not_take_it_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: Step, words: str
) -> None:
    pause = Pause(tmp_path, reading=reading)

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(1800)
        await pause.say("and?")
        await pause.rest(1800)

    with playing(monkeypatch, pause, act):
        assert sum(body["max_tokens"] == 0 for body in pause.server.requests) == 1
    (told,) = pause.told
    assert told.startswith("the prompt cache is not kept warm: ")
    assert words in told
    assert ("empty replies" in pause.model.gaps.names) == ("max_tokens" in told)


def test_a_server_without_a_cache_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(tmp_path)
    pause.server._steps = lambda body: Say(
        "Yes.", usage={"input_tokens": 30_000, "output_tokens": 3}
    )

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(1800)
        await pause.say("and?")
        await pause.rest(1800)

    with playing(monkeypatch, pause, act):
        assert len(pause.server.requests) == 2
    assert pause.told == ["the prompt cache is not kept warm: the server tells of no cache"]


def test_a_model_without_a_price_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(tmp_path, model="walrus")

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(1800)

    with playing(monkeypatch, pause, act):
        assert pause.warmings == []
    (told,) = pause.told
    assert "no price of walrus is known; models.toml can have it" in told


def test_a_server_that_is_away_is_asked_again_in_the_next_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(tmp_path, reading=Fail(503, "busy"))

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(1800)
        await pause.say("and?")
        await pause.rest(1800)

    with playing(monkeypatch, pause, act):
        asked = [body["max_tokens"] for body in pause.server.requests]
    assert [n == 0 for n in asked] == [False, True, True, False, True, True]
    assert pause.told == []


def test_words_end_a_request_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(tmp_path, reading=Say(fault="mute"))

    async def act() -> None:
        await pause.say(LONG)
        pause.server.asked.clear()
        pause.warmer.begin()
        assert await asyncio.to_thread(pause.server.asked.wait, 60)
        pause.warmer.end()
        await pause.say("and?")
        assert await asyncio.to_thread(pause.server.hung_up.wait, 60)

    with playing(monkeypatch, pause, act):
        answered = [body["max_tokens"] > 0 for body in pause.server.requests]
    assert answered == [True, False, True]
    assert [entry.purpose for entry in pause.talk.of(Assistant)] == ["turn", "turn"]


def test_a_session_that_is_taken_up_again_knows_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times in the log are real ones, so here the reading must be the newest of them."""
    pause = Pause(tmp_path)

    async def act() -> None:
        await pause.say(LONG)
        await pause.rest(300)

    with playing(monkeypatch, pause, act):
        newest = pause.talk.of(Assistant)[-1]
    assert newest.purpose == WARMING
    assert pause.agent.totals.replied["scripted"] == newest.at
