"""Bodies of the Responses API."""

from typing import Any

import pytest

from ctxagent.addons.proxy.bodies.base import BodyPlace, Edits
from ctxagent.addons.proxy.bodies.responses import OTHER_ITEM, ResponsesBody

Json = dict[str, Any]
FORMAT = ResponsesBody()
RULES = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be."}]}
REASONING = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gA==",
             "summary": [{"type": "summary_text", "text": "Hm."}]}  # fmt: skip
CALL = {"type": "function_call", "call_id": "c1", "name": "t", "arguments": '{"a": "long"}'}
PATCH = {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "long"}
SHELL = {"type": "local_shell_call", "call_id": "c3", "action": {"command": ["ls"]}}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


def user(text: str, **more: Any) -> Json:
    return {"role": "user", "content": [{"type": "input_text", "text": text}], **more}


def result(of: Json, text: Any) -> Json:
    return {"type": f"{of['type']}_output", "call_id": of["call_id"], "output": text}


def body(*items: Json, **more: Any) -> Json:
    return {"model": "m", "input": [RULES, *items], "store": False, **more}


def test_items_become_replies_and_results() -> None:
    items = [
        user("Go."), REASONING, CALL, PATCH, SHELL, SEARCH,
        result(CALL, "r1"), result(PATCH, [{"type": "input_text", "text": "r2"}]),
        result(SHELL, "r3"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]},
    ]  # fmt: skip
    pieces = [*FORMAT.pieces(items, 0)]
    assert [p.kind for p in pieces] == ["words", "reply", "result", "result", "result", "reply"]
    blocks = pieces[1].blocks
    assert [b["type"] for b in blocks] == ["thinking", *["tool_use"] * 3, OTHER_ITEM]
    assert [b["input"] for b in blocks[1:4]] == [{"a": "long"}, {"input": "long"},
                                                 {"command": ["ls"]}]  # fmt: skip
    assert [b["name"] for b in blocks[1:4]] == ["t", "apply_patch", "local_shell"]
    assert pieces[1].places == tuple(BodyPlace(n) for n in range(1, 6))
    assert [p.call for p in pieces[2:5]] == ["c1", "c2", "c3"]
    assert pieces[5].blocks == [{"type": "text", "text": "A"}]


def test_only_what_is_edited_changes() -> None:
    given = body(user("Go."), CALL, PATCH, result(CALL, "r1"), result(PATCH, "r2"), x=1)
    edits = Edits(
        results={BodyPlace(3): "stub"},
        inputs={BodyPlace(1): {"long": "short"}, BodyPlace(2): {"long": "short"}},
    )
    assert FORMAT.edited(given, edits, 1) == body(
        user("Go."), {**CALL, "arguments": '{"a": "short"}'}, {**PATCH, "input": "short"},
        result(CALL, "stub"), result(PATCH, "r2"), x=1,
    )  # fmt: skip


def test_a_summary_takes_the_place_of_the_first_items() -> None:
    given = body(user("Go."), CALL, result(CALL, "r1"), user("Go on."))
    edits = Edits(start=3, head=[{"type": "text", "text": "The past."}])
    past = user("The past.", type="message")
    assert FORMAT.edited(given, edits, 1) == body(past, user("Go on."))


def test_a_question_goes_to_the_end() -> None:
    asked = FORMAT.with_question(body(user("Go.")), "What?")
    assert asked == body(user("Go."), user("What?", type="message"))


def test_texts_alone_are_sent_without_the_conversation() -> None:
    alone = FORMAT.with_only_texts(body(user("Go."), tools=[{}], stream=True), ["a", "b"], 70)
    assert alone == {
        "model": "m", "store": False, "stream": True, "max_output_tokens": 70,
        "input": [user("a\n\nb", type="message")],
    }  # fmt: skip


@pytest.mark.parametrize(
    "given", [{"input": "text"}, {}, {"input": [], "previous_response_id": "r"}]
)
def test_a_history_that_is_elsewhere_is_not_read(given: Json) -> None:
    assert FORMAT.messages(given) is None


def test_properties_of_a_body() -> None:
    assert FORMAT.output_room({"max_output_tokens": 5}) == 5
    assert FORMAT.output_room({}) == 0
    found = FORMAT.preamble(body(user("Go."), instructions="First.", tools=[{"name": "t"}]))
    assert (found.system, found.tools, found.messages) == ("First.\n\nBe.", [{"name": "t"}], 1)


def test_a_reply_that_calls_any_tool_is_no_end() -> None:
    draft = FORMAT.draft({"model": "m"})
    usage = {"input_tokens": 3, "output_tokens": 5}
    answer = {"id": "r", "status": "completed", "output": [SHELL], "usage": usage}
    for _ in draft.take_unstreamed(answer):
        pass
    reply = FORMAT.reply(draft)
    assert (reply.stop_reason, reply.usage.output) == ("tool_use", 5)
