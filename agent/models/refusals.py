"""Classify error answers: retry, or reject.

`classify_answer` returns a `Fault` (retry) or a typed `RequestRejected` with advice, from the
status and the error message. The patterns match messages of many servers and protocols. They only
choose what is tried first after a refusal (see `loop.ladder`), and name the size of the window.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import (
    KeyRefused,
    ModelError,
    ModelUnavailable,
    PromptTooLong,
    RequestRejected,
    conceal,
)
from ..lazy import regex
from .retry import RATE_LIMITED, Fault, requested_wait

_OVERLOADED = (503, 529)
_OVERLOADED_KIND = "overloaded_error"
_RETRIED = (408, 409, 425, RATE_LIMITED)
# HTTP status by error name. Errors in mid-stream have status 200.
_STATUS = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,  # sent with status 429, but a retry does not help
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_exceeded": RATE_LIMITED,
}
# Error names of the Responses API for invalid images and prompts.
_INVALID = regex(r"invalid_|\w*_policy|unsupported_|\w*image")
_KEY_STATUSES = (401, 402, 403)
_NEVER_RETRIED = (*_KEY_STATUSES, 404, 413)  # not even if the server advises a retry
_TOO_LONG = (
    regex(r"prompt is too long: (?P<tokens>\d+) tokens > (?P<maximum>\d+) maximum"),
    regex(r"exceed context limit: (?P<tokens>\d+) \+ \d+ > (?P<maximum>\d+)"),
    regex(r"maximum context length is (?P<maximum>\d+) tokens\b.*?(?P<tokens>\d+) tokens", re.S),
    # Mistral, xAI, Gemini
    regex(r"contains (?P<tokens>\d+) tokens.*with (?P<maximum>\d+) maximum context", re.S),
    regex(r"prompt length is (?P<maximum>\d+) but.*?contains (?P<tokens>\d+) tokens", re.S),
    regex(r"token count \((?P<tokens>\d+)\) exceeds the maximum.*?\((?P<maximum>\d+)\)"),
    regex(r"limit:? (?P<maximum>\d+)\D{1,20}requested:? (?P<tokens>\d+)", re.I),  # per minute
    # llama.cpp's server
    regex(r"\((?P<tokens>\d+) tokens\) exceeds .*?context size \((?P<maximum>\d+) tokens"),
    regex(
        r"(?:prompt|input) is too long|context (?:length|window|size) (?:is )?exceeded"
        r"|exceeds? [^.]{0,40}context (?:length|window|size)|greater than the context length",
        re.I,
    ),
)
NO_REASON = "the server gave no reason"
_MIN_WINDOW, _MAX_WINDOW = 1_000, 10**9  # tokens; other numbers are ignored
_IMAGE = r"(?:images?|image_url|vision|multi-?modal)"
_NO_IMAGES = (  # messages of Ollama, vLLM, llama.cpp, LM Studio, OpenRouter and gateways
    regex(rf"(?:not|n't|cannot|no endpoints \w+ that) (?:currently )?"
               rf"(?:support|accept|take)\w* (?:the |an? |any )?{_IMAGE}"
               r"\b(?!/| (?:\w+ )?(?:formats?|types?|sizes?|urls?|larger|above|with)\b)",
               re.I),
    regex(rf"\b{_IMAGE}(?: (?:input|content|block|part)s?)* (?:is|are) (?:not|only) "
               r"(?:supported|enabled|available|accepted|taken)", re.I),
    regex(r"not a (?:multi-?modal|vision)|missing data required for image|at most 0 image|"
               r"unknown variant `image", re.I),
)  # fmt: skip
# Messages of Ollama, vLLM, OpenRouter
_NO_TOOLS = regex(r"(?:not|no endpoints \w+ that) support (?:tools?|function call|the use)", re.I)


class ServerHints(NamedTuple):
    """The names of a server's address and key for use in hints."""

    address: str
    key: str
    address_end: str = "with the version, such as /v1"  # how a valid address ends


def may_be_cause(error: ModelError) -> bool:
    """Return True if a request was sent, and its content may be why it failed: the server gave no
    reply, for any reason but the key, payment, rate and address.
    """
    if isinstance(error, ModelUnavailable):
        return error.may_refuse
    status = error.status
    is_answer = status is not None and not 300 <= status < 400
    return is_answer and isinstance(error, RequestRejected) and not isinstance(error, KeyRefused)


