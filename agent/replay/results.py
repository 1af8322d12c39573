"""The results of playing a recording under a setting: plain values for tables, pages and JSON.

Tokens are estimated (`context.tokens`), dollars follow the prices of the model that is played for.
"""

from dataclasses import fields
from typing import Literal

from ..lazy import dataclass
from .lost_facts import LostFact

NeedKind = Literal["asked again", "used"]


@dataclass(frozen=True, slots=True)
class PricedCall:
    """One call of the model."""

    number: int
    purpose: str  # "turn", or "summary" for a call that writes a summary
    read: int  # tokens of the prompt that came from the cache
    written: int  # tokens that went into it
    plain: int  # tokens that did neither
    output: int
    dollars: float
    at: float | None = None  # seconds since 1970, where the recording has times
    cold: bool = False  # the cache had expired by then

    @property
    def prompt(self) -> int:
        return self.read + self.written + self.plain


@dataclass(frozen=True, slots=True)
class ReplayAct:
    """One act of compaction."""

    number: int  # of the call that follows
    layer: str
    trigger: str
    count: int  # results or inputs that it took; entries, for a summary
    before: int  # tokens of the context
    after: int


@dataclass(frozen=True, slots=True)
class Need:
    """A call that shows that a result which had left the context was needed: it asks for the same
    again, or uses text that stood only there."""

    number: int  # of the call
    how: NeedKind
    what: str
    ref: int  # the entry of the result
    tokens: int  # of the result
    dollars: float  # for asking again: as recorded where it was, else for one call more


@dataclass(frozen=True, slots=True)
class Fill:
    """The contents of the window at call `number`: tokens by kind, in the order of
    `compaction.breakdown.KINDS`."""

    number: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Share:
    """A number of things out of a whole."""

    part: int = 0
    whole: int = 0

    @property
    def value(self) -> float | None:
        """The share from 0 to 1; None of nothing."""
        return self.part / self.whole if self.whole else None

    def __add__(self, other: "Share") -> "Share":
        return Share(self.part + other.part, self.whole + other.whole)


@dataclass(frozen=True, slots=True)
class DroppedThinking:
    """What edits dropped of thinking that is bound to what stands before it, and what that is worth
    at most. Not among the dollars."""

    told: Share = Share()  # of all replies, those whose thinking is known
    tokens: int = 0  # of all that thinking
    dropped: int = 0  # tokens of it that an edit dropped while its reply stayed
    saved_usd: float = 0.0  # for not reading it again since
    again_usd: float = 0.0  # for thinking all of it again

    def __add__(self, other: "DroppedThinking") -> "DroppedThinking":
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        return DroppedThinking(*sums)


@dataclass(frozen=True, slots=True)
class Sums:
    """The figures of one run or of several together."""

    calls: int = 0
    peak: int = 0  # tokens of the largest prompt
    sent: int = 0  # tokens of all prompts: `read`, `written` and `plain`
    read: int = 0
    written: int = 0
    plain: int = 0
    output: int = 0
    dollars: float = 0.0  # includes missed_usd
    edits: int = 0  # of history: times that results or inputs were replaced by stubs
    stubs: int = 0  # results and inputs that were replaced
    summaries: int = 0
    missed: int = 0  # results and inputs that were needed after they had left the context
    missed_usd: float = 0.0
    lost: int = 0  # facts that were written after they had left the context
    stopped: int = 0  # sessions that were not played to their end
    paths: Share = Share()  # of the session's paths, those that the last context still has
    errors: Share = Share()  # the same for its error lines
    recovered: Share = Share()  # of all results, those whose ref gives the same bytes
    thinking: DroppedThinking = DroppedThinking()

    @property
    def mean(self) -> float:
        """The mean tokens of a prompt."""
        return self.sent / self.calls if self.calls else 0.0

    @property
    def cached(self) -> float | None:
        """The share of all prompts that was read from the cache."""
        return Share(self.read, self.sent).value

    @property
    def missed_share(self) -> float:
        """The share of all results that was missed."""
        return self.missed / max(1, self.recovered.whole)

    def __add__(self, other: "Sums") -> "Sums":
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Sums(**sums | {"peak": max(self.peak, other.peak)})


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """One recording, played under one setting."""

    name: str
    format: str
    label: str  # of the setting, as the person gave it
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
    thinking: DroppedThinking = DroppedThinking()
    peak_then: int | None = None  # the largest true prompt in the recording, where it has any
    stopped: str = ""  # why the session could not go on; "" when it was played to its end

    @property
    def sums(self) -> Sums:
        masks = [act for act in self.acts if act.layer != "summary"]
        extra = sum(need.dollars for need in self.needs if need.how == "used")
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
            paths=self.paths,
            errors=self.errors,
            recovered=self.recovered,
            thinking=self.thinking,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every recording, played under every setting."""

    labels: tuple[str, ...]  # as asked for; the others are compared with the first
    runs: tuple[tuple[ReplayRun, ...], ...]  # by recording, then by label

    def total(self, label: str) -> Sums:
        """Return the sums over all recordings under one setting."""
        runs = (run for row in self.runs for run in row if run.label == label)
        return sum((run.sums for run in runs), Sums())
