"""Bodies of Gemini's `generateContent`."""

import json
from typing import Any

import pytest

from ctxagent.addons.proxy.bodies.base import BodyPlace, Edits
from ctxagent.addons.proxy.bodies.gemini import GeminiBody
from ctxagent.tests.support.proxy.clients import PIXEL

Json = dict[str, Any]
FORMAT = GeminiBody()
CALLS = [
    {"functionCall": {"name": "t", "args": {"a": "long"}}, "thoughtSignature": "c2ln"},
    {"functionCall": {"name": "u", "args": {}}},
]
REPLY: Json = {
    "role": "model",
    "parts": [{"text": "Hm.", "thought": True}, {"text": "I look."}, *CALLS],
}


def content(*parts: Json) -> Json:
    return {"role": "user", "parts": [*parts]}


def result(name: str, response: Any, **more: Any) -> Json:
    return {"functionResponse": {"name": name, "response": response, **more}}


def body(*contents: Json, **more: Any) -> Json:
    return {"contents": [*contents], **more}


GO = content({"text": "Go."})
RESULTS = content(
    result("u", {"error": "no"}, id="of the client"), result("t", {"output": "long"}, id="b")
)


def test_a_content_is_taken_apart() -> None:
    context = {"text": "<session_context>\nThis is Gemini CLI."}
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    first = content(context, {"text": "Go."}, image)
    pieces = [*FORMAT.pieces([first, REPLY, RESULTS], 0)]
    assert [piece.kind for piece in pieces] == ["words", "words", "reply", "result", "result"]
    assert [piece.by_client for piece in pieces] == [True, False, False, False, False]
    assert [block["type"] for block in pieces[1].blocks] == ["text", "image"]
    kinds = ["thinking", "text", "tool_use", "tool_use"]
    assert [block["type"] for block in pieces[2].blocks] == kinds
    assert pieces[2].places == tuple(BodyPlace(1, number) for number in range(4))
    with pytest.raises(ValueError, match="the role 'oracle'"):
        [*FORMAT.pieces([{"role": "oracle", "parts": []}], 0)]


def test_a_result_belongs_to_the_call_that_its_name_or_place_says() -> None:
    """Older models send calls without IDs, and clients then send their own IDs or none."""
    twice = {"role": "model", "parts": [CALLS[0], CALLS[0]]}
    answers = content(result("t", {"output": "1"}), result("t", {"output": "2"}, id="x"))
    pieces = [*FORMAT.pieces([GO, REPLY, RESULTS, twice, answers], 2)]
    ids = [block["id"] for block in pieces[2].blocks]
    found = [(piece.call, piece.content, piece.is_error) for piece in pieces if piece.call]
    assert found == [
        ("call_1_3", "no", True), ("call_1_2", "long", False),
        (ids[0], "1", False), (ids[1], "2", False),
    ]  # fmt: skip
    named = {"functionCall": {"name": "t", "args": {}, "id": "of the server"}}
    answered = content(result("t", {"output": "1"}, id="of the server"))
    reply = {"role": "model", "parts": [CALLS[0], named]}
    split = [GO, reply, answered, content(result("t", {}))]
    pieces = [*FORMAT.pieces(split, 3)]
    assert [piece.call for piece in pieces] == ["call_1_0"]


def test_contents_of_one_reply_are_one_piece() -> None:
    """Google's SDK keeps the chunks of a stream apart."""
    said, called = ({"role": "model", "parts": [part]} for part in (REPLY["parts"][1], CALLS[0]))
    messages = [GO, said, called, content(result("t", {"output": "long"}))]
    pieces = [*FORMAT.pieces(messages, 0)]
    assert [piece.kind for piece in pieces] == ["words", "reply", "result"]
    assert [block["type"] for block in pieces[1].blocks] == ["text", "tool_use"]
    assert pieces[1].places == (BodyPlace(1, 0), BodyPlace(2, 0))
    assert pieces[2].call == pieces[1].blocks[1]["id"]
    assert [*FORMAT.pieces(messages, 3)] == pieces[2:]


