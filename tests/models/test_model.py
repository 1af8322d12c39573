"""The Messages API model: real SDK, real HTTP on loopback, all special cases of streams."""

import asyncio
import json
import re
import socket
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import ModelUnavailable, NoCredentials, PromptTooLong, RequestRejected
from ctxagent.agent.events import Accepted, Notice, Retrying, TextDelta, ThinkingDelta, ToolDraft
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.catalog import DEFAULT_LIMITS, Limits
from ctxagent.agent.models.http_client import Timeouts
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.messages.credentials import find_credentials
from ctxagent.agent.models.messages.draft import ReplyDraft
from ctxagent.agent.models.messages.model import MessagesModel
from ctxagent.agent.models.providers import check_address
from ctxagent.agent.models.retry import RetryPolicy
from ctxagent.agent.models.transport import parse_arguments
from ctxagent.agent.session.entries import Usage

from ..support.server.loopback import Fail, Say, Server, Step

KNOWN = "claude-sonnet-5-5"
QUICK = RetryPolicy(attempts=3, first_wait=0.001, longest_wait=0.002)
Blocks = list[dict[str, Any]]


def ask(model: str = KNOWN, *, more: Blocks | None = None, effort: str | None = None) -> Request:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Go."}]}, *(more or [])]
    tool = {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}
    system = [{"type": "text", "text": "Be good.", "cache_control": {"type": "ephemeral"}}]
    return Request(model, system, [tool], messages, 1000, effort)


def connect(url: str, id: str = KNOWN, **options: Any) -> MessagesModel:
    environ = {"ANTHROPIC_API_KEY": "key-of-test", "ANTHROPIC_BASE_URL": url}
    return MessagesModel(id, **{"environ": environ, "retry": QUICK, **options})


def play(model: MessagesModel, *requests: Request) -> list[Any]:
    """The deltas and replies of these requests, sent one after another."""

    async def gather() -> list[Any]:
        seen = []
        try:
            for request in requests or (ask(),):
                async with aclosing(model.stream(request)) as deltas:
                    async for delta in deltas:
                        seen.append(delta)
                        if isinstance(delta, Retrying):  # a good reply may take its time
                            model.timeouts = Timeouts()
        finally:
            await model.close()
        return seen

    return asyncio.run(gather())


def served(*steps: Step, **options: Any) -> list[Any]:
    with Server(steps) as server:
        seen = play(connect(server.url, **options))
    assert server.rejected == []
    return seen


def fails(error: type[Exception], *steps: Step, **options: Any) -> tuple[Any, int]:
    """The error, and the number of requests until the error."""
    with Server(steps) as server, pytest.raises(error) as raised:
        play(connect(server.url, **options))
    return raised.value, len(server.requests)


# Replies


@pytest.mark.slow
def test_a_reply_is_streamed_and_gathered() -> None:
    tools = [("Bash", {"command": "ls ä"}), ("Read", {})]
    hidden = {"type": "redacted_thinking", "data": "b64=="}
    say = Say("Let me look.", thinking="Hm, wéll.", tools=tools, blocks=[hidden])
    accepted, *deltas, reply = served(say)

    assert isinstance(accepted, Accepted)
    assert accepted.usage["cache_creation"] > 0
    assert "".join(d.text for d in deltas if isinstance(d, ThinkingDelta)) == "Hm, wéll."
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "Let me look."
    drafts = [d for d in deltas if isinstance(d, ToolDraft)]
    assert (drafts[0], drafts[-1]) == (ToolDraft("Bash", 0), ToolDraft("Read", 2))
    assert isinstance(reply, Reply)
    assert reply.content[0] == hidden
    assert reply.content[1]["thinking"] == "Hm, wéll."
    assert reply.content[1]["signature"].startswith("sig")
    assert reply.content[2]["text"] == "Let me look."
    assert [b["input"] for b in reply.content[3:]] == [{"command": "ls ä"}, {}]
    assert (reply.stop_reason, reply.message_id, reply.broken) == ("tool_use", "msg_0001", {})
    assert reply.model == KNOWN