def says_no_images(words: str) -> bool:
    """Return True if an error message says that the model does not support images. Errors about the
    type or size of one image do not count.
    """
    return any(pattern.search(words) for pattern in _NO_IMAGES)


def classify_answer(
    status: int,
    words: str,
    *,
    kind: str = "",
    model: str,
    headers: Mapping[str, str],
    request_id: str | None = None,
    hints: ServerHints,
) -> Fault | RequestRejected:
    """Classify an error answer. `kind` is the server's name for the error. `status` is 200 for an
    error in mid-stream, which is classified by `kind`.
    """
    words = " ".join(words.split())
    if 300 <= status < 400:
        words = conceal(headers.get("location", "").partition("?")[0]) or words
    if status == 200 and kind.isdecimal() and len(kind) == 3:  # the kind is the real status
        status = int(kind)
    elif status == 200 or kind == "insufficient_quota":
        status = _STATUS.get(kind, 400 if _INVALID.match(kind) else 500)
    if status >= 400 and says_no_images(words):  # some servers use 404 or 500
        return _rejection(status, words, model, request_id, hints)
    too_long = _too_long(status, words, kind, request_id)
    if too_long is not None:
        return too_long
    advice = headers.get("x-should-retry")
    retried = (status in _RETRIED or status >= 500) and advice != "false"
    if retried or (advice == "true" and status not in _NEVER_RETRIED):
        reason = _fault_reason(status, kind)
        return Fault(
            f"{reason}: {words}" if words else reason,
            wait=requested_wait(headers),
            status=status,
            request_id=request_id,
            overloaded=status in _OVERLOADED or kind == _OVERLOADED_KIND,
        )
    return _rejection(status, words, model, request_id, hints)


def _too_long(status: int, words: str, kind: str, request_id: str | None) -> PromptTooLong | None:
    """Return the refusal of a prompt that is too long by its status, name or message, else None. A
    rate limit counts only if the request is larger than the whole limit.
    """
    if status < 400 or status in (*_KEY_STATUSES, 404):
        return None
    found = next((m for p in _TOO_LONG if (m := p.search(words.replace(",", "")))), None)
    figures = {name: int(value) for name, value in (found.groupdict() if found else {}).items()}
    if not all(_MIN_WINDOW <= value <= _MAX_WINDOW for value in figures.values()):
        figures = {}
    if status == RATE_LIMITED and figures.get("tokens", 0) <= figures.get("maximum", 0):
        return None
    if not (found or status == 413 or kind == "context_length_exceeded"):
        return None
    if status == 413:
        words = f"the request is too large for the server (413): {words}"
    return PromptTooLong(words, status=status, request_id=request_id, **figures)


def _fault_reason(status: int, kind: str) -> str:
    if status == 529 or kind == _OVERLOADED_KIND:
        return "the model is overloaded"
    if status == 503:
        return "the server is overloaded"
    if status == RATE_LIMITED or kind == "rate_limit_error":
        return "the rate limit is reached"
    return f"the server failed ({kind or status})"


def _rejection(
    status: int,
    words: str,
    model: str,
    request_id: str | None,
    hints: ServerHints,
) -> RequestRejected:
    what, hint = _advice(status, words, model, hints)
    error = KeyRefused if status in _KEY_STATUSES else RequestRejected
    return error(
        f"{what} ({status}): {words or NO_REASON}", hint=hint, status=status, request_id=request_id
    )


def _advice(status: int, words: str, model: str, hints: ServerHints) -> tuple[str, str]:
    """Return what happened, and what the user can do."""
    if 300 <= status < 400:
        return (
            "the server redirects to another address",
            f"The key was not sent there. If you trust that address, set {hints.address} to it.",
        )
    if status == 401:
        return (
            "the key was not accepted",
            f"Check {hints.key}, and that it belongs to the server in {hints.address}.",
        )
    if status == 402:
        return "the account cannot pay for this", "Check its plan and credit."
    if status == 403:
        hint = f"Use a key with access to {model}, or another model with --model."
        return "the key has no permission for this", hint
    if status == 404:
        return (
            "not found",
            f"Check that the server knows the model {model!r} (--model), and that "
            f"{hints.address}, if set, ends {hints.address_end}.",
        )
    if _NO_TOOLS.search(words):
        return "the server refused the request", "Use a model that calls tools: --model ID."
    return "the server refused the request", ""
