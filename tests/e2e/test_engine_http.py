"""The engine over real HTTP, against a server as strict as the newest models: bound thinking, its
own window, and every kind of failed summary request.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, Policy
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import build_messages
from ctxagent.agent.events import CallStarted, Event, Notice, TextDelta, ToolDraft, TurnFinished
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.catalog import cost
from ctxagent.agent.models.retry import RetryPolicy
from ctxagent.agent.session.entries import Assistant, Mask, Revert, Summary, Usage

from ..compaction.test_engine import RECORD
from ..support.server.loopback import Body, Fail, Say, Server, Step, flat
from ..support.server.wires import WIRES, Wire, model_of
from ..support.sessions.conversation import Conversation

WINDOW = 32_000
QUICK = RetryPolicy(attempts=3, first_wait=0.001, longest_wait=0.002)
NO_MASKS = replace(DEFAULT, clear_when="off", truncate_at=None, prepare_at=None)
FIGURES = Fail(400, "prompt is too long: 33000 tokens > 30000 maximum")
NO_FIGURES = Fail(400, "prompt is too long")


def asks_for_a_record(body: Body) -> bool:
    return "about to be compressed" in str(body["messages"][-1]["content"][-1].get("text", ""))


class Player:
    """Think, and call Bash `calls` times a turn with outputs of about 2,000 tokens, each with this
    many `words`.

    `record` answers requests for a summary. `faults` replace calls, by their number. `rooms` has
    the tokens of each request and of the room for its reply.
    """

    def __init__(
        self,
        calls: int,
        *,
        record: Callable[[], Step] = lambda: Say(RECORD),
        faults: dict[int, Step] | None = None,
        words: int = 0,
    ) -> None:
        self.calls, self.record, self.faults = calls, record, faults or {}
        self.talk = "word " * words
        self.done = self.asked = self.records = 0
        self.rooms: list[int] = []

    def __call__(self, body: Body) -> Step:
        size = sum(tokens.estimate_block(block) for _, block in flat(body))
        self.rooms.append(size + body["max_tokens"])
        if asks_for_a_record(body):
            self.records += 1
            return self.record()
        self.asked += 1
        if self.asked in self.faults:
            return self.faults[self.asked]
        if self.done == self.calls:
            self.done = 0
            return Say("All counted.", thinking="That was the last.")
        self.done += 1
        thinking = f"Now comes number {self.done} of {self.calls}."
        command = f"seq -f 'item %g of {self.asked}' 400"
        return Say(f"Next. {self.talk}", thinking=thinking, tools=[("Bash", {"command": command})])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def connected(
    project: Path, server: Server, policy: Policy = DEFAULT, window: int = WINDOW
) -> Conversation:
    model = model_of(server, project.parent, QUICK, context_window=window)
    return Conversation(project, model=model, policy=policy)


def run(talk: Conversation, play: Coroutine[Any, Any, None]) -> None:
    """Run everything in one event loop, because connections belong to it."""

    async def whole() -> None:
        try:
            await play
        finally:
            await talk.agent.close()

    asyncio.run(whole())


async def counted(talk: Conversation) -> None:
    finished = await run_turn(talk.agent, "count")
    assert finished == TurnFinished("ok", "All counted."), finished


def told_too_long(talk: Conversation) -> list[str]:
    return [n.text for n in talk.seen(Notice) if n.text.startswith("retrying with about")]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("name", "wire"), [("v5", Server), *(("default", wire) for wire in WIRES.values())]
)
def test_thinking_survives_every_edit(project: Path, name: str, wire: Wire) -> None:
    player = Player(60, words=500)
    with wire(player, bound=wire is Server, window=WINDOW) as server:
        talk = connected(project, server, PRESETS[name])
        run(talk, counted(talk))
    assert server.rejected == []
    assert max(player.rooms) <= WINDOW
    assert {"mask", "summary"} <= set(talk.kinds())
    assert told_too_long(talk) == []
    assert any("Now comes number" in json.dumps(body) for body in server.bodies)


def reverted_acts(talk: Conversation) -> set[type]:
    acts = {e.seq: type(e) for e in talk.entries() if isinstance(e, Mask | Summary)}
    return {acts[revert.target] for revert in talk.of(Revert)}


@pytest.mark.full
@pytest.mark.parametrize("name", ["default", "v5"])
def test_bound_thinking_survives_undos(project: Path, name: str) -> None:
    player = Player(12, words=300)
    with Server(player, bound=True, window=WINDOW) as server:
        talk = connected(project, server, PRESETS[name])

        async def play() -> None:
            for _ in range(5):
                await counted(talk)
                talk.agent.engine.uncompact(talk.entries())
            while Summary not in reverted_acts(talk):
                talk.agent.engine.uncompact(talk.entries())
            await counted(talk)

        run(talk, play())
    assert server.rejected == []
    assert max(player.rooms) <= WINDOW
    assert reverted_acts(talk) == {Mask, Summary}


def test_a_summary_undone_after_more_calls(project: Path) -> None:
    player = Player(4)
    with Server(player, bound=True, window=200_000) as server:
        talk = connected(project, server, NO_MASKS, 200_000)

        async def play() -> None:
            for _ in range(2):
                await counted(talk)
            await talk.agent.engine.compact()
            await counted(talk)  # this turn's thinking is bound to the summary
            small = talk.agent.model.current_window().tokens
            talk.agent.engine.uncompact(talk.entries())
            assert (
                talk.agent.model.current_window().tokens > 1.5 * small
            )  # and not what the last call used
            await counted(talk)

        run(talk, play())
    assert server.rejected == []
    assert "[Conversation compressed]" not in json.dumps(server.requests[-1]["messages"])
    sent = json.dumps(server.requests[-1]["messages"])
    assert (
        sent.count("That was the last.") == 2
    )  # before the summary, nothing of its thoughts is lost


FAILURES: dict[str, Step] = {
    "overloaded": Fail(529, "overloaded", {"retry-after-ms": "1"}),
    "empty": Say(" "),
    "refused": Say("I won't.", stop_reason="refusal"),
    "cut at max_tokens": Say(RECORD, stop_reason="max_tokens"),
    "too long a record": Say(RECORD + "word " * 10_000),
    "broken connection": Say(RECORD, fault="cut"),
    "stream that ends early": Say(RECORD, fault="end"),
    "error in the stream": Say(RECORD, error=("overloaded_error", "overloaded")),
    "calls a tool": Say(tools=[("Bash", {"command": "touch no"})]),
    "does not fit": FIGURES,
    "does not fit, no figures": NO_FIGURES,
}


IN_THE_BACKGROUND = ("overloaded", "empty", "broken connection", "does not fit")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("failure", "prepare_at"),
    [*((name, None) for name in FAILURES), *((name, 0.70) for name in IN_THE_BACKGROUND)],
)
def test_a_summariser_that_fails(project: Path, failure: str, prepare_at: float | None) -> None:
    player = Player(16, record=lambda: FAILURES[failure])
    with Server(player, bound=True, window=WINDOW) as server:
        talk = connected(project, server, replace(NO_MASKS, prepare_at=prepare_at))

        async def play() -> None:
            await counted(talk)
            player.calls = 2
            await counted(talk)

        run(talk, play())
    assert server.rejected == []
    assert max(player.rooms) <= WINDOW
    assert talk.of(Summary)
    assert told_too_long(talk) == []
    assert any("made from the ledger" in n.text for n in talk.seen(Notice))
    assert player.records <= 6 * (len(talk.of(Summary)) + 1)  # no storm of attempts
    assert not (project / "no").exists()


@pytest.mark.variants
@pytest.mark.parametrize("fault", [FIGURES, NO_FIGURES], ids=["figures", "no figures"])
@pytest.mark.parametrize("policy", [DEFAULT, NO_MASKS], ids=["masks", "no masks"])
def test_a_turn_call_that_does_not_fit(project: Path, fault: Fail, policy: Policy) -> None:
    player = Player(10, faults={8: fault})
    with Server(player, bound=True) as server:
        talk = connected(project, server, policy)

        async def play() -> None:
            await counted(talk)
            await counted(talk)

        run(talk, play())
    assert server.rejected == []
    assert len(told_too_long(talk)) == 1
    assert {"mask", "summary"} & set(talk.kinds())
    refused, *later = server.requests[7:]
    again = next(body for body in later if not asks_for_a_record(body))
    assert len(json.dumps(again)) < len(json.dumps(refused))


def test_a_window_smaller_than_believed_is_learned_once(project: Path) -> None:
    player = Player(40)
    with Server(player, bound=True, window=20_000) as server:
        talk = connected(project, server, window=200_000)

        async def play() -> None:
            await counted(talk)
            await counted(talk)

        run(talk, play())
    assert server.rejected == []
    assert len(told_too_long(talk)) == 1
    learned = [e.tokens for e in talk.seen(CallStarted) if e.tokens > 20_000]
    assert len(learned) == 1
    assert talk.agent.model.current_window().size == 20_000


class Silent:
    """Begin a summary and then send nothing more, once. `asked` is set when this happens."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __call__(self) -> Step:
        if self.asked.is_set():
            return Say(RECORD)
        self.asked.set()
        return Say(RECORD, fault="silence", after=4)


