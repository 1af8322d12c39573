"""What the agent waits for, in one line: it stands as long as something runs, so that nothing moves
when one wait follows another. What streams and then stops says so after a moment."""

from collections.abc import Callable

SILENT = 2.0  # seconds without a sign of the model, in mid-stream, that are worth a word


class Waits:
    """`clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._what = ""
        self._more = ""
        self._why = ""  # may be long: it stands last, where a line is cut
        self._since = self._heard = clock()
        self._streams = False
        self._again_at: float | None = None

    def enter(self, what: str, more: str = "", *, streams: bool = False) -> None:
        """From now on it is `what`, "" for nothing; `more` may change while it is the same. With
        `streams` each call is a sign of the model."""
        what = " ".join(what.split())  # the model, or its server, may have put a line break there
        self._heard = self._clock()
        if what != self._what or self._again_at is not None:
            self._since = self._heard
        self._what, self._more, self._streams, self._again_at = what, more, streams, None
        self._why = ""

    def again(self, what: str, why: str, seconds: float) -> None:
        """An attempt failed, and why; the next begins in so many seconds."""
        self.enter(what)
        self._why = " ".join(why.split())
        self._again_at = self._clock() + seconds

    def line(self) -> str:
        """What is waited for, and for how long; "" for nothing."""
        if not self._what:
            return ""
        now = self._clock()
        what, since = self._what + self._more, now - self._since
        if self._streams and now - self._heard >= SILENT:
            what, since = "the model is silent", now - self._heard
        if self._again_at is not None and self._again_at > now:
            return f"again in {self._again_at - now:.0f} s · esc to stop · {what}: {self._why}"
        parts = [what, f"{since:.0f} s" if since >= 1 else "", "esc to stop", self._why]
        return " · ".join(filter(None, parts))
