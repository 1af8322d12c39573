"""Sorts failed attempts into those worth another one and those that no retry can mend.

`classify_error` turns a status and the server's words into a `Fault` (try again) or a typed
`RequestRejected` that says what to do. `RetryPlan` counts the faults of one request and says how
long to wait before the next attempt, or gives up: an overload when its time is up, all else after
so many attempts.
"""

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import monotonic, time

from ..errors import KeyRefused, ModelUnavailable, PromptTooLong, RequestRejected
from ..events import Retrying
from .server_gaps import says_no_images

# Types of `error` that no retry mends. As an event in mid-stream they come with status 200.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
_OVERLOADED = (503, 529)
_OVERLOADED_KIND = "overloaded_error"
RATE_LIMITED = 429
_RETRIED = (408, 409, 425, RATE_LIMITED)
_NEVER_RETRIED = (401, 402, 403, 404, 413)  # not even when the server advises it
_TOO_LONG = (
    re.compile(r"prompt is too long: (?P<tokens>\d+) tokens > (?P<maximum>\d+) maximum"),
    re.compile(r"exceed context limit: (?P<tokens>\d+) \+ \d+ > (?P<maximum>\d+)"),
    re.compile(
        r"maximum context length is (?P<maximum>\d+) tokens\b.*?(?P<tokens>\d+) tokens", re.S
    ),
    # llama.cpp's server
    re.compile(r"\((?P<tokens>\d+) tokens\) exceeds .*?context size \((?P<maximum>\d+) tokens"),
    re.compile(
        r"(?:prompt|input) is too long|context (?:length|window|size) (?:is )?exceeded"
        r"|exceeds? [^.]{0,40}context (?:length|window|size)|greater than the context length",
        re.I,
    ),
)
_MIN_WINDOW, _MAX_WINDOW = 1_000, 10**9  # tokens; other figures are not believed
_DAY_S = 86_400.0


