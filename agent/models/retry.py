"""Retries of one request: how long to wait after a failed attempt, and when to give up.

A `Fault` is a failed attempt that is worth a retry. `RetryPlan` counts the faults of one request.
It gives up on overload after a time limit, on anything else after a number of attempts.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import field
from time import monotonic, time
from typing import Any

from ..errors import ModelUnavailable
from ..events import Retrying
from ..lazy import dataclass

RATE_LIMITED = 429
_DAY_S = 86_400.0


@dataclass(eq=False)
class Fault(Exception):
    """A failed attempt that is worth a retry."""

    reason: str
    wait: float | None = None  # seconds, requested by the server
    status: int | None = None
    request_id: str | None = None
    overloaded: bool = False
    no_reply: bool = False  # the server accepted the request, and sent nothing
    no_server: bool = False  # nothing listens at an address on this machine

    @property
    def may_refuse(self) -> bool:
        """True if the request may be the cause."""
        is_answer = self.status is not None and self.status != RATE_LIMITED
        return self.no_reply or (is_answer and not self.overloaded)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits for the attempts of one request. The wait doubles after each attempt, with jitter."""

    attempts: int = 8  # total, without attempts under a time limit
    local_attempts: int = 3  # if nothing listens at an address on this machine
    first_wait: float = 0.5  # seconds
    longest_wait: float = 8.0
    longest_overload_wait: float = 30.0  # between two attempts under a time limit
    longest_requested_wait: float = 60.0  # longest wait to accept from the server


@dataclass(slots=True)
class RetryPlan:
    """The faults of one request so far. `overload_wait` is the time in seconds to retry on
    overload; None counts attempts, as for other faults. `address` names the setting or variable
    that controls the server's address.
    """

    policy: RetryPolicy
    address: str
    overload_wait: float | None = None
    clock: Callable[[], float] = monotonic
    failed: int = 0  # counted attempts
    overlong: int = 0  # number of requested waits that were too long
    overloads: int = 0  # attempts under the time limit
    overloaded_since: float | None = None
    fallback_after: float | None = None  # seconds of overload or rate limit before a fallback
    same_failures: int | None = None  # equal failures after which the request may be the cause
    _reasons: list[str] = field(default_factory=list)  # of the counted attempts

    @property
    def tried(self) -> int:
        """The number of attempts so far."""
        return self.failed + self.overloads

    def next_attempt(self, fault: Fault, *, has_output: bool = False) -> Retrying:
        """Return the wait before the next attempt. Raises ModelUnavailable if the time limit for an
        overload has passed, no attempts are left, or the server has asked twice for a wait longer
        than `longest_requested_wait`. An attempt that `has_output` always counts.
        """
        limit = self.overload_wait if fault.overloaded else None
        if self.fallback_after is not None and _is_overload(fault):
            limit = min(self.fallback_after, self.overload_wait or self.fallback_after)
        if limit is not None and not has_output:
            return self._after_overload(fault, limit)
        self.failed += 1
        self._reasons.append(fault.reason if fault.may_refuse else "")
        asked, policy = fault.wait or 0.0, self.policy
        self.overlong += asked > policy.longest_requested_wait
        most = policy.local_attempts if fault.no_server else policy.attempts
        if self.failed >= most or self.overlong > 1 or self._is_repeated(fault):
            raise self._unavailable(fault)
        seconds = max(asked, self._backoff(self.failed, policy.longest_wait))
        seconds = min(seconds, policy.longest_requested_wait)
        of = policy.attempts + self.overloads
        return Retrying(self.tried, of, round(seconds, 3), fault.reason)

    def _after_overload(self, fault: Fault, limit: float) -> Retrying:
        """Return the wait before the next attempt. The last attempt is at the time limit."""
        now = self.clock()
        if self.overloaded_since is None:
            self.overloaded_since = now
        self.overloads += 1
        tried = now - self.overloaded_since
        left = round(limit - tried, 3)  # to the millisecond, like the wait
        if left <= 0:
            raise ModelUnavailable(
                f"{fault.reason} (tried {_times(self.overloads)} in {tried:.0f} s)",
                hint="Nothing recorded is lost: try again later. A larger model.overload_wait "
                f"tries longer than {limit:g} s, such as -c model.overload_wait=3600.",
                **_about(fault),
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
            hint = self._advice(fault)
        may_refuse = self.overlong <= 1 and (fault.may_refuse or fault.status == RATE_LIMITED)
        return ModelUnavailable(message, hint=hint, may_refuse=may_refuse, **_about(fault))

    def _is_repeated(self, fault: Fault) -> bool:
        """Return True if the server has failed in the same way often enough."""
        last = self._reasons[-(self.same_failures or 0) :]
        return len(last) == self.same_failures and {*last} == {fault.reason}

    def _advice(self, fault: Fault) -> str:
        """Return what the user can do after this fault."""
        if fault.no_server:
            return f"Start the model server, or set its address with {self.address}."
        later = "Nothing recorded is lost: try again later"
        if fault.overloaded:
            return f"{later}."
        if fault.status == RATE_LIMITED:
            return f"{later}, or use another model (--model) or key."
        if fault.status is not None or fault.no_reply:
            return f"{later}, or use another model (--model): the server itself fails."
        return f"{later}, or check the network and {self.address}."


def _is_overload(fault: Fault) -> bool:
    return fault.overloaded or fault.status == RATE_LIMITED


def _about(fault: Fault) -> dict[str, Any]:
    return {
        "reason": fault.reason,
        "is_overload": _is_overload(fault),
        "status": fault.status,
        "request_id": fault.request_id,
    }


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def requested_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait, None if it does not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        if not math.isnan(seconds):
            return max(0.0, seconds)
    from email.utils import parsedate_to_datetime  # imports ten modules

    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time())
    except (KeyError, ValueError, OverflowError):
        return None