@pytest.mark.slow
def test_single_bytes_and_unknown_kinds_do_not_change_the_reply() -> None:
    say = Say("Yes, ünd.", thinking="Hm.", tools=[("Bash", {"command": "ls"})])
    plain = served(say)[-1]
    noisy = served(Say(say.text, say.thinking, say.tools, pieces=1, noise=True))[-1]
    assert noisy.content[:3] == plain.content
    assert noisy.content[3] == {"type": "hologram", "shape": "cube"}


@pytest.mark.slow
def test_usage_is_the_last_count_of_each_kind() -> None:
    usage = {
        "input_tokens": 7,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": None,
        "output_tokens": 33,
        "server_tool_use": {"web_search_requests": 0},
    }
    assert served(Say("Yes.", usage=usage))[-1].usage == Usage(
        input=7, cache_read=100, cache_creation=0, output=33
    )


@pytest.mark.parametrize("raw", ['{"command": "l', "{'a': 1}", "[1]", '{"n": NaN}', "[" * 10**5])
def test_arguments_that_are_not_one_json_object_are_broken(raw: str) -> None:
    reply = served(Say(tools=[("Bash", raw), ("Bash", {"command": "ls"})]))[-1]
    first, second = reply.content
    assert (first["input"], second["input"]) == ({}, {"command": "ls"})
    assert reply.broken == {first["id"]: raw}


def test_a_call_cut_off_by_max_tokens_is_broken() -> None:
    draft = ReplyDraft(KNOWN)
    start = {"type": "tool_use", "id": "a", "name": "Write", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"path": "x", "te'}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": piece},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
        {"type": "message_stop"},
    ]
    for event in events:
        list(draft.take(event))
    assert draft.complete
    assert draft.reply().broken == {"a": '{"path": "x", "te'}
    assert draft.reply().stop_reason == "max_tokens"


def test_thinking_goes_back_byte_by_byte_to_a_model_that_binds_it() -> None:
    with Server([Say("One.", thinking="Hm, wéll."), Say("Two.")], bound=True) as server:

        async def converse() -> Any:
            model = connect(server.url)
            first = [delta async for delta in model.stream(ask())][-1]
            content = [{k: v for k, v in b.items() if k != "citations"} for b in first.content]
            more = [
                {"role": "assistant", "content": content},
                {"role": "user", "content": [{"type": "text", "text": "And?"}]},
            ]
            good = [delta async for delta in model.stream(ask(more=more))][-1]
            content[0]["thinking"] += "!"
            with pytest.raises(RequestRejected, match="bound to a different conversation"):
                [delta async for delta in model.stream(ask(more=more))]
            await model.close()
            return good

        good = asyncio.run(converse())
    assert good.content[0]["text"] == "Two."


def test_calls_share_one_connection() -> None:
    with Server([Say("One."), Say("Two."), Say("Three.")]) as server:
        play(connect(server.url), ask(), ask(), ask())
    assert len(server.connections) == 1


# Faults


