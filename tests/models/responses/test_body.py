"""Bodies of the Responses API for all kinds of requests."""

import json
from dataclasses import replace
from typing import Any

from ctxagent.agent.context.request import Request
from ctxagent.agent.models.responses.wire import WIRE, body, parameters
from ctxagent.agent.models.wire import MAX_NAME_CHARS, encode

TOOL = {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBOR"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBER"}

Block = dict[str, Any]


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def call(id: str = "call_1", **given: Any) -> Block:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": given}


def result(id: str, content: str | list[Block]) -> Block:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def request(*messages: tuple[str, list[Block]], **fields: Any) -> Request:
    told = [{"role": role, "content": content} for role, content in messages]
    return Request("openai/gpt-5.5", [text("Be brief.")], [TOOL], told, 1_000, **fields)


def items(*messages: tuple[str, list[Block]]) -> list[Block]:
    found: list[Block] = body(request(*messages), {})["input"]
    return found


HELLO = ("user", [text("Hello")])


def test_nothing_is_kept_on_the_server_and_reasoning_is_asked_for() -> None:
    found = parameters(request(HELLO, effort="xhigh"))
    key = found.pop("prompt_cache_key")
    assert found == {
        "model": "gpt-5.5",
        "max_output_tokens": 1_000,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "xhigh", "summary": "auto"},
    }
    assert 0 < len(key) <= 64


def test_the_reply_may_have_as_many_tokens_as_the_api_takes_for_a_limit() -> None:
    assert parameters(replace(request(HELLO), max_tokens=1))["max_output_tokens"] == 16


def test_without_thinking_and_effort_the_model_decides() -> None:
    assert "reasoning" not in parameters(request(HELLO, thinking=False))


def test_a_model_with_breakpoints_has_one_behind_the_instructions() -> None:
    marked = {**text("Hello"), "cache_control": {"type": "ephemeral"}}
    asked = replace(request(("user", [marked])), model="openai/gpt-5.6")
    told = parameters(asked)
    found = body(asked, told)
    assert told["prompt_cache_options"] == {"mode": "implicit"}
    assert "instructions" not in found
    ends = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    part = {"type": "input_text", "text": "Be brief.", **ends}
    assert found["input"][0] == {"type": "message", "role": "developer", "content": [part]}
    assert found["input"][1:] == items(HELLO)


def test_a_request_that_nothing_follows_is_not_written_to_the_cache() -> None:
    told = parameters(replace(request(HELLO), model="openai/gpt-5.6"))
    assert told["prompt_cache_options"] == {"mode": "explicit"}


def test_the_cache_key_is_that_of_the_beginning_of_the_conversation() -> None:
    marked = {**text("Hello"), "cache_control": {"type": "ephemeral"}}
    keys = [
        parameters(each)["prompt_cache_key"]
        for each in (
            request(HELLO),
            request(("user", [marked]), ("assistant", [text("Hi.")]), ("user", [text("Go on.")])),
            request(("user", [text("Good bye")])),
            replace(request(HELLO), tools=[]),
        )
    ]
    assert keys[0] == keys[1]
    assert len({*keys}) == 3


def test_instructions_tools_and_texts_are_sent_without_cache_marks() -> None:
    marked = {**text("Hello"), "cache_control": {"type": "ephemeral"}}
    found = body(request(("user", [marked, text("World")])), {"model": "m"})
    assert found == {
        "model": "m",
        "instructions": "Be brief.",
        "tools": [
            {"type": "function", "name": "Bash", "description": "Runs.",
             "parameters": {"type": "object"}, "strict": False},
        ],
        "input": [
            {"type": "message", "role": "user",
             "content": [{"type": "input_text", "text": "Hello"},
                         {"type": "input_text", "text": "World"}]},
        ],
    }  # fmt: skip


def test_results_come_before_the_words_of_the_same_message() -> None:
    told = items(
        HELLO,
        ("assistant", [text("Two."), call("a", command="ls"), call("b")]),
        ("user", [result("a", "x"), result("b", [text("y"), text("z")]), text("And?")]),
    )
    assert told[1:] == [
        {"type": "message", "role": "assistant", "content": "Two."},
        {"type": "function_call", "call_id": "a", "name": "Bash", "arguments": '{"command":"ls"}'},
        {"type": "function_call", "call_id": "b", "name": "Bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "x"},
        {"type": "function_call_output", "call_id": "b", "output": "y\n\nz"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And?"}]},
    ]


def test_images_and_files_stand_in_messages_and_results() -> None:
    image = {"type": "image", "source": PNG}
    told = items(
        ("user", [{"type": "document", "source": PDF}, text("Read.")]),
        ("assistant", [call()]),
        ("user", [result("call_1", [text("Seen:"), image])]),
    )
    assert told[0]["content"][0] == {
        "type": "input_file",
        "filename": "document.pdf",
        "file_data": "data:application/pdf;base64,JVBER",
    }
    assert told[2]["output"] == [
        {"type": "input_text", "text": "Seen:"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBOR", "detail": "auto"},
    ]


def test_ids_of_calls_that_are_too_long_are_shortened_the_same_way_each_time() -> None:
    long = ["x" * 100 + "a", "x" * 100 + "b"]
    told = items(
        HELLO,
        ("assistant", [call(id) for id in long]),
        ("user", [result(id, "") for id in long]),
    )
    ids = [item["call_id"] for item in told[1:]]
    assert ids[:2] == ids[2:]
    assert len({*ids}) == 2
    assert all(len(id) <= MAX_NAME_CHARS for id in ids)


def test_blocks_of_the_messages_api_alone_are_sent_as_text() -> None:
    found = [{"type": "web_search_result", "title": "T", "url": "https://x.test"}]
    told = items(
        ("assistant", [{"type": "compaction", "content": "So far.", "signature": "s"}]),
        ("user", [text("Go on.")]),
        (
            "assistant",
            [
                {
                    "type": "server_tool_use",
                    "id": "s",
                    "name": "web_search",
                    "input": {"query": "q"},
                },
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": found},
                {"type": "redacted_thinking", "data": "x"},
                text("There."),
            ],
        ),
    )
    assert [part["text"] for part in told[0]["content"]] == ["So far.", "Go on."]
    assert [item["content"] for item in told[1:]] == [
        "[WebSearch]\nquery: q",
        "Found:\nT · https://x.test",
        "There.",
    ]


def test_tools_of_older_logs_are_added_to_the_others_and_server_tools_left_out() -> None:
    late = {"name": "Late", "input_schema": {"type": "object"}}
    added = {"type": "tool_definition", "definition": late}
    asked = request(HELLO, ("system", [{"type": "tool_addition", "tool": added}]))
    search = {"type": "web_search_20250305", "name": "web_search"}
    found = body(replace(asked, tools=[TOOL, search]), {})["tools"]
    assert [tool["name"] for tool in found] == ["Bash", "Late"]


def test_a_request_is_rebuilt_from_the_log_byte_by_byte() -> None:
    asked = request(HELLO, ("assistant", [call(command="ä")]), ("user", [result("call_1", "ö")]))
    gaps = ("cache", "summary")
    data = encode(WIRE.fitted_body(asked, gaps))
    sent = json.loads(json.dumps(WIRE.sent_of(asked, data, gaps)))
    assert WIRE.rebuild(replace(asked, max_tokens=5, effort="low"), sent) == data
    assert b"prompt_cache_key" not in data
