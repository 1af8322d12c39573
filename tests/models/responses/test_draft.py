"""Replies of the Responses API, built from all kinds of events."""

import json
from typing import Any

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.events import Accepted, Delta, TextDelta, ThinkingDelta, ToolDraft
from ctxagent.agent.models.responses.draft import ReasoningState, ResponseDraft, draft_of, unpack
from ctxagent.agent.models.wire import StreamError
from ctxagent.agent.session.entries import Usage

Event = dict[str, Any]
REASONING: Event = {
    "id": "rs_1",
    "type": "reasoning",
    "encrypted_content": "gAAA",
    "summary": [
        {"type": "summary_text", "text": "First."},
        {"type": "summary_text", "text": "Then."},
    ],
}
CALL: Event = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_a",
    "name": "Bash",
    "arguments": '{"command":"ls"}',
}
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    "output_tokens": 7,
}


def message(*texts: str, id: str = "msg_1", **fields: Any) -> Event:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"id": id, "type": "message", "role": "assistant", "content": content, **fields}


def response(*output: Event, **fields: Any) -> Event:
    return {"id": "resp_1", "status": "completed", "output": [*output], "usage": USAGE, **fields}


def event(kind: str, place: int | None = None, **fields: Any) -> Event:
    placed = {} if place is None else {"output_index": place}
    return {"type": f"response.{kind}", **placed, **fields}


def done(*items: Event, **fields: Any) -> list[Event]:
    events: list[Event] = [{"type": "response.created", "response": {"id": "resp_1"}}]
    for place, item in enumerate(items):
        events += [
            event("output_item.added", place, item=item),
            event("output_item.done", place, item=item),
        ]
    return [*events, {"type": "response.completed", "response": response(*items, **fields)}]


def draft(*ids: str) -> ResponseDraft:
    calls = [{"type": "tool_use", "id": id, "name": "Bash", "input": {}} for id in ids]
    return draft_of(Request("openai/m", [], [], [{"role": "assistant", "content": calls}], 100))


def taken(events: list[Event], *ids: str) -> tuple[ResponseDraft, list[Delta]]:
    made = draft(*ids)
    return made, [delta for event in events for delta in made.take(event)]


def test_a_reply_of_reasoning_text_and_calls() -> None:
    made, deltas = taken(
        [
            event("created", response={"id": "resp_1"}),
            event("in_progress", response={"id": "resp_1"}),
            event("output_item.added", 0, item={**REASONING, "summary": []}),
            event("reasoning_summary_part.added", 0, summary_index=0),
            event("reasoning_summary_text.delta", 0, delta="First."),
            event("reasoning_summary_part.added", 0, summary_index=1),
            event("reasoning_summary_text.delta", 0, delta="Then."),
            event("output_item.done", 0, item=REASONING),
            event("output_item.added", 1, item=message()),
            event("output_text.delta", 1, delta="Let me "),
            event("output_text.delta", 1, delta="look."),
            event("hologram.delta", 1, delta="cube"),
            event("output_item.done", 1, item=message("Let me look.")),
            event("output_item.added", 2, item={**CALL, "arguments": ""}),
            event("function_call_arguments.delta", 2, delta='{"command"'),
            event("function_call_arguments.delta", 2, delta=':"ls"}'),
            event("output_item.done", 2, item=CALL),
            event("completed", response=response(REASONING, message("Let me look."), CALL)),
        ]
    )
    assert deltas == [
        Accepted(Usage().to_json()),
        ThinkingDelta("First."),
        ThinkingDelta("\n\n"),
        ThinkingDelta("Then."),
        TextDelta("Let me "),
        TextDelta("look."),
        ToolDraft("Bash", 0),
        ToolDraft("Bash", 10),
        ToolDraft("Bash", 16),
    ]
    assert made.complete
    reply = made.reply()
    thinking, *rest = reply.content
    assert thinking["thinking"] == "First.\n\nThen."
    assert unpack(thinking["signature"]) == ReasoningState(
        REASONING, [{"type": "message", "id": "msg_1"}, {"type": "function_call", "id": "fc_1"}]
    )
    assert rest == [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "call_a", "name": "Bash", "input": {"command": "ls"}},
    ]
    assert (reply.model, reply.message_id, reply.stop_reason) == ("openai/m", "resp_1", "tool_use")
    assert reply.usage == Usage(input=10, cache_read=60, cache_creation=30, output=7)


