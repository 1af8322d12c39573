"""The items of a view: replacements for their blocks, and the names of calls."""

from typing import Any

import pytest

from ctxagent.agent.context.items import (
    MAX_INSTRUCTIONS_CHARS,
    Call,
    Item,
    begins_with_block,
    compaction_in,
    is_compaction,
    shown_blocks,
    with_plain_text,
)

from ..support.server.validator import LONGEST_INSTRUCTIONS

CALL = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "make"}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "done", "is_error": False}


def test_a_stub_and_a_shorter_input_stand_where_the_text_stood() -> None:
    reply, result = Item(1, "assistant", [CALL], 9), Item(2, "user", [RESULT], 9)
    assert shown_blocks(reply) == [CALL]
    assert not result.is_masked
    reply.inputs["c"], result.stubs["c"] = {"command": "m…"}, "[cleared]"
    assert shown_blocks(reply) == [{**CALL, "input": {"command": "m…"}}]
    assert shown_blocks(result) == [{**RESULT, "content": "[cleared]"}]
    assert result.is_masked


def test_an_outline_takes_the_place_of_all_of_an_item() -> None:
    reply, result = Item(1, "assistant", [CALL], 9), Item(2, "user", [RESULT], 9, stubs={"c": "s"})
    reply.outline, result.outline = "", "Bash: make #2"
    assert shown_blocks(reply) == []
    assert shown_blocks(result) == [{"type": "text", "text": "Bash: make #2"}]
    assert reply.is_masked
    assert result.is_masked


def test_thinking_and_signatures_are_for_the_model_that_made_them() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    reply = Item(1, "assistant", [thought, {**CALL, "signature": "s"}], 9)
    assert shown_blocks(reply) == reply.blocks
    reply.thinking, reply.by_other_model = False, True
    assert shown_blocks(reply) == [CALL]


def test_an_edited_copy_leaves_the_item_unchanged() -> None:
    item = Item(1, "user", [RESULT], 9)
    copy = item.copy()
    copy.stubs["c"] = "[cleared]"
    assert item.stubs == {}
    assert shown_blocks(item) == [RESULT]


def test_what_a_call_is_named_by() -> None:
    assert Call("c", 1, "Bash", {"description": "Builds.", "command": "make\n all"}).argument == (
        "make all"
    )
    assert Call("c", 1, "Todo", {"items": []}).argument == ""
    assert Call("c", 1, "Mcp", {"tool": "mcp__git__log"}).source == "mcp git"
    assert Call("c", 1, "mcp__git__log", {}).source == "mcp git"
    assert Call("c", 1, "Mcp", {"search": "log"}).source == "Mcp"


# Compaction blocks

BLOCK = {"type": "compaction", "content": "So far.", "signature": "s"}
TEXT = {"type": "text", "text": "Go on."}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"encrypted_content": "e", "tool_changes": []}, True),
        ({"type": "text"}, False),
        ({"content": " "}, False),
        ({"content": None}, False),
        ({"signature": ""}, False),
        ({"other": 1}, False),
    ],
)
def test_a_compaction_block_has_a_text_and_a_signature(change: dict[str, Any], valid: bool) -> None:
    block = {**BLOCK, **change}
    assert is_compaction(block) is valid
    assert compaction_in([TEXT, block]) == (block if valid else None)


def test_the_limit_of_instructions_is_that_of_the_api() -> None:
    assert MAX_INSTRUCTIONS_CHARS == LONGEST_INSTRUCTIONS


def test_servers_without_compaction_blocks_get_the_text_and_no_thinking() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    question = {"role": "user", "content": [TEXT]}
    reply = {"role": "assistant", "content": [THOUGHT, CALL]}
    thought = {"role": "assistant", "content": [THOUGHT]}
    first = {"role": "assistant", "content": [{**BLOCK, **mark}]}
    plain = {"type": "text", "text": "So far.", **mark}
    assert with_plain_text([first, question, reply, question]) == [
        {"role": "user", "content": [plain, TEXT]},
        {"role": "assistant", "content": [CALL]},
        question,
    ]
    assert with_plain_text([first]) == [{"role": "user", "content": [plain]}]
    assert with_plain_text([first, reply])[1] == {"role": "assistant", "content": [CALL]}
    assert with_plain_text([first, thought])[1] == thought  # a message cannot be empty
    assert with_plain_text([question, reply]) == [question, reply]


@pytest.mark.parametrize(
    "messages", [[], [{"content": []}], [{"content": "So far."}], [{"content": [TEXT, BLOCK]}]]
)
def test_other_messages_do_not_begin_with_a_compaction_block(messages: list[Any]) -> None:
    assert not begins_with_block(messages)
