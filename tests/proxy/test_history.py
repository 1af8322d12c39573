"""Clients that change their own history: what the log has of it comes back whole."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.proxy.history import Digest
from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.session.entries import ToolResult
from ctxagent.agent.session.log import Entries
from ctxagent.tests.support.proxy.checks import messages_of, prefix_of
from ctxagent.tests.support.proxy.clients import PATHS, Client, Turn, session_of
from ctxagent.tests.support.proxy.recorder import Answer, Recorder, recorder
from ctxagent.tests.support.proxy.running import RunningProxy, running_proxy

from .test_recovery import recalled, results_in

EVENTS = {"content-type": "text/event-stream"}
CALLS = 6
TOOL = {
    "messages": {"tools": [{"name": "mcp__ctxagent__recall", "description": "d",
                            "input_schema": {"type": "object"}}]},
    "chat": {"tools": [{"type": "function", "function": {"name": "ctxagent_recall"}}]},
    "responses": {"tools": [{"type": "function", "name": "ctxagent__recall"}]},
    "gemini": {"tools": [{"functionDeclarations": [{"name": "mcp_ctxagent_recall"}]}]},
}  # fmt: skip
LATE = replace(PRESETS["lean"], clear_when="full")  # the client shortens results earlier


def cleared(text: str) -> str:
    return "[Old output cleared]"


def masked(text: str) -> str:
    """Return the beginning and the end of a text, with a file of the client, as gemini-cli does."""
    return f"<masked>\n{text[:800]}\n...\n{text[-800:]}\nFull output: /home/me/tmp/1.txt\n</masked>"


def changed(client: Client, texts: Mapping[int, str]) -> Client:
    """Return the client with other texts for the results of some turns."""
    turns = [
        replace(turn, calls=tuple(replace(call, result=texts[n]) for call in turn.calls))
        if n in texts else turn
        for n, turn in enumerate(client.turns)
    ]  # fmt: skip
    return replace(client, turns=turns)


def ask(proxy: RunningProxy, server: Recorder, client: Client, number: int) -> dict[str, Any]:
    """Send request `number`, counted from 0. Return the request that the server got."""
    body = [*replace(client, turns=client.turns[: number + 1]).bodies()][-1]
    data = client.answer(client.turns[number], number)
    server.answer = lambda received: Answer((data,), 200, EVENTS)
    assert proxy.post(client.path, json.dumps(body).encode()).status == 200
    got: dict[str, Any] = json.loads(server.requests[-1].body)
    return got


def client_of(protocol: str) -> Client:
    return replace(session_of(protocol, CALLS), extra=TOOL[protocol])


def originals(client: Client) -> list[str]:
    return [call.result for turn in client.turns for call in turn.calls]


def check_way_back(proxy: RunningProxy, stub: str, text: str) -> None:
    """Check that the ref and the file in a stub lead to the whole text."""
    ref, file = stub.split("full text: ")[1].split("]")[0].split(" · ")[0].split(", or ")
    assert Path(file).read_text() == text
    assert recalled(proxy, ref, 0) == f"[{ref}]\n{text}"


@pytest.mark.slow
@pytest.mark.variants
@pytest.mark.parametrize("shorten", [masked, cleared])
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("protocol", PATHS)
def test_results_that_the_client_shortens_come_back_whole(
    protocol: str, is_restarted: bool, shorten: Any, tmp_path: Path
) -> None:
    """In the same session, also after a second change, and after a restart of the proxy."""
    client = client_of(protocol)
    texts = originals(client)
    first = changed(client, {n: shorten(texts[n]) for n in (1, 2)})
    second = changed(first, {1: "[gone]", 3: shorten(texts[3])})
    with recorder() as server:
        with running_proxy(tmp_path, server.url, LATE) as proxy:
            for number in range(4):
                ask(proxy, server, client, number)
            if not is_restarted:
                ask(proxy, server, first, 4)
        with running_proxy(tmp_path, server.url, LATE) as proxy:
            early = ask(proxy, server, first, 4) if is_restarted else {}
            late = ask(proxy, server, second, 5)
            assert proxy.reports == []
            assert len(proxy.logs()) == 1
            results = results_in(late)
            assert [results[0], results[4]] == [texts[0], texts[4]]
            for number in (1, 2, 3):
                check_way_back(proxy, results[number], texts[number])
            if early:
                assert results_in(early)[1:3] == results[1:3]


@pytest.mark.slow
def test_the_request_is_the_same_if_the_client_shortens_what_was_cleared(tmp_path: Path) -> None:
    client = replace(client_of("gemini"), turns=session_of("gemini", 10).turns)
    texts = originals(client)
    eager = replace(PRESETS["lean"], clear_when="every-call")
    with recorder() as server, running_proxy(tmp_path, server.url, eager) as proxy:
        for number in range(8):
            before = ask(proxy, server, client, number)
        assert "tokens compacted" in results_in(before)[0]
        other = changed(client, {n: masked(texts[n]) for n in (0, 1)})
        after = ask(proxy, server, other, 8)
        (log,) = proxy.logs()
        sent = results_in(after)
        assert sent[:2] == results_in(before)[:2]
        assert prefix_of({**before, "contents": messages_of(before)[:8]}, after)
        check_way_back(proxy, sent[0], texts[0])
    assert sum(isinstance(entry, ToolResult) for entry in Entries(log)) == 8


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PATHS)
def test_a_fork_has_the_whole_text_of_a_shortened_result(protocol: str, tmp_path: Path) -> None:
    """The client rewinds, and shortens what is before that at the same time."""
    client = client_of(protocol)
    texts = originals(client)
    turns = [*client.turns[:4], Turn(("Another way.",), text="Yes."), Turn(("Go on.",))]
    turns[3] = replace(turns[3], calls=(), text="Stop.")
    other = changed(replace(client, turns=turns), {1: masked(texts[1])})
    with recorder() as server, running_proxy(tmp_path, server.url, LATE) as proxy:
        for number in range(5):
            ask(proxy, server, client, number)
        (whole,) = proxy.logs()
        results = results_in(ask(proxy, server, other, 4))
        assert len(proxy.logs()) == 2
        assert results[0] == texts[0]
        check_way_back(proxy, results[1], texts[1])
        assert whole.parent.name not in results[1]


@pytest.mark.slow
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("protocol", PATHS)
def test_a_call_repeated_after_a_rewind_has_its_own_result(
    protocol: str, is_restarted: bool, tmp_path: Path
) -> None:
    """A shorter result of the same call is another result, unless the same reply follows it."""
    client = client_of(protocol)
    again = changed(client, {3: "short now\n"})
    again.turns[4] = replace(again.turns[4], text="Another step.")
    with recorder() as server:
        with running_proxy(tmp_path, server.url, LATE) as proxy:
            for number in range(6):
                ask(proxy, server, client, number)
            if not is_restarted:
                assert results_in(ask(proxy, server, again, 4))[3] == "short now\n"
        with running_proxy(tmp_path, server.url, LATE) as proxy:
            if is_restarted:
                assert results_in(ask(proxy, server, again, 4))[3] == "short now\n"
            assert results_in(ask(proxy, server, again, 5))[3] == "short now\n"
            assert len(proxy.logs()) == 2


@pytest.mark.slow
def test_a_longer_result_is_another_one(tmp_path: Path) -> None:
    client = client_of("messages")
    longer = changed(client, {1: originals(client)[1] + "and more\n"})
    with recorder() as server, running_proxy(tmp_path, server.url, LATE) as proxy:
        for number in range(4):
            ask(proxy, server, client, number)
        assert results_in(ask(proxy, server, longer, 4))[1] == originals(longer)[1]
        assert len(proxy.logs()) == 2


def test_digests_of_older_logs_are_read() -> None:
    old, new = Digest.parse("ab"), Digest.parse("ab.cd.7")
    assert (old, new) == (Digest("ab"), Digest("ab", "cd", 7))
    assert [str(old), str(new)] == ["ab", "ab.cd.7"]
    assert old.likeness(new) == new.likeness(old) == "same"
    assert Digest("x", "cd", 3).likeness(new) == "other"
    assert new.likeness(Digest("x", "cd", 3)) == "shortened"
