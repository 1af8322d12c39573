"""Classify errors of the Messages API by status or type."""

from collections.abc import Mapping

from ...errors import RequestRejected
from ..refusals import ServerHints, classify_answer
from ..retry import Fault
from .credentials import BASE_URL_VAR, KEY_VAR, TOKEN_VAR

HINTS = ServerHints(BASE_URL_VAR, f"{KEY_VAR} or {TOKEN_VAR}", "before /v1")


def classify_error(
    status: int,
    kind: str,
    words: str,
    *,
    model: str,
    headers: Mapping[str, str],
    request_id: str | None = None,
    hints: ServerHints = HINTS,
) -> Fault | RequestRejected:
    """Classify an error answer. See `classify_answer`."""
    words = " ".join(words.split())
    found = classify_answer(
        status,
        words,
        kind=kind,
        model=model,
        headers=headers,
        request_id=request_id,
        hints=hints,
    )
    if found.status == 400 and "`thinking`" in words and "`signature`" in words:
        return RequestRejected(
            f"the recorded thinking does not match this conversation ({found.status}): {words}",
            hint="/compact removes it from the context; the log keeps it.",
            status=found.status,
            request_id=request_id,
        )
    return found
