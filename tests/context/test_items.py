"""The items of a view: replacements for their blocks, and the names of calls."""

from ctxagent.agent.context.items import Call, Item, shown_blocks

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
    assert shown_blocks(reply)[0] == thought
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
