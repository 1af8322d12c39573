"""The results of playing a recording under one setting, as plain values for tables, pages and JSON.

Tokens are estimates (`context.tokens`); dollars follow the prices of the model used for the replay.
"""

from dataclasses import fields
from typing import Literal

from ...api.base import dataclass
from .lost_facts import LostFact

NeedKind = Literal["asked again", "used"]


@dataclass(frozen=True, slots=True)
class PricedCall:
    """One call of the model, with its tokens and price."""

    number: int
    purpose: str  # "turn", or "summary" for a call that writes a summary
    read: int  # prompt tokens read from the cache
    written: int  # prompt tokens written to the cache
    plain: int  # the other prompt tokens
    output: int
    dollars: float
    at: float | None = None  # seconds since 1970, if recorded
    cold: bool = False  # the cache had expired

    @property
    def prompt(self) -> int:
        return self.read + self.written + self.plain


@dataclass(frozen=True, slots=True)
class ReplayAct:
    """One compaction."""

    number: int  # of the call that follows
    layer: str
    trigger: str
    count: int  # results or inputs removed; for a summary, entries
    before: int  # tokens of the context
    after: int


@dataclass(frozen=True, slots=True)
class Need:
    """A call that needed a result after it had left the context: the call requests the result again
    or uses text that only the result contained.
    """

    number: int  # of the call
    how: NeedKind
    what: str
    ref: int  # the entry of the result
    tokens: int  # of the result
    dollars: float  # cost of getting it again: of the recorded call, or of one extra call


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of the user between two calls."""

    number: int  # of the call after it
    seconds: float  # since the newest call
    was_away: bool  # the cache had expired
    summarized: bool  # because of `compact.while_away`
    before: int  # tokens of the context when the user returned
    after: int  # tokens of the call's context


@dataclass(frozen=True, slots=True)
class Fill:
    """The contents of the window at call `number`: tokens by kind, in the order of
    `compaction.breakdown.KINDS`.
    """

    number: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, as two counts."""

    part: int = 0
    whole: int = 0

    @property
    def value(self) -> float | None:
        """The share from 0 to 1; None if the whole is 0."""
        return self.part / self.whole if self.whole else None

    def __add__(self, other: "Share") -> "Share":
        return Share(self.part + other.part, self.whole + other.whole)


@dataclass(frozen=True, slots=True)
class DroppedThinking:
    """Thinking bound to the preceding context that edits dropped, and the maximum value of it. The
    amounts are not part of a run's dollars.
    """

    told: Share = Share()  # replies with known thinking, of all replies
    tokens: int = 0  # all known thinking
    dropped: int = 0  # thinking tokens dropped by an edit while the reply stayed
    saved_usd: float = 0.0  # saved by not reading the dropped thinking again
    again_usd: float = 0.0  # cost of repeating all dropped thinking

    def __add__(self, other: "DroppedThinking") -> "DroppedThinking":
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        return DroppedThinking(*sums)


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of one run or of several."""

    calls: int = 0
    peak: int = 0  # tokens of the largest prompt
    sent: int = 0  # tokens of all prompts: `read`, `written` and `plain`
    read: int = 0
    written: int = 0
    plain: int = 0
    output: int = 0
    dollars: float = 0.0  # includes missed_usd
    edits: int = 0  # times that results or inputs in the history were replaced by stubs
    stubs: int = 0  # results and inputs that were replaced
    summaries: int = 0
    missed: int = 0  # results and inputs that were needed after they had left the context
    missed_usd: float = 0.0
    lost: int = 0  # facts written by a reply after they had left the context
    stopped: int = 0  # sessions that were not played to their end
    pauses: int = 0  # of the user
    pauses_away: int = 0  # that outlasted the cache
    pauses_used: int = 0  # after which a summary was made
    pauses_usd: float = 0.0  # of the first calls after the pauses that outlasted the cache
    paths: Share = Share()  # the session's paths that the last context still contains
    errors: Share = Share()  # the session's error lines that the last context still contains
    recovered: Share = Share()  # results that Recall returns byte for byte, of all results
    explored: Share = Share()  # files of subagents that the parent read again, of all
    thinking: DroppedThinking = DroppedThinking()

    @property
    def mean(self) -> float:
        """The mean number of tokens in a prompt."""
        return self.sent / self.calls if self.calls else 0.0

    @property
    def cached(self) -> float | None:
        """The share of all prompt tokens read from the cache."""
        return Share(self.read, self.sent).value

    @property
    def missed_share(self) -> float:
        """The share of all results that were needed after they had left the context."""
        return self.missed / max(1, self.recovered.whole)

    def __add__(self, other: "Sums") -> "Sums":
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Sums(**sums | {"peak": max(self.peak, other.peak)})


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """One recording played under one setting."""

    name: str
    format: str
    label: str  # the setting, as the user wrote it
    model: str
    window: int
    priced: tuple[PricedCall, ...]
    acts: tuple[ReplayAct, ...]
    needs: tuple[Need, ...]
    fills: tuple[Fill, ...]
    paths: Share
    errors: Share
    recovered: Share
    lost: tuple[LostFact, ...] = ()
    explored: Share = Share()
    pauses: tuple[Pause, ...] = ()
    thinking: DroppedThinking = DroppedThinking()
    peak_then: int | None = None  # tokens of the largest prompt in the recording, if recorded
    stopped: str = ""  # why the replay stopped early; "" if it was played to the end

    @property
    def sums(self) -> Sums:
        masks = [act for act in self.acts if act.layer != "summary"]
        extra = sum(need.dollars for need in self.needs if need.how == "used")
        returns = {pause.number for pause in self.pauses if pause.was_away}
        return Sums(
            calls=len(self.priced),
            peak=max((call.prompt for call in self.priced), default=0),
            sent=sum(call.prompt for call in self.priced),
            read=sum(call.read for call in self.priced),
            written=sum(call.written for call in self.priced),
            plain=sum(call.plain for call in self.priced),
            output=sum(call.output for call in self.priced),
            dollars=sum(call.dollars for call in self.priced) + extra,
            edits=len(masks),
            stubs=sum(act.count for act in masks),
            summaries=len(self.acts) - len(masks),
            missed=len(self.needs),
            missed_usd=sum(need.dollars for need in self.needs),
            lost=len(self.lost),
            stopped=int(bool(self.stopped)),
            pauses=len(self.pauses),
            pauses_away=len(returns),
            pauses_used=sum(pause.summarized for pause in self.pauses),
            pauses_usd=sum(call.dollars for call in self.priced if call.number in returns),
            paths=self.paths,
            errors=self.errors,
            recovered=self.recovered,
            explored=self.explored,
            thinking=self.thinking,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """All recordings, each played under every setting."""

    labels: tuple[str, ...]  # in the requested order; all are compared with the first
    runs: tuple[tuple[ReplayRun, ...], ...]  # by recording, then by label

    def total(self, label: str) -> Sums:
        """Return the sums over all recordings under one setting."""
        runs = (run for row in self.runs for run in row if run.label == label)
        return sum((run.sums for run in runs), Sums())
