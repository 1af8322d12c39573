"""Answers of servers to requests of the SDK's session."""

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

from ctxagent.agent.extensions.mcp.answers import (
    NoAnswer,
    Refusal,
    ServerError,
    describe,
    is_connection_lost,
    unaddressed_error,
    with_plain_answer,
)
from ctxagent.agent.extensions.mcp.messages import error_message, read_messages


def plain(message: dict[str, Any]) -> Any:
    """Return the result that a session gets for a message."""
    read = jsonrpc_message_adapter.validate_python(message, by_name=False)
    item = with_plain_answer(SessionMessage(read))
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCResponse)
    return item.message.result


def test_an_error_of_the_server_differs_from_one_of_the_transport() -> None:
    sent = b'{"id": 1, "error": {"code": -32000, "message": "no", "data": [1]}}'
    assert plain(read_messages(sent)[0]) == Refusal(-32000, "no", [1], by_server=True)
    assert plain(error_message(1, "lost")) == Refusal(0, "lost", None, by_server=False)


def test_a_result_that_is_no_object_arrives_as_it_was_sent() -> None:
    assert plain(read_messages(b'{"id": 1, "result": null}')[0]) is None
    assert plain(read_messages(b'{"id": 1, "result": [1]}')[0]) == [1]
    assert plain(read_messages(b'{"id": 1, "result": {"a": 1}}')[0]) == {"a": 1}


def test_an_error_that_answers_no_request_is_kept() -> None:
    for id, said in (("null", "no luck"), ("1", "")):
        sent = f'{{"id": {id}, "error": {{"code": 1, "message": "no\\nluck"}}}}'.encode()
        read = jsonrpc_message_adapter.validate_python(read_messages(sent)[0], by_name=False)
        assert unaddressed_error(SessionMessage(read)) == said
    assert unaddressed_error(ValueError("no")) == ""


@pytest.mark.parametrize("code", [-32000, -32001, 0])
def test_no_code_of_an_answer_means_that_the_connection_is_lost(code: int) -> None:
    assert not is_connection_lost(ServerError(code, "no"))
    assert not is_connection_lost(NoAnswer(code, "no"))
    assert is_connection_lost(MCPError(code, "Connection closed"))
    assert not is_connection_lost(ValueError("no"))


def test_an_error_is_described_on_one_line_without_control_characters() -> None:
    said = describe(ServerError(1, "a\n\x1b[2Jb " + "x" * 400))
    assert "\x1b" not in said
    assert "\n" not in said
    assert len(said) <= 300
    assert describe(ValueError()) == "ValueError"
