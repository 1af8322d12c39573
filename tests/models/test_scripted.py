"""The scripted model: replays steps like a real model, records requests, and reports errors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import ModelUnavailable, ScriptExhausted, UsageError
from ctxagent.agent.events import Accepted, TextDelta, ThinkingDelta, ToolDraft
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.catalog import Limits
from ctxagent.agent.models.scripted import ScriptedModel, Step

from ..support.server.validator import Invalid, validate


def ask(text: str = "Go.") -> Request:
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    system = [{"type": "text", "text": "Be good."}]
    return Request("scripted", system, [], messages, 1000)


def play(model: ScriptedModel, request: Request | None = None) -> list[Any]:
    async def gather() -> list[Any]:
        return [delta async for delta in model.stream(request or ask())]

    return asyncio.run(gather())


def test_a_step_is_streamed_as_a_model_would() -> None:
    step = Step("Let me look  here.", "Hm, well.", tools=[("Bash", {"command": "ls"})])
    accepted, *deltas, reply = play(ScriptedModel([step], check=validate))

    assert isinstance(accepted, Accepted)
    assert [d.text for d in deltas if isinstance(d, ThinkingDelta)] == ["Hm, ", "well."]
    words = [d.text for d in deltas if isinstance(d, TextDelta)]
    assert len(words) == 4
    assert "".join(words) == "Let me look  here."
    assert deltas[-1] == ToolDraft("Bash", len('{"command": "ls"}'))
    assert isinstance(reply, Reply)
    assert [block["type"] for block in reply.content] == ["thinking", "text", "tool_use"]
    assert reply.content[0]["signature"]
    assert reply.content[2]["input"] == {"command": "ls"}
    assert reply.stop_reason == "tool_use"
    assert reply.model == "scripted"
    assert reply.usage.input == accepted.usage["input"] > 0
    assert reply.usage.output > 0


def test_ids_differ_between_calls() -> None:
    model = ScriptedModel([Step(tools=[("A", {}), ("B", {})]), Step(tools=[("A", {})])])
    blocks = [*play(model)[-1].content, *play(model)[-1].content]
    assert len({block["id"] for block in blocks}) == 3
    resumed, request = ScriptedModel([Step(tools=[("A", {})])]), ask()
    request.messages.append({"role": "assistant", "content": blocks})
    assert play(resumed, request)[-1].content[0]["id"] not in {block["id"] for block in blocks}


def test_a_text_alone_ends_the_turn_and_a_reason_can_be_given() -> None:
    model = ScriptedModel([Step("Done."), Step("Cut", stop_reason="max_tokens")])
    assert play(model)[-1].stop_reason == "end_turn"
    assert play(model)[-1].stop_reason == "max_tokens"


def test_arguments_that_are_no_object_are_broken() -> None:
    reply = play(ScriptedModel([Step(tools=[("Bash", '{"command": "l')])]))[-1]
    assert reply.broken == {reply.content[0]["id"]: '{"command": "l'}
    assert reply.content[0]["input"] == {}


def test_requests_are_kept_as_they_were() -> None:
    model, request = ScriptedModel([Step("Yes.")]), ask("First.")
    play(model, request)
    request.messages[0]["content"][0]["text"] = "Changed."
    assert model.requests[0].messages[0]["content"][0]["text"] == "First."


def test_an_error_comes_in_place_of_the_reply() -> None:
    failing = Step("Half a", error=ModelUnavailable("gone"))
    seen: list[Any] = []

    async def gather() -> None:
        async for delta in ScriptedModel([failing]).stream(ask()):
            seen.append(delta)

    with pytest.raises(ModelUnavailable, match="gone"):
        asyncio.run(gather())
    assert [d.text for d in seen[1:]] == ["Half ", "a"]


def test_an_exhausted_script_says_how_many_steps_it_had() -> None:
    model = ScriptedModel([Step("One."), Step("Two.")])
    play(model)
    play(model)
    with pytest.raises(ScriptExhausted, match="2 steps and this is call 3"):
        play(model)


def test_a_function_chooses_the_step_by_the_request() -> None:
    model = ScriptedModel(lambda request: Step(request.messages[0]["content"][0]["text"].upper()))
    assert play(model, ask("what"))[-1].content == [{"type": "text", "text": "WHAT"}]


def test_a_bad_request_is_refused_by_the_check() -> None:
    with pytest.raises(Invalid, match="non-whitespace"):
        play(ScriptedModel([Step("Yes.")], check=validate), ask(" "))


def test_limits_are_the_window_it_was_given() -> None:
    assert asyncio.run(ScriptedModel([], window=20_000).limits()) == Limits(
        20_000, 20_000, "setting"
    )


def test_steps_are_read_from_a_file(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    steps = [
        {"text": "Look.", "tools": [{"name": "Bash", "input": {"command": "ls"}}]},
        {"text": "Done.", "thinking": "Hm.", "stop_reason": "end_turn", "delay": 0},
    ]
    script.write_text(json.dumps({"steps": steps}))
    model = ScriptedModel.from_file(script)
    assert play(model)[-1].content[1]["input"] == {"command": "ls"}
    assert [block["type"] for block in play(model)[-1].content] == ["thinking", "text"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "list of `steps`"),
        ('{"steps": [{}, 3]}', "step 2 is not an object"),
        ('{"steps": [{"test": "x"}]}', "step 1: unknown key 'test'"),
        ('{"steps": [{"text": 3}]}', "step 1: `text` is not a text"),
        ('{"steps": [{"delay": true}]}', "step 1: `delay` is not a number"),
        ('{"steps": [{"tools": [{"name": "Bash"}]}]}', "step 1: a tool is"),
    ],
)
def test_a_bad_file_is_named_with_its_step(tmp_path: Path, content: str, message: str) -> None:
    script = tmp_path / "script.json"
    script.write_text(content)
    with pytest.raises(UsageError) as raised:
        ScriptedModel.from_file(script)
    assert message in str(raised.value)
    assert str(script) in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.json: the script cannot be read"):
        ScriptedModel.from_file(tmp_path / "nowhere.json")