@dataclass(eq=False)
class Fault(Exception):
    """One attempt failed and another may succeed."""

    reason: str
    wait: float | None = None  # seconds that the server asks for
    status: int | None = None
    request_id: str | None = None
    overloaded: bool = False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The attempts for one request. Waits double from one to the next, with jitter."""

    attempts: int = 8  # in all, without those that a limit of time counts
    first_wait: float = 0.5  # seconds
    longest_wait: float = 8.0
    longest_overload_wait: float = 30.0  # between two attempts that a limit of time counts
    longest_requested_wait: float = 60.0  # up to which a wait that the server asks for is obeyed


@dataclass(slots=True)
class RetryPlan:
    """The faults of one request so far. `overload_wait` is the time in seconds for which it is
    tried again on an overload; None counts attempts, as for any other fault."""

    policy: RetryPolicy
    overload_wait: float | None = None
    clock: Callable[[], float] = monotonic
    failed: int = 0  # attempts that count
    overlong: int = 0  # how often the server asked for too long a wait
    overloads: int = 0  # attempts that only their time limits
    overloaded_since: float | None = None

    @property
    def tried(self) -> int:
        """How many attempts there were."""
        return self.failed + self.overloads

    def next_attempt(self, fault: Fault, *, has_output: bool = False) -> Retrying:
        """Return when to try again after a fault. Raises ModelUnavailable when the time for an
        overload is up, the attempts are used up, or the server has asked twice for too long a wait:
        such a limit is not waited out. An attempt that `has_output` counts in any case."""
        if fault.overloaded and not has_output and self.overload_wait is not None:
            return self._after_overload(fault, self.overload_wait)
        self.failed += 1
        asked, policy = fault.wait or 0.0, self.policy
        self.overlong += asked > policy.longest_requested_wait
        if self.failed >= policy.attempts or self.overlong > 1:
            raise self._unavailable(fault)
        seconds = max(asked, self._backoff(self.failed, policy.longest_wait))
        seconds = min(seconds, policy.longest_requested_wait)
        of = policy.attempts + self.overloads
        return Retrying(self.tried, of, round(seconds, 3), fault.reason)

    def _after_overload(self, fault: Fault, limit: float) -> Retrying:
        """Return when to try again; the last attempt comes when the time is up."""
        now = self.clock()
        if self.overloaded_since is None:
            self.overloaded_since = now
        self.overloads += 1
        tried = now - self.overloaded_since
        left = round(limit - tried, 3)  # to the millisecond, as it is waited for
        if left <= 0:
            raise ModelUnavailable(
                f"{fault.reason} (tried {_times(self.overloads)} in {tried:.0f} s)",
                hint="Nothing recorded is lost: try again later. A larger model.overload_wait "
                f"tries longer than {limit:g} s, such as -c model.overload_wait=3600.",
                status=fault.status,
                request_id=fault.request_id,
            )
        backoff = self._backoff(self.overloads, self.policy.longest_overload_wait)
        seconds = min(max(fault.wait or 0.0, backoff), left)
        attempt = self.tried
        return Retrying(attempt, None, round(seconds, 3), fault.reason, left)

    def _backoff(self, failed: int, longest: float) -> float:
        doubled = math.ldexp(self.policy.first_wait, min(failed - 1, 60))
        return min(doubled, longest) * random.uniform(0.75, 1.0)

    def _unavailable(self, fault: Fault) -> ModelUnavailable:
        if self.overlong > 1:
            asked = fault.wait or 0.0
            long = "more than a day" if asked > _DAY_S else f"{asked:.0f} s"
            message = f"{fault.reason}; the server asks to wait {long}"
            hint = "Try again after that, or use another model (--model) or key."
        else:
            message = f"{fault.reason} (tried {_times(self.tried)})"
            hint = "Nothing recorded is lost: try again later"
            hint += "." if fault.overloaded else ", or check the network and ANTHROPIC_BASE_URL."
        return ModelUnavailable(
            message, hint=hint, status=fault.status, request_id=fault.request_id
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


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
    if status == 200:
        status = _STATUS.get(kind, 500)
    if status >= 400 and says_no_images(words):  # some servers say so with 404 or 500
        return _rejection(status, words, model=model, request_id=request_id)
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
    return _rejection(status, words, model=model, request_id=request_id)


def requested_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait, or None when it does not say."""
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


def _fault_reason(status: int, kind: str) -> str:
    if status == 529 or kind == _OVERLOADED_KIND:
        return "the model is overloaded"
    if status == 503:
        return "the server is overloaded"
    if status == RATE_LIMITED or kind == "rate_limit_error":
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
        if not all(_MIN_WINDOW <= value <= _MAX_WINDOW for value in figures.values()):
            figures = {}
        return PromptTooLong(words, status=status, request_id=request_id, **figures)
    what, hint = _advice(status, words, model)
    kind = KeyRefused if status in (401, 402, 403) else RequestRejected
    return kind(f"{what} ({status}): {words}", hint=hint, status=status, request_id=request_id)


def _advice(status: int, words: str, model: str) -> tuple[str, str]:
    """Return what happened, and the next step for the person."""
    if 300 <= status < 400:
        return (
            "the server redirects to another address",
            "The key does not go there by itself: if you trust it, set ANTHROPIC_BASE_URL to it.",
        )
    if status == 401:
        return (
            "the key was not accepted",
            "Check ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, and that it belongs to the server "
            "ANTHROPIC_BASE_URL names.",
        )
    if status == 402:
        return "the account cannot pay for this", "Check its plan and credit."
    if status == 403:
        hint = f"Use a key that may use {model}, or another model with --model."
        return "the key may not do this", hint
    if status == 404:
        return (
            "not found",
            f"Check that the server knows the model {model!r} (--model), and that "
            "ANTHROPIC_BASE_URL, when set, ends before /v1.",
        )
    if "`thinking`" in words and "`signature`" in words:
        hint = "/compact leaves it out; the log keeps it."
        return "the recorded thinking no longer fits this conversation", hint
    return "the server refused the request", ""
