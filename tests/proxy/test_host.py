"""The compaction engine's host in the proxy."""

import asyncio
import time
from pathlib import Path

import pytest

from ctxagent.addons.proxy.bodies.base import ServerReply
from ctxagent.addons.proxy.host import NO_CACHE, EngineQuestion, ProxyHost
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import ModelError, PromptTooLong
from ctxagent.agent.session.entries import Assistant, Session, Usage, User
from ctxagent.agent.session.log import Log

MODEL = "claude-sonnet-5-5"


@pytest.fixture
def host(tmp_path: Path) -> ProxyHost:
    host = ProxyHost(Log(tmp_path / "s" / "log.jsonl"), MODEL, 100_000, summaries=True)
    host.record(Session(id="s", cwd="/", version="0", model=MODEL, system="Be good.", tools=[]))
    return host


def test_another_process_may_write_between_two_entries(host: ProxyHost) -> None:
    with_lock = Log.open(host.log.path)
    with_lock.close()
    host.record(User(content="Go.", source="person"))
    assert host.view.last_seq == 2


def test_a_cache_is_cold_after_its_life(host: ProxyHost) -> None:
    assert host.cache_is_cold()
    host.last_call = time.time()
    assert not host.cache_is_cold()
    host.last_call -= host.cache_terms().life + 1
    assert host.cache_is_cold()
    host.is_cached = False
    assert host.cache_terms() == NO_CACHE


def test_a_refusal_says_how_large_the_window_is(host: ProxyHost) -> None:
    assert host.current_window().size == 100_000
    host.learn(PromptTooLong("no", tokens=60_000, maximum=50_000))
    assert host.current_window().size <= 50_000


def test_instructions_of_the_client_are_reinserted(host: ProxyHost) -> None:
    entry = host.record(User(content="Never push.", source="instructions"))
    assert isinstance(entry, User)
    host.instructions.append(entry)
    (again,) = host.reinserted(())
    assert isinstance(again, User)
    assert (again.content, again.source) == ("Never push.", "instructions")
    assert host.reinserted([entry.seq]) == []


@pytest.mark.parametrize("summaries", [True, False])
def test_summaries_can_be_switched_off(host: ProxyHost, summaries: bool) -> None:
    host.summaries = summaries
    veto = asyncio.run(host.before_summary({}))
    assert (veto is None) is summaries


def test_a_question_is_asked_with_the_clients_request(host: ProxyHost) -> None:
    asked: list[EngineQuestion] = []

    async def ask(question: EngineQuestion) -> ServerReply:
        asked.append(question)
        reply = [{"type": "text", "text": "A summary."}]
        return ServerReply(reply, Usage(input=10, output=3), "end_turn", "m1")

    message = {"role": "user", "content": [{"type": "text", "text": "A part."}]}
    behind = Request(MODEL, [{"type": "text", "text": "s"}], [], [message], 700,
                     origin={"asked": "What?"})  # fmt: skip
    alone = Request(MODEL, [], [], [message], 700, origin={"asked": "What?"})
    with pytest.raises(ModelError, match="the client has not sent a request yet"):
        asyncio.run(host.ask_model(behind, "compact"))
    host.ask = ask
    for request in (behind, alone):
        reply = asyncio.run(host.ask_model(request, "compact"))
        assert (reply.content, reply.stop_reason) == (
            [{"type": "text", "text": "A summary."}], "end_turn",
        )  # fmt: skip
    assert [(q.asked, [*q.texts], q.max_tokens) for q in asked] == [
        ("What?", [], 700), ("What?", ["A part."], 700),
    ]  # fmt: skip
    recorded = [e for e in host.log.entries() if isinstance(e, Assistant)]
    assert [entry.purpose for entry in recorded] == ["compact"] * 2
    assert all(entry.cost_usd for entry in recorded)
