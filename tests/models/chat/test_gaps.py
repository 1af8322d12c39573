"""Refusals of Chat Completions servers with their real messages, and the adapted requests."""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import RequestRejected
from ctxagent.agent.models.chat.body import body, parameters
from ctxagent.agent.models.chat.wire import FILLER_REPLY, GAPS, OMITTED_FILE
from ctxagent.agent.models.gaps import ServerGaps

from .test_body import FUNCTION, MARK, PDF, call, result, said, text, thought, user

Body = dict[str, Any]


def made(
    *messages: Any, model: str = "deepseek/x", schema: Any = None, effort: str = "max"
) -> Body:
    tool = {"name": "Bash", "description": "Runs.", "input_schema": schema or {"type": "object"}}
    system = [text("Be good.", **MARK)]
    request = Request(model, system, [tool], [*messages], 10_000, effort)
    return body(request, parameters(request))


def whole(model: str = "deepseek/x") -> Body:
    """A body with every feature that a server may refuse."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    return made(
        user(text("Go."), PDF),
        said(thought({"field": "reasoning"}), call("call_0123456789")),
        user(result("call_0123456789"), text("Hurry.")),
        said(call("b")),
        user(result("b", **MARK)),
        model=model,
        schema={**schema, "additionalProperties": False, "$schema": "x"},
    )


def suspected(
    words: str, status: int = 400, model: str = "deepseek/x", known: str = ""
) -> list[str]:
    gaps = ServerGaps(None, "http://x", model, GAPS)
    for name in known.split():
        gaps.add(name)
    refusal = RequestRejected(f"the server refused the request ({status}): {words}", status=status)
    sent = whole(model)
    for name in gaps.names:
        sent = GAPS[name].fit(sent)
    return gaps.suspect(refusal, sent)


OPTIONAL = ["stream_options", "effort", "reasoning", "short"]
CLAUDE = "openrouter/anthropic/claude-sonnet-5"


@pytest.mark.parametrize(
    ("words", "gap"),
    [
        ("Unrecognized request argument supplied: stream_options", "stream_options"),
        ("Unsupported parameter: 'max_tokens' is not supported with this model. Use "
         "'max_completion_tokens' instead.", "max_tokens"),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "length"),
        ("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is "
         "less than the `context_window` for this model", "length"),
        ("Invalid value: 'max'. Supported values are: 'low', 'medium', 'high' (reasoning_effort)",
         "highest_effort"),
        ("'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : "
         "property 'reasoning' is unsupported, did you mean 'role'?)]", "reasoning"),
        ("messages.2.assistant.reasoning_content: property is unsupported", "reasoning"),
        ("The reasoning_content in the thinking mode must be passed back to the API.",
         "no_reasoning"),
        ("Missing reasoning_content field in the assistant message at message index 2.",
         "no_reasoning"),
        ("thinking is enabled but reasoning_content is missing in assistant tool call message at "
         "index 2", "no_reasoning"),
        ("Function call is missing a thought_signature in functionCall parts. This is required "
         "for tools to work correctly", "no_signature"),
        ("Tool call id was call_0123456789 but must be a-z, A-Z, 0-9, with a length of 9.", "ids"),
        ("Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum "
         "length 40, but got a string with length 64 instead.", "ids"),
        ("Unexpected role 'user' after role 'tool'", "roles"),
        ("After the optional system message, conversation roles must alternate "
         "user/assistant/user/assistant/...", "roles"),
        ("System role not supported", "system"),
        ("Unknown name \"$schema\" at 'tools[0].function.parameters': Cannot find field.",
         "schemas"),
        ("Invalid JSON schema: additionalProperties is not supported", "schemas"),
        ("unsupported content[].type", "files"),
        ("Invalid 'content': 'content' objects must have a 'type' field that is either 'text' or "
         "'image_url'.", "files"),
        ("Streaming is not supported when using tools", "stream"),
        ("this model does not support images", "images"),
    ],
)  # fmt: skip
def test_refusals(words: str, gap: str) -> None:
    assert suspected(words) == [gap]


@pytest.mark.parametrize(
    ("words", "gap"),
    [
        ("messages.0.content.0.cache_control: Extra inputs are not permitted", "cache"),
        ("messages[0].content should be a string", "cache"),
        ("json: cannot unmarshal array into Go struct field .messages.content of type string",
         "cache"),
    ],
)  # fmt: skip
def test_refusals_of_marks(words: str, gap: str) -> None:
    assert suspected(words, model=CLAUDE) == [gap]


def test_an_effort_that_is_refused_is_lowered_first() -> None:
    words = "reasoning_effort is not supported by this model"
    assert suspected(words) == ["highest_effort"]
    assert suspected(words, known="highest_effort") == ["effort"]


@pytest.mark.parametrize("words", ["Bad request", "Invalid API usage", ""])
def test_all_optional_parts_are_left_out_if_the_server_names_none(words: str) -> None:
    assert suspected(words) == OPTIONAL
    assert suspected(words, known=" ".join(OPTIONAL)) == []


def test_every_gap_changes_the_body_once() -> None:
    """Applying a gap twice equals applying it once, and a gap changes nothing but its feature."""
    for name, gap in GAPS.items():
        before = whole(CLAUDE)
        after = gap.fit(dict(before))
        assert (after != before) == (name != "images"), name
        assert gap.fit(dict(after)) == after, name
        assert before == whole(CLAUDE), name  # blocks are shared, not changed
        json.dumps(after)


def test_the_gaps_are_kept(tmp_path: Path) -> None:
    gaps = ServerGaps(tmp_path / "servers.json", "http://x", "m", GAPS)
    gaps.add("ids")
    assert ServerGaps(tmp_path / "servers.json", "http://x", "m", GAPS).names == ("ids",)


def without(name: str, model: str = "deepseek/x") -> Body:
    return GAPS[name].fit(whole(model))


def test_parameters() -> None:
    assert "stream_options" not in without("stream_options")
    assert without("stream").keys() == whole().keys() - {"stream", "stream_options"}
    assert without("max_tokens")["max_completion_tokens"] == 10_000
    assert "max_tokens" not in without("max_tokens")
    assert "max_tokens" not in without("length")
    assert without("highest_effort")["reasoning_effort"] == "high"
    assert "reasoning_effort" not in without("effort")


def test_reasoning_is_left_out() -> None:
    assert not any("reasoning" in message for message in without("reasoning")["messages"])
    parts = made(
        user(text("Go.")), said(thought({"field": "content"}), text("Yes.")), user(text("?"))
    )
    assert GAPS["reasoning"].fit(parts)["messages"][2]["content"] == [text("Yes.")]


def test_reasoning_is_filled_in() -> None:
    messages = without("no_reasoning")["messages"]
    replies = [message for message in messages if message["role"] == "assistant"]
    assert [reply["reasoning_content"] for reply in replies] == [" ", " "]


def test_a_signature_is_filled_in() -> None:
    extra = {"google": {"thought_signature": "own"}}
    signed = call("a", signature=json.dumps({"extra_content": extra}))
    given = made(
        user(text("Go.")),
        said(signed, call("b")),
        user(result("a"), result("b")),
        said(call("c"), call("d")),
        user(result("c"), result("d")),
    )
    found = GAPS["no_signature"].fit(given)["messages"]
    assert [each.get("extra_content") for each in found[2]["tool_calls"]] == [extra, None]
    filled = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert [each.get("extra_content") for each in found[5]["tool_calls"]] == [filled, None]


def test_short_ids() -> None:
    found = without("ids")["messages"]
    ids = [each["tool_calls"][0]["id"] for each in found if "tool_calls" in each]
    assert all(len(id) == 9 and id.isalnum() for id in ids)
    assert len({*ids}) == 2
    assert [each["tool_call_id"] for each in found if each["role"] == "tool"] == ids


def test_roles_alternate() -> None:
    roles = [message["role"] for message in without("roles")["messages"]]
    assert roles == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "tool",
    ]
    assert without("roles")["messages"][4]["content"] == FILLER_REPLY


def test_the_system_message_goes_to_the_user() -> None:
    first = without("system")["messages"][0]
    assert first["role"] == "user"
    assert first["content"][:2] == [text("Be good."), text("Go.")]
    plain = GAPS["system"].fit(made(user(text("Go."))))["messages"]
    assert plain == [{"role": "user", "content": "Be good.\n\nGo."}]


def test_files_become_a_note() -> None:
    assert without("files")["messages"][1]["content"] == [text("Go."), text(OMITTED_FILE)]


def test_special_keywords_are_removed_from_schemas() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert without("schemas")["tools"] == [
        {"type": "function", "function": {**FUNCTION, "parameters": schema}}
    ]


def test_marks_are_left_out() -> None:
    found = without("cache", CLAUDE)
    assert "cache_control" not in json.dumps(found)
    contents = [message["content"] for message in found["messages"]]
    assert [type(each).__name__ for each in contents] == [
        "str", "list", "NoneType", "str", "str", "NoneType", "str"
    ]  # fmt: skip
