"""Outages: a failure that many tasks share does not count against any of them.

Each cause (a model's server, the executor, a disk) has a circuit breaker. It opens after several
attempts in a row failed by the cause; for the executor, after one. While it is open, attempts that
need the cause do not start, except for one probe at a time, with growing pauses between probes. The
first successful attempt closes the breaker.
"""

import math
from collections.abc import Callable, Iterator

from ...api.base import dataclass

SERVER, EXECUTOR, DISK, KEY = "server", "executor", "disk", "key"
OUTAGE_TEXTS = {
    SERVER: "the server does not answer",
    EXECUTOR: "the workers are lost",
    DISK: "the disk cannot be written",
}


@dataclass(frozen=True, slots=True)
class OutageRules:
    """When a breaker opens, and how long it pauses. Times are in seconds."""

    failures: int = 2  # failures by the same cause, without a success in between, that open it
    within: float = 120.0  # time span of these failures
    first_pause: float = 2.0  # pause before the first probe; doubled after each failed probe
    longest_pause: float = 300.0
    longest: float = 3_600.0  # maximum outage, after which the run ends


@dataclass(frozen=True, slots=True)
class _Failure:
    """A task's newest failure by a cause."""

    at: float
    progress: int  # tool calls in the session
    counted: int  # consecutive failures that count against the task


class Breaker:
    """The circuit breaker of one cause."""

    def __init__(self, cause: str, rules: OutageRules, clock: Callable[[], float]) -> None:
        self.cause, self._rules, self._clock = cause, rules, clock
        self._failures: dict[str, _Failure] = {}
        self._recent: list[float] = []  # times of failures since the last success
        self._worked_at = -math.inf
        self.pause = 0.0  # seconds before the next probe
        self.since: float | None = None  # time of opening, None while closed
        self.why = ""
        self.probe: str | None = None  # the task whose attempt is the probe
        self.probe_at = 0.0  # earliest time of the next probe

    @property
    def is_open(self) -> bool:
        """True while attempts wait for a probe."""
        return self.since is not None

    @property
    def lasts_too_long(self) -> bool:
        """True if the outage has exceeded the maximum wait of a run."""
        return self.since is not None and self._clock() - self.since >= self._rules.longest

    def record_failure(self, id: str, why: str, progress: int) -> int:
        """Record that a task failed by the cause. Return the number of consecutive failures that
        count against the task. A failure counts if another task worked with the cause since the
        previous failure of this task, and this task made no progress since then. The loss of an
        executor never counts.
        """
        now, before, counted = self._clock(), self._failures.get(id), 0
        others_work = before is not None and self._worked_at > before.at
        if before and others_work and progress <= before.progress and self.cause != EXECUTOR:
            counted = before.counted + 1
        self._failures[id] = _Failure(now, progress, counted)
        self.why = why
        if self.probe == id:
            self.probe = None
            self._wait(now)
        elif not counted and not self.is_open:
            self._recent = [at for at in self._recent if now - at < self._rules.within] + [now]
            if len(self._recent) >= (1 if self.cause == EXECUTOR else self._rules.failures):
                self.since = now
                self._wait(now)
        return counted

    def _wait(self, now: float) -> None:
        self.pause = min(2 * self.pause or self._rules.first_pause, self._rules.longest_pause)
        self.probe_at = now + self.pause

    def keep_open(self, why: str) -> None:
        """Open the breaker, or extend its pause, after the resource failed again."""
        self.why = why
        self.since = self._clock() if self.since is None else self.since
        self._wait(self._clock())

    def record_success(self, id: str) -> bool:
        """Record a successful attempt. Return True if this closes the breaker."""
        was_open = self.is_open
        self._failures.pop(id, None)
        self._recent, self._worked_at = [], self._clock()
        self.since, self.probe, self.pause = None, None, 0.0
        return was_open

    def release_probe(self, id: str) -> None:
        """Release the probe if this task is the probe and its attempt did not show whether the
        cause still fails.
        """
        if self.probe == id:
            self.probe = None

    def allows_start(self) -> bool:
        """Return True if an attempt may start: the breaker is closed or a probe is due."""
        return not self.is_open or (self.probe is None and self._clock() >= self.probe_at)


class Outages:
    """The breakers of a run. Tasks with their own model or server have a separate breaker for it,
    selected by `server`.
    """

    def __init__(self, rules: OutageRules, clock: Callable[[], float]) -> None:
        self._rules, self._clock = rules, clock
        self._breakers: dict[tuple[str, str], Breaker] = {}

    def breaker(self, cause: str, server: str) -> Breaker:
        """Return the breaker of a cause, created if necessary."""
        key = cause, server if cause == SERVER else ""
        if key not in self._breakers:
            self._breakers[key] = Breaker(cause, self._rules, self._clock)
        return self._breakers[key]

    def needed(self, server: str) -> Iterator[Breaker]:
        """Yield the breakers of everything an attempt needs."""
        for cause in (SERVER, EXECUTOR, DISK):
            yield self.breaker(cause, server)

    @property
    def open(self) -> list[Breaker]:
        """The open breakers."""
        return [breaker for breaker in [*self._breakers.values()] if breaker.is_open]

    def allow_start(self, server: str) -> bool:
        """Return True if an attempt may start."""
        return all(breaker.allows_start() for breaker in self.needed(server))

    def begin_probe(self, id: str, server: str) -> list[str]:
        """Make a starting attempt the probe of all open breakers; return their causes."""
        found = [breaker for breaker in self.needed(server) if breaker.is_open]
        for breaker in found:
            breaker.probe = id
        return [breaker.cause for breaker in found]

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the next probe may start; None if no breaker waits for a probe."""
        waiting = [breaker.probe_at for breaker in self.open if breaker.probe is None]
        return max(0.0, min(waiting) - self._clock()) if waiting else None
