"""Requests in the format of Chat Completions."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.models.chat.body import MEDIA_FOLLOWS, body, parameters
from ctxagent.agent.models.chat.draft import ChatDraft, draft
from ctxagent.agent.models.wire import encode

Block = dict[str, Any]
TOOL = {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}
FUNCTION = {"name": "Bash", "description": "Runs.", "parameters": {"type": "object"}}
MARK = {"cache_control": {"type": "ephemeral"}}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
FILE_PART = {
    "type": "file",
    "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBE"},
}


def text(said: str, **more: Any) -> Block:
    return {"type": "text", "text": said, **more}


def call(id: str, command: str = "ls", **more: Any) -> Block:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}, **more}


def result(id: str, content: Any = "ok", **more: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def user(*blocks: Block) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def said(*blocks: Block) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def ask(*messages: Any, model: str = "deepseek/deepseek-chat", **more: Any) -> Request:
    system = [text("Be good.", **MARK)]
    return Request(model, system, [TOOL], [*messages] or [user(text("Go."))], 1000, **more)


def made(request: Request) -> dict[str, Any]:
    return body(request, parameters(request))


def messages(*given: Any, **more: Any) -> list[dict[str, Any]]:
    return made(ask(*given, **more))["messages"][1:]


def test_a_body() -> None:
    assert made(ask()) == {
        "model": "deepseek-chat",
        "max_tokens": 1000,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be good."},
            {"role": "user", "content": "Go."},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
    }


def test_an_effort_is_sent() -> None:
    assert made(ask(effort="low"))["reasoning_effort"] == "low"


def test_a_body_depends_on_nothing_else() -> None:
    request = ask(user(text("Go.")), said(text("a"), call("1")), user(result("1")))
    assert encode(made(request)) == encode(made(request))


def test_calls_and_results() -> None:
    given = [
        user(text("Go."), text("Now.")),
        said(text("Let me see."), text("Now."), call("a"), call("b", "pwd")),
        user(result("a", "x"), result("b", [text("y"), text("z")]), text("Hurry.")),
        said(call("c")),
        user(result("c")),
    ]
    assert messages(*given) == [
        {"role": "user", "content": "Go.\n\nNow."},
        {
            "role": "assistant",
            "content": "Let me see.\n\nNow.",
            "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "Bash", "arguments": raw}}
                for id, raw in (("a", '{"command":"ls"}'), ("b", '{"command":"pwd"}'))
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "tool", "tool_call_id": "b", "content": "y\n\nz"},
        {"role": "user", "content": "Hurry."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "Bash", "arguments": '{"command":"ls"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]


def test_images_and_documents() -> None:
    assert messages(user(text("Look."), PNG, PDF)) == [
        {"role": "user", "content": [text("Look."), IMAGE_PART, FILE_PART]}
    ]


def test_images_of_results_follow_all_results() -> None:
    given = user(result("a", [text("a.png"), PNG]), result("b", [PDF]), text("And?"))
    assert messages(user(text("Go.")), said(call("a"), call("b")), given)[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "a.png"},
        {"role": "tool", "tool_call_id": "b", "content": MEDIA_FOLLOWS},
        {
            "role": "user",
            "content": [
                text("[Returned by Bash:]"),
                IMAGE_PART,
                text("[Returned by Bash:]"),
                FILE_PART,
                text("And?"),
            ],
        },
    ]


@pytest.mark.parametrize(
    "model",
    ["openrouter/anthropic/claude-sonnet-5", "litellm/claude-x", "openrouter/qwen/qwen3-max"],
)
def test_marks_are_sent_where_the_cache_needs_them(model: str) -> None:
    given = [
        user(text("a"), text("b", **MARK)),
        said(text("c"), call("1", **MARK)),
        user(result("1", "d", **MARK)),
    ]
    found = made(ask(*given, model=model))["messages"]
    assert found[0]["content"] == [text("Be good.", **MARK)]
    assert found[1]["content"] == [text("a"), text("b", **MARK)]
    assert found[2]["content"] == [text("c")]
    assert found[3]["content"] == [text("d", **MARK)]


@pytest.mark.parametrize("model", ["ollama/qwen3:8b", "openrouter/qwen/qwen3-coder", "openai/x"])
def test_other_models_get_no_marks(model: str) -> None:
    assert "cache_control" not in json.dumps(made(ask(user(text("a", **MARK)), model=model)))


def test_a_mark_changes_nothing_else() -> None:
    def told(**mark: Any) -> str:
        given = user(text("a"), text("b", **mark)), said(text("c"), text("d")), user(text("e"))
        found = messages(*given, model="openrouter/anthropic/x")
        return json.dumps(found).replace(f", {json.dumps(MARK)[1:-1]}", "")

    assert told() == told(**MARK)


def thought(kept: Any, said: str = "Hm.") -> Block:
    return {"type": "thinking", "thinking": said, "signature": json.dumps(kept)}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_where_it_was(name: str) -> None:
    found = messages(
        user(text("Go.")), said(thought({"field": name}), text("Yes.")), user(text("?"))
    )
    assert found[1] == {"role": "assistant", "content": "Yes.", name: "Hm."}


def test_details_of_reasoning_go_back_as_they_came() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    block = thought({"field": "reasoning", "reasoning_details": details})
    found = messages(user(text("Go.")), said(block, text("Yes.")), user(text("?")))
    assert found[1] == {"role": "assistant", "content": "Yes.", "reasoning_details": details}


def test_parts_of_reasoning_go_back_as_parts() -> None:
    found = messages(
        user(text("Go.")), said(thought({"field": "content"}), text("Yes.")), user(text("?"))
    )
    part = {"type": "thinking", "thinking": [text("Hm.")]}
    assert found[1] == {"role": "assistant", "content": [part, text("Yes.")]}


@pytest.mark.parametrize(
    "kept",
    [{"field": "role"}, {"field": 5}, {"id": "rs_1"}, "EqRk", None, [1], {"reasoning_details": 1}],
)
def test_thinking_of_others_is_left_out(kept: Any) -> None:
    found = messages(user(text("Go.")), said(thought(kept), text("Yes.")), user(text("?")))
    assert found[1] == {"role": "assistant", "content": "Yes."}


def test_the_signature_of_gemini_is_sent_back_with_its_call() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    block = call("a", signature=json.dumps({"extra_content": extra}))
    sent = messages(user(text("Go.")), said(block), user(result("a")))[1]["tool_calls"][0]
    assert sent["extra_content"] == extra


def test_the_ids_of_moonshot_go_back() -> None:
    own = json.dumps({"id": "functions.Bash:0"})
    given = [user(text("Go."))]
    for id in ("a", "b"):  # after a summary the server's IDs start at 0 again
        given += [said(call(id, signature=own)), user(result(id))]
    found = messages(*given)
    assert [each["tool_calls"][0]["id"] for each in found[1::2]] == ["functions.Bash:0", "b"]
    assert [each["tool_call_id"] for each in found[2::2]] == ["functions.Bash:0", "b"]


def test_a_search_of_another_protocol_is_text() -> None:
    id = "srvtoolu_1"
    page = {
        "type": "web_search_result",
        "title": "Walrus",
        "url": "http://w",
        "encrypted_content": "x",
    }
    given = said(
        text("I look."),
        {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "walrus"}},
        {"type": "web_search_tool_result", "tool_use_id": id, "content": [page]},
        text("It eats clams."),
    )
    content = messages(user(text("Go.")), given, user(text("?")))[1]["content"]
    assert content == (
        "I look.\n\n[WebSearch]\nquery: walrus\n\nFound:\nWalrus · http://w\n\nIt eats clams."
    )


def test_a_summary_of_another_protocol_is_text() -> None:
    block = {"type": "compaction", "content": "All of it.", "signature": "x"}
    assert messages(said(block), user(text("Go on."))) == [
        {"role": "user", "content": "All of it.\n\nGo on."}
    ]


def test_tools_that_older_logs_add() -> None:
    late = {"type": "tool_definition", "definition": {**TOOL, "name": "Late"}}
    added = {"role": "system", "content": [{"type": "tool_addition", "tool": late}]}
    found = made(ask(user(text("Go.")), added))
    assert [tool["function"]["name"] for tool in found["tools"]] == ["Bash", "Late"]
    assert len(found["messages"]) == 2


def test_tools_of_a_server_are_left_out() -> None:
    request = Request(
        "x", [], [{"type": "web_search_1", "name": "web_search"}], [user(text("a"))], 9
    )
    assert "tools" not in made(request)


def test_a_paused_turn_goes_on() -> None:
    assert messages(user(text("Go.")), said(text("One moment.")))[-1]["role"] == "user"


def test_a_received_message_is_sent_back_unchanged() -> None:
    """A server's message is unchanged in the next request, after the reply and the log."""
    function = {"name": "Bash", "arguments": '{"command":"ls"}'}
    message = {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "Hm.",
        "tool_calls": [
            {
                "id": "functions.Bash:0",
                "type": "function",
                "function": function,
                "extra_content": {"google": {"thought_signature": "s"}},
            }
        ],
    }
    draft = ChatDraft("x")
    [*draft.take_unstreamed({"choices": [{"message": message, "finish_reason": "tool_calls"}]})]
    blocks = draft.reply().content
    assert messages(user(text("Go.")), said(*blocks), user(result(blocks[-1]["id"])))[1:] == [
        message,
        {"role": "tool", "tool_call_id": "functions.Bash:0", "content": "ok"},
    ]


def test_long_names_and_ids_are_shortened_the_same_way_each_time() -> None:
    long_name, long_id = "mcp__" + "n" * 80, "call_" + "i" * 80
    asked = {**call(long_id), "name": long_name}
    request = ask(user(text("Go.")), said(asked), user(result(long_id)))
    request = replace(request, tools=[{**TOOL, "name": long_name}])
    out = made(request)
    (sent,) = out["messages"][2]["tool_calls"]
    assert len(sent["id"]) == 40
    assert out["messages"][3]["tool_call_id"] == sent["id"]
    assert out["tools"][0]["function"]["name"] == sent["function"]["name"]
    assert len(sent["function"]["name"]) == 64
    reply = draft(request)
    piece = {"index": 0, "id": "c1", "function": {"name": sent["function"]["name"]}}
    list(reply.take({"choices": [{"delta": {"tool_calls": [piece]}}]}))
    list(reply.take({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}))
    assert reply.reply().content[0]["name"] == long_name
