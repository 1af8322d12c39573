"""Bodies of the Chat Completions API."""

import json
from typing import Any

import pytest

from ctxagent.addons.proxy.bodies.base import BodyPlace, Edits
from ctxagent.addons.proxy.bodies.chat import ChatBody

Json = dict[str, Any]
FORMAT = ChatBody()
SYSTEM = {"role": "system", "content": "Be good."}
CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "t", "arguments": '{"a": "long"}'}},
    {"id": "c2", "type": "function", "function": {"name": "t", "arguments": "{"}},
]
REPLY: Json = {"role": "assistant", "content": None, "reasoning_content": "Hm.",
               "tool_calls": CALLS, "x": 1}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "long"}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def body(*messages: Json, **more: Any) -> Json:
    return {"model": "m", "messages": [SYSTEM, *messages], **more}


def head(text: str) -> Edits:
    return Edits(start=2, head=[{"type": "text", "text": text}])


def test_a_message_is_taken_apart() -> None:
    developer = {"role": "developer", "content": "Mind this."}
    messages = [user("Go."), REPLY, RESULT, developer, {"role": "assistant", "content": "Yes."}]
    pieces = [*FORMAT.pieces(messages, 0)]
    assert [p.kind for p in pieces] == ["words", "reply", "result", "words", "reply"]
    assert [block["type"] for block in pieces[1].blocks] == ["thinking", "tool_use", "tool_use"]
    assert pieces[1].blocks[1]["input"] == {"a": "long"}
    assert pieces[1].places == (BodyPlace(1), BodyPlace(1, 0), BodyPlace(1, 1))
    assert (pieces[2].call, pieces[2].content) == ("c1", "long")
    assert [p.by_client for p in pieces] == [False, False, False, True, False]
    with pytest.raises(ValueError, match="the role 'oracle'"):
        [*FORMAT.pieces([{"role": "oracle"}], 0)]


def test_only_what_is_edited_changes() -> None:
    given = body(user("Go."), REPLY, RESULT, seed=7)
    edits = Edits(results={BodyPlace(2): "stub"}, inputs={BodyPlace(1, 0): {"long": "short"}})
    found = FORMAT.edited(given, edits, 1)
    function = {"name": "t", "arguments": '{"a": "short"}'}
    reply = {**REPLY, "tool_calls": [{**CALLS[0], "function": function}, CALLS[1]]}
    assert found == body(user("Go."), reply, {**RESULT, "content": "stub"}, seed=7)
    assert json.dumps(given) == json.dumps(body(user("Go."), REPLY, RESULT, seed=7))


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (REPLY, [user("The past."), REPLY]),
        (user("Go on."), [user("The past.\n\nGo on.")]),
        (
            user([{"type": "text", "text": "Go on."}]),
            [user([{"type": "text", "text": "The past."}, {"type": "text", "text": "Go on."}])],
        ),
    ],
)
def test_a_summary_takes_the_place_of_the_first_messages(last: Json, expected: list[Json]) -> None:
    given = body(user("Go."), {"role": "assistant", "content": "a"}, last)
    assert FORMAT.edited(given, head("The past."), 1) == body(*expected)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (RESULT, [RESULT, user("What?")]),
        (user("Go on."), [user("Go on.\n\nWhat?")]),
        (
            user([{"type": "text", "text": "Go on."}]),
            [user([{"type": "text", "text": "Go on."}, {"type": "text", "text": "What?"}])],
        ),
    ],
)
def test_a_question_goes_behind_the_last_words(last: Json, expected: list[Json]) -> None:
    assert FORMAT.with_question(body(last), "What?") == body(*expected)


def test_texts_alone_are_sent_without_the_conversation() -> None:
    given = body(user("Go."), tools=[{}], stream=True, stream_options={"include_usage": True})
    alone = FORMAT.with_only_texts(given, ["a", "b"], 7)
    assert alone == {
        "model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 7,
        "messages": [user("a\n\nb")],
    }  # fmt: skip
    limit = FORMAT.with_only_texts({"max_completion_tokens": 9}, ["a"], 7)
    assert limit["max_completion_tokens"] == 7


def test_properties_of_a_body() -> None:
    assert FORMAT.output_room({"max_completion_tokens": 5, "max_tokens": 9}) == 5
    assert FORMAT.output_room({"max_tokens": 9}) == 9
    assert FORMAT.output_room({}) == 0
    assert FORMAT.messages({"messages": {}}) is None
    found = FORMAT.preamble(body({"role": "developer", "content": "And so."}, user("Go.")))
    assert (found.system, found.tools, found.messages) == ("Be good.\n\nAnd so.", [], 2)
