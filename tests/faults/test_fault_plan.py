"""Long conversations over a server, a proxy and a network that fail in every way they can: the real
SDK over real HTTP, real tools. They come to their end; every request is one the API must accept;
what a tool does happens once; the log folds to the view that was worked with."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import UNKNOWN_OUTCOME, build_messages, build_request
from ctxagent.agent.context.view import View, fold
from ctxagent.agent.context.window import LearnedWindow, Window, learn_from_refusal
from ctxagent.agent.errors import ModelUnavailable, PromptTooLong, RequestRejected
from ctxagent.agent.events import CallStarted, Retrying, ToolDraft, TurnFinished
from ctxagent.agent.loop.budget import session_bill
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.http_client import Timeouts
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.messages.draft import ReplyDraft
from ctxagent.agent.models.messages.model import MessagesModel
from ctxagent.agent.models.retry import RetryPolicy
from ctxagent.agent.models.transport import MAX_REPLY_BYTES, parse_events
from ctxagent.agent.pages.export import export
from ctxagent.agent.session.entries import Assistant, ToolResult, User
from ctxagent.tools.bash import BashTool
from ctxagent.tools.read import ReadTool

from ..compaction.test_engine import RECORD
from ..e2e.test_engine_http import asks_for_a_record
from ..models.test_model import ask
from ..support.server.faults import BAD, NEVER, ODD, PASSING, REFUSED, SLOW, SURVIVED, Faults, Kind
from ..support.server.loopback import Body, Fail, Say, Server, Step, events, message
from ..support.server.validator import validate
from ..support.sessions.conversation import Conversation
from ..support.terminal.watch import Watch

QUICK = RetryPolicy(attempts=8, first_wait=0.001, longest_wait=0.004, longest_requested_wait=0.02)
WHOLE = Say("Wholé.", thinking="Hm.", tools=[("Bash", {"command": "ls"}), ("Bash", {})])


class Tally:
    """Writes numbers down, one a call, up to `last`; says "Done." then."""

    def __init__(self, last: int) -> None:
        self.last, self.number = last, 0

    def __call__(self, body: Body) -> Step:
        if asks_for_a_record(body):
            return Say(RECORD)
        if not body.get("tools"):  # asked whether the server answers at all
            return Say("OK.")
        if self.number == self.last:
            return Say("Done.")
        self.number += 1
        note = ("Bash", {"command": f"echo {self.number} >> tally"})
        look = ("Read", {"path": "tally", "offset": self.number})
        return Say(f"Nümber {self.number}.", thinking="Hm.", tools=[note, look])


def connect(url: str, **options: Any) -> MessagesModel:
    return MessagesModel(
        "claude-sonnet-5-5",
        base_url=url,
        environ={"ANTHROPIC_API_KEY": "x"},
        **{"retry": QUICK, **options},
    )


def connected(folder: Path, server: Server) -> Conversation:
    (folder / "project").mkdir()
    model = connect(server.url, context_window=8_000)
    policy = replace(DEFAULT, prepare_at=None)  # nothing in the background: the seed decides all
    return Conversation(
        folder / "project", model=model, tools=[BashTool(), ReadTool()], policy=policy
    )


def run(talk: Conversation, most: int = 1) -> list[TurnFinished]:
    """Turns until the work is done, `most` at most."""

    async def whole() -> list[TurnFinished]:
        turns: list[TurnFinished] = []
        try:
            while len(turns) < most and not (turns and turns[-1].status == "ok"):
                turns.append(await run_turn(talk.agent, "go on" if turns else "count"))
        finally:
            await talk.agent.close()
        return turns

    return asyncio.run(whole())


@pytest.mark.full
@pytest.mark.parametrize(
    ("calls", "rate", "seed", "kinds", "most"),
    [(200, 0.15, 1, SURVIVED, 1), (130, 0.5, 3, None, 60)],
    ids=["15 %", "every kind"],
)
def test_a_long_run(
    tmp_path: Path,
    calls: int,
    rate: float,
    seed: int,
    kinds: Mapping[str, Kind] | None,
    most: int,
) -> None:
    kinds = kinds or {**SURVIVED, **REFUSED}
    plan = Faults(Tally(calls), rate, seed, kinds)
    with Server(plan, lenient=True) as server:
        talk = connected(tmp_path, server)
        turns = run(talk, most)
    assert turns[-1] == TurnFinished("ok", "Done."), turns[-1]
    assert len(server.requests) > calls
    assert len(plan.count) > 25
    assert rate == 0.15 or set(plan.count) == set(kinds)  # or the run is too short for all of them
    assert server.rejected == []
    written = "".join(f"{number}\n" for number in range(1, calls + 1))
    assert (talk.cwd / "tally").read_text() == written
    assert not (talk.cwd / NEVER).exists()
    assert "Half of a thought" not in talk.agent.log.path.read_text()
    retried = talk.seen(Retrying)
    assert len(retried) <= sum(plan.count[name] for name in PASSING)
    assert all(r.attempt < r.of == 8 and r.seconds <= QUICK.longest_requested_wait for r in retried)
    assert "summary" in talk.kinds()
    assert rate == 0.15 or "mask" in talk.kinds()  # where the server finds a prompt too long
    again = fold(talk.entries())
    assert json.dumps(build_messages(again.items)) == json.dumps(
        build_messages(talk.agent.view.items)
    )


# Kind by kind


def heard(kind: Kind, host: str = "127.0.0.1", **options: Any) -> tuple[list[Any], Server]:
    """What one request makes of a fault that is followed by a good reply; its error in the end."""
    plan = Faults(lambda body: WHOLE, 1.0, 0, {"it": kind})

    def steps(body: Body) -> Step:
        return WHOLE if plan.count else plan(body)

    async def gather(model: MessagesModel) -> list[Any]:
        seen: list[Any] = []
        try:
            async for delta in model.stream(ask()):
                seen.append(delta)
                if isinstance(delta, Retrying):  # a good reply may take its time
                    model.timeouts = Timeouts()
        except (ModelUnavailable, RequestRejected) as error:
            seen.append(error)
        finally:
            await model.close()
        return seen

    with Server(steps, lenient=True) as server:
        url = server.url.replace("127.0.0.1", host)
        seen = asyncio.run(gather(connect(url, **options)))
    assert server.rejected == []
    return seen, server


def retries(seen: list[Any]) -> list[Retrying]:
    return [delta for delta in seen if isinstance(delta, Retrying)]


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_costs_one_retry(name: str) -> None:
    seen, server = heard(PASSING[name])
    (again,) = retries(seen)
    assert (again.attempt, again.of) == (1, 8)
    assert 0 <= again.seconds <= QUICK.longest_requested_wait
    assert again.reason.strip()
    assert "\n" not in again.reason
    assert len(server.requests) == 2
    assert isinstance(seen[-1], Reply)
    assert [b["type"] for b in seen[-1].content] == ["thinking", "text", "tool_use", "tool_use"]


@pytest.mark.parametrize("name", [*BAD, *ODD])
def test_what_is_said_strangely_is_heard_once(name: str) -> None:
    seen, server = heard({**BAD, **ODD}[name])
    assert retries(seen) == []
    assert len(server.requests) == 1
    reply = seen[-1]
    ids = [block["id"] for block in reply.content if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)
    assert all(id.replace("_", "").isalnum() and len(id) <= 128 for id in ids)
    assert 0 <= reply.usage.prompt <= 10**6
    assert 0 <= reply.usage.output <= ask().max_tokens
    if name in ODD:
        told = [b for b in reply.content if b["type"] != "hologram"]
        assert told[1]["text"] == "Wholé."
        assert [b["input"] for b in told[2:]] == [{"command": "ls"}, {}]
        assert reply.broken == {}
    else:
        assert NEVER not in json.dumps([b.get("input") for b in reply.content]) or ids


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_not_retried(name: str) -> None:
    """A refusal that may be due to an optional part is followed by a request without it."""
    seen, server = heard(REFUSED[name])
    if name in ("400", "404"):
        assert isinstance(seen[-1], Reply)
        assert (len(server.requests), retries(seen)) == (2, [])
        return
    error = seen[-1]
    assert retries(seen) == []
    assert len(server.requests) == 1
    assert isinstance(error, RequestRejected)
    assert isinstance(error, PromptTooLong) == (name == "413" or name.startswith("too long"))
    if isinstance(error, PromptTooLong):
        truthful = name == "too long, with figures"
        assert (error.tokens, error.maximum) == ((21_000, 20_000) if truthful else (None, None))


def test_a_servers_words_stay_on_one_line() -> None:
    page = Fail(502, body="<html>\n<h1>Bad gateway</h1>\x1b[2J\n</html>")
    seen, _ = heard(lambda chance, body, steps: page)
    watch = Watch()
    watch.show(CallStarted(1, 1), *retries(seen))
    assert watch.live.count("\n") == 2
    assert "again in 0 s · Esc to stop · attempt 1 of 8 failed: the server failed" in watch.live
    assert "<html> <h1>Bad gateway</h1>" in retries(seen)[0].reason
    assert "\x1b" not in watch.live
    watch.show(ToolDraft("Ba\nsh", 5))
    assert watch.live.count("\n") == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1"])  # the second is not known as loopback
def test_a_redirect_takes_no_key_along(host: str) -> None:
    with Server([Say("Stolen.")]) as other:
        elsewhere = {"location": f"{other.url}/v1/messages"}
        seen, _ = heard(lambda chance, body, steps: Fail(307, headers=elsewhere), host)
    assert "another address (307)" in str(seen[-1])
    assert "model.base_url" in seen[-1].hint
    assert other.paths == []


@pytest.mark.parametrize("name", SLOW)
def test_what_is_slow_is_not_waited_for(name: str) -> None:
    seen, _ = heard(SLOW[name], timeouts=Timeouts(first_byte=1.0, between=0.5))
    assert retries(seen)
    assert all(again.seconds <= QUICK.longest_requested_wait for again in retries(seen))
    assert isinstance(seen[-1], Reply)


@pytest.mark.parametrize(("asked", "told"), [("50", "50 s"), ("inf", "more than a day")])
def test_a_limit_that_lasts_is_told(tmp_path: Path, asked: str, told: str) -> None:
    with Server(lambda body: Fail(429, headers={"retry-after": asked})) as server:
        talk = connected(tmp_path, server)
        (turn,) = run(talk)
    assert len(server.requests) == 2
    assert turn.error is not None
    assert f"the server asks to wait {told}" in turn.error["message"]


# What a failed turn leaves


@pytest.mark.parametrize(
    "name", ["reset in the body", "error that is none", "401", "sent elsewhere"]
)
def test_a_failed_turn_leaves_the_view_as_before(tmp_path: Path, name: str) -> None:
    works = Tally(3)
    plan = Faults(works, 0.0, 0, {name: {**PASSING, **REFUSED}[name]})
    with Server(plan, lenient=True) as server:
        talk = connected(tmp_path, server)

        async def play() -> None:
            assert (await run_turn(talk.agent, "count")).status == "ok"
            before = build_messages(talk.agent.view.items)[:-1]  # without the "Go on." for its end
            plan.rate = 1.0
            failed = await run_turn(talk.agent, "fails")
            assert failed.status == "error"
            assert failed.error is not None
            plan.rate = 0.0
            *kept, last = build_messages(talk.agent.view.items)
            assert json.dumps(kept) == json.dumps(before)
            assert last["content"] == [{"type": "text", "text": "fails"}]
            assert (await run_turn(talk.agent, "and now?")).text == "Done."
            await talk.agent.close()

        asyncio.run(play())
    assert server.rejected == []
    assert plan.count[name] <= (8 if name in PASSING else 1)
    assert not (talk.cwd / NEVER).exists()
    said = [block["text"] for block in server.requests[-1]["messages"][-1]["content"]]
    assert said == ["fails", "and now?"]


def test_what_broke_off_is_paid_for(tmp_path: Path) -> None:
    half = Say("Half a", fault="cut", after=4)
    with Server([half, Fail(529), half, Say("Whole.")]) as server:
        talk = connected(tmp_path, server)
        (turn,) = run(talk)
    assert turn.text == "Whole."
    told = [(e.purpose, bool(e.content), e.usage["cache_creation"]) for e in talk.of(Assistant)]
    asked = told[0][2]
    assert asked > 0
    assert told[:2] == [("attempt", False, asked), ("attempt", False, 0)]
    assert told[2][:2] == ("turn", True)
    assert fold(talk.entries()) == talk.agent.view
    paid = [e.cost_usd for e in talk.of(Assistant)]
    assert all(paid)
    assert talk.agent.model.budget_meter.dollars == pytest.approx(sum(paid))
    lines = {
        line.what: line.counts.calls for line in session_bill(talk.entries(), lambda _: []).lines
    }
    assert lines == {"conversation": 1, "broken attempts": 2}
    assert export(talk.agent.log.path, "html").count("Interrupted call") == 2
    assert "attempt" not in export(talk.agent.log.path, "md")


# A prompt that is said to be too long


@pytest.mark.parametrize("words", ["prompt is too long", "prompt is too long: 2000 tokens > 1000"])
def test_a_lie_about_the_window_does_not_close_the_session(tmp_path: Path, words: str) -> None:
    """The request is sent again without its optional parts."""
    with Server([Fail(400, f"{words} maximum"), Say("Yes.")], lenient=True) as server:
        talk = connected(tmp_path, server)
        (turn,) = run(talk, 3)
    assert turn == TurnFinished("ok", "Yes.")
    assert server.rejected == []


@pytest.mark.parametrize(
    ("tokens", "maximum", "size"),
    [
        (9_000, 8_000, 8_000),
        (200, 100, None),
        (900_000, 800_000, None),
        (None, None, None),
        (None, 8_000, 8_000),
    ],
)
def test_figures_are_believed_where_they_can_be_true(
    tokens: int | None, maximum: int | None, size: int | None
) -> None:
    found, factor = learn_from_refusal(Window(6_000, 10_000), tokens, maximum)
    assert found == size
    believed = (tokens or 6_000) if size else 10_001
    assert factor == pytest.approx(believed / 6_000)


def test_a_window_is_believed_until_it_proves_wrong() -> None:
    assert learn_from_refusal(Window(6_000, 10_000), 7_000, 6_500, least=6_501)[0] is None
    learned = LearnedWindow(size=6_500)
    assert (learned.limit(10_000), learned.limit(5_000)) == (6_500, 5_000)
    assert learned.accept(6_500) is None
    assert learned.accept(6_501) == 6_500
    assert (learned.limit(10_000), learned.accepted) == (10_000, 6_501)


@pytest.mark.parametrize(
    ("words", "figures"),
    [
        ("This model's maximum context length is 8192 tokens. However, your messages resulted in "
         "10000 tokens.", (10_000, 8_192)),
        ("prompt is too long: 210,000 tokens > 200,000 maximum", (210_000, 200_000)),
        ("Input is too long for requested model.", (None, None)),
        ("request (83053 tokens) exceeds the available context size (32768 tokens), try "
         "increasing it", (83_053, 32_768)),
        ("the input length exceeds the context length", (None, None)),
        ("the number of tokens to keep from the initial prompt is greater than the context "
         "length", (None, None)),
        ("context length exceeded", (None, None)),
    ],
)  # fmt: skip
def test_other_servers_words_for_too_long(words: str, figures: tuple[int | None, ...]) -> None:
    seen, _ = heard(lambda chance, body, steps: Fail(400, words))
    assert isinstance(seen[-1], PromptTooLong)
    assert (seen[-1].tokens, seen[-1].maximum) == figures


def test_a_reply_without_end_is_not_gathered() -> None:
    taken = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            taken.append(1)
            yield bytes(1 << 22)

    async def gather() -> None:
        [event async for event in parse_events(endless())]

    with pytest.raises(ValueError, match="more than 64 MB"):
        asyncio.run(gather())
    assert len(taken) == (MAX_REPLY_BYTES >> 22) + 1


# Any events at all

STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    2.5,
    10**30,
    "",
    " ",
    "x.y",
    "\ud800",
    [],
    [1],
    {},
    {"a": 1},
]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every container in some JSON with each of its keys."""
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [place for key in keys for place in [(node, key), *places(node[key])]]


