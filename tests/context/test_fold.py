"""One pass over a log folds the same view as the two passes that a revert needs."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.view import Folding, View, fold, shown_blocks, start_folding
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
    """The signatures that each reply shows."""
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


def test_older_programs_left_out_thinking_for_ever() -> None:
    old = [asked(1, "one", ""), said(2, "one"), asked(3, "two", ""), said(4, "two")]
    back = [*old, asked(5, "one", ""), said(6, "one")]
    assert signed(fold(back)) == [["one"], ["two"], ["one", "one"]]
    later = [*back, asked(7, "two"), said(8, "two"), asked(9, "one")]
    assert signed(fold(later)) == [["one"], ["two"], ["one", "one"], []]


def test_a_reply_is_of_the_model_that_was_asked_for_it() -> None:
    """The model is changed while it writes; its usage says nothing of what the next one gets."""
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
    taken_back = [*log, said(6, "two"), Revert(seq=7, target=5)]
    assert signed(fold(taken_back)) == [[], ["two", "two"], ["two"]]
    assert signed(fold([*taken_back, asked(8, "two", "free")]))[1:] == [["two", "two"]] * 2


def test_a_block_keeps_the_thinking_of_the_model_that_is_asked() -> None:
    block = {"type": "compaction", "content": "So far.", "signature": "s"}
    summary = Summary(
        seq=7, document={}, text="More.", covers=[1, 1], keep_from=2, block=block,
        replaces_earlier=True, keeps_thinking=True,
    )  # fmt: skip
    log = [*BEGUN, asked(5, "one"), said(6, "one"), summary]
    assert signed(fold(log)) == [["one", "one"], [], ["one", "one"]]
    assert signed(fold([*log, asked(8, "two")])) == [[], ["two"], []]


def test_sizes_are_those_of_the_model_that_is_asked() -> None:
    """Its tokenizer is another one: what it was measured with counts again when it comes back."""
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