RETRIED: dict[str, Step] = {
    "429": Fail(429),
    "500": Fail(500),
    "529": Fail(529),
    "408": Fail(408),
    "a gateway's page": Fail(502, body="<html>Bad gateway</html>"),
    "overloaded in mid-stream": Say("Half", error=("overloaded_error", "Overloaded")),
    "api_error in mid-stream": Say("Half", error=("api_error", "oh")),
    "an unknown error in mid-stream": Say("Half", error=("new_error", "oh")),
    "cut": Say("Half", fault="cut"),
    "cut before the first event": Say("Half", fault="cut", after=0),
    "ended without message_stop": Say("Half", fault="end"),
    "ended before the first event": Say("Half", fault="end", after=0),
    "garbage": Say("Half", fault="garbage"),
    "silence": Say("Half", fault="silence"),
    "silence before the first event": Say("Half", fault="silence", after=0),
    "no answer at all": Say(fault="mute"),
    "pings alone": Say("Half", fault="pings"),
}
SILENT = {name for name in RETRIED if "silence" in name or "no answer" in name}
SHORT = Timeouts(first_byte=1.0, between=0.5)
PINGS = Timeouts(progress=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", RETRIED)
def test_a_fault_is_retried_from_the_start(name: str) -> None:
    timeouts = SHORT if name in SILENT else PINGS if "pings" in name else None
    seen = served(RETRIED[name], Say("Whole."), timeouts=timeouts)
    place = next(n for n, delta in enumerate(seen) if isinstance(delta, Retrying))
    assert (seen[place].attempt, seen[place].of) == (1, 3)
    assert seen[place].reason
    assert isinstance(seen[place + 1], Accepted)
    assert seen[-1].content[0]["text"] == "Whole."


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cut", "end", "silence"])
@pytest.mark.parametrize("after", [7, 8])
def test_a_fault_after_the_reason_to_stop_costs_nothing(fault: Any, after: int) -> None:
    seen = served(Say("Whole.", fault=fault, after=after), timeouts=Timeouts(between=1.0))
    assert not [delta for delta in seen if isinstance(delta, Retrying)]
    assert seen[-1].content[0]["text"] == "Whole."


@pytest.mark.slow
def test_a_stream_left_open_after_its_end_does_not_delay_the_reply() -> None:
    with Server([Say("Whole.", fault="silence", after=8)]) as server:

        async def gather() -> list[Any]:
            model = connect(server.url, timeouts=Timeouts(between=600))
            async with asyncio.timeout(200):
                seen = [delta async for delta in model.stream(ask())]
            await model.close()
            return seen

        assert asyncio.run(gather())[-1].content[0]["text"] == "Whole."


def test_an_end_before_the_reason_to_stop_is_no_reply() -> None:
    error, requests = fails(ModelUnavailable, *[Say("Half", fault="end", after=6)] * 3)
    assert requests == 3
    assert "ended before the reply was finished (tried 3 times)" in str(error)


def test_retries_used_up_tell_the_last_fault() -> None:
    error, requests = fails(ModelUnavailable, *[Fail(529, "Overloaded")] * 3)
    assert requests == 3
    assert "the model is overloaded: Overloaded (tried 3 times)" in str(error)
    assert (error.status, error.request_id, error.exit_code) == (529, "req_test", 5)


def test_the_hint_of_an_overload_does_not_speak_of_the_network() -> None:
    for step in (Fail(529), Fail(503), Say(error=("overloaded_error", "Overloaded"))):
        error, _ = fails(ModelUnavailable, *[step] * 3)
        assert "overloaded" in error.message
        assert error.hint == "Nothing recorded is lost: try again later."


def test_an_overload_in_a_stream_counts_when_words_had_come() -> None:
    patient = replace(ask(), overload_wait=600)
    for after, of in ((1, None), (6, QUICK.attempts)):
        broken = Say("Half", error=("overloaded_error", "Overloaded"), after=after)
        with Server([broken, Say("Whole.")]) as server:
            seen = play(connect(server.url), patient)
        (retrying,) = (delta for delta in seen if isinstance(delta, Retrying))
        assert retrying.of == of
        assert seen[-1].content[0]["text"] == "Whole."


def test_a_failed_connection_is_reported_with_the_reason() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        reason = rf"no connection to {re.escape(url)}: .+tried 3 times"
        with pytest.raises(ModelUnavailable, match=reason):
            play(connect(url))


def test_the_servers_advice_decides() -> None:
    _, requests = fails(RequestRejected, Fail(429, headers={"x-should-retry": "false"}))
    assert requests == 2, "once more without optional parts"
    seen = served(Fail(400, headers={"x-should-retry": "true"}), Say("Whole."))
    assert seen[-1].content[0]["text"] == "Whole."


def test_a_wish_to_wait_is_obeyed_up_to_the_cap() -> None:
    seen = served(Fail(429, headers={"retry-after-ms": "37"}), Say("Whole."))
    assert seen[0].seconds == 0.037


# Refusals


@pytest.mark.parametrize(
    ("step", "status", "words", "hint"),
    [
        (Fail(401, "invalid key"), 401, "not accepted (401): invalid key", "ANTHROPIC_API_KEY"),
        (Fail(402, "no credit"), 402, "cannot pay", "credit"),
        (Fail(403, "no"), 403, "has no permission for this", f"with access to {KNOWN}"),
        (Say(error=("authentication_error", "bad"), after=2), 401, "(401): bad", "_API_KEY"),
    ],
)
def test_a_refusal_is_reported_at_once(step: Step, status: int, words: str, hint: str) -> None:
    error, requests = fails(RequestRejected, step)
    assert requests == 1
    assert words in error.message
    assert hint in error.hint
    assert (error.status, error.request_id) == (status, "req_test")


@pytest.mark.parametrize(
    ("step", "status", "words", "hint"),
    [
        (Fail(400, "messages: bad"), 400, "refused the request (400): messages: bad", ""),
        (Fail(404, "model: x"), 404, "not found (404): model: x", f"the model {KNOWN!r}"),
        (Say(error=("invalid_request_error", "bad"), after=2), 400, "(400): bad", ""),
    ],
)
def test_a_refused_request_is_tried_once_without_optional_parts(
    step: Step, status: int, words: str, hint: str
) -> None:
    with Server([step, step], lenient=True) as server, pytest.raises(RequestRejected) as raised:
        play(connect(server.url))
    assert len(server.requests) == 2
    error = raised.value
    assert words in error.message
    assert hint in error.hint
    assert (error.status, error.request_id) == (status, "req_test")


@pytest.mark.parametrize(
    ("step", "tokens", "maximum"),
    [
        (Fail(400, "prompt is too long: 210000 tokens > 200000 maximum"), 210_000, 200_000),
        (
            Fail(400, "input length and `max_tokens` exceed context limit: 199000 + 9000 > 200000"),
            199_000,
            200_000,
        ),
        (Fail(400, "prompt is too long"), None, None),
        (Fail(413, "Request exceeds the maximum size"), None, None),
    ],
)
def test_a_prompt_that_is_too_long_is_reported_with_its_size(
    step: Fail, tokens: int | None, maximum: int | None
) -> None:
    error, requests = fails(PromptTooLong, step)
    assert requests == 1
    assert (error.tokens, error.maximum, error.status) == (tokens, maximum, step.status)


def test_a_server_that_is_no_messages_api_is_named() -> None:
    error, requests = fails(RequestRejected, Fail(200, body="<html>hello</html>"))
    assert requests == 1
    assert "this is not a Messages API server" in error.message
    assert "ANTHROPIC_BASE_URL" in error.hint


@pytest.mark.parametrize("url", ["localhost:8080", "http://", "http://[x", "http://x:port"])
def test_an_invalid_base_url_is_refused(url: str) -> None:
    with pytest.raises(RequestRejected, match="is not an http or https address"):
        play(connect(url))


# Credentials


def test_a_key_that_is_invalid_in_a_header_is_reported() -> None:
    for value, told in [
        ("sk-abc\n", "begins or ends with a line break"),
        (" sk-abc", "begins or ends with a blank"),
        ("sk-\nabc", "contains a line break"),
        ("sk-ä", "contains a line break or a character that is invalid in a key"),
        (" \t", "is set but blank"),
    ]:
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            with pytest.raises(NoCredentials, match=f"{name} {told}"):
                find_credentials({name: value})


def test_what_the_sdk_finds_is_no_missing_key(tmp_path: Path) -> None:
    federation = {
        "ANTHROPIC_FEDERATION_RULE_ID": "r",
        "ANTHROPIC_ORGANIZATION_ID": "o",
        "ANTHROPIC_IDENTITY_TOKEN": "t",
    }
    home = {"HOME": str(tmp_path)}
    assert find_credentials({"ANTHROPIC_AUTH_TOKEN": "abc"}) == "ANTHROPIC_AUTH_TOKEN"
    assert find_credentials({"ANTHROPIC_PROFILE": "work"}) == "ANTHROPIC_PROFILE"
    assert find_credentials(federation) == "ANTHROPIC_FEDERATION_RULE_ID"
    for missing in federation:
        with pytest.raises(NoCredentials):
            find_credentials({n: value for n, value in federation.items() if n != missing})
    with pytest.raises(NoCredentials):
        find_credentials(home)
    profile = tmp_path / ".config" / "anthropic" / "configs" / "default.json"
    profile.parent.mkdir(parents=True)
    profile.write_text("{}")
    assert find_credentials(home) == str(profile)


# Limits and bodies


def limits(model: MessagesModel) -> Limits:
    async def asked() -> Limits:
        try:
            return await model.limits()
        finally:
            await model.close()

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ([{"id": "tiny.gguf", "meta": {"n_ctx_train": 131_072, "n_ctx": 32_768}}], 32_768),
        ([{"id": "other", "max_model_len": 8_192}, {"id": "own", "max_model_len": 40_960}], 40_960),
        ([{"id": "own", "context_length": 65_536}], 65_536),
        ([{"id": "other", "context_length": 65_536}, {"id": "third"}], DEFAULT_LIMITS.window),
        ([{"id": "own", "context_length": True, "meta": "x"}], DEFAULT_LIMITS.window),
        (["own"], DEFAULT_LIMITS.window),
    ],
    ids=["llama.cpp", "vLLM", "OpenRouter", "another", "no number", "no object"],
)
def test_the_window_is_found_in_the_list_of_models(listed: list[Any], found: int) -> None:
    with Server([]) as server:
        server.listed = listed
        assert limits(connect(server.url, "own")).window == found


