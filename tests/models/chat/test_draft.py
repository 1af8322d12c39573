"""Replies of Chat Completions, in all formats known from servers."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.events import Accepted, TextDelta, ThinkingDelta, ToolDraft
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.chat.draft import MAX_CALLS, MAX_REPLY_CHARS, ChatDraft
from ctxagent.agent.models.wire import StreamError
from ctxagent.agent.session.entries import Usage

Chunk = dict[str, Any]
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}


def chunk(delta: Chunk | None = None, reason: str | None = None, **more: Any) -> Chunk:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more}


def piece(arguments: Any = None, **fields: Any) -> Chunk:
    """A delta with a piece of one call."""
    function = {"arguments": arguments} if arguments is not None else {}
    if name := fields.pop("name", None):
        function["name"] = name
    return {"tool_calls": [{**fields, "function": function}]}


def play(chunks: Sequence[Chunk], **options: Any) -> tuple[list[Any], Reply]:
    draft, seen = ChatDraft("deepseek/x", **options), []
    for each in chunks:
        seen += draft.take(each)
    assert draft.complete
    return seen, draft.reply()


def reply(*deltas: Chunk, reason: str = "stop", **options: Any) -> Reply:
    return play(
        [*map(chunk, deltas), chunk({}, reason), {"choices": [], "usage": USAGE}], **options
    )[1]


def call_of(block: Chunk) -> tuple[Any, ...]:
    return block["id"], block["name"], block["input"]


def test_text() -> None:
    chunks = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({"content": None}, "stop"),
        {"choices": [], "usage": USAGE},
    ]
    seen, found = play(chunks, sent={"protocol": "chat"})
    assert seen[0] == Accepted(Usage().to_json(), {"protocol": "chat"})
    assert seen[1:] == [TextDelta("Hel"), TextDelta("lo")]
    usage = Usage(input=100, output=7)
    assert found == Reply(
        [{"type": "text", "text": "Hello"}], "end_turn", usage, "deepseek/x", "chatcmpl-1", {},
        {"protocol": "chat"},
    )  # fmt: skip


def test_a_reply_is_read_until_its_usage() -> None:
    draft = ChatDraft("x")
    [*draft.take(chunk({"content": "a"}))]
    assert not draft.complete
    [*draft.take(chunk({}, "stop"))]
    assert draft.complete
    assert not draft.stopped
    [*draft.take({"choices": [], "usage": USAGE})]
    assert draft.stopped


def test_usage_in_each_chunk_ends_nothing() -> None:
    draft = ChatDraft("x")
    [*draft.take(chunk({"content": "a"}, usage=USAGE))]
    assert not draft.stopped
    [*draft.take(chunk({}, "stop", usage={**USAGE, "completion_tokens": 9}))]
    assert draft.stopped
    assert draft.reply().usage.output == 9


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param(
            [
                piece("", index=0, id="a", name="Bash", type="function"),
                piece('{"command"', index=0),
                piece("", index=1, id="b", name="Read"),
                piece('{"path": "x"}', index=1),
                piece(': "ls"}', index=0),
            ],
            [("a", "Bash", {"command": "ls"}), ("b", "Read", {"path": "x"})],
            id="in pieces, out of order",
        ),
        pytest.param(
            [piece('{"n": 1}', id="a", name="A"), piece('{"n": 2}', id="b", name="A")],
            [("a", "A", {"n": 1}), ("b", "A", {"n": 2})],
            id="no index (Gemini)",
        ),
        pytest.param(
            [
                piece('{"n": 1}', index=0, id="a", name="A"),
                piece('{"n": 2}', index=0, id="b", name="A"),
            ],
            [("a", "A", {"n": 1}), ("b", "A", {"n": 2})],
            id="always index 0 (Ollama)",
        ),
        pytest.param(
            [
                piece("", index=0, id="a", name="A"),
                piece('{"n"', index=0, id="a", name="A"),
                piece(": 1}", index=0, id="a", name="A"),
            ],
            [("a", "A", {"n": 1})],
            id="id and name with each piece",
        ),
        pytest.param(
            [piece('{"n": {"m": 1}', id="a", name="A"), piece(', "o": 2}')],
            [("a", "A", {"n": {"m": 1}, "o": 2})],
            id="no index in pieces",
        ),
        pytest.param(
            [piece({"n": 1}, index=0, id="a", name="A")],
            [("a", "A", {"n": 1})],
            id="arguments as an object",
        ),
        pytest.param(
            [piece("", index=0, id="a", name="A"), piece("", index=1, id="b", name="B")],
            [("a", "A", {}), ("b", "B", {})],
            id="no arguments",
        ),
        pytest.param(
            [piece(index=0, id="a", name="A")], [("a", "A", {})], id="no field for arguments"
        ),
    ],
)
def test_calls(pieces: list[Chunk], expected: list[Any]) -> None:
    found = reply(*pieces)
    assert [call_of(block) for block in found.content] == expected
    assert found.stop_reason == "tool_use"  # though the server said `stop`
    assert found.broken == {}


def test_calls_without_ids_are_told_apart() -> None:
    found = reply(piece('{"n": 1}', index=0, name="A"), piece('{"n": 2}', index=0, name="A"))
    first, second = found.content
    assert (first["input"], second["input"]) == ({"n": 1}, {"n": 2})
    assert first["id"] != second["id"]


def test_a_name_that_comes_with_each_piece() -> None:
    pieces = ['{"a": ', '{"b": 1}', ', "c": {}', "}"]
    found = reply(*(piece(each, name="A") for each in pieces))
    assert [block["input"] for block in found.content] == [{"a": {"b": 1}, "c": {}}]


def test_the_pieces_of_a_call_are_reported() -> None:
    seen, _ = play([chunk(piece("ab", index=0, name="A")), chunk(piece("c", index=0), "length")])
    assert seen[1:] == [ToolDraft("A", 2), ToolDraft("A", 3)]


@pytest.mark.parametrize("id", ["", "taken", "a b", "x" * 129])
def test_an_id_that_cannot_be_logged_is_replaced(id: str) -> None:
    block = reply(piece("{}", index=0, id=id, name="A"), taken_ids=frozenset({"taken"})).content[0]
    assert block["id"].startswith("call_")
    assert ("signature" in block) == (id == "a b")


def test_a_name_is_bounded() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "N" * 10_000, "arguments": "{}"}}
    assert reply({"tool_calls": [call]}).content[0]["name"] == "N" * 256


def test_the_ids_of_moonshot_are_kept_in_the_signature() -> None:
    block = reply(piece("{}", index=0, id="functions.Bash:0", name="Bash")).content[0]
    assert block["id"].startswith("call_")
    assert json.loads(block["signature"]) == {"id": "functions.Bash:0"}


def test_the_signature_of_gemini_is_kept_with_its_call() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    block = reply(piece("{}", id="a", name="A", extra_content=extra)).content[0]
    assert json.loads(block["signature"]) == {"extra_content": extra}


@pytest.mark.parametrize("raw", ['{"a": ', "[1]", '{"a": NaN}', "nonsense", "[" * 100_000])
def test_broken_arguments(raw: str) -> None:
    found = reply(piece(raw, index=0, id="a", name="A"), reason="length")
    assert call_of(found.content[0]) == ("a", "A", {})
    assert found.broken == {"a": raw}
    assert found.stop_reason == "max_tokens"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text", "thinking"])
def test_reasoning(name: str) -> None:
    chunks = [
        chunk({name: "Let me ", "content": None}),
        chunk({name: "see.", "content": ""}),
        chunk({"content": "Yes."}, "stop"),
    ]
    seen, found = play(chunks)
    assert seen[1:] == [ThinkingDelta("Let me "), ThinkingDelta("see."), TextDelta("Yes.")]
    thought, text = found.content
    assert thought["thinking"] == "Let me see."
    assert json.loads(thought["signature"]) == {"field": name}
    assert text["text"] == "Yes."


def test_reasoning_that_comes_twice_counts_once() -> None:
    found = reply({"reasoning": "a", "reasoning_content": "a"}, {"reasoning": "b"})
    assert found.content[0]["thinking"] == "a"


def test_the_details_of_reasoning_grow() -> None:
    detail = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
    sealed = {"type": "reasoning.encrypted", "data": "xyz", "id": "a", "index": 1}
    found = reply(
        {"reasoning": "Let ", "reasoning_details": [{**detail, "text": "Let "}]},
        {"reasoning": "us.", "reasoning_details": [{**detail, "text": "us."}]},
        {"reasoning_details": [{**detail, "text": "", "signature": "sig"}]},
        {"reasoning_details": [sealed]},
        {"content": "Yes."},
    )
    thought = found.content[0]
    assert thought["thinking"] == "Let us."
    assert json.loads(thought["signature"]) == {
        "field": "reasoning",
        "reasoning_details": [{**detail, "text": "Let us.", "signature": "sig"}, sealed],
    }


def test_details_alone_are_shown() -> None:
    detail = {"type": "reasoning.summary", "summary": "Hm."}
    seen, found = play([chunk({"reasoning_details": [detail]}, "stop")])
    assert seen[1:] == [ThinkingDelta("Hm.")]
    assert found.content[0]["thinking"] == "Hm."


def test_the_parts_of_mistral() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    found = reply({"content": [thinking]}, {"content": [{"type": "text", "text": "Yes."}]})
    assert found.content[0]["thinking"] == "Hm."
    assert json.loads(found.content[0]["signature"]) == {"field": "content"}
    assert found.content[1] == {"type": "text", "text": "Yes."}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("said", ["The <b> tag.", "<thin", "", "</think> is a tag."])
def test_reasoning_between_tags(said: str, size: int) -> None:
    whole = f"\n<think>\nLet me <b>see</b>.\n</think>\n\n{said}"
    pieces = [whole[n : n + size] for n in range(0, len(whole), size)]
    seen, found = play([*(chunk({"content": each}) for each in pieces), chunk({}, "stop")])
    thought, *texts = found.content
    assert thought == {"type": "thinking", "thinking": "Let me <b>see</b>.", "signature": ""}
    assert "".join(block["text"] for block in texts) == said
    assert "".join(d.text for d in seen if isinstance(d, TextDelta)) == said


@pytest.mark.parametrize("said", ["Use <think> here.", "<thi", "  <", "x</think>y", "\n a"])
def test_other_text_has_no_reasoning(said: str) -> None:
    assert reply(*({"content": c} for c in said)).content == [{"type": "text", "text": said}]


def test_reasoning_that_is_cut_off() -> None:
    found = reply({"content": "<think>Let me"}, reason="length")
    assert found.content == [{"type": "thinking", "thinking": "Let me", "signature": ""}]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "end_turn"),
        ("eos", "end_turn"),
        ("STOP", "end_turn"),
        ("something_new", "end_turn"),
        ("length", "max_tokens"),
        ("model_length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("content_filter", "refusal"),
        ("content_filter: SAFETY", "refusal"),
    ],
)
def test_stop_reasons(theirs: str, ours: str) -> None:
    assert reply({"content": "a"}, reason=theirs).stop_reason == ours


def test_a_refusal() -> None:
    found = reply({"refusal": "I will not."})
    assert (found.content, found.stop_reason) == (
        [{"type": "text", "text": "I will not."}],
        "refusal",
    )


@pytest.mark.parametrize(
    "reason", ["error", "network_error", "abort", "insufficient_system_resource"]
)
def test_a_reply_that_the_server_breaks_off(reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        reply({"content": "a"}, reason=reason)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, 0, 0, 2)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(5, 4, 0, 0)),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, Usage(5, 4, 0, 0)),
        ({"prompt_tokens": 9, "cached_tokens": 4}, Usage(5, 4, 0, 0)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4,
             "cache_write_tokens": 3}},
            Usage(2, 4, 3, 0),
        ),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(0, 9, 0, 0)),
        # Gemini and xAI count reasoning only in the total.
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 15}, Usage(9, 0, 0, 6)),
        ({"prompt_tokens": -1, "completion_tokens": 10**12}, Usage()),
        ({"prompt_tokens": "many"}, Usage()),
        (None, Usage()),
    ],
)  # fmt: skip
def test_usage(told: Any, expected: Usage) -> None:
    chunks = [chunk({"content": "a"}), chunk({}, "stop"), {"choices": [], "usage": told}]
    assert play(chunks)[1].usage == expected


def test_usage_in_the_choice() -> None:
    last = chunk({}, "stop")
    last["choices"][0]["usage"] = {"prompt_tokens": 9, "completion_tokens": 2}
    assert play([chunk({"content": "a"}), last])[1].usage == Usage(9, 0, 0, 2)


def test_a_whole_answer() -> None:
    calls = [
        {"id": id, "type": "function", "function": {"name": "A", "arguments": "{}"}} for id in "ab"
    ]
    message = {
        "role": "assistant",
        "content": "Look.",
        "reasoning_content": "Hm.",
        "tool_calls": calls,
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    draft = ChatDraft("x")
    seen = [*draft.take_unstreamed({"id": "1", "choices": [choice], "usage": USAGE})]
    found = draft.reply()
    assert [type(each).__name__ for each in seen][:3] == ["Accepted", "ThinkingDelta", "TextDelta"]
    assert [block["type"] for block in found.content] == [
        "thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert (found.stop_reason, found.usage) == ("tool_use", Usage(100, 0, 0, 7))


def test_a_whole_answer_without_a_reason() -> None:
    draft = ChatDraft("x")
    [*draft.take_unstreamed({"choices": [{"message": {"content": "Yes."}}]})]
    assert draft.complete
    assert draft.reply().stop_reason == "end_turn"


def test_an_answer_without_a_reply_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a reply"):
        [*ChatDraft("x").take_unstreamed({"message": "Not here."})]


def test_an_error_without_an_envelope() -> None:
    error = {"object": "error", "message": "It is broken.", "type": "X", "code": 500}
    with pytest.raises(StreamError, match=r"It is broken\.") as caught:
        [*ChatDraft("x").take(error)]
    assert caught.value.words == "It is broken."


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"delta": None}]},
        chunk({"content": 5}),
        chunk({"tool_calls": [None, 1, {"function": 2}]}),
        chunk({"tool_calls": {"index": 0}}),
        chunk({"reasoning_details": [None]}),
        chunk({"reasoning": {"a": 1}}),
        chunk({"content": [None, {"type": "image_url"}, {"type": "thinking", "thinking": [1]}]}),
    ],
)
def test_chunks_that_say_nothing(odd: Chunk) -> None:
    assert play([odd, chunk({"content": "a"}, "stop")])[1].content == [
        {"type": "text", "text": "a"}
    ]


TEXTS = st.text(st.sampled_from("<thinks/> a\n{}"), max_size=30)
CALLS = st.lists(st.dictionaries(st.text(max_size=3), TEXTS, max_size=2), max_size=3)


@settings(deadline=None)
@given(TEXTS, TEXTS, CALLS, st.randoms(use_true_random=False))
def test_pieces_make_the_same_reply(
    thought: str, said: str, given_to: list[Chunk], chance: random.Random
) -> None:
    """The result does not depend on chunk borders or on the order of calls."""
    deltas = [{"reasoning": each} for each in cut(thought, chance)]
    deltas += [{"content": each} for each in cut(said, chance)]
    waiting = [
        [piece("", index=n, id=f"c{n}", name="A"), *(piece(p, index=n) for p in cut(raw, chance))]
        for n, raw in enumerate(map(json.dumps, given_to))
    ]
    for n in range(len(given_to)):  # the first pieces keep the order of the calls
        deltas.append(waiting[n].pop(0))
    while any(waiting):
        deltas.append(chance.choice([each for each in waiting if each]).pop(0))
    calls = [
        {"id": f"c{n}", "function": {"name": "A", "arguments": json.dumps(each)}}
        for n, each in enumerate(given_to)
    ]
    message = {"content": said, "reasoning": thought, "tool_calls": calls}
    whole = ChatDraft("deepseek/x")
    [
        *whole.take_unstreamed(
            {"id": "chatcmpl-1", "choices": [{"message": message}], "usage": USAGE}
        )
    ]
    assert reply(*deltas) == whole.reply()


def cut(text: str, chance: random.Random) -> list[str]:
    places = sorted(chance.randrange(len(text) + 1) for _ in range(chance.randrange(5)))
    return [text[a:b] for a, b in pairwise([0, *places, len(text)])]


def test_an_invalid_choice_is_an_error() -> None:
    with pytest.raises(ValueError, match="an invalid choice"):
        [*ChatDraft("x").take({"choices": [1]})]


def test_a_call_in_many_objects_takes_no_long_time() -> None:
    began = process_time()
    call = reply(*(piece('{"a": 1}{}' * 10, name="A") for _ in range(20_000))).content[0]
    assert (call["name"], call["input"]) == ("A", {})
    assert process_time() - began < 30  # the parsing alone took minutes


def test_blanks_are_bounded_like_any_text() -> None:
    with pytest.raises(ValueError, match="characters"):
        reply(*({"content": " " * 800} for _ in range(MAX_REPLY_CHARS // 800 + 2)))


def test_a_reply_is_bounded() -> None:
    with pytest.raises(ValueError, match="characters"):
        reply({"content": "x" * (MAX_REPLY_CHARS + 1)})
    with pytest.raises(ValueError, match="calls"):
        reply(*(piece("{}", index=n, name="A") for n in range(MAX_CALLS + 1)))
