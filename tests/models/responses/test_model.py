"""The Responses API over real HTTP: strict requests, learned gaps, broken streams."""

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.settings import ModelSettings
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import (
    CtxagentError,
    KeyRefused,
    ModelUnavailable,
    PromptTooLong,
    RequestRejected,
)
from ctxagent.agent.events import Notice, Retrying, TextDelta, ThinkingDelta, ToolDraft
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.factory import PROTOCOLS
from ctxagent.agent.models.retry import RetryPolicy
from ctxagent.agent.models.server_model import ServerModel
from ctxagent.agent.session.entries import Usage

from ...support.server.loopback import Body, Fail, Say, Step
from ...support.server.responses import ResponsesServer

MODEL = "azure/gpt-5.5"
QUICK = RetryPolicy(attempts=3, first_wait=0.001, longest_wait=0.002)
CALLS = [("Bash", {"command": "ls"}), ("Bash", {"command": "ä\n"})]


def ask(*more: Body, effort: str | None = None) -> Request:
    first = {"role": "user", "content": [{"type": "text", "text": "Go."}]}
    tool = {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}
    system = [{"type": "text", "text": "Be good.", "cache_control": {"type": "ephemeral"}}]
    return Request(MODEL, system, [tool], [first, *more], 1_000, effort)


def follow(request: Request, reply: Reply) -> Request:
    """The request after a reply, with the results of its calls."""
    calls = [block for block in reply.content if block["type"] == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"} for block in calls
    ]
    words = {"type": "text", "text": "Go on."}
    return ask(
        *request.messages[1:],
        {"role": "assistant", "content": reply.content},
        {"role": "user", "content": [*results, words]},
    )


def connect(server: ResponsesServer, state: Path) -> ServerModel:
    environ = {"AZURE_OPENAI_ENDPOINT": server.url, "AZURE_OPENAI_API_KEY": "key-of-test"}
    model = PROTOCOLS["responses"]().make(ModelSettings(id=MODEL), environ, state)
    assert isinstance(model, ServerModel)
    model.retry = QUICK
    return model


async def gathered(model: ServerModel, request: Request) -> list[Any]:
    async with aclosing(model.stream(request)) as deltas:
        return [delta async for delta in deltas]


def play(server: ResponsesServer, state: Path, request: Request) -> list[Any]:
    async def run() -> list[Any]:
        model = connect(server, state)
        try:
            return await gathered(model, request)
        finally:
            await model.close()

    return asyncio.run(run())


def served(tmp_path: Path, *steps: Step, request: Request | None = None) -> list[Any]:
    with ResponsesServer(steps) as server:
        seen = play(server, tmp_path, request or ask())
    assert server.rejected == []
    return seen


def text_of(seen: list[Any], kind: type = TextDelta) -> str:
    return "".join(delta.text for delta in seen if isinstance(delta, kind))


def said(reply: Reply) -> list[str]:
    return [block["text"] for block in reply.content if block["type"] == "text"]


def test_reasoning_text_and_parallel_calls(tmp_path: Path) -> None:
    say = Say("Let me ü look.", thinking="First.\n\nThen.", tools=CALLS, noise=True, pieces=7)
    seen = served(tmp_path, say)
    reply = seen[-1]
    assert (text_of(seen), text_of(seen, ThinkingDelta)) == ("Let me ü look.", "First.\n\nThen.")
    assert [block["type"] for block in reply.content] == [
        "thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert [block["input"] for block in reply.content[2:]] == [given for _, given in CALLS]
    assert reply.stop_reason == "tool_use"
    assert reply.model == MODEL
    assert reply.usage.cache_creation > 0
    assert {delta.name for delta in seen if isinstance(delta, ToolDraft)} == {"Bash"}


def test_reasoning_goes_back_as_it_came_and_the_cache_reads_what_was_said(tmp_path: Path) -> None:
    """Reasoning stays bound to all earlier content, over five replies of each format."""
    steps = [
        Say("Look.", thinking="One.", tools=CALLS),
        Say(thinking="Two.", tools=[("Bash", '{ "command": "ls" }')]),
        Say("No thought.", tools=CALLS),
        Say("All.", thinking="Three.\n\nFour."),
        Say("Bye."),
    ]

    async def run(server: ResponsesServer) -> list[Usage]:
        model, request, usages = connect(server, tmp_path), ask(), []
        for _ in steps:
            reply = (await gathered(model, request))[-1]
            request = follow(request, reply)
            usages.append(reply.usage)
        await model.close()
        return usages

    with ResponsesServer(steps, bound=True) as server:
        usages = asyncio.run(run(server))
    assert server.rejected == []
    sent = [item for item in server.bodies[-1]["input"] if item["type"] == "reasoning"]
    assert [len(item["summary"]) for item in sent] == [1, 1, 2]
    raw = [item["arguments"] for item in server.bodies[-1]["input"] if "arguments" in item]
    assert raw[2] == '{ "command": "ls" }'
    assert [usage.cache_read for usage in usages[1:]] == [usage.prompt for usage in usages[:-1]]
    assert len({body["prompt_cache_key"] for body in server.bodies}) == 1


def test_names_of_tools_that_are_too_long(tmp_path: Path) -> None:
    """Long names are shortened when sent, and restored in the reply and in the next request."""
    long = "mcp__" + "x" * 100
    tool = {"name": long, "description": "Runs.", "input_schema": {"type": "object"}}
    asked = replace(ask(), tools=[tool])
    with ResponsesServer(lambda body: Say(tools=[(body["tools"][0]["name"], {})])) as server:
        first = play(server, tmp_path, asked)[-1]
        second = play(server, tmp_path, replace(follow(asked, first), tools=[tool]))
    assert server.rejected == []
    assert [block["name"] for block in first.content if block["type"] == "tool_use"] == [long]
    assert {delta.name for delta in second if isinstance(delta, ToolDraft)} == {long}


def test_a_server_that_does_not_stream(tmp_path: Path) -> None:
    with ResponsesServer([Say("Done.", thinking="Hm.")]) as server:
        server.can_stream = False
        seen = play(server, tmp_path, ask())
    assert (text_of(seen), text_of(seen, ThinkingDelta)) == ("Done.", "Hm.")
    assert seen[-1].stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("lacks", "gap"),
    [
        ("stream", "no streaming"),
        ("prompt_cache_key", "no prompt_cache_key"),
        ("reasoning.summary", "no summaries"),
        ("reasoning.effort", "no effort"),
    ],
)
def test_missing_features_are_omitted_and_remembered(tmp_path: Path, lacks: str, gap: str) -> None:
    with ResponsesServer([Say("One."), Say("Two.")]) as server:
        server.lacks = (lacks,)
        seen = [play(server, tmp_path, ask(effort="high")) for _ in range(2)]
    assert server.rejected == []
    assert [type(delta) for delta in seen[0]].count(Notice) == 1
    assert f"accepts {gap}:" in next(d.text for d in seen[0] if isinstance(d, Notice))
    assert text_of(seen[1]) == "Two."
    assert len(server.bodies) == 3
    field, _, inner = lacks.partition(".")
    assert (inner or field) not in server.bodies[-1].get(
        *(("reasoning",) if inner else ("", server.bodies[-1]))
    )


