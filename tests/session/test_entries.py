"""Kinds of entry: valid fields of a log line, and the values made from them."""

from typing import Any

import pytest

from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    Entry,
    Mask,
    Note,
    Revert,
    SubagentRun,
    Summary,
    ToolResult,
    Unknown,
    Usage,
    User,
    altered_thinking,
    attachment_call,
    attachment_result,
    decode,
    encode,
    reverted_seqs,
    shell_result,
    summarized_text,
)


def line(kind: str, **fields: Any) -> Entry:
    return decode({"v": 1, "seq": 3, "at": "then", "kind": kind, **fields})


REPLY = {"content": [], "usage": {}, "stop_reason": None, "model": "m"}
SUMMARY = {"document": {}, "text": "t", "covers": [1, 2], "keep_from": 3}
RUN = {"id": "a1", "type": "t", "prompt": "p", "log": "agents/a1/log.jsonl"}
MASK = {"layer": "l", "targets": [], "tokens_before": 1, "tokens_after": 0, "trigger": "t"}


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("user", {}, "content"),
        ("user", {"content": 1}, "user.content has the wrong type int"),
        ("user", {"content": ["a"]}, "user.content has an item of the wrong type"),
        ("user", {"content": "a", "source": 1}, "user.source has the wrong type int"),
        ("user", {"content": "a", "mid_turn": 1}, "user.mid_turn"),
        ("user", {"content": "a", "details": []}, "user.details has the wrong type list"),
        ("user", {"content": "a", "offloaded": 1}, "offloaded"),
        ("assistant", {**REPLY, "content": "a"}, "assistant.content is not a list of blocks"),
        ("assistant", {**REPLY, "usage": {"input": -1}}, "usage.input is not a count"),
        ("assistant", {**REPLY, "usage": {"output": True}}, "usage.output is not a count"),
        ("assistant", {**REPLY, "usage": {"web_searches": "1"}}, "usage.web_searches"),
        ("assistant", {**REPLY, "cost_usd": -0.1}, "cost_usd"),
        ("assistant", {**REPLY, "cost_usd": True}, "cost_usd"),
        ("assistant", {**REPLY, "stop_reason": 1}, "stop_reason"),
        ("assistant", {**REPLY, "broken": ""}, "broken"),
        ("summary", {**SUMMARY, "covers": [1]}, "summary.covers is not a pair"),
        ("summary", {**SUMMARY, "covers": [1, 2, 3]}, "covers is not a pair"),
        ("summary", {**SUMMARY, "keep": [-1]}, "summary.keep has an item"),
        ("summary", {**SUMMARY, "keep_from": 2**53}, "keep_from"),
        ("summary", {**SUMMARY, "files": [1]}, "files"),
        ("summary", {**SUMMARY, "block": []}, "block"),
        ("summary", {**SUMMARY, "replaces_earlier": 1}, "replaces_earlier"),
        ("mask", {**MASK, "targets": [1]}, "mask.targets"),
        ("mask", {**MASK, "tokens_before": 1.5}, "tokens_before"),
        ("pin", {"ref": "1"}, "pin.ref"),
        ("agent", {**RUN, "id": "../a"}, "agent.id is not a plain name"),
        ("agent", {**RUN, "id": ""}, "id"),
        ("agent", {**RUN, "told": False}, "told"), ("note", {"topic": "a"}, "text"),
        ("session", {"id": "a"}, "session"),
        ("revert", {"target": None}, "target"),
        ("checkpoint", {"number": 1, "path": "", "snapshot": 1}, "snapshot"),
    ],
)  # fmt: skip
def test_a_line_of_the_wrong_shape_is_named(
    kind: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        line(kind, **fields)


@pytest.mark.parametrize(
    "head",
    [{"seq": 0}, {"seq": -1}, {"seq": True}, {"seq": "1"}, {"seq": 1.0}, {"seq": 2**53},
    {"seq": None},
     {"kind": None}, {"kind": 1}, {"at": 1}],
)  # fmt: skip
def test_a_line_without_a_head_is_no_entry(head: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"seq is not a number from 1|no kind"):
        decode({"v": 1, "seq": 1, "at": "", "kind": "end", "status": "ok", **head})


def test_the_bounds_of_numbers() -> None:
    assert [line("pin", ref=ref).ref for ref in (0, 2**53 - 1, None)] == [0, 2**53 - 1, None]  # type: ignore[attr-defined]
    assert line("assistant", **{**REPLY, "cost_usd": 0.5}).cost_usd == 0.5  # type: ignore[attr-defined]
    assert decode({"seq": 1, "kind": "end", "status": "ok"}).at == ""


def test_unknown_fields_and_kinds_survive() -> None:
    entry = line("note", topic="a", text="b", later=[1])
    assert isinstance(entry, Note)
    assert entry.extra == {"later": [1]}
    assert encode(entry) == {
        "v": 1, "seq": 3, "at": "then", "kind": "note", "topic": "a", "text": "b",
        "data": {}, "later": [1],
    }  # fmt: skip
    other = line("future", a=1)
    assert isinstance(other, Unknown)
    assert (other.name, other.extra) == ("future", {"a": 1})
    assert encode(other) == {"v": 1, "seq": 3, "at": "then", "kind": "future", "a": 1}


def test_a_malformed_request_field_does_not_lose_the_reply() -> None:
    entry = line("assistant", **REPLY, request="garbled")
    assert isinstance(entry, Assistant)
    assert entry.request == {}


def test_files_outside_of_the_session_count_as_gone() -> None:
    def kept(name: str) -> str | None:
        entry = line("tool_result", tool_use_id="t", content="", offloaded=name)
        assert isinstance(entry, ToolResult)
        return entry.offloaded

    assert kept("offloaded/a.md") == "offloaded/a.md"
    for name in (
        "/etc/passwd",
        "offloaded/../log.jsonl",
        "offloaded/",
        "a",
        "offloaded/" + "a" * 256,
    ):
        assert kept(name) == "offloaded/a file outside of the session"
    for path, found in (
        ("checkpoints/1.json", "checkpoints/1.json"),
        ("", ""),
        ("../x", ""),
        ("checkpoints/a.json", ""),
    ):
        entry = line("checkpoint", number=1, path=path)
        assert isinstance(entry, Checkpoint)
        assert entry.path == found
    for log in ("agents/a1/log.jsonl", "../log.jsonl", "agents/a/b/log.jsonl", ""):
        run = line("agent", **{**RUN, "log": log})
        assert isinstance(run, SubagentRun)
        assert run.log == "agents/a1/log.jsonl"


def test_usage_adds_up() -> None:
    one, other = Usage(1, 2, 3, 4, 5), Usage(10, 20, 30, 40)
    assert one + other == Usage(11, 22, 33, 44, 5)
    assert (one + other) - other == one
    assert (one.prompt, one.total) == (6, 10)
    assert one.to_json() == {
        "input": 1,
        "cache_read": 2,
        "cache_creation": 3,
        "output": 4,
        "web_searches": 5,
    }
    assert "web_searches" not in other.to_json()
    for usage in (one, other):
        assert Usage.from_json(usage.to_json()) == usage
    assert Usage.from_json({}) == Usage()
    with pytest.raises(ValueError, match=r"usage\.cache_read"):
        Usage.from_json({"cache_read": 0.5})


def test_reverted_reverts() -> None:
    def reverted(*targets: int) -> set[int]:
        return reverted_seqs(
            Revert(seq=seq, target=target) for seq, target in enumerate(targets, 10)
        )

    assert reverted(1, 2) == {1, 2}
    assert reverted(1, 10) == {10}
    assert reverted(1, 10, 11) == {11, 1}
    assert reverted_seqs([Note(topic="a", text="b")]) == set()


@pytest.mark.parametrize(
    ("source", "mid_turn", "begins"),
    [
        ("person", False, True),
        ("person", True, False),
        ("notice", False, False),
        ("shell", False, False),
    ],
)
def test_words_that_begin_a_turn(source: str, mid_turn: bool, begins: bool) -> None:
    assert User(content="a", source=source, mid_turn=mid_turn).begins_turn is begins


@pytest.mark.parametrize(
    ("details", "is_error"),
    [
        ({"exit_code": 0}, False),
        ({"exit_code": 1}, True),
        ({}, True),
        ({"backgrounded": True}, False),
    ],
)
def test_a_command_of_the_person_as_a_result(details: dict[str, Any], is_error: bool) -> None:
    said = [{"type": "text", "text": "$ ls"}, {"type": "text", "text": "[What it said:]\nout"}]
    entry = User(
        seq=3, at="then", content=said, source="shell", details=details, offloaded="offloaded/a"
    )
    assert shell_result(entry) == ToolResult(
        seq=3, at="then", tool_use_id="", content="out", is_error=is_error, details=details,
        offloaded="offloaded/a",
    )  # fmt: skip


def test_other_content_of_a_command_is_kept() -> None:
    image = [{"type": "image"}]
    assert shell_result(User(content=[{"type": "text", "text": "a"}, *image])).content == image
    assert shell_result(User(content="plain")).content == "plain"
    assert shell_result(User(content=[])).content == []


def test_an_attachment_as_a_call_and_its_result() -> None:
    details = {"call": {"name": "Glob", "input": {"path": "a"}}}
    entry = User(
        seq=3, at="then", content="x", source="attachment", details=details, offloaded="offloaded/a"
    )
    assert attachment_call(entry) == ("Glob", {"path": "a"})
    assert attachment_result(entry) == ToolResult(
        seq=3, at="then", tool_use_id="", content="x", details=details, offloaded="offloaded/a"
    )
    for garbled in ({}, {"call": "x"}, {"call": {"input": 1}}, {"call": {"name": None}}):
        assert attachment_call(User(content="", details=garbled)) == ("Read", {})


def test_what_a_summary_says() -> None:
    block = {"type": "compaction", "content": "the API's"}
    plain = Summary(document={}, text="ours", covers=[2, 9], keep_from=10)
    assert (plain.whole_text, plain.span) == ("ours", "#2 to #9")
    both = Summary(document={}, text="ours", covers=[9, 2], keep_from=10, block=block)
    assert (both.whole_text, both.span) == ("the API's\n\nours", "all up to #2")
    assert Summary(document={}, text="", covers=[2, 2], keep_from=3).span == "#2 to #2"
    assert summarized_text(block) == "the API's"
    assert summarized_text({"type": "text", "content": "a"}) == ""
    assert summarized_text({"type": "compaction", "content": [1]}) == ""
    assert summarized_text({"type": "compaction"}) == ""


def test_thinking_that_was_altered_cannot_be_sent() -> None:
    assert altered_thinking("a") == {
        "type": "thinking",
        "thinking": "a",
        "signature": "",
        "altered": True,
    }


def test_a_mask_is_read_as_it_was_written() -> None:
    mask = Mask(
        seq=3,
        at="then",
        layer="demote",
        targets=[{"seq": 1}],
        tokens_before=5,
        tokens_after=2,
        trigger="t",
    )
    assert decode(encode(mask)) == mask
