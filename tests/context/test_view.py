"""The view: folded in one pass or two, its items and sizes, masks, summaries, and reverts."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.items import Call, shown_blocks
from ctxagent.agent.context.tokens import estimate, estimate_block, estimate_content
from ctxagent.agent.context.view import (
    INTERRUPTED,
    MAX_ERROR,
    MIN_ERROR,
    Folding,
    View,
    fold,
    start_folding,
)
from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Mask,
    Revert,
    Session,
    Summary,
    ToolResult,
    User,
)

_KINDS = st.sampled_from(["user", "environment", "reply", "call", "mask", "summary", "revert"])
_STEPS = st.lists(st.tuples(_KINDS, st.integers(1, 30)), max_size=30)


def _entry(kind: str, seq: int, number: int) -> list[Entry]:
    earlier = 1 + number % seq
    usage = {"input": 40 * number, "output": number}
    if kind in ("user", "environment"):
        return [
            User(seq=seq, content="go on " * number, source="person" if kind == "user" else kind)
        ]
    if kind == "mask":
        target = {"seq": earlier, "tool_use_id": f"c{earlier - 1}", "stub": "[stub]"}
        rest = {"tokens_before": 2, "tokens_after": 1, "trigger": "auto"}
        return [Mask(seq=seq, layer="demote", targets=[target], **rest)]
    if kind == "summary":
        return [
            Summary(
                seq=seq, document={}, text="so far", covers=[1, earlier], keep_from=earlier + 1,
                keep=[number], replaces_earlier=number % 2 == 0,
            )
        ]  # fmt: skip
    if kind == "revert":
        return [Revert(seq=seq, target=earlier)]
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "all " * number}]
    if kind == "call":
        content += [{"type": "tool_use", "id": f"c{seq}", "name": "Bash", "input": {}}]
    reply = Assistant(seq=seq, content=content, usage=usage, stop_reason="end_turn", model="m")
    answer = ToolResult(seq=seq + 1, tool_use_id=f"c{seq}", content="line " * number)
    return [reply, answer] if kind == "call" else [reply]


@pytest.mark.slow
@settings(max_examples=300)
@given(_STEPS)
def test_a_fold_is_the_same_in_one_pass_and_in_two(steps: list[tuple[str, int]]) -> None:
    entries: list[Entry] = [Session(seq=1, id="s", cwd="/", version="1", model="m", system="Be.")]
    for kind, number in steps:
        entries += _entry(kind, len(entries) + 1, number)
    assert fold(entries) == start_folding(entries).view
    live = Folding()
    for place, entry in enumerate(entries, 1):
        if not live.add(entry):
            live = start_folding(entries[:place])
    assert live.view == fold(entries)


# Replies of several models. Each has a thought of its model, and a signed call.


def asked(seq: int, model: str, thinking: str = "bound", **more: Any) -> Session:
    return Session(seq=seq, id="s", cwd="/", version="1", model=model, thinking=thinking, **more)


def said(seq: int, by: str, *, upto: int | None = None, **more: Any) -> Assistant:
    call = {"type": "tool_use", "id": f"c{seq}", "name": "Bash", "input": {}, "signature": by}
    content = [{"type": "thinking", "thinking": f"{by} thinks", "signature": by}, call]
    more = {"usage": {}, "request": {} if upto is None else {"upto": upto}, **more}
    return Assistant(seq=seq, content=content, stop_reason="tool_use", model=f"{by}-1", **more)


def signed(view: View) -> list[list[str]]:
    """Return the signatures shown by each reply."""
    replies = [item for item in view.items if item.role == "assistant"]
    return [[b["signature"] for b in shown_blocks(i) if "signature" in b] for i in replies]


BEGUN: list[Entry] = [
    asked(1, "one", system="Be."), said(2, "one"), asked(3, "two"), said(4, "two"),
]  # fmt: skip


def test_a_model_is_shown_what_it_thought_and_signed_itself() -> None:
    assert signed(fold(BEGUN)) == [[], ["two", "two"]]
    back = [*BEGUN, asked(5, "one"), said(6, "one")]
    assert signed(fold(back)) == [["one", "one"], [], ["one", "one"]]
    assert signed(fold([*back, asked(7, "two")])) == [[], ["two", "two"], []]


def test_older_logs_drop_thinking_permanently() -> None:
    old = [asked(1, "one", ""), said(2, "one"), asked(3, "two", ""), said(4, "two")]
    back = [*old, asked(5, "one", ""), said(6, "one")]
    assert signed(fold(back)) == [["one"], ["two"], ["one", "one"]]
    later = [*back, asked(7, "two"), said(8, "two"), asked(9, "one")]
    assert signed(fold(later)) == [["one"], ["two"], ["one", "one"], []]


def test_a_reply_belongs_to_the_model_of_its_request() -> None:
    """The model changes during the reply, so its usage says nothing about the next model."""
    usage = {"input": 1_000, "output": 500}
    view = fold([*BEGUN, asked(5, "one"), said(6, "two", upto=4, usage=usage)])
    assert signed(view) == [["one", "one"], [], []]
    assert view.prompt_tokens() == (view.size, view.size)


def test_other_tools_hide_what_was_thought_before_them_until_they_are_gone() -> None:
    tools = [{"name": "Bash"}]
    changed = [*BEGUN, asked(5, "two", tools=tools), said(6, "two")]
    assert signed(fold(changed)) == [[], ["two"], ["two", "two"]]
    assert signed(fold([*changed, asked(7, "two", tools=[])])) == [[], ["two", "two"], ["two"]]


def test_an_edit_drops_the_thinking_of_all_models_behind_it_but_of_those_that_bind_none() -> None:
    target = {"seq": 2, "tool_use_id": "c2", "input": {}}
    mask = Mask(
        seq=5, layer="microcompact", targets=[target], tokens_before=2, tokens_after=1, trigger=""
    )
    log = [*BEGUN, mask]
    assert signed(fold(log)) == [[], ["two"]]
    assert signed(fold([*log, asked(6, "one")])) == [["one"], []]
    assert signed(fold([*log, asked(6, "two", "free")])) == [[], ["two", "two"]]
    undone = [*log, said(6, "two"), Revert(seq=7, target=5)]
    assert signed(fold(undone)) == [[], ["two", "two"], ["two"]]
    assert signed(fold([*undone, asked(8, "two", "free")]))[1:] == [["two", "two"]] * 2


def test_a_block_keeps_the_thinking_of_the_model_that_is_asked() -> None:
    block = {"type": "compaction", "content": "So far.", "signature": "s"}
    summary = Summary(
        seq=7, document={}, text="More.", covers=[1, 1], keep_from=2, block=block,
        replaces_earlier=True, keeps_thinking=True,
    )  # fmt: skip
    log = [*BEGUN, asked(5, "one"), said(6, "one"), summary]
    assert signed(fold(log)) == [["one", "one"], [], ["one", "one"]]
    assert signed(fold([*log, asked(8, "two")])) == [[], ["two"], []]


def test_sizes_use_the_ratio_of_the_current_model() -> None:
    """Another model has another tokenizer. The measured ratio of a model applies again when it is
    used again.
    """
    first = [asked(1, "one", system="Be good. " * 300), User(seq=2, content="word " * 700)]
    size = fold(first).size
    measured = said(3, "one", usage={"input": 2 * size, "output": 800})
    one = fold([*first, measured])
    assert one.prompt_tokens() == (2 * size + 800, 0)
    two = fold([*first, measured, asked(4, "two")])
    assert two.size < size + 100  # without the thought
    assert two.prompt_tokens() == (two.scaled(two.size), two.scaled(two.size))
    shorter = said(5, "two", usage={"input": two.size, "output": 20})
    back = fold([*first, measured, asked(4, "two"), shorter, asked(6, "one")])
    assert back.ratio == one.ratio
    assert back.items[1].size == one.items[1].size
    assert back.prompt_tokens()[1] == back.prompt_tokens()[0], "all of it is an estimate"


# Items, results and searches


def reply(seq: int, *blocks: dict[str, Any], **more: Any) -> Assistant:
    more = {"usage": {}, "stop_reason": "tool_use", **more}
    return Assistant(seq=seq, content=[*blocks], model="m", **more)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(seq: int, id: str, content: Any = "output " * 50, **more: Any) -> ToolResult:
    return ToolResult(seq=seq, tool_use_id=id, content=content, **more)


def mask(seq: int, *targets: dict[str, Any]) -> Mask:
    return Mask(seq=seq, layer="l", targets=[*targets], tokens_before=2, tokens_after=1, trigger="")


def stub(seq: int, id: str, words: str = "[gone]") -> dict[str, Any]:
    return {"seq": seq, "tool_use_id": id, "stub": words}


def summary(seq: int, keep_from: int, **more: Any) -> Summary:
    more = {"document": {}, "text": "So far.", "covers": [1, 1], **more}
    return Summary(seq=seq, keep_from=keep_from, **more)


WORK: list[Entry] = [
    Session(seq=1, id="s", cwd="/", version="1", model="m", thinking="bound", system="Be good."),
    User(seq=2, content="Go on."),
    reply(3, {"type": "thinking", "thinking": "hm " * 40}, call("a", command="ls\n  -l")),
    result(4, "a", details={"exit_code": 0}, offloaded="offloaded/a"),
    reply(5, call("b", "Read", path="x.py")),
    result(6, "b"),
    result(7, "lost"),
]


def shown(view: View, seq: int) -> list[dict[str, Any]]:
    place = view.position(seq)
    assert place is not None
    return shown_blocks(view.items[place])


def whole_size(view: View) -> int:
    """Return the size of a view, computed from scratch."""
    items = sum(estimate_block(block) for item in view.items for block in shown_blocks(item))
    return items + estimate(view.system) + estimate_content(view.tools)


def test_each_entry_of_the_conversation_is_an_item() -> None:
    view = fold(WORK)
    assert [(item.seq, item.role, item.source) for item in view.items] == [
        (2, "user", "person"), (3, "assistant", ""), (4, "user", ""), (5, "assistant", ""),
        (6, "user", ""), (7, "user", ""),
    ]  # fmt: skip
    assert [view.position(seq) for seq in (1, 2, 7, 8)] == [None, 0, 5, None]
    assert shown(view, 2) == [text("Go on.")]
    assert view.items[1].stop_reason == "tool_use"
    assert (view.model, view.system, view.last_seq) == ("m", "Be good.", 7)
    assert view.size == view.size_changed == whole_size(view)


def test_results_are_those_of_known_calls_with_what_their_entries_say() -> None:
    first, second = fold(WORK).results()
    assert (first.call.name, first.call.argument, first.call.seq) == ("Bash", "ls -l", 3)
    assert (first.details, first.offloaded, first.masked) == (
        {"exit_code": 0},
        "offloaded/a",
        False,
    )
    assert first.size == first.item.size == estimate_block(first.block)
    assert (second.call.argument, second.details, second.offloaded) == ("x.py", {}, None)
    assert first.images == []
    image = {"type": "image", "source": {}}
    (found,) = fold([reply(1, call("a")), result(2, "a", [text("x"), image, "odd"])]).results()
    assert found.images == [image]


def test_results_are_listed_as_they_come_also_before_their_calls() -> None:
    view = View()
    for count, entry in zip([0, 0, 0, 1, 1, 2, 2], WORK, strict=True):
        view.add(entry)
        assert len(view.results()) == count
    early = View()
    early.add(result(1, "a"))
    assert early.results() == []
    early.add(reply(2, call("a")))
    assert [found.call.id for found in early.results()] == ["a"]


def test_what_the_model_has_not_answered_comes_after_its_newest_words() -> None:
    view = fold(WORK)
    assert [found.item.seq for found in view.unanswered_results()] == [6]
    view.add(reply(8, text(" \n"), {"type": "thinking", "thinking": "x"}))  # it says nothing
    assert [found.item.seq for found in view.unanswered_results()] == [6]
    view.add(reply(9, text("Done.")))
    assert view.unanswered_results() == []
    assert fold([result(1, "a"), reply(2, text("x"))]).unanswered_results() == []
    both = fold([reply(1, call("a"), call("b")), result(2, "b"), result(3, "a")])
    assert [found.item.seq for found in both.unanswered_results()] == [2, 3]


def test_altered_thinking_hides_all_earlier_thinking() -> None:
    """Later thinking is bound to the sent text, so it stays. Another model's thinking stays
    hidden.
    """
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    altered = {**thought, "signature": "", "altered": True}
    log = [*BEGUN, said(5, "two"), reply(6, altered), said(7, "two")]
    assert signed(fold(log)) == [[], ["two"], ["two"], [], ["two", "two"]]
    assert signed(fold([*log, asked(8, "one")]))[0] == ["one", "one"]


def test_a_reply_that_is_no_turn_or_refused_is_no_item() -> None:
    others = [reply(8, text("x"), purpose="summary"), reply(9, text("x"), stop_reason="refusal")]
    view = fold([*WORK, *others])
    assert [item.seq for item in view.items] == [2, 3, 4, 5, 6, 7]
    assert view.last_seq == 9


@pytest.mark.parametrize(
    ("name", "arguments", "source", "argument"),
    [
        ("Bash", {"command": " a\n b", "description": "c"}, "Bash", "a b"),
        ("Grep", {"path": "p", "pattern": "x"}, "Grep", "x"),
        ("Task", {"prompt": "p", "description": "d"}, "Task", "d"),
        ("Bash", {"command": 7, "path": "p"}, "Bash", "p"),
        ("Todo", {}, "Todo", ""),
        ("Mcp", {"tool": "mcp__memory__read"}, "mcp memory", "mcp__memory__read"),
        ("Mcp", {"query": "garden"}, "Mcp", "garden"),
        ("mcp__memory__read", {}, "mcp memory", ""),
    ],
)
def test_a_call_has_a_source_and_a_main_argument(
    name: str, arguments: dict[str, Any], source: str, argument: str
) -> None:
    found = Call("a", 1, name, arguments)
    assert (found.source, found.argument) == (source, argument)


def test_an_attachment_is_a_result_that_is_shown_as_words() -> None:
    details = {"call": {"name": "Read", "input": {"path": "x.py"}}}
    attached = User(seq=1, content="x = 1", source="attachment", details=details)
    view = fold([attached])
    (found,) = view.results()
    assert (found.call.name, found.call.argument, found.details) == ("Read", "x.py", details)
    assert shown(view, 1) == [text("x = 1")]
    view.add(mask(2, stub(1, found.call.id)))
    assert shown(view, 1) == [text("[gone]")]
    blocks = [text("a"), text("b")]
    assert shown(fold([User(seq=1, content=blocks, source="attachment")]), 1) == blocks


# Masks


def test_a_stub_takes_the_place_of_a_result() -> None:
    view = fold([*WORK, mask(8, stub(4, "a"))])
    assert shown(view, 4)[0]["content"] == "[gone]"
    assert view.items[2].blocks[0]["content"] == "output " * 50
    first, second = view.results()
    assert (first.masked, second.masked) == (True, False)
    assert (view.items[2].masked_at, view.items[4].masked_at) == (8, 0)
    assert view.size == whole_size(view) < fold(WORK).size
    assert shown(view, 3) == shown(fold(WORK), 3)  # thinking before the edit stays
    assert view.edits == fold(WORK).edits + 1


def test_an_input_takes_the_place_of_arguments() -> None:
    short = {"seq": 3, "tool_use_id": "a", "input": {"command": "…"}}
    view = fold([*WORK, mask(8, short)])
    assert shown(view, 3) == [call("a", command="…")]  # without the thinking of that message
    assert view.results()[0].call.input == {"command": "ls\n  -l"}
    assert view.size == whole_size(view)


def test_targets_that_are_not_there_or_not_sound_change_nothing() -> None:
    odd: list[Any] = [
        "x", {}, {"seq": "4"}, stub(99, "a"), {"seq": 4}, {"seq": 4, "stub": 7},
        {"seq": 4, "input": 1},
    ]  # fmt: skip
    view = fold([*WORK, mask(8, *odd)])
    assert [shown_blocks(item) for item in view.items] == [
        shown_blocks(item) for item in fold(WORK).items
    ]
    assert (view.size, view.edits) == (fold(WORK).size, fold(WORK).edits)
    view.add(mask(9, *odd, stub(4, "a")))
    assert shown(view, 4)[0]["content"] == "[gone]"


def test_an_edit_leaves_out_the_thinking_behind_its_first_target() -> None:
    thought = {"type": "thinking", "thinking": "later " * 30}
    later = [*WORK, reply(8, thought, text("Done."))]
    for targets in ([stub(6, "b"), stub(4, "a")], [stub(4, "a"), stub(6, "b")]):
        view = fold([*later, mask(9, *targets)])
        assert shown(view, 3)[0]["type"] == "thinking"
        assert shown(view, 8) == [text("Done.")]
        assert view.size == whole_size(view)


def test_a_search_and_its_result_are_removed_together() -> None:
    search = {"type": "server_tool_use", "id": "w", "name": "web_search", "input": {"query": "q"}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "w",
        "content": [{"title": "t" * 900}],
    }
    view = fold([reply(1, search, found, text("So."))])
    (listed,) = view.searches()
    assert (listed.call.name, listed.call.argument, listed.masked) == ("WebSearch", "q", False)
    assert listed.size == estimate_block(found)
    assert view.results() == []
    view.add(mask(2, stub(1, "w", "[searched]")))
    assert shown(view, 1) == [text("[searched]"), text("So.")]
    assert view.searches()[0].masked
    view.add(mask(3, stub(1, "w", "")))
    assert shown(view, 1) == [text("So.")]


def test_a_mask_can_remove_only_the_thinking_of_a_reply() -> None:
    """Later thinking is bound to the sent text, which does not include earlier thinking."""
    thought = {"type": "thinking", "thinking": "later " * 30}
    log = [*WORK, reply(8, thought, text("Done."))]
    view = fold(log)
    assert [item.seq for item in view.thinking_items()] == [3, 8]
    view.add(mask(9, {"seq": 3, "thinking": False}))
    assert shown(view, 3) == [call("a", command="ls\n  -l")]
    assert [item.seq for item in view.thinking_items()] == [8]
    assert (view.size, view.edits) == (whole_size(view), fold(log).edits)
    view.add(asked(10, "m", "free"))
    assert [item.seq for item in view.thinking_items()] == [8]
    more = fold([*log, mask(9, {"seq": 3, "thinking": False}, stub(4, "a"))])
    assert [found.masked for found in more.results()] == [True, False]


def outline(seq: int, reply: int, id: str) -> dict[str, Any]:
    return {"seq": seq, "reply": reply, "tool_use_id": id, "outline": f"Outline of {id}"}


def test_an_outline_replaces_a_result_and_the_reply_with_its_call() -> None:
    thought = {"type": "thinking", "thinking": "later " * 30}
    log = [*WORK, reply(8, thought, text("Done."))]
    view = fold([*log, replace(mask(9, outline(4, 3, "a")), state="State.")])
    assert (shown(view, 3), shown(view, 4)) == ([], [text("Outline of a"), text("State.")])
    assert [found.masked for found in view.results()] == [True, False]
    assert [item.masked_at for item in view.items] == [0, 0, 9, 0, 0, 0, 0]
    assert shown(view, 8) == [text("Done.")]
    assert (view.state_seq(), view.edits) == (4, fold(log).edits + 1)
    assert view.size == whole_size(view)
    view.add(replace(mask(10, outline(6, 5, "b")), state="Newer."))
    assert shown(view, 4) == [text("Outline of a")]
    assert shown(view, 6) == [text("Outline of b"), text("Newer.")]
    assert (view.state_seq(), view.size) == (6, whole_size(view))
    view.add(replace(mask(11), state="Newest."))
    assert shown(view, 6)[1] == text("Newest.")
    assert (view.items[4].masked_at, view.edits) == (10, fold(log).edits + 3)


def test_an_outline_without_its_reply_replaces_the_result_alone() -> None:
    view = fold([*WORK, mask(8, {"seq": 4, "outline": "Outline of a"})])
    assert shown(view, 3) == shown(fold(WORK), 3)
    assert shown(view, 4) == [text("Outline of a")]
    assert view.state_seq() is None
    nothing = fold([*WORK, replace(mask(8), state="State.")])
    assert (nothing.state_seq(), nothing.edits) == (None, fold(WORK).edits)


def test_a_changed_copy_leaves_the_view_unchanged() -> None:
    view = fold(WORK)
    before = view.size
    act = mask(8, stub(4, "a"))
    assert view.size_with(act) == fold([*WORK, act]).size
    copy = view.copy()
    copy.add(act)
    copy.add(mask(9, {"seq": 3, "tool_use_id": "a", "input": {}}))
    assert (view.size, view.items[2].stubs, view.items[1].inputs) == (before, {}, {})
    assert view == fold(WORK)


# Summaries and reverts


def test_a_summary_stands_first_and_keeps_what_it_says() -> None:
    view = fold([*WORK, summary(8, 6, keep=[2])])
    assert [(item.seq, item.source) for item in view.items] == [
        (8, "summary"), (2, "person"), (6, ""), (7, ""),
    ]  # fmt: skip
    assert [view.position(seq) for seq in (8, 2, 6, 4)] == [0, 1, 2, None]
    assert shown(view, 8) == [text("So far.")]
    assert view.summary == summary(8, 6, keep=[2])
    assert view.results() == []  # the call of the result that stays is gone
    assert view.calls == {}
    assert view.facts(view.items[2]) == ({}, None)
    assert view.size == view.size_changed == whole_size(view)


def test_results_after_a_summary_keep_what_their_entries_say() -> None:
    view = fold([*WORK, summary(8, 3)])
    first, second = view.results()
    assert (first.details, first.offloaded) == ({"exit_code": 0}, "offloaded/a")
    assert [first.call.id, second.call.id] == [*view.calls] == ["a", "b"]
    view.add(summary(9, 5))
    assert [found.call.id for found in view.results()] == [*view.calls] == ["b"]


def test_the_facts_of_a_state_block_are_in_the_summary_unless_thinking_is_kept() -> None:
    log = [*WORK, replace(mask(8, outline(4, 3, "a")), state="State.")]
    view = fold([*log, summary(9, 3)])
    assert shown(view, 4) == [text("Outline of a")]
    assert (view.state_seq(), view.size) == (None, whole_size(view))
    kept = fold([*log, summary(9, 3, keeps_thinking=True)])
    assert shown(kept, 4) == [text("Outline of a"), text("State.")]
    assert (kept.state_seq(), kept.edits) == (4, fold(log).edits)


def test_an_earlier_summary_goes_if_the_later_one_says_so() -> None:
    log = [*WORK, summary(8, 6)]
    assert [item.seq for item in fold([*log, summary(9, 7)]).items] == [9, 8, 7]
    replaced = fold([*log, summary(9, 7, replaces_earlier=True)])
    assert [item.seq for item in replaced.items] == [9, 7]


def test_a_block_of_the_api_comes_first_and_the_text_last() -> None:
    block = {"type": "compaction", "content": "All of it."}
    view = fold([*WORK, summary(8, 6, block=block)])
    assert [item.seq for item in view.items] == [8, 6, 7, 8]
    assert [shown_blocks(item) for item in view.items][::3] == [[block], [text("So far.")]]
    assert view.position(8) == 0


def test_reinserted_entries_are_removed_with_their_summary() -> None:
    again = [
        User(seq=seq, content="again", source=source)
        for seq, source in ((9, "environment"), (10, "instructions"))
    ]
    log = [*WORK, summary(8, 6), *again, User(seq=11, content="New."), Revert(seq=12, target=8)]
    view = fold(log)
    assert [item.seq for item in view.items] == [2, 3, 4, 5, 6, 7, 11]
    assert view.last_seq == 12
    assert view.summary is None
    later = [*log, User(seq=13, content="said", source="instructions")]
    assert [item.seq for item in fold(later).items][-2:] == [11, 13]


def test_only_a_revert_needs_the_whole_log_again() -> None:
    folding = Folding()
    log = [*WORK, mask(8, stub(4, "a")), summary(9, 6), User(seq=10, content="New.")]
    assert all(map(folding.add, log))
    assert not folding.add(Revert(seq=11, target=8))
    undone = start_folding([*log, Revert(seq=11, target=8)])
    assert undone.add(mask(12, stub(6, "b")))
    assert not undone.add(mask(8, stub(6, "b")))


def test_entries_of_the_start_stay_after_a_revert() -> None:
    begun = [User(seq=1, content="/", source="environment"), *WORK[1:]]
    view = fold([*begun, mask(8, stub(4, "a")), Revert(seq=9, target=8)])
    assert [shown_blocks(item) for item in view.items] == [
        shown_blocks(item) for item in fold(begun).items
    ]


def test_a_mask_that_was_undone_is_remembered() -> None:
    log = [*WORK, mask(8, stub(4, "a")), mask(9, stub(6, "b"))]
    view = fold([*log, Revert(seq=10, target=8)])
    assert [found.masked for found in view.results()] == [False, True]
    assert view.unmasked_calls == {"a"}
    both = fold([*log, Revert(seq=10, target=8), Revert(seq=11, target=9)])
    assert both.unmasked_calls == {"a", "b"}
    again = fold([*log, Revert(seq=10, target=8), Revert(seq=11, target=10)])
    assert [found.masked for found in again.results()] == [True, True]


def test_a_view_alone_cannot_take_a_revert() -> None:
    with pytest.raises(ValueError, match="use fold"):
        fold(WORK).add(Revert(seq=8, target=4))


# What the usage of replies teaches


LONG = User(seq=2, content="word " * 4_000)


def measured(prompt: int, output: int = 100, **more: Any) -> Assistant:
    usage = {"input": prompt, "output": output}
    return reply(3, text("I do. " * 20), usage=usage, stop_reason="end_turn", **more)


def test_a_usage_sets_the_ratio_and_leaves_nothing_estimated() -> None:
    size = fold([LONG]).size
    view = fold([LONG, measured(2 * size, 300)])
    assert view.prompt_tokens() == (2 * size + 300, 0)
    assert view.scaled(view.size) == 2 * size + 300
    assert view.size == size + 150
    view.add(User(seq=4, content="more " * 100))
    total, estimated = view.prompt_tokens()
    assert estimated == view.scaled(view.items[-1].size)
    assert total == view.scaled(view.size)


def test_all_kinds_of_input_count_as_the_prompt() -> None:
    size = fold([LONG]).size
    usage = {"input": 10, "cache_read": size - 20, "cache_creation": 10, "output": 50}
    view = fold([LONG, reply(3, text("x"), usage=usage)])
    assert view.prompt_tokens() == (size + 50, 0)


@pytest.mark.parametrize("factor", [0.3, 3.1, 0])
def test_an_implausible_usage_is_ignored(factor: float) -> None:
    size = fold([LONG]).size
    view = fold([LONG, measured(round(factor * size))])
    assert (view.ratio, view.error) == (1.0, MIN_ERROR)
    assert view.prompt_tokens() == (view.size, view.size)


def test_an_interrupted_reply_counts_only_its_prompt() -> None:
    size = fold([LONG]).size
    words = reply(3, text("I do. " * 20), usage={"input": 2 * size}, stop_reason=INTERRUPTED)
    view = fold([LONG, words])
    assert view.ratio == 2
    assert view.prompt_tokens() == (2 * view.size, 2 * view.items[-1].size)
    assert view.items[-1].measured == 0


def test_an_underestimate_raises_the_error_margin_for_a_while() -> None:
    size = fold([LONG]).size
    view = fold([LONG, measured(round(1.22 * size))])
    assert view.error == pytest.approx(0.44, abs=0.01)
    learned = view.error
    view.add(User(seq=4, content="word " * 4_000))
    view.add(replace(measured(view.prompt_tokens()[0]), seq=5))
    assert view.error == pytest.approx(0.99 * learned)
    assert fold([LONG, measured(2 * size)]).error == MAX_ERROR
    assert fold([LONG, measured(size // 2)]).error == MIN_ERROR


def test_the_measured_size_of_a_reply_comes_back_with_its_blocks() -> None:
    size = fold([LONG]).size
    usage = {"input": size, "output": 900}
    thought = {"type": "thinking", "thinking": "hm"}
    log: list[Entry] = [LONG, reply(3, thought, call("a", command="ls"), usage=usage)]
    assert fold(log).items[1].size == 900
    short = mask(4, {"seq": 3, "tool_use_id": "a", "input": {}})
    assert fold([*log, short]).items[1].size < 100


def test_a_new_prompt_or_list_of_tools_makes_all_of_it_an_estimate() -> None:
    size = fold([LONG]).size
    log: list[Entry] = [LONG, measured(size)]
    same = fold([*log, asked(4, "", system="")])
    assert same.prompt_tokens()[1] == 0
    for more in ({"system": "Be brief."}, {"tools": [{"name": "Bash"}]}):
        view = fold([*log, asked(4, "", **more)])
        assert view.prompt_tokens()[1] == view.prompt_tokens()[0]
        assert view.size == fold(log).size + estimate(view.system) + estimate_content(view.tools)
