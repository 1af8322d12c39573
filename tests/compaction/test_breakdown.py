"""The breakdown of the window: its parts add up to the measured size, for any history."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction import preserve
from ctxagent.agent.compaction.breakdown import (
    Breakdown,
    ContextPart,
    apportion,
    break_down,
)
from ctxagent.agent.compaction.summary import request
from ctxagent.agent.context import tokens
from ctxagent.agent.context.items import shown_blocks
from ctxagent.agent.context.view import View, fold
from ctxagent.agent.context.window import Window, measure
from ctxagent.agent.session.entries import LOADED_TOOLS, Session, Summary, User

from ..support.sessions.history import MODEL, History, called, words

TOOLS = [{"name": n, "description": "Does it.", "input_schema": {}} for n in ("Bash", "Read")]


def exactly(view: View) -> Breakdown:
    """The breakdown in estimated tokens, so that each part has exactly its estimate."""
    return break_down(view, Window(view.size, 200_000))


def part(filling: Breakdown, kind: str, of: str = "") -> ContextPart:
    (found,) = [p for p in filling.parts if (p.kind, p.of) == (kind, of)]
    return found


def sizes(filling: Breakdown) -> dict[str, int]:
    return {f"{p.kind} {p.of}".strip(): p.tokens for p in filling.parts}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "s"}


texts = st.sampled_from(["", "go", words(30), words(400), "日本語" * 20, "a\ud800b"])
blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    texts.map(thought),
    st.builds(
        lambda n, name, text: called(f"x{n}", name, {"path": text}),
        st.integers(0, 5),
        st.sampled_from(["Bash", "Read", ""]),
        texts,
    ),
)
events = st.one_of(
    st.tuples(st.just("say"), texts),
    st.tuples(
        st.sampled_from(["environment", "instructions", "notice", "shell", "note", "odd"]), texts
    ),
    st.tuples(st.just("call"), texts),
    st.tuples(st.just("reply"), st.lists(blocks, max_size=4), st.integers(0, 5_000)),
    st.tuples(st.just("answer"), st.integers(0, 5), texts),
    st.tuples(st.sampled_from(["stub", "input", "summary", "session"]), st.integers(0, 12)),
)


def played(story: list[tuple[Any, ...]]) -> History:
    history = History()
    for what, *given_ in story:
        seq = len(history.entries)
        if what == "say":
            history.say(given_[0])
        elif what == "call":
            history.call("Bash", {"command": given_[0]}, given_[0] * 3)
        elif what == "reply":
            history.reply(*given_[0], usage={"input": given_[1], "output": 7})
        elif what == "answer":
            history.answer(f"x{given_[0]}", given_[1])
        elif what == "stub":
            id = f"c{given_[0]}"
            history.mask(
                "microcompact", [{"seq": given_[0] + 2, "tool_use_id": id, "stub": "[gone]"}]
            )
        elif what == "input":
            target = {"seq": given_[0], "tool_use_id": f"c{given_[0] - 1}", "input": {"path": "a"}}
            history.mask("truncate", [target])
        elif what == "summary":
            text = f"[Conversation compressed]\n{words(20)}{request.PINNED_HEADING}\n#1: go"
            history.add(Summary, document={}, text=text, covers=[1, 2], keep_from=seq - given_[0])
        elif what == "session":
            history.add(Session, id="s", cwd="/", version="1", model=MODEL, tools=TOOLS)
        else:
            text = f"{given_[0]}\n{preserve.PRESERVED_HEADING} {given_[0]}"
            history.add(User, content=text, source=what)
    return history


@pytest.mark.slow
@given(st.lists(events, max_size=25), st.floats(0.5, 2.0))
@settings(max_examples=200, deadline=None)
def test_the_parts_add_up_to_the_window(story: list[tuple[Any, ...]], short: float) -> None:
    view = played(story).view()
    window = measure(view, 200_000)
    window = Window(round(window.tokens * short), window.size)  # as the server may have found it
    filling = break_down(view, window)
    assert sum(p.tokens for p in filling.parts) == window.tokens
    assert all(p.tokens >= 0 and p.saved >= 0 for p in filling.parts)
    assert window.free + filling.reserve == max(0, window.size - window.tokens)


@pytest.mark.slow
@given(st.lists(events, max_size=25))
@settings(max_examples=200, deadline=None)
def test_every_token_is_counted_once(story: list[tuple[Any, ...]]) -> None:
    view = played(story).view()
    found = sizes(exactly(view))
    assert found.pop("system", 0) == tokens.estimate(view.system)
    assert found.pop("tools", 0) == sum(map(tokens.estimate_block, view.tools))
    answered = {result.item.seq for result in view.results()}
    lone = [i for i in view.items if i.blocks[:1] and i.blocks[0]["type"] == "tool_result"]
    assert found.pop("other", 0) == sum(i.size for i in lone if i.seq not in answered)
    kinds: dict[str, int] = dict.fromkeys(("thinking", "calls", "text"), 0)
    replies = [item for item in view.items if item.role == "assistant"]
    for item in replies:
        for block in shown_blocks(item):
            name = {"tool_use": "calls", "thinking": "thinking"}.get(str(block["type"]), "text")
            kinds[name] += tokens.estimate_block(block)
    counted = {name: found.pop(name, 0) for name in kinds}
    assert sum(counted.values()) == sum(item.size for item in replies)
    if sum(counted.values()) == sum(kinds.values()):  # no usage says otherwise
        assert counted == kinds
    results = sum(found.pop(name) for name in [n for n in found if n.startswith("results")])
    stubs = found.pop("stubs", 0)
    assert results == sum(r.size for r in view.results() if not r.masked)
    assert stubs == sum(r.size for r in view.results() if r.masked)
    said = [i for i in view.items if i.role == "user" and i.blocks[0].get("type") == "text"]
    assert sum(found.values()) == sum(item.size for item in said)


def test_each_kind_has_its_part() -> None:
    history = History()
    history.add(Session, id="s", cwd="/", version="1", model=MODEL, tools=TOOLS)
    history.say(words(50))
    history.add(User, content=words(20), source="environment")
    history.add(User, content=words(40), source="instructions")
    history.add(User, content=words(10), source="notice")
    history.add(User, content=[said(words(20)), said(words(30))], source="shell")
    history.add(User, content=words(15), source="note")
    history.reply(thought(words(70)), {"type": "text", "text": words(30)})
    history.call("Read", {"path": "a.py"}, words(500))
    history.call("Bash", {"command": "ls"}, words(900))
    history.call("Bash", {"command": "ls"}, words(100))
    filling = exactly(history.view())
    assert [(p.kind, p.of, p.count) for p in filling.parts] == [
        ("system", "", 1),
        ("tools", "", 2),
        ("instructions", "", 1),
        ("environment", "", 1),
        ("notices", "", 1),
        ("words", "", 1),
        ("commands", "", 1),
        ("notes", "", 1),
        ("text", "", 1),
        ("thinking", "", 1),
        ("calls", "", 3),
        ("results", "Bash", 2),
        ("results", "Read", 1),
    ]
    assert part(filling, "results", "Bash").tokens == 1_000 + 2 * 8
    assert part(filling, "words").tokens == 50
    assert part(filling, "commands").tokens == 50
    assert part(filling, "notes").tokens == 15
    assert part(filling, "thinking").tokens == 70
    assert filling.reserve == 4_000
    assert filling.window.free == 200_000 - 4_000 - history.view().size


def test_parts_share_what_the_server_counted() -> None:
    history = History()
    history.say(words(1_000))
    history.reply({"type": "text", "text": words(500)}, usage={"input": 1_500, "output": 750})
    view = history.view()
    window = measure(view, 200_000)
    assert window.tokens == 2_250
    found = sizes(break_down(view, window))
    assert found == {"system": 4, "words": 1_495, "text": 751}
    assert [large.tokens for large in break_down(view, window).largest] == [1_495, 750]


def test_a_mask_and_what_it_saves() -> None:
    history = History()
    first = history.call("Bash", {"command": "ls"}, words(2_000))
    stub = {"seq": first, "tool_use_id": "c1", "stub": "[gone]"}
    write = history.call("Write", {"path": "a.py", "content": words(800)}, "ok") - 1
    short = {"seq": write, "tool_use_id": f"c{write - 1}", "input": {"path": "a.py"}}
    history.call(
        "Read",
        {"path": "b"},
        words(50),
        offloaded="offloaded/b.md",
        details={"tokens_saved": 9_000},
    )
    before = history.view().size
    history.mask("microcompact", [stub])
    history.mask("truncate", [short])
    view = history.view()
    filling = exactly(view)
    assert part(filling, "stubs").tokens < 20
    cut = part(filling, "stubs").saved + part(filling, "calls").saved
    assert cut == before - view.size
    assert part(filling, "calls").saved > 790
    assert part(filling, "results", "Read").saved == 9_000
    assert "results Bash" not in sizes(filling)
    masked = next(each for each in filling.largest if each.item.seq == first)
    assert masked.masked
    assert [call.argument for call in masked.calls] == ["ls"]


def test_an_offloaded_result_that_is_masked_counts_both_savings() -> None:
    history = History()
    moved = {"offloaded": "offloaded/b.md", "details": {"tokens_saved": 9_000}}
    seq = history.call("Bash", {"command": "ls"}, words(500), **moved)
    history.mask("microcompact", [{"seq": seq, "tool_use_id": "c1", "stub": "[gone]"}])
    filling = exactly(history.view())
    (masked,) = [each for each in filling.largest if each.masked]
    assert masked.offloaded
    assert part(filling, "stubs").saved == 9_000 + 500 + 8 - masked.tokens


def test_pinned_and_preserved_text_is_counted_separately() -> None:
    history = History()
    history.say("go")
    pins = request.pinned_section({1: words(60)})
    history.add(
        Summary, document={}, text=f"{words(200)}{pins}", covers=[1, 2], keep_from=9, files=[]
    )
    kept = f"After it:\n\n{preserve.PRESERVED_HEADING}\n\n> {words(90)}"
    history.add(User, content=kept, source="environment")
    found = sizes(exactly(history.view()))
    assert found["pinned"] == pytest.approx(66, abs=6)
    assert found["preserved"] == pytest.approx(100, abs=10)
    assert found["summary"] == pytest.approx(200, abs=4)
    assert found["environment"] < 10


def test_the_largest_first_and_ten_at_most() -> None:
    history = History()
    history.say(words(40))
    for n in range(12):
        history.call("Read", {"path": f"{n}.py"}, words(100 * n))
    filling = exactly(history.view())
    assert [large.calls[0].argument for large in filling.largest] == [
        f"{n}.py" for n in range(11, 1, -1)
    ]
    assert [large.tokens for large in filling.largest[:2]] == [1_108, 1_008]
    assert not any(large.masked or large.offloaded for large in filling.largest)


def test_a_copy_of_a_view_does_not_change() -> None:
    history = History()
    seq = history.call("Bash", {"command": "ls"}, words(2_000))
    live = history.view()
    copy = live.copy()
    before = exactly(copy)
    stub = {"seq": seq, "tool_use_id": "c1", "stub": "[gone]"}
    history.mask("microcompact", [stub])
    history.say("more")
    for entry in history.entries[-2:]:
        live.add(entry)
    assert break_down(copy, before.window) == before
    assert exactly(live).parts != before.parts


def test_an_empty_view_has_no_parts() -> None:
    filling = break_down(fold([]), Window(0, 200_000))
    assert filling.parts == ()
    assert filling.largest == ()
    assert filling.window.free == 196_000


def test_the_reserve_may_leave_nothing_free() -> None:
    filling = break_down(fold([]), Window(197_000, 200_000))
    assert (filling.window.free, filling.reserve) == (0, 3_000)


@pytest.mark.slow
@given(st.integers(0, 10_000), st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_shares_add_up_and_are_near_the_exact_ones(whole: int, weights: list[int]) -> None:
    shares = apportion(whole, weights)
    total = sum(weights)
    if total:
        assert sum(shares) == whole
        for share, weight in zip(shares, weights, strict=True):
            assert abs(share - whole * weight / total) < 1
    else:
        assert shares == [0] * len(weights)


def test_a_search_of_the_web_that_is_masked_is_a_stub() -> None:
    history = History()
    pages = [{"type": "web_search_result", "title": words(500), "url": "https://w.example"}]
    seq = history.reply(
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "walrus"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": pages},
        said("Four."),
    )
    before = exactly(history.view())
    assert part(before, "results", "WebSearch").tokens > 500
    history.mask("microcompact", [{"seq": seq, "tool_use_id": "s1", "stub": "[gone]"}])
    view = history.view()
    filling = exactly(view)
    assert "results WebSearch" not in sizes(filling)
    assert 0 < part(filling, "stubs").tokens < 20
    assert part(filling, "stubs").saved > 500
    assert part(filling, "text").saved == 0


def test_tools_that_an_older_log_loaded_late_are_tools() -> None:
    history = History()
    history.say("go")
    history.add(User, content=[{"type": "text", "text": words(50)}], source=LOADED_TOOLS)
    found = part(exactly(history.view()), "tools")
    assert (found.count, found.saved) == (1, 0)


def test_a_large_reply_names_its_calls() -> None:
    history = History()
    write = history.call("Write", {"path": "a.py", "content": words(800)}, "ok") - 1
    largest = exactly(history.view()).largest[0]
    assert largest.item.seq == write
    assert [call.argument for call in largest.calls] == ["a.py"]
