"""Outages: a failure that many tasks share counts against none of them.

Each cause (the server of a model, the executor, a disk) has a breaker. It opens when several
attempts in a row failed by the cause. While it is open no attempt starts that needs the cause,
except for one probe at a time, with growing pauses between probes. The first attempt that works
closes it.
"""

import math
from collections.abc import Callable, Iterator

from ..lazy import dataclass

SERVER, EXECUTOR, DISK, KEY = "server", "executor", "disk", "key"
WORDS = {
    SERVER: "the server does not answer",
    EXECUTOR: "the workers are lost",
    DISK: "the disk cannot be written",
}


@dataclass(frozen=True, slots=True)
class OutageRules:
    """When a breaker opens, and how long its pauses are. Times are in seconds."""

    failures: int = 2  # in a row, by the same cause
    within: float = 120.0
    first_pause: float = 2.0  # before a probe; doubled after each probe that fails
    longest_pause: float = 300.0
    longest: float = 3_600.0  # an outage; then the run ends


@dataclass(frozen=True, slots=True)
class _Failure:
    """The newest failure of a task by a cause."""

    at: float
    progress: int  # tool calls in the session
    own: int  # such failures in a row that count against the task


class Breaker:
    """The breaker of one cause."""

    def __init__(self, cause: str, rules: OutageRules, clock: Callable[[], float]) -> None:
        self.cause, self._rules, self._clock = cause, rules, clock
        self._failures: dict[str, _Failure] = {}
        self._recent: list[float] = []  # failures since an attempt has worked
        self._worked_at = -math.inf
        self.pause = 0.0  # seconds before the next probe
        self.since: float | None = None  # when it opened, None while it is closed
        self.why = ""
        self.probe: str | None = None  # the task whose attempt is the probe
        self.probe_at = 0.0  # when the next probe may start

    @property
    def is_open(self) -> bool:
        """Whether attempts wait for a probe."""
        return self.since is not None

    @property
    def lasts_too_long(self) -> bool:
        """Whether the outage has lasted longer than a run waits for."""
        return self.since is not None and self._clock() - self.since >= self._rules.longest

    def fail(self, id: str, why: str, progress: int) -> int:
        """Record that a task failed by the cause. Return how often in a row a failure of the task
        was its own: it made no progress, while the cause worked for another task. The loss of an
        executor never is."""
        now, before, own = self._clock(), self._failures.get(id), 0
        others_work = before is not None and self._worked_at > before.at
        if before and others_work and progress <= before.progress and self.cause != EXECUTOR:
            own = before.own + 1
        self._failures[id] = _Failure(now, progress, own)
        self.why = why
        if self.probe == id:
            self.probe = None
            self._wait(now)
        elif not own and not self.is_open:
            self._recent = [at for at in self._recent if now - at < self._rules.within] + [now]
            if len(self._recent) >= (1 if self.cause == EXECUTOR else self._rules.failures):
                self.since = now
                self._wait(now)
        return own

    def _wait(self, now: float) -> None:
        self.pause = min(2 * self.pause or self._rules.first_pause, self._rules.longest_pause)
        self.probe_at = now + self.pause

    def stay_open(self, why: str) -> None:
        """Open the breaker, or have it wait longer: what is needed was tried in vain."""
        self.why = why
        self.since = self._clock() if self.since is None else self.since
        self._wait(self._clock())

    def work(self, id: str) -> bool:
        """Record that an attempt worked. Return True if this closes the breaker."""
        was_open = self.is_open
        self._failures.pop(id, None)
        self._recent, self._worked_at = [], self._clock()
        self.since, self.probe, self.pause = None, None, 0.0
        return was_open

    def leave(self, id: str) -> None:
        """Record that an attempt ended which says nothing about the cause."""
        if self.probe == id:
            self.probe = None

    def allows_start(self) -> bool:
        """Return True if an attempt may start: the breaker is closed, or a probe may start."""
        return not self.is_open or (self.probe is None and self._clock() >= self.probe_at)


class Outages:
    """The breakers of a run. Tasks with a model or a server of their own have a breaker of their
    own for it; `server` names the one of a task."""

    def __init__(self, rules: OutageRules, clock: Callable[[], float]) -> None:
        self._rules, self._clock = rules, clock
        self._breakers: dict[tuple[str, str], Breaker] = {}

    def breaker(self, cause: str, server: str) -> Breaker:
        """Return the breaker of a cause."""
        key = cause, server if cause == SERVER else ""
        if key not in self._breakers:
            self._breakers[key] = Breaker(cause, self._rules, self._clock)
        return self._breakers[key]

    def needed(self, server: str) -> Iterator[Breaker]:
        """Yield the breakers of all that an attempt needs."""
        for cause in (SERVER, EXECUTOR, DISK):
            yield self.breaker(cause, server)

    @property
    def open(self) -> list[Breaker]:
        """The breakers that are open."""
        return [breaker for breaker in [*self._breakers.values()] if breaker.is_open]

    def allow_start(self, server: str) -> bool:
        """Return True if an attempt may start."""
        return all(breaker.allows_start() for breaker in self.needed(server))

    def begin_probe(self, id: str, server: str) -> list[str]:
        """Make an attempt that starts the probe of the breakers that are open; return their
        causes."""
        found = [breaker for breaker in self.needed(server) if breaker.is_open]
        for breaker in found:
            breaker.probe = id
        return [breaker.cause for breaker in found]

    @property
    def seconds_left(self) -> float | None:
        """How long no probe may start; None while no breaker waits for that."""
        waiting = [breaker.probe_at for breaker in self.open if breaker.probe is None]
        return max(0.0, min(waiting) - self._clock()) if waiting else None
