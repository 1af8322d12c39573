"""What an error of the Messages API means, by its status or its type."""

from collections.abc import Mapping

from ...errors import RequestRejected
from ..refusals import ServerHints, classify_answer
from ..retry import Fault
from .servers import BASE_URL_VAR, KEY_VAR, TOKEN_VAR

# Types of `error` for which a retry is useless. In mid-stream they come with status 200.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
_HINTS = ServerHints(BASE_URL_VAR, f"{KEY_VAR} or {TOKEN_VAR}")


def classify_error(
    status: int,
    kind: object,
    words: str,
    *,
    model: str,
    headers: Mapping[str, str],
    request_id: str | None = None,
) -> Fault | RequestRejected:
    """Return what an error answer means. `kind` is the `type` the server gave it, if that is text.
    `status` is 200 for an `error` event in mid-stream, where the kind alone decides."""
    kind, words = kind if isinstance(kind, str) else "", " ".join(words.split())
    found = classify_answer(
        _STATUS.get(kind, 500) if status == 200 else status,
        words,
        kind=kind,
        model=model,
        headers=headers,
        request_id=request_id,
        hints=_HINTS,
    )
    if found.status == 400 and "`thinking`" in words and "`signature`" in words:
        return RequestRejected(
            f"the recorded thinking no longer fits this conversation ({found.status}): {words}",
            hint="/compact leaves it out; the log keeps it.",
            status=found.status,
            request_id=request_id,
        )
    return found
