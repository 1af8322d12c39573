"""The request for a summary: the cut, the question, and the chunks."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.summary import request as asked
from ctxagent.agent.compaction.summary.request import Cut, find_cut
from ctxagent.agent.context import tokens
from ctxagent.agent.context.window import Window

from ..support.sessions.history import History, words

WINDOW = Window(50_000, 100_000)
FEW = replace(DEFAULT, keep_messages=1, keep_tokens=0)


def work(history: History, size: int = 100) -> int:
    return history.call("Bash", {"command": "make"}, words(size))


def answer(history: History, text: str = "Done.") -> int:
    history.reply({"type": "text", "text": text})
    seq = len(history.entries)
    history.entries[-1] = replace(history.entries[-1], stop_reason="end_turn")  # type: ignore[call-arg]
    return seq


def long_session() -> History:
    history = History()
    for number in range(6):
        history.say(f"Task {number}")
        work(history)
        answer(history)
    return history


def cut(history: History, policy: object = FEW, **options: object) -> Cut | None:
    return find_cut(history.view(), policy, WINDOW, **options)  # type: ignore[arg-type]


def test_the_newest_messages_stay() -> None:
    history = long_session()
    found = cut(history)
    assert found is not None
    seqs = [item.seq for item in history.view().items]
    assert found.keep_from == seqs[-1]
    assert [item.seq for item in found.evicted] == seqs[:-1]
    assert found.covers == [seqs[0], seqs[-2]]
    assert found.tokens == history.view().scaled(sum(item.size for item in found.evicted))
    more = cut(history, replace(FEW, keep_messages=3))
    assert more is not None
    assert len(more.evicted) < len(found.evicted)
    assert cut(history, replace(FEW, keep_messages=3), keep_messages=1) == found


def test_more_stays_while_it_fits() -> None:
    history = long_session()
    sizes = [len(found.evicted) for found in (
        cut(history, replace(FEW, keep_tokens=n)) for n in (0, 100, 300)) if found]  # fmt: skip
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    share = replace(FEW, keep_tokens=300, keep_share=0.0)
    assert cut(history, share) == cut(history)


def test_a_call_is_not_parted_from_its_result() -> None:
    history = long_session()
    history.say("More")
    work(history)
    found = cut(history)
    assert found is not None
    kept = [item for item in history.view().items if item.seq >= found.keep_from]
    assert kept[0].role == "assistant"
    assert len(kept) == 2


def test_the_users_unanswered_messages_stay() -> None:
    history = long_session()
    question = history.say("And this?")
    for _ in range(3):
        work(history)
    found = cut(history)
    assert found is not None
    assert found.keep == (question,)
    assert question not in [item.seq for item in found.evicted]


def test_newest_only_keeps_the_last_message_and_reply() -> None:
    history = long_session()
    found = cut(history, newest_only=True)
    items = history.view().items
    assert found is not None
    assert found.keep_from == items[-1].seq
    last_words = [item.seq for item in items if item.source == "person"][-1]
    assert found.keep == (last_words,)


def test_there_may_be_nothing_new() -> None:
    history = History()
    assert cut(history) is None
    history.say("hello")
    assert cut(history) is None
    assert cut(history, newest_only=True) is None
    history.say(words(10))
    assert cut(history) is None
    many = History()
    for _ in range(3):
        many.say(words(3_000))
        many.reply({"type": "text", "text": ""})
    assert cut(many) is not None


def test_unanswered_messages_as_far_as_they_fit() -> None:
    history = long_session()
    seqs = [history.say(words(100)) for _ in range(3)]
    items = history.view().items
    size = items[-1].size

    def kept(room: float) -> list[int]:
        return [item.seq for item in asked.unanswered_items(items, room)]

    assert kept(3 * size) == seqs
    assert kept(3 * size - 1) == seqs[1:]
    assert kept(0) == seqs[2:]
    answer(history)
    assert asked.unanswered_items(history.view().items, 1_000) == []


@pytest.mark.parametrize(
    ("size", "cap"), [(1_000, 600), (12_000, 600), (100_000, 5_000), (1_000_000, 8_000)]
)
def test_the_cap_of_a_summary(size: int, cap: int) -> None:
    assert asked.max_summary_tokens(Window(0, size)) == cap


def test_the_limit_of_the_context_after_a_summary() -> None:
    assert asked.max_tokens_after(Window(50_000, 100_000)) == 50_000
    assert asked.max_tokens_after(Window(50_001, 100_000), must_halve=True) == 25_000
    assert asked.max_tokens_after(Window(50_000, 100_000), must_halve=True) == 24_999
    assert asked.max_tokens_after(Window(300_000, 100_000), must_halve=True) == 50_000


def test_the_context_after_a_summary() -> None:
    history = long_session()
    view, found = history.view(), cut(history)
    assert found is not None
    left = asked.tokens_after_summary(view, found, 1_000)
    assert asked.tokens_after_summary(view, found, 0) == left - view.scaled(1_000)
    assert left < view.scaled(view.size) - found.tokens + view.scaled(1_100)


def test_the_question() -> None:
    plain = asked.summary_question(WINDOW)
    assert "at most 5,000 tokens" in plain
    assert "{" not in plain
    assert asked.is_summary_question(plain)
    assert not asked.is_summary_question(f"x{plain}")
    alone = asked.summary_question(WINDOW, is_merged=False)
    assert "Only what is new since the previous record." in plain
    assert "Only what is new since the previous record." not in alone
    assert "take over everything in it that still holds" in alone
    more = asked.summary_question(WINDOW, " keep the port ", "These fail: x")
    assert more.startswith(plain)
    assert "\n\nThese fail: x" in more
    assert more.endswith("\n\nThe user adds, for this record only: keep the port")
    assert asked.summary_question(WINDOW, "  ") == plain


def test_a_summary_is_asked_for_behind_the_sessions_own_prefix() -> None:
    view = long_session().view()
    found = asked.summary_request(view, WINDOW, "Question?", model="m", effort="low")
    assert found.messages[-1]["content"][-1]["text"] == "Question?"
    assert (found.model, found.effort, found.max_tokens) == ("m", "low", 10_000)
    tight = Window(99_000, 100_000)
    room = asked.room_for_summary(tight, "Question?")
    assert room == tight.room - 2 * tokens.estimate("Question?")
    assert (
        asked.summary_request(view, tight, "Question?", model="m", effort=None).max_tokens == room
    )


def test_a_span_that_does_not_fit_is_read_in_parts() -> None:
    history = History()
    history.say("Go")
    for _ in range(4):
        work(history, 3_000)
    history.say("Next")
    view, small = history.view(), Window(9_000, 8_000)
    found = find_cut(view, FEW, small)
    assert found is not None
    requests = asked.chunk_requests(found, small, "Question?", upto=99, model="m", effort=None)
    assert len(requests) > 2
    text = asked.transcript(found.evicted)
    spans = [request.origin["span"] for request in requests]
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(one[1] == other[0] for one, other in pairwise(spans))
    for request, (begin, end) in zip(requests, spans, strict=True):
        first, question = (block["text"] for block in request.messages[0]["content"])
        assert first == f"A part of the session:\n\n{text[begin:end]}"
        assert question == "Question?"
        assert tokens.estimate(text[begin:end]) <= asked.max_tokens_after(small)
        assert request.max_tokens == 2 * asked.max_summary_tokens(small)
        assert request.messages == asked.rebuild_chunk_messages(
            view, "Question?", keep_from=found.keep_from, keep=found.keep, span=[begin, end]
        )
    assert requests[0].origin["upto"] == 99


def test_one_line_may_be_longer_than_a_part() -> None:
    history = History()
    history.say("x" * 100_000)
    history.reply({"type": "text", "text": "ok"})
    history.say("Next")
    small = Window(9_000, 8_000)
    found = find_cut(history.view(), FEW, small)
    assert found is not None
    requests = asked.chunk_requests(found, small, "Q", upto=9, model="m", effort=None)
    spans = [request.origin["span"] for request in requests]
    assert spans[-1][1] == len(asked.transcript(found.evicted))
    assert all(end > begin for begin, end in spans)


def test_what_is_pinned_stands_at_the_end() -> None:
    assert asked.pinned_section({}) == ""
    text = asked.pinned_section({4: "the port is 8080", 9: "no tabs"})
    assert text.startswith("\n\n## Pinned")
    assert text.index("the port is 8080") < text.index("no tabs")
    assert "#4" in text


def test_a_long_pin_is_cut_and_says_where_the_rest_is() -> None:
    text = asked.pinned_section({7: words(5_000)})
    assert text.endswith(" … Recall #7 for the rest")
    assert tokens.estimate(text) < asked.MAX_PIN_TOKENS + 50
    assert tokens.estimate(asked.first_tokens(words(50), 20)) <= 20


def test_the_line_about_the_archive(tmp_path: Path) -> None:
    line = f"All of this session is in {tmp_path}: conversation.md (the full conversation)"
    assert asked.archive_line(tmp_path) == line
    (tmp_path / "offloaded").mkdir()
    assert asked.archive_line(tmp_path) == (
        f"{line}, offloaded/ (results that were moved to files)"
    )
    assert "**Context Saved:** 1,234 tokens" in asked.archive_head(tmp_path, 1_234)
    assert f"**Session ID:** {tmp_path.name} · " in asked.archive_head(tmp_path, 1)


RECORD = "## Goal\nx\n## Decisions\nNone.\n## State\n- a\n## Next\n- b"


@pytest.mark.parametrize(
    ("text", "stop_reason", "why"),
    [
        (RECORD, "end_turn", ""), (RECORD, "stop_sequence", ""),
        (RECORD, "max_tokens", "it was cut off at its limit"),
        (RECORD, "refusal", "the model stopped with refusal"),
        (RECORD, None, "the model stopped with None"), (" ", "end_turn", "it is empty"),
        ("## Goal\nx", "end_turn", "Key Decisions"),
    ],
)  # fmt: skip
def test_whether_an_answer_can_be_used(text: str, stop_reason: str | None, why: str) -> None:
    found = asked.why_unusable(text, stop_reason, WINDOW)
    assert why in found
    assert bool(found) is bool(why)


def test_a_headline_leaves_out_thinking() -> None:
    history = History()
    thinking = {"type": "thinking", "thinking": "Where is it?", "signature": "s"}
    history.reply(thinking, {"type": "text", "text": "Found it."})
    history.reply(thinking)
    assert [*map(asked.headline, history.view().items)] == ["assistant: Found it.", "assistant"]