def test_a_summary_that_is_cancelled_changes_nothing(project: Path) -> None:
    silent = Silent()
    with Server(Player(6, record=silent), bound=True) as server:
        talk = connected(project, server)

        async def play() -> None:
            await counted(talk)
            before = json.dumps(build_messages(talk.agent.view.items))
            task = asyncio.ensure_future(talk.agent.engine.compact())
            await asyncio.to_thread(silent.asked.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert json.dumps(build_messages(talk.agent.view.items)) == before
            await counted(talk)
            await talk.agent.engine.compact()
            await counted(talk)

        run(talk, play())
        assert server.hung_up.wait(100)
    assert server.rejected == []
    assert len(talk.of(Summary)) == 1


def test_a_turn_interrupted_while_it_waits_for_a_summary(project: Path) -> None:
    silent = Silent()
    player = Player(18, record=silent)
    with Server(player, bound=True, window=WINDOW) as server:
        talk = connected(project, server, NO_MASKS)

        async def play() -> None:
            turn = asyncio.ensure_future(run_turn(talk.agent, "count"))
            await asyncio.to_thread(silent.asked.wait)
            turn.cancel()
            assert (await turn).status == "interrupted"
            assert talk.of(Summary) == []
            player.done = 0
            await counted(talk)

        run(talk, play())
    assert server.rejected == []
    assert max(player.rooms) <= WINDOW
    assert talk.of(Summary)


LONG = "A long answer about the code of this project. " * 900  # fills a quarter of the window


def test_interrupted_replies_count_in_bill_and_context(project: Path) -> None:
    """A long reply is interrupted, then one in its thinking and its call, then one breaks off. The
    server reports no usage for them. The bill and the context size include them nevertheless, so
    the next request fits, and nothing is cleared or summarised because of them.
    """
    call = ("Write", {"path": "a.txt", "content": LONG})
    steps = [
        Say(LONG, deltas=40, fault="silence", after=41),
        Say("Hello."),
        Say(thinking=LONG, tools=[call], deltas=40, fault="silence", after=80),
        Say(LONG, fault="cut", after=4),
        Say("Hello again."),
    ]
    rooms: list[int] = []

    def step(body: Body) -> Step:
        size = sum(tokens.estimate_block(block) for _, block in flat(body))
        rooms.append(size + body["max_tokens"])
        return steps.pop(0)

    with Server(step, bound=True, window=WINDOW) as server:
        talk = connected(project, server)

        async def interrupted_at(kind: type[Event], count: int) -> None:
            turn = asyncio.ensure_future(run_turn(talk.agent, "explain"))
            left = [count]

            def emit(event: Event) -> None:
                talk.events.append(event)
                if isinstance(event, kind):
                    left[0] -= 1
                    if left[0] == 0:
                        asyncio.get_running_loop().call_soon(turn.cancel)

            talk.agent.emit = emit
            assert (await turn).status == "interrupted"
            talk.agent.emit = talk.events.append

        async def play() -> None:
            await interrupted_at(TextDelta, 38)
            assert talk.agent.model.current_window().tokens >= talk.agent.view.size
            assert (await run_turn(talk.agent, "go on")).text == "Hello."
            await interrupted_at(ToolDraft, 35)
            assert (await run_turn(talk.agent, "go on")).text == "Hello again."

        run(talk, play())
    assert server.rejected == []
    assert max(rooms) <= WINDOW
    assert {"mask", "summary"}.isdisjoint(talk.kinds())
    written, size = talk.of(Assistant), tokens.estimate(LONG)
    cut, _, drafted, broken, _ = (reply.usage["output"] for reply in written)
    assert 0.8 * size < cut <= 1.1 * size
    assert 1.4 * size < drafted < 2.3 * size  # thoughts and most of the call
    assert 0.4 * size < broken < 0.6 * size
    assert [reply.purpose for reply in written] == ["turn", "turn", "turn", "attempt", "turn"]
    prices = [cost("claude-sonnet-5-5", Usage.from_json(reply.usage)) for reply in written]
    assert [reply.cost_usd for reply in written] == prices