def test_limits_come_from_settings_table_server_or_default() -> None:
    with Server([], models={"house/model": (50_000, 4_000)}) as server:
        assert limits(connect(server.url)) == Limits(1_000_000, 128_000, "table")
        assert limits(connect(server.url, context_window=9_000)) == Limits(9_000, 9_000, "setting")
        assert limits(connect(server.url, "own", context_window=90_000)).output is None
        assert connect(server.url, context_window=9_000).assumed_limits().window == 9_000
        assert connect(server.url, "house/model").assumed_limits() == DEFAULT_LIMITS
        assert server.paths == []
        assert limits(connect(server.url, "nowhere")) == DEFAULT_LIMITS
        assert limits(connect(server.url, "house/model")) == Limits(50_000, 4_000, "server")
        assert limits(connect(server.url, "house/model", max_output=5)).output == 5
        assert limits(connect(server.url, "stranger")) == DEFAULT_LIMITS


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        (KNOWN, None, {"thinking": {"type": "adaptive"}}),
        (
            "claude-opus-4-6",
            "max",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        ),
        ("claude-haiku-4-5-20251001", "low", {}),
        ("house-model", None, {}),
        (
            "house-model",
            "low",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        ),
    ],
)
def test_only_models_that_take_it_are_asked_to_think(
    model: str, effort: str | None, expected: dict[str, Any]
) -> None:
    sent = body(ask(model, effort=effort))
    assert {k: v for k, v in sent.items() if k in ("thinking", "output_config")} == expected
    with Server([Say("Yes.")]) as server:
        play(connect(server.url, model), ask(model, effort=effort))
    assert server.rejected == []
    assert server.requests == [{**sent, "stream": True}]