def test_each_reasoning_item_keeps_the_items_after_it() -> None:
    second = {**REASONING, "id": "rs_2"}
    made, _ = taken(done(REASONING, second, message("A."), CALL))
    states = [unpack(b["signature"]) for b in made.reply().content if b["type"] == "thinking"]
    assert [state and state.behind for state in states] == [
        [],
        [{"type": "message", "id": "msg_1"}, {"type": "function_call", "id": "fc_1"}],
    ]


def test_the_text_of_arguments_is_kept_if_it_is_not_canonical() -> None:
    made, _ = taken(done(REASONING, {**CALL, "arguments": '{ "command": "ls" }'}))
    state = unpack(made.reply().content[0]["signature"])
    assert state is not None
    assert state.behind[0]["arguments"] == '{ "command": "ls" }'


def test_a_phase_without_reasoning_is_kept() -> None:
    made, _ = taken(done(message("Look.", phase="commentary"), CALL))
    thinking, *rest = made.reply().content
    assert [block["type"] for block in rest] == ["text", "tool_use"]
    state = unpack(thinking["signature"])
    assert state is not None
    assert state.item is None
    assert state.behind[0] == {"type": "message", "id": "msg_1", "phase": "commentary"}


@pytest.mark.parametrize(
    ("item", "is_sent_back"),
    [
        ({"type": "reasoning", "id": "rs", "summary": []}, False),
        ({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": None}, False),
        ({"type": "reasoning", "id": "rs", "summary": [],
          "content": [{"type": "reasoning_text", "text": "Hm."}]}, True),
    ],
)  # fmt: skip
def test_empty_reasoning_is_not_sent_back(item: Event, is_sent_back: bool) -> None:
    made, _ = taken(done(item, message("A.")))
    assert bool(made.reply().content[0]["signature"]) == is_sent_back


@pytest.mark.parametrize(
    ("output", "fields", "reason"),
    [
        ([message("A.")], {}, "end_turn"),
        ([], {}, "end_turn"),
        ([CALL], {}, "tool_use"),
        ([message("A.")], {"status": "incomplete",
                           "incomplete_details": {"reason": "max_output_tokens"}}, "max_tokens"),
        ([CALL], {"status": "incomplete",
                  "incomplete_details": {"reason": "max_output_tokens"}}, "max_tokens"),
        ([message("A.")], {"status": "incomplete",
                           "incomplete_details": {"reason": "content_filter"}}, "refusal"),
        ([message("A.")], {"status": "incomplete",
                           "incomplete_details": {"reason": "steered"}}, "end_turn"),
        ([{**message(), "content": [{"type": "refusal", "refusal": "No."}]}], {}, "refusal"),
    ],
)  # fmt: skip
def test_stop_reasons(output: list[Event], fields: Event, reason: str) -> None:
    whole = draft()
    [*whole.take_unstreamed(response(*output, **fields))]
    made, _ = taken(done(*output, **fields))
    assert made.reply().stop_reason == whole.reply().stop_reason == reason


def test_a_refusal_is_text() -> None:
    refusal = {**message(), "content": [{"type": "refusal", "refusal": "I cannot."}]}
    made, deltas = taken(
        [{"type": "response.refusal.delta", "delta": "I cannot."}, *done(refusal)[1:]]
    )
    assert TextDelta("I cannot.") in deltas
    assert made.reply().content == [{"type": "text", "text": "I cannot."}]


def test_the_answer_of_a_server_that_does_not_stream() -> None:
    made = draft()
    deltas = [*made.take_unstreamed(response(REASONING, message("A", "b."), CALL))]
    assert [type(delta) for delta in deltas] == [Accepted, ThinkingDelta, TextDelta]
    assert made.complete
    assert [b.get("text") for b in made.reply().content] == [None, "Ab.", None]


def test_items_missing_in_the_stream_are_taken_from_its_end() -> None:
    made, _ = taken(
        [
            event("output_item.added", item=CALL),
            event("completed", response=response(message("A."), CALL)),
        ]
    )
    assert [block["type"] for block in made.reply().content] == ["text", "tool_use"]


def test_places_may_be_missing() -> None:
    two = {**CALL, "id": "fc_2", "call_id": "call_b", "name": "Read"}
    made, deltas = taken(
        [
            event("output_item.added", item=CALL),
            {"type": "response.function_call_arguments.delta", "delta": "{}", "item_id": "fc_1"},
            event("output_item.added", item=two),
            {"type": "response.function_call_arguments.delta", "delta": "{"},
            event("output_item.done", item=two),
            event("output_item.done", item=CALL),
            event("completed", response={"status": "completed"}),
        ]
    )
    assert [d.name for d in deltas if isinstance(d, ToolDraft)] == ["Bash", "Bash", "Read", "Read"]
    assert [b["id"] for b in made.reply().content] == ["call_b", "call_a"]


def test_ids_of_calls_are_unique_and_can_be_sent_back() -> None:
    bad = {**CALL, "call_id": "a b"}
    made, _ = taken(done(CALL, bad, {**CALL, "call_id": "old"}), "old")
    ids = [block["id"] for block in made.reply().content]
    assert ids[0] == "call_a"
    assert len({*ids, "old"}) == 4
    assert "a b" not in ids


@pytest.mark.parametrize("raw", ['{"command": "l', "[]", '{"a": NaN}'])
def test_arguments_that_are_no_object_are_broken(raw: str) -> None:
    made, _ = taken(done({**CALL, "arguments": raw}))
    reply = made.reply()
    assert reply.broken == {"call_a": raw}
    assert reply.content[0]["input"] == {}


def test_no_arguments_are_an_empty_object() -> None:
    made, _ = taken(done({**CALL, "arguments": ""}))
    assert made.reply().broken == {}


@pytest.mark.parametrize(
    ("ending", "kind", "words"),
    [
        ({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Slow."}},
         "rate_limit_exceeded", "Slow."),
        ({"status": "failed", "error": None}, "failed", ""),
        ({"status": "cancelled"}, "cancelled", ""),
    ],
)  # fmt: skip
def test_a_response_that_failed(ending: Event, kind: str, words: str) -> None:
    with pytest.raises(StreamError) as caught:
        taken([{"type": "response.failed", "response": ending}])
    assert (caught.value.kind, caught.value.words) == (kind, words)
    with pytest.raises(StreamError):
        [*draft().take_unstreamed(ending)]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_item.added"},
        {"type": "response.output_item.done", "item": "x"},
        {"type": "response.completed"},
    ],
)
def test_invalid_events_are_errors(event: Event) -> None:
    with pytest.raises(ValueError, match="an invalid event"):
        taken([event])


def test_an_unfinished_item_is_an_error() -> None:
    with pytest.raises(ValueError, match="ended before all items were finished"):
        taken(
            [
                event("output_item.added", item=CALL),
                event("completed", response={"status": "completed"}),
            ]
        )


def test_a_reply_is_bounded() -> None:
    large = message("x" * 4_100_000)
    with pytest.raises(ValueError, match="8,000,000 characters"):
        taken(done(large, large))
    with pytest.raises(ValueError, match="10,000 items"):
        [*draft().take_unstreamed(response(*[CALL] * 10_001))]


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        {"input_tokens": -1},
        {"input_tokens": True},
        {"output_tokens": 10**9},
        {"input_tokens": "5"},
    ],
)
def test_implausible_counts_are_ignored(usage: Any) -> None:
    made, _ = taken(done(message("A."), usage=usage))
    assert made.reply().usage == Usage()


def test_more_cached_than_the_prompt_has_is_cut() -> None:
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 9},
    }
    made, _ = taken(done(message("A."), usage=usage))
    assert made.reply().usage == Usage(cache_read=5)


def test_a_reply_is_json() -> None:
    made, _ = taken(
        done(REASONING, message("ä"), {"type": "web_search_call", "id": "ws"}, {}, CALL)
    )
    json.dumps(made.reply().content)
    assert [block["type"] for block in made.reply().content] == ["thinking", "text", "tool_use"]