@pytest.mark.parametrize("fault", ["cut", "reset", "end", "garbage", "hang up"])
def test_a_stream_that_breaks_is_asked_for_again(tmp_path: Path, fault: Any) -> None:
    seen = served(tmp_path, Say("Lost words.", fault=fault), Say("Whole."))
    assert len([delta for delta in seen if isinstance(delta, Retrying)]) == 1
    assert said(seen[-1]) == ["Whole."]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_temporary_errors_are_retried(tmp_path: Path, status: int) -> None:
    seen = served(tmp_path, Fail(status, "later", kind="server_error"), Say("Whole."))
    assert isinstance(seen[0], Retrying)
    assert text_of(seen) == "Whole."


def failed(code: str, words: str) -> Say:
    """A response that ends with an error."""
    ending = {"status": "failed", "error": {"code": code, "message": words}, "output": []}

    def edit(events: list[Body]) -> list[Body]:
        return [*events[:2], {"type": "response.failed", "response": ending}]

    return Say("Lost.", edit=edit)


@pytest.mark.parametrize("code", ["server_error", "rate_limit_exceeded"])
def test_a_response_that_failed_is_asked_for_again(tmp_path: Path, code: str) -> None:
    seen = served(tmp_path, failed(code, "Sorry."), Say("x", error=(code, "Sorry.")), Say("Whole."))
    waits = [delta for delta in seen if isinstance(delta, Retrying)]
    assert all(wait.reason.endswith("Sorry.") for wait in waits)
    assert len(waits) == 2
    assert said(seen[-1]) == ["Whole."]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (failed("context_length_exceeded", "Your input exceeds the context window"), PromptTooLong),
        (Say("x", error=("context_length_exceeded", "")), PromptTooLong),
        (Fail(400, "prompt is too long: 5 tokens > 4 maximum"), PromptTooLong),
        (Fail(401, "Incorrect API key provided", kind="invalid_api_key"), KeyRefused),
        (Fail(429, "You exceeded your current quota", kind="insufficient_quota"), RequestRejected),
    ],
)
def test_permanent_errors_are_not_retried(
    tmp_path: Path, step: Step, error: type[CtxagentError]
) -> None:
    with ResponsesServer([step]) as server, pytest.raises(error) as caught:
        play(server, tmp_path, ask())
    assert not isinstance(caught.value, ModelUnavailable)
    assert len(server.bodies) == 1


def test_a_refusal_for_no_known_reason_is_tried_without_optional_parts(tmp_path: Path) -> None:
    step = Fail(400, "Against the policy.")
    with (
        ResponsesServer([step, step], lenient=True) as server,
        pytest.raises(RequestRejected, match="policy"),
    ):
        play(server, tmp_path, ask())
    first, second = server.bodies
    assert {"include", "prompt_cache_key"} <= first.keys() - second.keys()


def test_encrypted_reasoning_of_another_server_is_left_out_from_then_on(tmp_path: Path) -> None:
    """As with a gateway that alternates between organizations."""
    with ResponsesServer([Say("One.", thinking="Hm."), Say("-"), Say("Two.")]) as server:
        first = play(server, tmp_path, ask())[-1]
        state = json.loads(first.content[0]["signature"])
        state["item"]["encrypted_content"] = "gAAA"
        first.content[0]["signature"] = json.dumps(state)
        seen = play(server, tmp_path, follow(ask(), first))
    assert text_of(seen) == "Two."
    assert len(server.rejected) == 1
    assert all("id" not in item for item in server.bodies[-1]["input"])


def test_refusals_and_cut_replies(tmp_path: Path) -> None:
    cut = served(tmp_path, Say("Half", tools=[("Bash", '{"comm')], stop_reason="max_tokens"))[-1]
    assert cut.stop_reason == "max_tokens"
    assert [*cut.broken.values()] == ['{"comm']
    assert served(tmp_path, Say("No.", stop_reason="refusal"))[-1].stop_reason == "refusal"
