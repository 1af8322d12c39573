"""What a failed attempt means: worth another, or a refusal that a retry cannot mend.

`judge` turns a status and the server's words into one of the two: a `Fault` (try again) or a
typed `RequestRejected` that says what to do. `Patience` counts the faults of one request and says
how long to wait before the next attempt, or gives up.
"""

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time

from ..errors import ModelUnavailable, PromptTooLong, RequestRejected
from ..events import Retrying

# Types of `error` that no retry mends; such an event in mid-stream comes with status 200.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
_PASSING = (408, 409, 425, 429)
_FINAL = (401, 402, 403, 404, 413)  # whatever the server's advice
_TOO_LONG = (
    re.compile(r"prompt is too long: (?P<tokens>\d+) tokens > (?P<maximum>\d+) maximum"),
    re.compile(r"exceed context limit: (?P<tokens>\d+) \+ \d+ > (?P<maximum>\d+)"),
    re.compile(
        r"maximum context length is (?P<maximum>\d+) tokens\b.*?(?P<tokens>\d+) tokens", re.S
    ),
    re.compile(r"(?:prompt|input) is too long|context (?:length|window) (?:is )?exceeded", re.I),
)
_LEAST, _MOST = 1_000, 10**9  # tokens of a window; other figures are none
_DAY = 86_400.0


class Fault(Exception):
    """One attempt failed and another may succeed. `wait` is the server's wish in seconds."""

    def __init__(
        self,
        reason: str,
        *,
        wait: float | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait
        self.status = status
        self.request_id = request_id


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` in all. Waits double from `first` to `longest` seconds, with jitter; a wait the
    server asks for is obeyed up to `cap` seconds."""

    attempts: int = 8
    first: float = 0.5
    longest: float = 8.0
    cap: float = 60.0


@dataclass(slots=True)
class Patience:
    """The faults of one request so far."""

    retry: Retry
    failed: int = 0
    overlong: int = 0

    def wait(self, fault: Fault) -> Retrying:
        """How to go on. Raises ModelUnavailable when the attempts are used up, or when the server
        has asked twice for more than the cap: a limit that lasts longer is not waited out."""
        self.failed += 1
        asked = fault.wait or 0.0
        self.overlong += asked > self.retry.cap
        if self.failed >= self.retry.attempts or self.overlong > 1:
            raise self._unavailable(fault)
        backoff = min(self.retry.first * 2 ** (self.failed - 1), self.retry.longest)
        seconds = min(max(asked, backoff * random.uniform(0.75, 1.0)), self.retry.cap)
        return Retrying(self.failed, self.retry.attempts, round(seconds, 3), fault.reason)

    def _unavailable(self, fault: Fault) -> ModelUnavailable:
        if self.overlong > 1:
            asked = fault.wait or 0.0
            long = "more than a day" if asked > _DAY else f"{asked:.0f} s"
            return ModelUnavailable(
                f"{fault.reason}; the server asks to wait {long}",
                hint="Try again after that, or use another model (--model) or key.",
                status=fault.status,
                request_id=fault.request_id,
            )
        times = "once" if self.failed == 1 else f"{self.failed} times"
        return ModelUnavailable(
            f"{fault.reason} (tried {times})",
            hint="Nothing recorded is lost: try again later, or check the network and "
            "ANTHROPIC_BASE_URL.",
            status=fault.status,
            request_id=fault.request_id,
        )


def judge(
    status: int,
    kind: object,
    words: str,
    *,
    model: str,
    headers: Mapping[str, str],
    request_id: str | None = None,
) -> Fault | RequestRejected:
    """What an error answer means. `kind` is the `type` the server gave it, if that is text;
    `status` is 200 for an `error` event in mid-stream, where the kind alone decides."""
    named, words = kind if isinstance(kind, str) else "", " ".join(words.split())
    if status == 200:
        status = _STATUS.get(named, 500)
    advice = headers.get("x-should-retry")
    passing = status in _PASSING or status >= 500
    advised = advice == "true" and status not in _FINAL
    if advised or (passing and advice != "false"):
        plight = _plight(status, named)
        reason = f"{plight}: {words}" if words else plight
        return Fault(reason, wait=asked_wait(headers), status=status, request_id=request_id)
    return _rejection(status, words, model=model, request_id=request_id)


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait, None when it does not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        if not math.isnan(seconds):
            return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time())
    except (KeyError, ValueError, OverflowError):
        return None


def _plight(status: int, kind: str) -> str:
    if status == 529 or kind == "overloaded_error":
        return "the model is overloaded"
    if status == 429 or kind == "rate_limit_error":
        return "the rate limit is reached"
    return f"the server failed ({kind or status})"


def _rejection(status: int, words: str, *, model: str, request_id: str | None) -> RequestRejected:
    if status == 413:
        return PromptTooLong(
            f"the request is larger than the server takes (413): {words}",
            status=status,
            request_id=request_id,
        )
    found = next((m for p in _TOO_LONG if (m := p.search(words.replace(",", "")))), None)
    if status == 400 and found:
        figures = {name: int(value) for name, value in found.groupdict().items()}
        if not all(_LEAST <= value <= _MOST for value in figures.values()):
            figures = {}
        return PromptTooLong(words, status=status, request_id=request_id, **figures)
    message, hint = _advice(status, words, model)
    return RequestRejected(message, hint=hint, status=status, request_id=request_id)


def _advice(status: int, words: str, model: str) -> tuple[str, str]:
    """What happened, and the next step."""
    if 300 <= status < 400:
        return (
            f"the server sends us to another address ({status}): {words}",
            "The key does not go there by itself: if you trust it, set ANTHROPIC_BASE_URL to it.",
        )
    if status == 401:
        return (
            f"the key was not accepted (401): {words}",
            "Check ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, and that it belongs to the server "
            "ANTHROPIC_BASE_URL names.",
        )
    if status == 402:
        return f"the account cannot pay for this (402): {words}", "Check its plan and credit."
    if status == 403:
        return (
            f"the key may not do this (403): {words}",
            f"Use a key that may use {model}, or another model with --model.",
        )
    if status == 404:
        return (
            f"not found (404): {words}",
            f"Check that the server knows the model {model!r} (--model), and that "
            "ANTHROPIC_BASE_URL, when set, ends before /v1.",
        )
    if "`thinking`" in words and "`signature`" in words:
        return (
            f"the recorded thinking no longer fits this conversation ({status}): {words}",
            "/compact leaves it out; the log keeps it.",
        )
    return f"the server refused the request ({status}): {words}", ""
