"""Bodies of the Messages API."""

from typing import Any

import pytest

from ctxagent.addons.proxy.bodies.base import BodyPlace, Edits
from ctxagent.addons.proxy.bodies.messages import MessagesBody
from ctxagent.tests.support.proxy.clients import MARK

Json = dict[str, Any]
FORMAT = MessagesBody()
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "long", "is_error": True}
CALL = {"type": "tool_use", "id": "c1", "name": "Write", "input": {"path": "a", "text": "long"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def body(*messages: Json, **more: Any) -> Json:
    return {"model": "m", "max_tokens": 9, "messages": [*messages], "stream": True, **more}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": [*blocks]}


def said(*blocks: Json) -> Json:
    return {"role": "assistant", "content": [*blocks]}


def test_a_message_is_taken_apart() -> None:
    reminder = text("<system-reminder>x</system-reminder>")
    messages = [
        {"role": "user", "content": "Go."},
        said(THOUGHT, CALL),
        user(RESULT, text("a"), text("b", **MARK), reminder),
    ]
    pieces = [*FORMAT.pieces(messages, 0)]
    assert [(p.kind, p.by_client) for p in pieces] == [
        ("words", False), ("reply", False), ("result", False), ("words", False), ("words", True),
    ]  # fmt: skip
    assert pieces[0].places == (BodyPlace(0),)
    assert pieces[1].content == [THOUGHT, CALL]
    assert (pieces[2].call, pieces[2].is_error, pieces[2].content) == ("c1", True, "long")
    assert pieces[3].content == [text("a"), text("b")]
    assert pieces[4].places == (BodyPlace(2, 3),)
    assert [*FORMAT.pieces(messages, 2)] == pieces[2:]


def test_an_unknown_role_is_not_understood() -> None:
    with pytest.raises(ValueError, match="the role 'oracle'"):
        [*FORMAT.pieces([{"role": "oracle", "content": "x"}], 0)]


def test_only_what_is_edited_changes() -> None:
    given = body(user(text("Go.")), said(THOUGHT, CALL), user({**RESULT, **MARK}), x=1)
    edits = Edits(
        results={BodyPlace(2, 0): "stub"},
        inputs={BodyPlace(1, 1): {"long": "short"}},
        dropped={BodyPlace(1, 0)},
    )
    call = {**CALL, "input": {"path": "a", "text": "short"}}
    result = {**RESULT, "content": "stub", **MARK}
    assert FORMAT.edited(given, edits, 0) == body(user(text("Go.")), said(call), user(result), x=1)
    assert given["messages"][1] == said(THOUGHT, CALL)


def test_no_message_ends_with_thinking() -> None:
    given = body(user(text("Go.")), said(THOUGHT, text("a"), THOUGHT), user(text("b")))
    edits = Edits(dropped={BodyPlace(1, 1)})
    assert FORMAT.edited(given, edits, 0)["messages"] == [user(text("Go.")), user(text("b"))]


@pytest.mark.parametrize("start", [1, 2])
def test_a_summary_takes_the_place_of_the_first_messages(start: int) -> None:
    given = body({"role": "user", "content": "Go."}, said(text("a")), user(text("b")))
    edited = FORMAT.edited(given, Edits(start=start, head=[text("The past.")]), 0)["messages"]
    if start == 1:
        assert edited == [user(text("The past.")), said(text("a")), user(text("b"))]
    else:
        assert edited == [user(text("The past."), text("b"))]


def test_a_mark_is_set_where_one_is_left() -> None:
    given = body(user(text("a")), said(text("b")), user(RESULT, text("c", **MARK)))
    edits = Edits(results={BodyPlace(2, 0): "stub"}, mark=1)
    assert FORMAT.edited(given, edits, 0)["messages"][1] == said(text("b", **MARK))
    full = body(*[user(text("a", **MARK))] * 4, said(text("b")), user(RESULT))
    edits = Edits(results={BodyPlace(5, 0): "stub"}, mark=4)
    assert FORMAT.edited(full, edits, 0)["messages"][4] == said(text("b"))
    none = body(user(text("a")), said(text("b")), user(RESULT))
    edits = Edits(results={BodyPlace(2, 0): "stub"}, mark=1)
    assert FORMAT.edited(none, edits, 0)["messages"][1] == said(text("b"))


def test_a_question_goes_behind_the_last_words() -> None:
    asked = FORMAT.with_question(body({"role": "user", "content": "Go."}), "What?")
    assert asked["messages"] == [user(text("Go."), text("What?"))]
    asked = FORMAT.with_question(body(user(text("Go.")), said(text("a"))), "What?")
    assert asked["messages"][-1] == user(text("What?"))


def test_texts_alone_are_sent_without_the_conversation() -> None:
    given = body(user(text("Go.")), tools=[{}], thinking={"type": "enabled"}, system="s")
    alone = FORMAT.with_only_texts(given, ["a", "b"], 7)
    assert alone == {
        "model": "m", "stream": True, "max_tokens": 7, "messages": [user(text("a"), text("b"))],
    }  # fmt: skip


def test_properties_of_a_body() -> None:
    assert FORMAT.output_room(body()) == 9
    assert FORMAT.output_room({"max_tokens": "many"}) == 0
    assert not FORMAT.is_cached(body(user(text("a"))))
    assert FORMAT.is_cached(body(user(text("a", **MARK))))
    assert FORMAT.is_cached(body(**MARK))
    assert FORMAT.messages({"messages": "x"}) is None
    given = body(system=[text("a"), text("b")], tools=[{"name": "t", **MARK}])
    found = FORMAT.preamble(given)
    assert (found.system, found.tools, found.messages) == ("a\n\nb", [{"name": "t"}], 0)
