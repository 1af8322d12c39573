"""Calls with several rounds. For calls to real servers see `e2e/test_mcp_inputs.py`."""

import asyncio
from typing import Any, cast

import mcp_types as types
import pytest
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError

from ctxagent.agent.errors import ToolError
from ctxagent.agent.extensions.mcp.connection import MAX_ROUNDS, call_tool

ASKED = types.ElicitRequest(
    params=types.ElicitRequestFormParams(message="?", requested_schema={"properties": {}})
)
DONE = types.CallToolResult(content=[types.TextContent(type="text", text="done")])


class Session:
    """A session whose server gives these answers, and then repeats the last one."""

    def __init__(self, *answers: Any, to_input: Any = None) -> None:
        self.answers, self.sent = list(answers), list[dict[str, Any]]()
        self.to_input = to_input or types.ElicitResult(action="decline")

    async def send_request(self, request: Any, result_type: Any) -> Any:
        self.sent.append(request.params.model_dump(by_alias=True, exclude_none=True))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def dispatch_input_request(self, context: Any, request: Any) -> Any:
        return self.to_input


def call(session: Session) -> types.CallToolResult:
    return asyncio.run(call_tool(cast(ClientSession, session), "t", {"a": 1}, None, "s"))


def needs(state: str, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests or None, request_state=state)


def test_each_round_sends_the_arguments_the_answers_and_the_state() -> None:
    session = Session(needs("one", q=ASKED), needs("two"), DONE)
    assert call(session) is DONE
    given = {"name": "t", "arguments": {"a": 1}}
    first, second, third = session.sent
    assert first == given
    assert second == {
        **given, "inputResponses": {"q": {"action": "decline"}}, "requestState": "one",
    }  # fmt: skip
    assert third == {**given, "requestState": "two"}


def test_endless_questions_of_a_server_are_refused() -> None:
    session = Session(needs("again", q=ASKED))
    with pytest.raises(ToolError, match="asked further questions more than 10 times"):
        call(session)
    assert len(session.sent) == MAX_ROUNDS + 1


def test_a_refusal_ends_the_call() -> None:
    refusal = types.ErrorData(code=-1, message="no")
    with pytest.raises(MCPError, match="no"):
        call(Session(needs("one", q=ASKED), to_input=refusal))


def test_other_errors_of_the_server_pass() -> None:
    with pytest.raises(MCPError, match="broken"):
        call(Session(MCPError(code=-32603, message="broken")))
