"""One call of a server's tool: direct, as a task, or in rounds with further questions to
the user.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ...errors import ToolError
from .inputs import Respondent, elicit

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client.session import ClientSession
    from mcp.shared.exceptions import MCPError
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

MAX_ROUNDS = 10  # of further questions per call
MIN_POLL_S, POLL_S, MAX_POLL_S = 0.05, 1.0, 30.0  # between two polls of a task
CANCEL_TIMEOUT_S = 5.0
TASK_TTL_MS = 24 * 3600 * 1000
_OPEN = ("working",)  # states of a task without a result


async def call_tool(
    session: "ClientSession",
    name: str,
    arguments: Mapping[str, Any],
    respondent: Respondent | None,
    server: str,
    dispatcher: "JSONRPCDispatcher[Any] | None" = None,
) -> "types.CallToolResult":
    """Call a tool once, as a task if a `dispatcher` is given. Raises ToolError, and MCPError for an
    error from the server.
    """
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    given: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
    try:
        if dispatcher is not None:
            return await _as_task(session, dispatcher, given)
        result = await _sent(session, given)
        for _ in range(MAX_ROUNDS):
            if not isinstance(result, types.InputRequiredResult):
                return result
            result = await _sent(session, {**given, **await _answers(session, result)})
    except MCPError as error:
        if error.code != types.URL_ELICITATION_REQUIRED or respondent is None:
            raise
        raise ToolError(await _ask_to_visit(error, respondent, server)) from None
    raise ToolError(f"The tool asked further questions more than {MAX_ROUNDS} times.")


async def _sent(
    session: "ClientSession", given: Mapping[str, Any]
) -> "types.CallToolResult | types.InputRequiredResult":
    import mcp_types as types
    from pydantic import TypeAdapter

    answer: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
    request = types.CallToolRequest(params=types.CallToolRequestParams(**given))
    return cast(
        "types.CallToolResult | types.InputRequiredResult",
        await session.send_request(request, answer),
    )


async def _answers(session: "ClientSession", asked: "types.InputRequiredResult") -> dict[str, Any]:
    """Return the parameters of the next round: the answers to the server's questions. Raises
    MCPError for a refused question.
    """
    import mcp_types as types
    from mcp.client.session import ClientRequestContext
    from mcp.shared.exceptions import MCPError

    answers = dict[str, Any]()
    for key, request in (asked.input_requests or {}).items():
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer
    if not answers:
        await asyncio.sleep(MIN_POLL_S)
    return {"input_responses": answers or None, "request_state": asked.request_state}


async def _as_task(
    session: "ClientSession", dispatcher: "JSONRPCDispatcher[Any]", given: Mapping[str, Any]
) -> "types.CallToolResult":
    """Call a tool as a task and wait for its result. Cancel the task if this call is cancelled."""
    import mcp_types as types
    from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

    params = {**given, "task": {"ttl": TASK_TTL_MS}}
    headers = {MCP_PROTOCOL_VERSION_HEADER: session.protocol_version or ""}
    # `ClientSession` accepts only a tool result as the answer to a call.
    raw = await dispatcher.send_raw_request("tools/call", params, {"headers": headers})
    created = types.CreateTaskResult.model_validate(raw).task
    id = created.task_id
    try:
        status, pause = created.status, created.poll_interval
        while status in _OPEN:
            await asyncio.sleep(min(max((pause or POLL_S * 1000) / 1000, MIN_POLL_S), MAX_POLL_S))
            asked = types.GetTaskRequest(params=types.GetTaskRequestParams(task_id=id))
            now = await session.send_request(asked, types.GetTaskResult)
            status, pause = now.status, now.poll_interval
        payload = types.GetTaskPayloadRequest(params=types.GetTaskPayloadRequestParams(task_id=id))
        return await session.send_request(payload, types.CallToolResult)
    except asyncio.CancelledError:
        with suppress(Exception):
            await asyncio.wait_for(asyncio.shield(_cancelled(session, id)), CANCEL_TIMEOUT_S)
        raise


async def _cancelled(session: "ClientSession", id: str) -> None:
    import mcp_types as types

    request = types.CancelTaskRequest(params=types.CancelTaskRequestParams(task_id=id))
    await session.send_request(request, types.CancelTaskResult)


async def _ask_to_visit(error: "MCPError", respondent: Respondent, server: str) -> str:
    """Ask the user to visit the pages that the server requires. Return the message for the
    model.
    """
    import mcp_types as types

    asked = types.ElicitationRequiredErrorData.model_validate(error.data or {"elicitations": []})
    for each in asked.elicitations:
        if (await elicit(server, each, respondent)).action != "accept":
            return "The server did nothing: the user did not agree to visit a page that it needs."
    return (
        "The server did nothing yet: the user was shown a page to visit first. Call it again once "
        "they say that this is done."
    )
