"""Messages of servers with wrong parts."""

import json
from typing import Any

import pytest
from mcp_types import jsonrpc_message_adapter

from ctxagent.agent.extensions.mcp.messages import (
    AS_SENT,
    MAX_DEPTH,
    TOO_DEEP,
    answer_in_body,
    broken_answer_id,
    read_messages,
)


def read(text: str | bytes) -> list[dict[str, Any]]:
    """Return the messages in a text. The SDK accepts each of them."""
    found = read_messages(text if isinstance(text, bytes) else text.encode())
    for message in found:
        jsonrpc_message_adapter.validate_python(message, by_name=False)
    return found


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ('{"id": 1, "result": null}', {"result": {AS_SENT: None}}),
        ('{"id": 1.0, "result": [1]}', {"result": {AS_SENT: [1]}}),
        ('{"id": 1, "result": {"a": 1}, "error": null}', {"result": {"a": 1}}),
        (
            '{"id": 1, "error": {"code": "-32000", "message": "m", "data": 5}}',
            {"error": {"code": -32000, "message": "m", "data": {AS_SENT: 5}}},
        ),
        (
            '{"id": 1, "error": "no luck"}',
            {"error": {"code": 0, "message": "no luck", "data": {AS_SENT: None}}},
        ),
        (
            '{"id": 1, "error": {"reason": "r"}}',
            {"error": {"code": 0, "message": '{"reason": "r"}', "data": {AS_SENT: None}}},
        ),
    ],
)
def test_an_answer_with_a_wrong_frame_is_kept(sent: str, kept: dict[str, Any]) -> None:
    assert read(sent) == [{"jsonrpc": "2.0", "id": 1, **kept}]


def test_parameters_that_are_no_object_are_left_out() -> None:
    assert read('{"method": "ping", "id": "a", "params": []}') == [
        {"jsonrpc": "2.0", "id": "a", "method": "ping"}
    ]


def test_several_messages_in_a_line_and_batches_are_read() -> None:
    one, two = '{"id": 1, "result": {}}', '{"id": 2, "result": {}}'
    assert [each["id"] for each in read(f"{one} {two}")] == [1, 2]
    assert [each["id"] for each in read(f"[{one}, 5, {two}]")] == [1, 2]
    assert [each["id"] for each in read(f"{one} DEBUG: sent {{{two}")] == [1]


def test_texts_that_are_not_valid_unicode_are_kept() -> None:
    (message,) = read(b'\xef\xbb\xbf{"id": 1, "result": {"t": "a\xff", "u": "b\\ud83d"}}')
    assert message["result"] == {"t": "a\ufffd", "u": "b\ufffd"}


def test_parts_that_are_nested_too_deeply_are_left_out() -> None:
    deep = "[" * 400 + "]" * 400
    (message,) = read(f'{{"id": 1, "result": {{"deep": {deep}, "good": [1]}}}}')
    assert message["result"]["good"] == [1]
    assert json.dumps(message).count("[") <= MAX_DEPTH
    assert TOO_DEEP in json.dumps(message)


@pytest.mark.parametrize("line", ["", "Hello!", "5", "[]", "{}", '{"id": 1}', '{"result": 1}'])
def test_what_is_no_message_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"JSON-RPC|Expecting"):
        read(line)


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"te', 7),
        (b'{"id": "a", "result": {]}', "a"),
        (b'{"result": {"id": 3', None),
        (b'{"id": 3, "method": "ping', None),
        (b"[db] id: 5", None),
    ],
)
def test_the_call_that_a_broken_answer_belongs_to(line: bytes, id: int | str | None) -> None:
    assert broken_answer_id(line) == id


@pytest.mark.parametrize(
    ("body", "failure", "said"),
    [
        (b"<html>Bad  gateway</html>", "HTTP 502", "HTTP 502: <html>Bad gateway</html>"),
        (b"", "HTTP 500", "HTTP 500"),
        (b'{"message": "no"}', "HTTP 500", 'HTTP 500: {"message": "no"}'),
        (b'{"id": 1, "result": {}}', "HTTP 500", 'HTTP 500: {"id": 1, "result": {}}'),
        (b"<html>Log in</html>", "", "its answer cannot be read: <html>Log in</html>"),
        (b'{"method": "ping"}', "", 'it sent no answer: {"method": "ping"}'),
    ],
)
def test_a_body_without_an_answer_becomes_an_error(body: bytes, failure: str, said: str) -> None:
    answer = answer_in_body(body, 4, failure)
    assert answer["id"] == 4
    assert answer["error"]["message"] == said


def test_an_answer_in_a_body_belongs_to_the_request_of_the_body() -> None:
    body = b'[{"method": "ping"}, {"id": 9, "result": {"n": 9}}, {"id": 4, "result": {"n": 4}}]'
    assert answer_in_body(body, 4)["result"] == {"n": 4}
    refused = b'{"id": null, "error": {"code": -32000, "message": "first initialize"}}'
    answer = answer_in_body(refused, 4, "HTTP 400")
    assert (answer["id"], answer["error"]["message"]) == (4, "first initialize")