def test_no_system_and_no_tools_are_left_out() -> None:
    request = Request("m", [], [], ask().messages, 10)
    assert set(body(request)) == {"model", "max_tokens", "messages", "stream"}


# Streams, by themselves


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start"},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": "a", "content_block": {"type": "text"}},
        {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_stop", "index": 3},
        {"type": "message_delta"},
    ],
)
def test_an_invalid_event_is_an_error(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"an invalid event|not started"):
        list(ReplyDraft(KNOWN).take(event))


# Interruption


@pytest.mark.parametrize("say", [Say("Half", fault="silence"), Say(fault="mute")])
def test_cancelling_closes_the_connection_at_once(say: Say) -> None:
    with Server([say, Say("Whole.")]) as server:

        async def interrupt() -> Any:
            model = connect(server.url)

            async def listen() -> None:
                async with aclosing(model.stream(ask())) as deltas:
                    async for _ in deltas:
                        pass

            task = asyncio.create_task(listen())
            assert await asyncio.to_thread(server.asked.wait, 100)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            hung_up = await asyncio.to_thread(server.hung_up.wait, 100)
            after = [delta async for delta in model.stream(ask())][-1]
            await model.close()
            return hung_up, after

        hung_up, after = asyncio.run(interrupt())
    assert hung_up
    assert after.content[0]["text"] == "Whole."


# Servers that leave things out


