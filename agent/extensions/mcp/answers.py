"""Answers of a server to requests of the SDK's session.

An error in an answer has any code that the server likes. So a code never tells that the connection
is lost: the transport does (`ExitInfo.ended`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import REQUEST_TIMEOUT

from ....tools.system.phrasing import shorten
from ....tools.system.unicode import clean
from ...lazy import dataclass
from .messages import AS_SENT
from .shapes import usable_result

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCError


class ServerError(MCPError):
    """An error that the server answered."""


class NoAnswer(MCPError):
    """The transport got no answer to a request."""


MAX_ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in place of a result."""

    code: int
    message: str
    data: Any
    by_server: bool


def with_plain_answer(item: "SessionMessage | Exception") -> "SessionMessage | Exception":
    """Return an item of a transport, an answer in it as `AnswerDispatcher` expects it."""
    from mcp_types import JSONRPCError, JSONRPCResponse

    message = None if isinstance(item, Exception) else item.message
    if isinstance(message, JSONRPCResponse) and AS_SENT in message.result:
        message.result = message.result[AS_SENT]
    elif isinstance(message, JSONRPCError) and message.id is not None:
        assert not isinstance(item, Exception)
        item.message = JSONRPCResponse.model_construct(
            jsonrpc="2.0", id=message.id, result=_refusal(message)
        )
    return item


def unaddressed_error(item: "SessionMessage | Exception") -> str:
    """Return the message of an error without a request ID, "" for any other item."""
    from mcp_types import JSONRPCError

    message = None if isinstance(item, Exception) else item.message
    if not isinstance(message, JSONRPCError) or message.id is not None:
        return ""
    return shorten(" ".join(clean(message.error.message).split()), MAX_ERROR_CHARS)


def _refusal(message: "JSONRPCError") -> Refusal:
    error, by_server = message.error, False
    data = error.data
    if isinstance(data, dict) and AS_SENT in data:
        data, by_server = data[AS_SENT], True
    return Refusal(error.code, error.message, data, by_server)


class AnswerDispatcher(JSONRPCDispatcher[Any]):
    """Sends requests, and raises ServerError or NoAnswer for an error in place of a result. Any
    other MCPError means that the connection is closed.
    """

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: "CallOptions | None" = None,
        **more: Any,
    ) -> dict[str, Any]:
        try:
            answer: Any = await super().send_raw_request(method, params, opts, **more)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:  # the SDK's own: it sets the timeout of `discover`
                raise NoAnswer(error.code, error.message) from None
            raise
        if isinstance(answer, Refusal):
            kind = ServerError if answer.by_server else NoAnswer
            raise kind(answer.code, answer.message, answer.data)
        return usable_result(method, answer)


def is_connection_lost(error: BaseException) -> bool:
    """Return True if the error is the session's own: it is closed."""
    return isinstance(error, MCPError) and not isinstance(error, ServerError | NoAnswer)


def describe(error: BaseException) -> str:
    """Return an error message on one line, without terminal control characters."""
    from pydantic import ValidationError

    if isinstance(error, MCPError):
        text = error.message
    elif isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        text = f"an invalid answer: {f'{where}: ' if where else ''}{first['msg']}"
    else:
        text = str(error) or type(error).__name__
    return shorten(" ".join(clean(text).split()), MAX_ERROR_CHARS)