def test_only_what_is_edited_changes() -> None:
    given = body(GO, REPLY, RESULTS, model="m")
    edits = Edits(results={BodyPlace(2, 1): "stub"}, inputs={BodyPlace(1, 2): {"long": "short"}})
    found = FORMAT.edited(given, edits, 0)
    call = {**CALLS[0], "functionCall": {"name": "t", "args": {"a": "short"}}}
    reply = {"role": "model", "parts": [*REPLY["parts"][:2], call, CALLS[1]]}
    results = content(RESULTS["parts"][0], result("t", {"output": "stub"}, id="b"))
    assert found == body(GO, reply, results, model="m")
    assert json.dumps(given) == json.dumps(body(GO, REPLY, RESULTS, model="m"))


@pytest.mark.parametrize(
    ("response", "text", "key"),
    [
        ({"output": "a"}, "a", "output"),
        ({"error": "a"}, "a", "error"),
        ({"content": "é"}, "é", "content"),
        ({"stdout": "é", "code": 0}, '{"stdout": "é", "code": 0}', "output"),
        ({"output": ["a"]}, '{"output": ["a"]}', "output"),
    ],
)
def test_a_stub_replaces_the_text_of_a_result(response: Json, text: str, key: str) -> None:
    snake = {"function_response": {"name": "t", "response": response, "scheduling": "SILENT"}}
    (piece,) = FORMAT.pieces([content(snake)], 0)
    assert piece.content == text
    found = FORMAT.edited(body(content(snake)), Edits(results={BodyPlace(0, 0): "stub"}), 0)
    new = {"name": "t", "response": {key: "stub"}, "scheduling": "SILENT"}
    assert found == body(content({"function_response": new}))


def test_images_in_a_result_leave_with_its_text() -> None:
    part = {"inline_data": {"mime_type": "image/png", "data": PIXEL}}
    given = content(result("t", {"output": "a"}, parts=[part]))
    (piece,) = FORMAT.pieces([given], 0)
    assert [block["type"] for block in piece.blocks] == ["text", "image"]
    found = FORMAT.edited(body(given), Edits(results={BodyPlace(0, 0): "stub"}), 0)
    assert found == body(content(result("t", {"output": "stub"})))


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (REPLY, [content({"text": "The past."}), REPLY]),
        (content({"text": "On."}), [content({"text": "The past."}, {"text": "On."})]),
    ],
)
def test_a_summary_takes_the_place_of_the_first_contents(last: Json, expected: list[Json]) -> None:
    head = Edits(start=2, head=[{"type": "text", "text": "The past."}])
    assert FORMAT.edited(body(GO, REPLY, last), head, 0) == body(*expected)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (REPLY, [REPLY, content({"text": "What?"})]),
        (RESULTS, [content(*RESULTS["parts"], {"text": "What?"})]),
    ],
)
def test_a_question_goes_behind_the_last_words(last: Json, expected: list[Json]) -> None:
    assert FORMAT.with_question(body(last), "What?") == body(*expected)


def test_texts_alone_are_sent_without_the_conversation() -> None:
    given = body(GO, tools=[{}], safetySettings=[], generationConfig={"temperature": 0})
    assert FORMAT.with_only_texts(given, ["a", "b"], 7) == {
        "safetySettings": [],
        "contents": [content({"text": "a"}, {"text": "b"})],
        "generationConfig": {"maxOutputTokens": 7},
    }


def test_properties_of_a_body() -> None:
    assert FORMAT.output_room({"generationConfig": {"maxOutputTokens": 5}}) == 5
    assert FORMAT.output_room({"generation_config": {"max_output_tokens": 6}}) == 6
    assert FORMAT.output_room({}) == 0
    assert FORMAT.messages({"contents": "Go."}) is None
    assert FORMAT.messages({"contents": [GO], "cachedContent": "cachedContents/1"}) is None
    assert FORMAT.model({}, "https://h/v1beta/models/gemini%2D3:countTokens?key=k") == "gemini-3"
    function = {"name": "t", "description": "d"}
    given = {
        "system_instruction": {"parts": [{"text": "a"}, {"text": "b"}]},
        "tools": [{"function_declarations": [function]}, {"googleSearch": {}}],
    }
    found = FORMAT.preamble(given)
    assert (found.system, found.tools) == ("a\n\nb", [function, {"googleSearch": {}}])