def spoil(chance: random.Random, listed: list[Body]) -> None:
    """Change a few things in the events of a reply."""
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(listed))
        match chance.randrange(5):
            case 0:
                listed.insert(chance.randrange(len(listed)), deepcopy(listed[place]))
            case 1 if len(listed) > 1:
                del listed[place]
            case 2:
                listed.insert(0, listed.pop(place))
            case _:
                node, key = chance.choice(places(listed[place]) or [({}, 0)])
                node[key] = deepcopy(chance.choice(STRANGE))


def test_no_events_break_anything() -> None:
    chance, replies = random.Random(7), 0
    hidden = {"type": "redacted_thinking", "data": "b64=="}
    say = Say("Wholé.", "Hm.", [("Bash", {"command": "ls"}), ("Bash", {})], [hidden], noise=True)
    plain = list(events(say, message(say, {"model": "m", "messages": []}, "msg_1", {})))
    for _ in range(1_500):
        listed = deepcopy(plain)
        spoil(chance, listed)
        draft = ReplyDraft("m", frozenset(["toolu_1_0"]), 1_000)
        try:
            for event in listed:
                list(draft.take(event))
        except ValueError:
            continue
        if not draft.complete:
            continue
        reply, replies = draft.reply(), replies + 1
        view = View()
        view.add(User(seq=1, content="Go."))
        view.add(
            Assistant(
                seq=2,
                content=json.loads(json.dumps(reply.content)),
                usage=reply.usage.to_json(),
                stop_reason=reply.stop_reason,
                model=reply.model,
                broken=reply.broken,
            )
        )
        for number, call in enumerate(b for b in reply.content if b.get("type") == "tool_use"):
            assert isinstance(call["input"], dict)
            view.add(ToolResult(seq=3 + number, tool_use_id=call["id"], content="fine"))
        request = body(build_request(view, model="m", max_tokens=100))
        validate(request, allow_paused=reply.stop_reason == "pause_turn")
        assert UNKNOWN_OUTCOME not in json.dumps(request)
    assert replies > 300