def drafted(*blocks: dict[str, Any], stop_reason: Any = "tool_use", usage: Any = None) -> Reply:
    """The reply built from complete blocks, without deltas."""
    draft = ReplyDraft(KNOWN)
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": usage}}]
    for index, block in enumerate(blocks):
        start = {"type": "content_block_start", "index": index, "content_block": block}
        events += [start, {"type": "content_block_stop", "index": index}]
    events.append({"type": "message_delta", "delta": {"stop_reason": stop_reason}})
    for event in [*events, {"type": "message_stop"}]:
        list(draft.take(event))
    return draft.reply()


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "lean",
    [
        {"id": "a", "name": "Bash"},
        {"id": "a", "name": "Bash", "input": None},
        {"id": None, "name": "Bash", "input": {}},
        {"id": "", "name": "Bash", "input": {}},
        {"name": "Bash", "input": {}},
        {"id": "a", "input": {}},
        {"id": "a", "name": None, "input": {}},
    ],
)
def test_a_call_that_lacks_something_is_made_whole(lean: dict[str, Any]) -> None:
    reply = drafted({"type": "tool_use", **lean})
    (call,) = reply.content
    assert isinstance(call["id"], str)
    assert call["id"] == (lean.get("id") or call["id"]) != ""
    assert call["name"] == (lean.get("name") or "")
    assert (call["input"], reply.broken) == ({}, {})


@pytest.mark.parametrize("given", [[1], "ls", 5, deep(101)])
def test_invalid_arguments_that_come_with_the_call_are_broken(given: Any) -> None:
    reply = drafted({"type": "tool_use", "id": "a", "name": "Bash", "input": given})
    assert reply.content[0]["input"] == {}
    assert reply.broken == {"a": json.dumps(given)}


def test_arguments_have_a_depth_that_can_be_sent_again() -> None:
    assert parse_arguments(json.dumps(deep(100))) == deep(100)
    assert parse_arguments(json.dumps(deep(101))) is None


def test_two_calls_with_the_same_id_get_different_ids() -> None:
    call = {"type": "tool_use", "id": "a", "name": "Bash"}
    reply = drafted({**call, "input": {"n": 1}}, {**call, "input": [2]}, {**call, "input": {}})
    first, second, third = (block["id"] for block in reply.content)
    assert first == "a"
    assert len({first, second, third}) == 3
    assert reply.broken == {second: "[2]"}


def test_invalid_values_leave_a_reply_that_can_be_recorded() -> None:
    texts: Blocks = [{"type": "text", "text": None}, {"type": "text"}]
    reply = drafted(*texts, stop_reason=5, usage={"input_tokens": True})
    assert [block["text"] for block in reply.content] == ["", ""]
    assert (reply.stop_reason, reply.usage) == (None, Usage())


@pytest.mark.parametrize("url", ["http:/me:s3cret@x", "ftp://me:s3cret@x", "https://me:s3/cret@x"])
def test_a_base_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(RequestRejected) as raised:
        check_address(url, "ANTHROPIC_BASE_URL")
    assert "cret" not in str(raised.value)


def test_a_request_is_repeated_without_what_the_server_refuses() -> None:
    refusal = Fail(400, "cache_control: extra inputs are not permitted")
    with Server([refusal, Say("Yes.")]) as server:
        model = connect(server.url)
        notice, *_, reply = play(model)
    assert notice == Notice(
        "info",
        f"{KNOWN} accepts no cache_control: requests are adapted from now on "
        f"(the server refused the request (400): {refusal.message})",
    )
    assert isinstance(reply, Reply)
    assert reply.sent["gaps"] == ["cache"]
    assert reply.sent["sha256"] == server.digests[-1]
    assert "cache_control" not in str(server.requests[-1])


def test_a_refusal_in_the_middle_of_a_stream_voids_what_came() -> None:
    error = ("invalid_request_error", "thinking is not supported")
    with Server([Say("Half a", error=error), Say("Whole.")]) as server:
        seen = play(connect(server.url))
    (voided,) = [place for place, delta in enumerate(seen) if isinstance(delta, Retrying)]
    assert isinstance(seen[voided - 1], Notice)
    assert "".join(d.text for d in seen[voided:] if isinstance(d, TextDelta)) == "Whole."


def test_a_refusal_of_images_is_learned_and_raised() -> None:
    with Server([Fail(400, "this model does not support image input")]) as server:
        model = connect(server.url)
        assert model.abilities.images
        with pytest.raises(RequestRejected, match="does not support image input"):
            play(model)
    assert not model.abilities.images
