"""Reasoning of the Responses API, stored in the signature of thinking and restored from it."""

import pytest

from ctxagent.agent.models.responses.draft import ReasoningState, pack

from .test_body import HELLO, Block, call, items, result, text

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def thinking(state: ReasoningState | str) -> Block:
    signature = state if isinstance(state, str) else pack(state)
    return {"type": "thinking", "thinking": "Hm.", "signature": signature}


def test_reasoning_stands_before_the_items_it_came_with() -> None:
    raw = '{"command": "ls", "n": 1}'
    behind = [
        {"type": "message", "id": "msg_1", "phase": "commentary"},
        {"type": "function_call", "id": "fc_1", "arguments": raw},
        {"type": "function_call", "id": "fc_2"},
    ]
    second = {**REASONING, "id": "rs_2"}
    told = items(
        HELLO,
        (
            "assistant",
            [
                thinking(ReasoningState(REASONING, [])),
                thinking(ReasoningState(second, behind)),
                text("Look."),
                call("a", command="ls", n=1),
                call("b"),
            ],
        ),
        ("user", [result("a", ""), result("b", "")]),
    )
    assert told[1:3] == [REASONING, second]
    assert told[3] == {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "phase": "commentary",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Look.", "annotations": []}],
    }
    assert [(item["id"], item["arguments"]) for item in told[4:6]] == [
        ("fc_1", raw),
        ("fc_2", "{}"),
    ]


@pytest.mark.parametrize(
    ("behind", "blocks"),
    [
        ([{"type": "message", "id": "msg_1"}, {"type": "function_call", "id": "fc_1"}], [call()]),
        ([{"type": "web_search_call", "id": "ws_1"}], [text("Found.")]),
        ([], [text("Found.")]),
        ([], []),
    ],
    ids=["blank message", "unknown item", "nothing known", "nothing there"],
)
def test_reasoning_is_dropped_with_its_following_item(
    behind: list[Block], blocks: list[Block]
) -> None:
    told = items(HELLO, ("assistant", [thinking(ReasoningState(REASONING, behind)), *blocks]))
    assert [item["type"] for item in told[1:]] == [
        "function_call" if block["type"] == "tool_use" else "message" for block in blocks
    ]
    assert all("id" not in item for item in told)


def test_changed_arguments_are_sent_as_they_are_now() -> None:
    behind = [{"type": "function_call", "id": "fc_1", "arguments": '{"command": "ls"}'}]
    told = items(
        HELLO,
        ("assistant", [thinking(ReasoningState(REASONING, behind)), call(command="[cleared]")]),
    )
    assert told[2]["arguments"] == '{"command":"[cleared]"}'


def test_a_phase_needs_no_reasoning() -> None:
    behind = [{"type": "message", "id": "msg_1", "phase": "final_answer"}]
    told = items(HELLO, ("assistant", [thinking(ReasoningState(None, behind)), text("Done.")]))
    assert [item.get("phase") for item in told[1:]] == ["final_answer"]


@pytest.mark.parametrize("signature", ["EqQBCgIYAhIM", '{"field":"reasoning_content"}', "[]"])
def test_thinking_of_another_protocol_is_left_out(signature: str) -> None:
    told = items(HELLO, ("assistant", [thinking(signature), text("Hi.")]))
    assert told[1:] == [{"type": "message", "role": "assistant", "content": "Hi."}]
